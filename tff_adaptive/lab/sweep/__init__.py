"""Many runs: grids, searches and the processes that run them."""
