"""Execution contexts on a Ray cluster, and the actors that train clients."""
