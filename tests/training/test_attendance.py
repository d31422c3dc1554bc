"""Clients that can be drawn by the hour, or in blocks by turns."""

import pytest

import main
from tests.training import test_availability as runs
from tff_adaptive import errors
from tff_adaptive.lab.training.participation import attendance
from tff_adaptive.lab.training.participation import cohorts

CLIENTS = ['a', 'b', 'c', 'd']


def settings_of(tmp_path, text, *flags):
  path = tmp_path / 'when.csv'
  path.write_text(text)
  return runs.settings_of(
    tmp_path, f'--client_availability={path}', *flags, '--clients_per_round=2'
  )


def there(found, number):
  return ''.join(CLIENTS[place] for place in found.places(number))


def test_by_the_hour(tmp_path):
  text = 'client,from,to\na,0,6\nb,18,12\nc,6,12\nc,18,24\n'
  settings = settings_of(tmp_path, text, '--rounds_per_day=4')
  found = attendance.attendance_of(settings, CLIENTS)
  # Rounds begin at 0, 6, 12 and 18 o'clock; of d nothing is known.
  assert [there(found, n) for n in range(1, 6)] == [
    'abd', 'bcd', 'd', 'bcd', 'abd',
  ]  # fmt: skip


def test_in_blocks(tmp_path):
  text = 'client,block\na,0\nb,1\nc,1\nd,2\n'
  settings = settings_of(tmp_path, text, '--rounds_per_block=2')
  found = attendance.attendance_of(settings, CLIENTS)
  assert [there(found, n) for n in range(1, 9)] == [
    'a', 'a', 'bc', 'bc', 'd', 'd', 'a', 'a',
  ]  # fmt: skip
  draw = cohorts.build_cohort_fn(CLIENTS, clients_per_round=2, attendance=found)
  # Of fewer than are wanted, all.
  assert draw(1) == ['a'] and {*draw(3)} == {'b', 'c'}
  assert draw(3) == draw(3)


def test_without_a_file_everybody_is_there(tmp_path):
  settings = runs.settings_of(tmp_path)
  assert attendance.attendance_of(settings, CLIENTS) is None


@pytest.mark.parametrize(
  'text, flags, words',
  [
    ('client,hour\na,1\n', [], 'must have the columns client, from, to or'),
    ('client,block\nz,1\n', [], 'line 2: the task has no training client .z.'),
    ('client,block\na,0.5\n', [], 'line 2: block must be a whole number'),
    ('client,from,to\na,0,25\n', [], 'line 2: to must be an hour from 0 to 24'),
    ('client,from,to\na,3,3\n', [], 'line 2: from and to are both 3'),
    ('client,from,to\na,3\n', [], 'line 2: expected 3 cells'),
    ('client,block\n', [], 'has no rows'),
    (
      'client,block\na,0\n',
      ['--rounds_per_day=3'],
      'rounds_per_day would be ignored',
    ),
    (
      'client,from,to\na,13,14\nb,13,14\nc,13,14\nd,13,14\n',
      ['--rounds_per_day=2'],
      'makes no client available',
    ),
  ],
)
def test_files_that_cannot_be_used(tmp_path, text, flags, words):
  settings = settings_of(tmp_path, text, *flags)
  with pytest.raises(errors.SettingsError, match=words):
    attendance.attendance_of(settings, CLIENTS)


@pytest.mark.exhaustive
def test_a_run_in_blocks_goes_on_as_it_began(tmp_path):
  path = tmp_path / 'when.csv'
  path.write_text(
    'client,block\n' + ''.join(f'client_{i:02d},{i % 4}\n' for i in range(20))
  )
  more = (f'--client_availability={path}', '--clients_per_round=3')
  whole = runs.settings_of(tmp_path, *more, name='whole')
  runs.run(whole)
  runs.run(runs.settings_of(tmp_path, *more, '--total_rounds=3', name='parts'))
  parts = runs.settings_of(tmp_path, *more, name='parts')
  runs.run(parts)
  drop = lambda rows: [
    {k: v for k, v in row.items() if not k.startswith(('seconds', 'test'))}
    for row in rows
  ]
  assert drop(runs.table(whole)) == drop(runs.table(parts))
  path.write_text('client,block\nclient_00,1\nclient_01,0\n')
  longer = runs.settings_of(tmp_path, *more, '--total_rounds=8', name='parts')
  with pytest.raises(errors.SettingsError, match='client_availability'):
    runs.run(longer)


def test_privacy_refuses_it(tmp_path, capsys):
  code = main.main(
    runs.arguments_of(
      tmp_path,
      '--client_availability=x.csv',
      '--dp_clip_norm=1',
      '--dp_noise_multiplier=1',
    )
  )
  assert code == 2
  assert 'sampled uniformly from all clients' in capsys.readouterr().err
