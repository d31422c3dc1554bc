"""The pictures of the results pages are those of the CSV files beside them."""

import pathlib
import re

import numpy as np
import pytest
from PIL import Image

from benchmarks import redraw

_FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'results'


@pytest.fixture(name='drawn', scope='module')
def drawn_fixture(tmp_path_factory):
  """A folder with all pictures, drawn just now."""
  folder = tmp_path_factory.mktemp('pictures')
  redraw.redraw(folder)
  return folder


def pictures(folder):
  return {p.relative_to(folder).as_posix() for p in folder.rglob('*.png')}


@pytest.mark.exhaustive
def test_every_picture_can_be_drawn_from_a_table(drawn):
  assert pictures(drawn) == pictures(_FOLDER)


def test_pages_show_every_picture():
  shown = {
    f'{page.parent.name}/{name}'
    for page in _FOLDER.glob('*/README.md')
    for name in re.findall(
      r'!\[[^\]]+\]\(([^)]+)\)', page.read_text(encoding='utf-8')
    )
  }
  assert shown == pictures(_FOLDER)


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', sorted(pictures(_FOLDER)))
def test_pictures_are_up_to_date(drawn, name):
  kept, new = (np.asarray(Image.open(f / name)) / 255 for f in (_FOLDER, drawn))
  assert kept.shape == new.shape
  # Another version of a library may smooth letters in another way.
  assert np.abs(kept - new).mean() < 0.004
