"""The commands of the command line."""

from tff_adaptive import tasks_package as tasks_package
