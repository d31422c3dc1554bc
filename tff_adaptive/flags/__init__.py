"""From words on a command line to checked settings."""

from tff_adaptive import tasks_package as tasks_package
