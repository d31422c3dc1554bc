"""A client's round: its steps, passes and what it reports."""
