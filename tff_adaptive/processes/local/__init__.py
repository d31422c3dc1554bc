"""A client's round: local steps, extra passes over the data, and reports."""
