"""Batches of a round's clients, read in this process or where they train."""
