"""Many runs: grids, searches and the processes that run them."""

from tff_adaptive import tasks_package as tasks_package
