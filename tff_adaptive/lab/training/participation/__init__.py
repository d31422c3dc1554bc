"""Participation: sampling, availability and simulated speed of clients."""
