"""Flags of the command line, and the checked settings made of them."""

from tff_adaptive import tasks_package as tasks_package
