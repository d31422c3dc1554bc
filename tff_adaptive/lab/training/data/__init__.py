"""The batches of a round's clients, wherever they are read."""
