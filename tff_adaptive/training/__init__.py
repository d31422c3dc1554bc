"""One run: cohorts, data, rounds, evaluation, stopping, resume."""
