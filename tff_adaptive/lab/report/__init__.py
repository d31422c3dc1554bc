"""Reading, scoring and showing finished runs."""
