"""Errors in a task's data, addressed to users.

They are not in `tff_adaptive.errors`, because readers do not depend on the
program: code that loads data itself catches a `ValueError`, and a run converts
it to a `SettingsError`.
"""


class DataError(ValueError):
  """Raised if a data file is missing or not what the task expects.

  The message names the file, what was expected there and how to get it.
  """


class PartitionError(ValueError):
  """Raised if the examples cannot be partitioned as requested."""
