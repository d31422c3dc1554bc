"""Shared networks, layers, losses and metrics, independent of tasks."""
