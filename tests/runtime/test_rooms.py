"""Imports go one way through the runtime's rooms."""

import ast
import pathlib

import pytest

_PACKAGE = pathlib.Path(__file__).resolve().parents[2] / 'tff_adaptive'
_RUNTIME = _PACKAGE / 'runtime'
_FILES = sorted(_RUNTIME.rglob('*.py'))
# What a room may import of the runtime's, besides the files at its top.
_MAY_USE = {
  'graphs': {'graphs'},
  'engine': {'graphs', 'engine'},
  'cluster': {'engine', 'cluster'},
}


def imported(path):
  """The full names of what a file imports, anywhere in it."""
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield from (f'{node.module}.{alias.name}' for alias in node.names)


def test_every_room_is_known():
  assert {p.name for p in _RUNTIME.iterdir() if p.is_dir()} - {
    '__pycache__'
  } == set(_MAY_USE)


@pytest.mark.parametrize(
  'path', _FILES, ids=lambda p: p.relative_to(_RUNTIME).as_posix()
)
def test_imports_go_one_way(path):
  room = path.relative_to(_RUNTIME).parts[0]
  for name in imported(path):
    parts = name.split('.')
    if parts[0] == 'tff_adaptive':
      # The forms of client computations are declared and vectorized outside.
      assert parts[1] in ('runtime', 'cohorts', 'vectorizing'), name
      if parts[1] == 'runtime' and room in _MAY_USE and parts[2] in _MAY_USE:
        assert parts[2] in _MAY_USE[room], name
    elif path.name not in (
      'tff_names.py',
      'tff_datasets.py',
      'tff_functions.py',
    ):
      # Beyond the public API, which is the packages themselves.
      assert parts[0] not in ('tensorflow', 'tensorflow_federated') or (
        len(parts) == 1
      ), name
