"""Figures of a single run."""
