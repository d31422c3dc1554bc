"""A run: sampling, data, the loop, its outputs, checkpoints and resume.

Importing this package imports neither TensorFlow nor TensorFlow Federated.
`flags` and `settings` never need them; `train.run` imports them when called.
"""
