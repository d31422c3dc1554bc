"""The laboratory: everything from a command line to a figure.

It stands on the library (`optimizers`, `processes`, `algorithms`, `privacy`)
and on `runtime`, neither of which knows of it.
"""
