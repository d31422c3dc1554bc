"""The report as one interactive page."""
