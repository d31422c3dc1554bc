"""Evaluation: held-out data, the evaluator, and tests on single clients."""
