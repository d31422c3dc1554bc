"""Checks of the pages whose files `benchmarks/studies.py` wrote."""

import itertools

from benchmarks import studies
from tests.results import reading


class Sweeps:
  """The numbers of a study's sweeps.

  Attributes:
    ends: Rows of results.csv.
  """

  def __init__(self, study: str):
    self.ends = reading.rows(f'{study}/results.csv')
    self._curves = reading.curves(
      f'{study}/curves.csv', 'sweep', 'setting', 'seed'
    )

  def mean(self, sweep, setting, measure='validation/metric'):
    """Returns the mean over seeds, and half of its interval."""
    mean = studies.mean_of(self._runs(sweep, setting), measure)
    assert mean is not None, (sweep, setting)
    return mean

  def values(self, sweep, setting, measure='validation/metric'):
    """Lists a measure of every seed."""
    return [float(row[measure]) for row in self._runs(sweep, setting)]

  def _runs(self, sweep, setting):
    found = studies.by_setting(self.ends, sweep)[setting]
    assert found, (sweep, setting)
    return found

  def settings(self, sweep):
    return list(studies.by_setting(self.ends, sweep))

  def curves(self, sweep, setting):
    """Lists the values of every seed by round, without the untrained model."""
    found = [
      {n: row['value'] for n, row in by.items() if n}
      for (s, name, _), by in self._curves.items()
      if (s, name) == (sweep, setting)
    ]
    assert found, (sweep, setting)
    return found

  def check(self, table, sweep, measures, scale=1.0, settings=None):
    """Holds a table to a sweep: a row a setting, and all of them.

    Args:
      table: As `reading.Page.table` has it.
      sweep: The sweep.
      measures: Of the columns; `None` where the paper is quoted.
      scale: What numbers are multiplied by.
      settings: Which settings the rows are of, by label; named so unless given.
    """

    def expected(label, place):
      measure = measures[place - 1]
      if measure is None:
        return None
      setting = settings[label] if settings else label
      return [scale * v for v in self.mean(sweep, setting, measure)]

    reading.check_table(table, expected)
    labels = [row[0].strip('*`') for row in table[1]]
    named = [settings[label] if settings else label for label in labels]
    assert sorted(named) == sorted(self.settings(sweep))


def _rises(by_round):
  """Lists how much a curve rises from each recorded round to the next."""
  values = [by_round[n] for n in sorted(by_round)]
  return [b - a for a, b in itertools.pairwise(values)]


def check_noise(page):
  sweeps = Sweeps('noise')
  names = ('figure_1_sgd', 'figure_1_sps', 'student_t', 'cauchy')
  for place, sweep in enumerate(names):
    sweeps.check(page.table(place), sweep, ['validation/metric'])
  assert all(
    by[20] < 1e-9 and by[200] == 0
    for by in sweeps.curves('figure_1_sps', 'fedsps')
  )
  page.take('in all ten seeds by round 20')
  rate_1 = 'client_learning_rate=1'
  page.claim(
    '1.13 under Student',
    max(
      r
      for by in sweeps.curves('student_t', f'sgd, {rate_1}')
      for r in _rises(by)
    ),
  )
  page.claim(
    '16.8 under Cauchy',
    max(
      r for by in sweeps.curves('cauchy', f'sgd, {rate_1}') for r in _rises(by)
    ),
  )
  for law in ('student_t', 'cauchy'):
    for rate in ('0.1', '1'):
      setting = f'adagrad, client_learning_rate={rate}'
      for by in sweeps.curves(law, setting):
        assert max(_rises(by)) < 0
    ends = [
      sweeps.mean(law, f'{client}, {rate_1}')[0]
      for client in ('sgd', 'adagrad')
    ]
    assert ends[0] < ends[1]
  for setting in (
    'in every round, one local step a round, 200 rounds',
    '95 % intervals',
    'Figure 1 of',
    'x^2, client flat x^2 / 2',
    'deviation 10',
    'c = 0.5 and a bound of 1',
    'Propositions 2, 9 and 10 of FedAda2',
    'clients have x^2 / 2',
    'scaled by 0.3',
    'as 1 / t',
    'At a rate of 1 single',
    'SGD at a rate of 1 ends',
    'after 200 rounds',
  ):
    page.take(setting)


PAGES = {'noise': check_noise}
