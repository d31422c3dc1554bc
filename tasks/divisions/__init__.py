"""Ways to divide one pool of examples over clients, each by a name.

`splits` knows them by name; they are pure NumPy, and each a function of its
arguments and a seed. `tasks.partition` has what they return, and the rules that
give out examples at random or by Dirichlet and Pachinko label skew.
"""
