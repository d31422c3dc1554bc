"""What tasks there are, without TensorFlow."""

import pathlib

import pytest

import tasks
from tff_adaptive import parameters

_ROOT = pathlib.Path(tasks.__file__).resolve().parents[1]
_COMMON = {'cache_dir', 'data', 'epochs', 'batch_size', 'max_elements', 'seed'}


@pytest.mark.parametrize('name', tasks.names())
def test_every_task_takes_the_common_options(name):
  accepted = tasks.parameters_of(name)
  assert {*accepted} >= _COMMON
  assert accepted['data'].choices == ('native', 'synthetic')
  assert accepted['data'].default == 'native'
  undocumented = [p.name for p in accepted.values() if not p.help]
  assert not undocumented
  assert not any(p.required for p in accepted.values())


@pytest.mark.parametrize('name', tasks.names())
def test_every_task_is_described(name):
  info = tasks.info(name)
  assert info.name == name
  assert info.summary.endswith('.') and '\n' not in info.summary
  assert info.model and info.clients
  assert not any(pathlib.PurePath(f).is_absolute() for f in info.files)


@pytest.mark.parametrize('name', tasks.names())
def test_every_task_is_in_the_documentation(name):
  text = (_ROOT / 'docs' / 'tasks.md').read_text(encoding='utf-8')
  (row,) = [r for r in text.splitlines() if r.startswith(f'| `{name}` | ')][:1]
  info = tasks.info(name)
  weights = info.model.rsplit(', ', 1)[-1].removesuffix(' weights')
  assert weights.split()[0] in row
  for file in info.files[:1]:
    first = file.partition(' or ')[0]
    assert first.split('/', maxsplit=1)[0] in row


def test_an_unknown_name_lists_the_tasks():
  for function in (tasks.info, tasks.parameters_of, tasks.create):
    with pytest.raises(ValueError, match=r"digits.*got 'digitz'"):
      function('digitz')


@pytest.mark.parametrize(
  'option, value',
  [
    ('epochs', 0),
    ('batch_size', 0),
    ('max_elements', -1),
    ('seed', -1),
    ('data', 'reel'),
    ('alpha', 0),
  ],
)
def test_values_out_of_range_are_refused(option, value):
  with pytest.raises(parameters.ParameterError, match=option):
    tasks.create('digits', **{option: value})
