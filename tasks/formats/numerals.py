"""Integers in text files."""

import re


def is_whole(text: str) -> bool:
  """Returns whether a text is a non-negative integer within int64.

  `str.isdigit` also accepts superscripts, which `int` does not, and numbers of
  any length, which `int` rejects from 4,300 digits on.
  """
  return re.fullmatch(r'[0-9]{1,18}', text) is not None
