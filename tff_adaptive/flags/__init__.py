"""Flags: words on a command line, made checked settings."""

from tff_adaptive import tasks_package as tasks_package
