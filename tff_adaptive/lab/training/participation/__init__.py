"""Which clients take part in a round, and how long each takes."""
