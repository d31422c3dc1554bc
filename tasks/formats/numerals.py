"""Whole numbers in text files."""

import re


def is_whole(text: str) -> bool:
  """Tells whether a text is a whole number that an int64 holds, from 0.

  `str.isdigit` also takes superscripts, which `int` does not, and numbers of
  any length, which `int` refuses from 4,300 digits on.
  """
  return re.fullmatch(r'[0-9]{1,18}', text) is not None
