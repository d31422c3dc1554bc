"""What Vega-Lite specifications and the SVG drawn of them contain."""

import json
import re
from xml.etree import ElementTree

from tff_adaptive import drawing

_SVG = '{http://www.w3.org/2000/svg}'


def walk(part):
  """Every object within a specification."""
  if isinstance(part, dict):
    yield part
    part = list(part.values())
  if isinstance(part, list):
    for value in part:
      yield from walk(value)


def tables(specification):
  """The rows of each of its tables, in their order."""
  return [json.loads(text) for text in specification['datasets'].values()]


def points(specification):
  """The rows of its points or cells; legends have neither."""
  return [
    row
    for table in tables(specification)
    for row in table
    if 'run' in row or 'value' in row
  ]


def marks(specification):
  """The kinds of marks."""
  found = [part['mark'] for part in walk(specification) if 'mark' in part]
  return {mark if isinstance(mark, str) else mark['type'] for mark in found}


class svg:
  """A picture as SVG.

  Attributes:
    width: In pixels.
    height: In pixels.
    root: The element.
  """

  def __init__(self, specification):
    self.root = ElementTree.fromstring(drawing.image(specification, 'svg'))
    self.width, self.height = (
      float(self.root.get(side)) for side in ('width', 'height')
    )

  def texts(self):
    """The place of each text; lines of one label are joined."""
    found = {}

    def visit(element, x, y):
      for move in re.findall(
        r'translate\(([-\d.e]+),\s*([-\d.e]+)\)', element.get('transform', '')
      ):
        x, y = x + float(move[0]), y + float(move[1])
      if element.tag == f'{_SVG}text':
        found.setdefault(' '.join(element.itertext()), (x, y))
      for child in element:
        visit(child, x, y)

    visit(self.root, 0.0, 0.0)
    return found
