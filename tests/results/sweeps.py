"""The numbers that `benchmarks/studies.py` wrote, for the checks of pages."""

from benchmarks import studies
from tests.results import reading

# Columns of most tables: training loss, "last 50" and end.
MEASURES = ('train/loss', 'validation/metric', 'test/metric')


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

  def shown(self, sweep, setting, measure='test/metric'):
    """Returns a measure as pages show it.

    Its mean over seeds and, if there are several, half of its interval; shares
    are in per cent. No number where a run diverged.
    """
    runs = self._runs(sweep, setting)
    if any(row['status'] == 'diverged' for row in runs):
      return []
    scale = 100 if studies.is_share(runs[0], measure) else 1
    numbers = self.mean(sweep, setting, measure)
    return [scale * v for v in numbers[: len(runs)]]

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

  def check(self, table, sweep, measures=MEASURES, settings=None):
    """Holds a table to a sweep: a row a setting, and all of them.

    Args:
      table: As `reading.Page.table` has it.
      sweep: The sweep.
      measures: Of the columns; `None` where the paper is quoted.
      settings: Which settings the rows are of, by label and in the order of the
        rows; named so unless given.
    """

    def expected(label, place):
      measure = measures[place - 1]
      if measure is None:
        return None
      setting = settings[label] if settings else label
      return self.shown(sweep, setting, measure)

    reading.check_table(table, expected)
    labels = [row[0].strip('*`') for row in table[1]]
    if settings:
      assert labels == [*settings]
    named = [*settings.values()] if settings else labels
    assert sorted(named) == sorted(self.settings(sweep))
