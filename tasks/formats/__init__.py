"""Readers of data and weight files, independent of tasks.

Each validates its input and raises a `data_files.DataError` that names the
file.
"""
