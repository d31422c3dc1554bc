"""TFF's own worker, a process beside this one, and the contexts on it."""
