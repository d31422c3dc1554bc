"""What is said at the end of a sweep."""

import dataclasses

from tff_adaptive.lab.sweep import outcomes


def _row(task, algorithm, rate, seed, loss, status='finished'):
  measures = {} if loss is None else {'train/loss': loss}
  return outcomes.Row(
    name=f'{task}{rate}{seed}',
    flags={'task': task, 'client_learning_rate': rate, 'seed': seed},
    settings={'task': task, 'algorithm': algorithm},
    status=status,
    outcome=outcomes.Outcome(status, measures=measures),
  )


def test_best_of_every_method_by_its_mean_over_seeds():
  rows = [
    _row('digits', 'fedavg', '0.1', '0', 1.0),
    _row('digits', 'fedavg', '0.1', '1', 3.0),
    _row('digits', 'fedavg', '1', '0', 0.5),
    _row('digits', 'fedavg', '1', '1', 0.5, 'diverged'),
    _row('digits', 'scaffold', '1', '0', 1.5),
    _row('digits', 'fedadam', '1', '0', None, 'failed'),
  ]
  lines = outcomes.summary(rows, 'train_loss').splitlines()[2:]
  assert [line.split() for line in lines[:2]] == [
    ['scaffold', '1', '1.5', '1', 'client_learning_rate=1'],
    ['fedavg', '2', '2', '2', 'client_learning_rate=0.1'],
  ]
  assert lines[2] == 'fedadam   1      no configuration finished on all seeds'


def test_methods_are_ranked_by_validation():
  rows = [
    _row('digits', 'fedavg', '0.1', '0', 1.0),
    _row('digits', 'scaffold', '1', '0', 1.5),
  ]
  for row, accuracy in zip(rows, (0.5, 0.75), strict=True):
    row.outcome.measures['validation/metric'] = accuracy
  rows = [
    dataclasses.replace(
      row, outcome=dataclasses.replace(row.outcome, metric='accuracy')
    )
    for row in rows
  ]
  for select in ('validation_metric', 'train_loss'):
    lines = outcomes.summary(rows, select).splitlines()[1:]
    assert lines[0].split()[2:4] == ['validation', 'accuracy']
    assert [line.split()[2] for line in lines[1:]] == ['0.75', '0.5']


def test_virtual_time_is_that_of_the_best_configuration():
  rows = [
    _row('digits', 'fedavg', '0.1', '0', 1.0),
    _row('digits', 'fedavg', '0.1', '1', 1.0),
    _row('digits', 'fedavg', '1', '0', 2.0),
    _row('digits', 'fedadam', '1', '0', 3.0),
    _row('digits', 'fedyogi', '1', '0', None, 'failed'),
  ]
  plain = outcomes.summary(rows, 'train_loss')
  assert 'virtual' not in plain
  for row, seconds in zip(rows, (300.0, 500.0, 1.0, 7e4), strict=False):
    row.outcome.measures['virtual_seconds'] = seconds
  rows[0].outcome.measures['virtual_seconds_to_target'] = 250.0
  rows[3].outcome.measures['virtual_seconds_to_target'] = 99.5
  told = outcomes.summary(rows, 'train_loss').splitlines()
  assert 'virtual s  virtual s to target  runs  configuration' in told[1]
  # Where a seed did not reach it there is no mean.
  assert told[2].split()[3:] == ['400', '-', '2', 'client_learning_rate=0.1']
  assert told[3].split()[3:5] == ['70,000', '99.5']
  assert told[4] == 'fedyogi  1      no configuration finished on all seeds'


def test_tasks_are_kept_apart():
  rows = [
    _row('digits', 'fedavg', '0.1', '0', 1.0),
    _row('quadratic', 'fedavg', '0.1', '0', 1e-9),
  ]
  lines = outcomes.summary(rows, 'train_loss').splitlines()[2:]
  assert [line.split()[:5] for line in lines] == [
    ['fedavg', 'on', 'quadratic', '1', '1e-09'],
    ['fedavg', 'on', 'digits', '1', '1'],
  ]


def test_a_run_that_unlearned_is_named():
  row = _row('digits', 'fedavg', '0.1', '0', 1.0)
  told = dataclasses.replace(row.outcome, reason='Accuracy is 0.1.')
  rows = [dataclasses.replace(row, outcome=told), _row('d', 'a', '1', '0', 1.0)]
  *_, last = outcomes.summary(rows, 'train_loss').splitlines()
  assert last == 'digits0.10: Accuracy is 0.1.'
