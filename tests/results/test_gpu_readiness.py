"""The tables of what a GPU would do, in docs/runtimes.md and in results/."""

import collections
import pathlib

import pytest

from benchmarks import outputs
from benchmarks import placement

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / 'results' / 'gpu_readiness'


def test_the_tables_are_those_of_the_files():
  text = (_ROOT / 'docs' / 'runtimes.md').read_text(encoding='utf-8')
  shown = '\n'.join(placement.tables(_FOLDER))
  for table in shown.split('\n\n'):
    assert table in text


def test_the_measurements_are_those_of_the_files():
  text = (_ROOT / 'docs' / 'runtimes.md').read_text(encoding='utf-8')
  told = ' '.join(text.split())
  columns = (
    'model',
    'loss',
    'loss on the CPU',
    'plain loop, s',
    '4 at once, s',
    'MiB',
  )
  measured = outputs.read_rows(_ROOT / 'results' / 'gpu' / 'rounds.csv')
  for row in measured:
    assert f'| {" | ".join(row[c] for c in columns)} |' in text
    assert row['equal'] == 'yes'
  failed = outputs.read_rows(_ROOT / 'results' / 'gpu' / 'failed_tests.csv')
  reasons = collections.Counter(row['reason'] for row in failed)
  assert reasons == {'values': 45, 'form': 9, 'slices': 3, 'worker': 1}
  assert f'and {len(failed)} failed' in told


def test_the_second_measurements_are_those_of_the_files():
  text = (_ROOT / 'docs' / 'runtimes.md').read_text(encoding='utf-8')
  told = ' '.join(text.split())
  columns = (
    'model',
    'loss',
    'loss on the CPU',
    'plain loop, s',
    '1 at once, s',
    '4 at once, s',
  )
  folder = _ROOT / 'results' / 'gpu'
  gains = []
  for row in outputs.read_rows(folder / 'rounds_again.csv'):
    assert f'| {" | ".join(row[c] for c in columns)} |' in text
    assert row['equal'] == 'yes'
    gains.append(float(row['1 at once, s']) / float(row['4 at once, s']))
  assert [f'{gain:.1f}' for gain in gains] == ['1.7', '1.8']
  failed = outputs.read_rows(folder / 'failed_tests_again.csv')
  reasons = collections.Counter(row['reason'] for row in failed)
  assert reasons == {'bits': 16, 'pictures': 10, 'weights': 1}
  assert f'and {len(failed)} failed' in told
  before = outputs.read_rows(folder / 'failed_tests.csv')
  both = {row['test'] for row in failed} & {row['test'] for row in before}
  assert len(both) == 1


def test_two_to_four_clients_fill_a_gpu_but_for_the_largest_models():
  """The reason of four clients a GPU, the default."""
  rows = outputs.read_rows(_FOLDER / 'costs.csv')
  fills = {
    row['task']: [int(v) for k, v in row.items() if k.endswith('fills')]
    for row in rows
  }
  large = {task for task, counts in fills.items() if min(counts) < 2}
  assert large == {'cifar100_image', 'stackoverflow_word', 'ag_news'}
  assert max(map(max, fills.values())) == 4
  for row in rows:
    busy = float(row['A100 80GB SXM busy_us'])
    assert busy >= 2 * int(row['kernels'])
    assert float(row['mflop']) / 19.5 <= busy


def test_where_launches_decide_a_round():
  """What docs/runtimes.md says of the table of rounds."""
  rows = outputs.read_rows(_FOLDER / 'rounds.csv')
  larger = {
    gpu: {
      row['task']
      for row in rows
      if float(row[f'{gpu} alone_ms']) > float(row['host_ms'])
    }
    for gpu in ('T4', 'A100 80GB SXM', 'H100 SXM')
  }
  assert larger['T4'] == {'cifar100_image', 'stackoverflow_word', 'ag_news'}
  assert larger['A100 80GB SXM'] == {'ag_news'} and not larger['H100 SXM']
  steps = {row['task']: row for row in outputs.read_rows(_FOLDER / 'costs.csv')}
  for row in rows:
    # Of which most are the clients' steps.
    in_steps = int(row['clients']) * int(row['steps'])
    kernels = in_steps * int(steps[row['task']]['kernels'])
    assert kernels < int(row['kernels']) < 1.4 * kernels
    for gpu in larger:
      alone, shared = (
        float(row[f'{gpu} {key}_ms']) for key in ('alone', 'shared')
      )
      assert float(row[f'{gpu} busy_ms']) <= 1.2 * shared <= 1.2 * alone


@pytest.mark.exhaustive
def test_a_row_is_made_again():
  made = placement.measure('digits')
  for name, row in zip(placement.FILES, made):
    kept, *_ = outputs.read_rows(_FOLDER / f'{name}.csv')
    assert kept == {key: str(value) for key, value in row.items()}
