"""The training loop and its parts: rounds, stopping rules, timing."""
