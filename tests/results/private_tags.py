"""Checks of the page of private tags, one tag a sentence."""

import statistics

from benchmarks import studies
from tests.results import reading
from tests.results import sweeps as sweeps_lib
from tff_adaptive.lab.report import scores

_NAME = 'private_tags'
_SWEEP = 'tags_single'
_METHODS = (
  'fedada2',
  'joint_zero_init',
  'direct_joint',
  'fedadagrad',
  'fedavg',
)
_MEASURES = ('train/loss', 'test/loss', 'validation/metric', 'test/metric')


def _megabytes(method):
  """Returns all that a method has sent, by round."""
  rows = reading.rows(f'{_NAME}/curves.csv')
  return {
    int(row['round']): float(row['megabytes'])
    for row in rows
    if (row['setting'], row['seed']) == (method, '0')
  }


def check_private_tags(page):
  sweeps = sweeps_lib.Sweeps(_NAME)
  assert len(page.table(0)[1]) == 4  # Settings.
  table = page.table(1)

  def expected(method, place):
    if place <= len(_MEASURES):
      return sweeps.shown(_SWEEP, method, _MEASURES[place - 1])
    return [_megabytes(method)[500]]

  reading.check_table(table, expected)
  assert [row[0].strip('*') for row in table[1]] == [*_METHODS]
  tests = {
    m: [100 * v for v in sweeps.values(_SWEEP, m, 'test/metric')]
    for m in _METHODS
  }
  assert all(len(values) == 5 for values in tests.values())

  def leads(method, *others):
    """Lists how far a method is ahead of others, seed by seed."""
    return [
      a - b for other in others for a, b in zip(tests[method], tests[other])
    ]

  of_joint = [
    lead
    for method in ('fedada2', 'joint_zero_init', 'direct_joint')
    for lead in leads(method, 'fedadagrad', 'fedavg')
  ]
  page.claim('joint_ahead', min(of_joint), max(of_joint))
  zero = leads('joint_zero_init', 'direct_joint')
  page.claim('zero_start_lead', statistics.fmean(zero), scores.interval(zero))
  compressed = leads('fedada2', 'joint_zero_init')
  page.claim(
    'compression', -statistics.fmean(compressed), scores.interval(compressed)
  )
  assert max(tests['fedavg']) - min(tests['fedavg']) < 0.02
  page.claim('fedavg_end', statistics.fmean(tests['fedavg']))
  # When direct joint adaptivity has sent what the others send in all.
  until = _megabytes('fedada2')[500]
  sent = _megabytes('direct_joint')
  number = max(n for n, megabytes in sent.items() if megabytes <= until)
  at = [100 * by[number] for by in sweeps.curves(_SWEEP, 'direct_joint')]
  ends = [100 * v for v in sweeps.values(_SWEEP, 'fedada2')]
  page.claim('equal_bytes', until, statistics.fmean(at), statistics.fmean(ends))
  page.claim('direct_bytes', sent[500] / until)
  losses = {m: sweeps.mean(_SWEEP, m, 'test/loss')[0] for m in _METHODS}
  assert min(losses, key=losses.get) == 'direct_joint'
  by_setting = studies.by_setting(sweeps.ends, _SWEEP)
  assert {m: len(rows) for m, rows in by_setting.items()} == dict.fromkeys(
    sorted(_METHODS), 5
  )
