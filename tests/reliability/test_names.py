"""Names that come from files or flags cannot leave their folder."""

import pathlib

import numpy as np

from tff_adaptive.lab.recording import client_states

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_AWAY = ('../a', '/tmp/a', 'a/../../b', '..', '.', '', 'a/b', 'a\\b', 'a\0b')


def test_ids_of_clients_make_no_files(tmp_path):
  state = np.float32([1, 2])
  states = client_states.ClientStates(
    state, tmp_path / 'inside' / 'states.sqlite'
  )
  states.keep(_AWAY, [state] * len(_AWAY))
  states.save()
  assert [p.name for p in tmp_path.iterdir()] == ['inside']
  assert [p.name for p in (tmp_path / 'inside').iterdir()] == ['states.sqlite']


# Programs in the disguise of data.
_FORBIDDEN = (
  *('import pickle', 'import shelve', 'import marshal', 'import dill'),
  *('allow_pickle=True', 'yaml.load', 'os.system', 'shell=True'),
  *('extractall', '.load_model('),
)


def test_nothing_that_is_received_is_run():
  sources = [
    path
    for folder in ('tff_adaptive', 'tasks')
    for path in (_ROOT / folder).rglob('*.py')
  ]
  assert len(sources) > 100
  found = [
    f'{path.relative_to(_ROOT)}: {word}'
    for path in sources
    for word in _FORBIDDEN
    if word in path.read_text(encoding='utf-8')
  ]
  assert not found
