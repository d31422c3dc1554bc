"""One seed decides everything, whatever the machine does. Slow: minutes."""

import numpy as np
import pytest

from tests import recorded
from tests.reliability import drills

# Together they draw all that is drawn: initial weights, cohorts, shuffles,
# dropout, crops and mirror images, noise, and which optimizer a client takes.
_RUNS = {
  'dropout_noise_and_blended_clients': [
    *('--task=emnist_character', '--algorithm=fedada2_blended'),
    *('--dp_clip_norm=1', '--dp_noise_multiplier=0.5'),
  ],
  'crops': ['--task=cifar10_image', '--max_elements_per_client=8'],
}


@pytest.mark.slow
@pytest.mark.parametrize('name', _RUNS)
def test_threads_change_nothing_and_the_seed_everything(
  launcher, tmp_path, name
):
  def run(threads, seed):
    folder = f'{threads}_{seed}'
    words = ['--data=synthetic', '--clients_per_round=4', '--total_rounds=2']
    words += ['--rounds_per_eval=1', '--num_validation_examples=20']
    words += ['--root_output_dir=runs', *_RUNS[name], f'--seed={seed}']
    words += [f'--max_concurrent_clients={threads}']
    launcher.start([*words, f'--experiment_name={folder}'])
    assert launcher.wait() == 0, (tmp_path / 'output.log').read_text()
    return tmp_path / 'runs' / folder

  first = run(1, 0)
  for threads in (2, 4):
    drills.assert_same_run(first, run(threads, 0))
  other = run(1, 1)
  rows = recorded.rows(first), recorded.rows(other)
  assert rows[0][0] != rows[1][0]  # The initial weights.
  assert rows[0][1]['train/loss'] != rows[1][1]['train/loss']
  states = [drills.last_state(r)[1] for r in (first, other)]
  assert not any(
    np.array_equal(array, states[1][path])
    for path, array in states[0].items()
    if array.size > 100
  )
