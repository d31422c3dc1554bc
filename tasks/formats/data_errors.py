"""Errors in a task's data, told to the person who gave it."""


class DataError(ValueError):
  """A data file is missing or is not what the task expects.

  The message names the file, what was expected there and how to get it.
  """


class PartitionError(ValueError):
  """A partition over clients was asked for that the examples cannot satisfy."""
