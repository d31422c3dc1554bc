"""Reading, scoring and reporting of finished runs."""
