"""Rows of step_sizes.csv."""

import numpy as np
import pytest

from tff_adaptive import errors
from tff_adaptive.lab.recording import step_sizes

NAN = float('nan')


def test_a_row_a_client_in_the_cohorts_order():
  table = np.array(
    [
      [1, 2, 0.25, 0.125, 0.5, 0.5, 0.0625, 0.5],
      [0, 0, NAN, NAN, NAN, NAN, NAN, NAN],
    ],
    np.float32,
  )
  metrics = {'client_work': {'step_size_of_clients': table}}
  assert step_sizes.rows(['b', 'a'], metrics) == [
    {
      'client': 'b',
      'took_part': 1,
      'steps': 2,
      'mean': 0.25,
      'min': 0.125,
      'max': 0.5,
      'last': 0.5,
      'spread': 0.0625,
      'at_bound': 0.5,
    },
    {'client': 'a', 'took_part': 0, 'steps': 0}
    | dict.fromkeys(('mean', 'min', 'max', 'last', 'spread', 'at_bound')),
  ]
  with pytest.raises(ValueError):
    step_sizes.rows(['b'], metrics)


@pytest.mark.parametrize('metrics', [(), {}, {'client_work': {'train': 1}}])
def test_no_rows_where_nothing_was_recorded(metrics):
  assert step_sizes.rows(['a'], metrics) == []


def test_the_file_has_several_rows_a_round(tmp_path):
  path = tmp_path / 'step_sizes.csv'
  table = step_sizes.StepFile(path)
  for number in (1, 2, 3):
    for client in ('x,1', 'y'):
      table.append({'round': number, 'client': client, 'mean': 0.5})
  again = step_sizes.StepFile(path)
  assert again.rows == table.rows
  assert again.rows[0] == {'round': '1', 'client': 'x,1', 'mean': '0.5'}
  assert again.drop_after(1) == 4
  assert [r['round'] for r in step_sizes.StepFile(path).rows] == ['1', '1']
  # Nobody answered in rounds 2 and 3.
  again.append({'round': 4, 'client': 'y', 'mean': 0.5})
  assert len(step_sizes.StepFile(path).rows) == 3


@pytest.mark.parametrize(
  'line', ['1,a,half', '0,a,0.5', 'x,a,0.5', '1,a,0.5,1']
)
def test_a_damaged_file_is_refused(tmp_path, line):
  path = tmp_path / 'step_sizes.csv'
  path.write_text(f'round,client,mean\n1,b,0.5\n{line}\n', encoding='utf-8')
  with pytest.raises(errors.RunError, match=r'step_sizes\.csv cannot be read'):
    step_sizes.StepFile(path)
