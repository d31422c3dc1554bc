"""What can go wrong with a run through no fault of the program."""


class RunError(Exception):
  """A run cannot start or go on; the message is one sentence for its user."""


class SettingsError(RunError):
  """The flags, or a value of one, are not accepted."""
