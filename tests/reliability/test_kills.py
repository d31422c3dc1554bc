"""Killed at any moment, a run comes to the same end. Slow: many minutes."""

import collections
import random
import re

import pytest

from tests.reliability import drills

_KILLS = 20
_ROUNDS = 400
_RATE = '--client_learning_rate=0.1'
_SGD = ('--client_optimizer=sgd', _RATE)
_METHODS = {
  'delta_sgd_fedadam': [],
  'scaffold': ['--algorithm=scaffold', _RATE],
  'scaffold_on_disk': ['--algorithm=scaffold', _RATE, '--client_state_mib=0'],
  'fadamgc': ['--algorithm=fadamgc', '--population=20'],
  'fedef21': ['--algorithm=fedef21', '--population=20', _RATE],
  'diloco': ['--algorithm=diloco'],
  'private': [
    *('--algorithm=fedadam', *_SGD, '--clients_per_round=6'),
    *('--dp_adaptive_clipping', '--dp_noise_multiplier=0.5'),
  ],
  'blended': ['--algorithm=fedada2_blended'],
  'secure': ['--algorithm=fedadam', *_SGD, '--aggregator=secure'],
  'compressed': ['--algorithm=fedadam', *_SGD, '--aggregator=compression'],
  'centralized': ['--algorithm=centralized', '--server_learning_rate=0.1'],
  'native': ['--algorithm=fedadam', *_SGD, '--runtime=native'],
}


@pytest.mark.slow
@pytest.mark.parametrize('method', _METHODS)
def test_killed_at_twenty_random_moments(tmp_path, launcher, method):
  arguments = [*drills.SMALL, *_METHODS[method], f'--total_rounds={_ROUNDS}']
  arguments += ['--rounds_per_checkpoint=2', '--experiment_name']
  launcher.start([*arguments, 'whole'])
  assert launcher.wait() == 0, (tmp_path / 'output.log').read_text()
  whole, parts = tmp_path / 'runs' / 'whole', tmp_path / 'runs' / 'parts'
  rng = random.Random(method)
  where = collections.Counter()
  (tmp_path / 'output.log').unlink()
  moments = ['start'] * 2 + ['round', 'checkpoint'] * (_KILLS // 2 - 1)
  for moment in rng.sample(moments, _KILLS):
    pid = launcher.start([*arguments, 'parts'])
    where[drills.kill_once(pid, parts, rng, moment)] += 1
    assert launcher.wait() == -9, (tmp_path / 'output.log').read_text()
  launcher.start([*arguments, 'parts'])
  assert launcher.wait() == 0, (tmp_path / 'output.log').read_text()
  said = (tmp_path / 'output.log').read_text()
  again = sum(
    int(n) for n in re.findall(r'(\d+) rounds after that checkpoint', said)
  )
  print(f'{method}: killed {dict(where)}; rounds run again: {again}')
  assert 'damaged' not in said and 'Traceback' not in said
  assert where['end'] == 0 and where['checkpoint'] > 0
  drills.assert_same_run(whole, parts)
