"""Readers of the files that data and weights come in; they know no task.

Each checks what it reads and raises a `data_errors.DataError` that names the
file. What a file's content means to a task is the task's own business.
"""
