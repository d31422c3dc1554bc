"""How fast clients are and who drops out: what is drawn, what a file says."""

import math
import statistics

import numpy as np
import pytest

import main
import tasks
from tests import helpers
from tff_adaptive import errors
from tff_adaptive.lab.flags import parsing
from tff_adaptive.lab.training.participation import behaviour as behaviours


def test_speeds_and_dropouts_are_drawn_as_is_said():
  clients = [f'client {i}' for i in range(4000)]
  behaviour = behaviours.Behaviour(
    seed=5, seconds_per_example=2.0, spread=0.5, jitter=0.25, dropout=0.3
  )
  speeds = [behaviour.pace(c) for c in clients]
  assert statistics.mean(speeds) == pytest.approx(2.0, rel=0.03)
  logs = [math.log(s) for s in speeds]
  assert statistics.stdev(logs) == pytest.approx(0.5, rel=0.03)
  drawn = [
    math.log(behaviour.seconds(c, 3, 10) / (10 * s))
    for c, s in zip(clients, speeds, strict=True)
  ]
  assert statistics.stdev(drawn) == pytest.approx(0.25, rel=0.04)
  gone = [[behaviour.drops_out(c, n) for c in clients] for n in (1, 2)]
  assert statistics.mean(gone[0]) == pytest.approx(0.3, abs=0.02)
  # A client that is slow once is so again; whether it drops out is not.
  both = statistics.mean(a and b for a, b in zip(*gone, strict=True))
  assert both == pytest.approx(0.09, abs=0.02)
  assert np.corrcoef(logs, drawn)[0, 1] == pytest.approx(0, abs=0.05)
  # The same on every machine: computed once, elsewhere.
  assert speeds[:3] == [1.67075783, 1.89986639, 2.18205449]
  assert speeds[:3] != [
    behaviours.Behaviour(seed=6, seconds_per_example=2.0, spread=0.5).pace(c)
    for c in clients[:3]
  ]


@pytest.mark.parametrize(
  'lines, words',
  [
    (['client_0000,0,0'], r'line 2: seconds_per_example .* above 0 .* got .0.'),
    (['{},1,0', '{},nan,0'], "line 3: seconds_per_example .* got 'nan'"),
    (['{},1,1.5'], r"line 2: dropout .* from 0 to 1, got '1.5'"),
    (['{},1,often'], "line 2: dropout .* got 'often'"),
    (['{},1'], 'line 2: expected 3 cells'),
    (['{},1,0,4'], 'line 2: expected 3 cells'),
    (['nobody,1,0'], "line 2: the task has no training client 'nobody'"),
    (['{},1,0', '{},1,0'], 'line 3: the client .* twice'),
    (['{},1,0'], 'has no seconds_per_example of 19 clients, such as'),
    (['"{},1,0'], 'cannot be read as a CSV file'),
  ],
)
def test_files_that_are_refused(tmp_path, lines, words):
  ids = tasks.create('digits').datasets.train_data.client_ids
  names = iter([ids[0], ids[0] if 'twice' in words else ids[1]])
  if 'twice' not in words:
    names = iter(ids)
  lines = [
    line.format(next(names))
    if '{}' in line
    else line.replace('client_0000', ids[0])
    for line in lines
  ]
  flag = helpers.behaviour_file(tmp_path / 'clients.csv', *lines)
  settings = parsing.Flags().parse([flag, '--validation_split=test']).settings
  with pytest.raises(errors.SettingsError, match=words) as raised:
    behaviours.behaviour_of(settings, ids)
  assert 'clients.csv' in str(raised.value)


@pytest.mark.parametrize(
  'text, words',
  [
    ('', 'must have the columns client, .* got none'),
    ('client\n', 'must have the columns'),
    ('client,speed\n', 'got client, speed'),
    ('dropout,seconds_per_example\n', 'has no column client'),
    ('client,dropout,dropout\n', 'must have the columns'),
  ],
)
def test_files_with_other_columns(tmp_path, text, words):
  path = tmp_path / 'clients.csv'
  path.write_text(text)
  with pytest.raises(errors.SettingsError, match=words):
    behaviours.read_behaviour(path, ['a'])


def test_bad_files_end_the_program_with_code_2(tmp_path, capsys):
  arguments = ['--total_rounds=1', f'--root_output_dir={tmp_path / "runs"}']
  path = tmp_path / 'no' / 'such.csv'
  for more in ([], ['--dry_run']):
    code = main.main([*arguments, f'--client_behaviour={path}', *more])
    assert code == 2
    told = capsys.readouterr().err
    assert f'--client_behaviour={path} cannot be read' in told
    assert 'Traceback' not in told
  flag = helpers.behaviour_file(tmp_path / 'a.csv', 'nobody,1,0')
  assert main.main([*arguments, flag]) == 2
  assert 'line 2' in capsys.readouterr().err
  assert not (tmp_path / 'runs').exists()
