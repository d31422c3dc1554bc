"""Evaluation: held-out data, the evaluator, and per-client tests."""
