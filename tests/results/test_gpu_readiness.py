"""The recorded tables of what a GPU would do."""

import pathlib

import pytest

from benchmarks import outputs
from benchmarks import placement

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / 'results' / 'gpu_readiness'


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


def test_compiled_clients_launch_a_tenth_of_the_kernels():
  rows = outputs.read_rows(_FOLDER / 'together.csv')
  assert [row['task'] for row in rows] == [*placement.TOGETHER]
  each = outputs.read_rows(_FOLDER / 'methods.csv')
  assert [row['method'] for row in each] == placement.methods()
  for row in rows + each:
    assert int(row['compiled']) * 10 < int(row['alone']), row
    assert row['waits'] == '0', row


@pytest.mark.exhaustive
def test_launches_are_counted_again():
  made = placement.measure_together('mnist_logistic')
  _, kept, *_ = outputs.read_rows(_FOLDER / 'together.csv')
  assert kept == {key: str(value) for key, value in made.items()}


@pytest.mark.exhaustive
def test_a_row_is_made_again():
  made = placement.measure('digits')
  for name, row in zip(placement.FILES, made):
    kept, *_ = outputs.read_rows(_FOLDER / f'{name}.csv')
    assert kept == {key: str(value) for key, value in row.items()}
