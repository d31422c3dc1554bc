"""An extension of Griffe: docstrings' indented blocks are code on the site."""

import re

import griffe

_SECTION = re.compile(r'\n(?=(?:Args|Attributes|Returns|Yields|Raises):\n)')


class IndentedBlocks(griffe.Extension):
  """Indents blocks by four spaces in place of two, so that they are code."""

  def on_object(self, *, obj, **kwargs):
    del kwargs
    if obj.docstring:
      text, *sections = _SECTION.split(obj.docstring.value)
      text = re.sub(r'^(?=  \S| {3,})', '  ', text, flags=re.MULTILINE)
      obj.docstring.value = '\n'.join([text, *sections])
