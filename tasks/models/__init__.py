"""Networks, layers, losses and metrics that tasks share; they know no task."""
