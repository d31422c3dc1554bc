"""Flags and flag files of any kind: understood, or refused in a sentence."""

import pytest
from hypothesis import strategies

from tests.reliability import mutations
from tff_adaptive import errors
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.flags import settings as settings_lib

_COUNTS = [
  8,
  pytest.param(60, marks=pytest.mark.exhaustive),
  pytest.param(10_000, marks=pytest.mark.slow),
]
_VALUES = (
  *('', '0', '1', '-1', '0.5', '1e999', 'nan', 'inf', '-inf', '1_0', '٣', '²'),
  *('9' * 5000, '0x10', ' 1', '1 ', 'true', 'false', 'None', '[]', '../..'),
  *('digits', 'quadratic', 'scaffold', 'fedadam', 'adam', 'sgd', 'delta_sgd'),
  *('a\0b', 'a/b', '.', '\ud800', 'é', 'reddi2021/digits/x', '--seed=1'),
)
_FILE = b"""# A comment.
--task=quadratic
--algorithm=fedadam
--client_learning_rate=0.1
--total_rounds=20
--seed=3
--experiment_name=a
"""


@pytest.fixture(name='table', scope='module')
def table_fixture():
  return flags.Flags()


def _check(table, arguments):
  try:
    parsed = table.parse(arguments)
  except errors.SettingsError as e:
    assert str(e) and len(str(e).splitlines()) == 1
    return False
  assert isinstance(parsed.settings, settings_lib.Settings)
  # What is accepted can be run: it has a folder of its own.
  folder = parsed.settings.folder
  assert folder.parent == type(folder)(parsed.settings.root_output_dir)
  assert folder.name not in ('', '.', '..')
  return True


@pytest.mark.parametrize('count', _COUNTS)
def test_any_flags(table, count):
  names = strategies.sampled_from(sorted(table.values))
  values = strategies.one_of(
    strategies.sampled_from(_VALUES),
    strategies.text(max_size=8),
    strategies.floats().map(str),
    strategies.integers().map(str),
  )
  flag = strategies.one_of(
    strategies.tuples(names, values).map(lambda nv: f'--{nv[0]}={nv[1]}'),
    names.map(lambda name: f'--{name}'),
    names.map(lambda name: f'--no{name}'),
    strategies.text(max_size=12),
  )
  if count < 1000:
    mutations.try_many(
      lambda arguments: _check(table, arguments),
      strategies.lists(flag, max_size=5),
      count,
    )
    return
  known = sorted(table.values)

  def draw(rng):
    return [
      f'--{rng.choice(known)}={rng.choice(_VALUES)}'
      for _ in range(rng.randrange(1, 6))
    ]

  mutations.try_seeds(lambda arguments: _check(table, arguments), draw, count)


@pytest.mark.parametrize('count', _COUNTS)
def test_any_flag_file(table, tmp_path, count):
  path = tmp_path / 'a.flags'
  path.write_bytes(_FILE)
  assert _check(table, [f'--flagfile={path}'])
  accepted = 0

  def check(changes):
    nonlocal accepted
    path.write_bytes(mutations.apply(_FILE, changes))
    accepted += _check(table, [f'--flagfile={path}'])

  if count < 1000:
    mutations.try_many(check, mutations.edits, count)
  else:
    mutations.try_seeds(check, mutations.draw_edits, count)
  assert 0 < accepted < count


def test_flag_file_that_names_itself(table, tmp_path):
  path = tmp_path / 'a.flags'
  path.write_text(f'--flagfile={path}\n--seed=2\n')
  with mutations.no_hang():
    _check(table, [f'--flagfile={path}'])
  _check(table, [f'--flagfile={tmp_path / "none"}'])
  _check(table, [f'--flagfile={tmp_path}'])


def test_names_cannot_break_a_line_of_the_complaint(table):
  with pytest.raises(errors.SettingsError, match=r'--t\\u2028l\\n\\ud800'):
    table.parse(['--t\u2028l\n\ud800=3'])
