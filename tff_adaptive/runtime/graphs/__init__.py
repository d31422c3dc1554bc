"""TensorFlow graphs of TFF computations, made fit to run in one process."""
