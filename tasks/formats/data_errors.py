"""Errors in a task's data, told to the person who gave it.

They are not among `tff_adaptive.errors`, because readers of formats know
nothing of the program that they serve: whoever loads data on their own catches
a `ValueError`, and a run makes a `SettingsError` of it.
"""


class DataError(ValueError):
  """A data file is missing or is not what the task expects.

  The message names the file, what was expected there and how to get it.
  """


class PartitionError(ValueError):
  """A partition over clients was asked for that the examples cannot satisfy."""
