"""The laboratory: everything from a command line to a figure.

It stands on the library (`optimizers`, `processes`, `algorithms`, `privacy`)
and on `runtime`, neither of which knows of it.
"""

from tff_adaptive import tasks_package as tasks_package
