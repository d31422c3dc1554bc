"""Rules that partition a pool of examples over clients.

`splits` selects them by name. They are pure NumPy, each a function of its
arguments and a seed, and return a `tasks.partition.Partition`. That module has
the i.i.d. rule, and Dirichlet and Pachinko label skew.
"""
