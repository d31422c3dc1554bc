"""Reading, scoring and showing finished runs."""

from tff_adaptive import tasks_package as tasks_package
