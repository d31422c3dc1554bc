"""Checks of the page of longer studies of Reddi et al."""

from tests.results import reading
from tests.results import sweeps as sweeps_lib

# Tasks of the study of SCAFFOLD, in the order of the page.
_TASKS = (
  'emnist_character',
  'emnist_autoencoder',
  'shakespeare_character',
  'stackoverflow_tag',
  'stackoverflow_word',
)
_METHODS = {'FedAvg': 'fedavg', 'SCAFFOLD': 'scaffold'}


def _setting(method, rate):
  return f'{method}, client_learning_rate={rate}'


def _settings(table):
  """Returns the settings of a table's rows by label."""
  return {
    label: _setting(_METHODS[method], rate)
    for label, (method, rate) in (
      (row[0], row[0].split(', ')) for row in table[1]
    )
  }


def check_reddi_full(page):
  sweeps = sweeps_lib.Sweeps('reddi_full')
  _check_scaffold(page, sweeps)
  _check_grid(page, sweeps)
  _check_autoencoder(page, sweeps)
  _check_characters(page, sweeps)


_GRID = 'fedadam_on_tags'


def _tried(sweeps):
  """Returns the rows of the grid by client rate, server rate and tau."""
  return {
    tuple(float(w.partition('=')[2]) for w in row['setting'].split(', ')): row
    for row in sweeps.ends
    if row['sweep'] == _GRID and row['status'] == 'finished'
  }


def _check_grid(page, sweeps):
  tried = _tried(sweeps)
  quality = {k: 100 * float(r['validation/metric']) for k, r in tried.items()}
  ends = [row for row in sweeps.ends if row['sweep'] == _GRID]
  page.claim('grid_runs', len(ends), len(ends) - len(tried))

  heading, rows = page.table(len(_TASKS))
  assert heading[:3] == ['tau', 'client rate', 'server rate']
  assert len(rows) == 5
  by_tau = {}
  for row in rows:
    tau, client, server = map(float, row[:3])
    best = min(
      (k for k in tried if k[2] == tau),
      key=lambda k: float(tried[k]['train/loss']),
    )
    assert best == (client, server, tau)
    by_tau[tau] = quality[best]
    setting = tried[best]['setting']
    for shown, measure in zip(row[3:], sweeps_lib.MEASURES, strict=True):
      (value,) = sweeps.shown(_GRID, setting, measure)
      assert reading.agrees(shown, value), (row, measure)
  page.claim('best_by_tau', by_tau[1e-5], by_tau[0.1])
  fixed = {k[:2]: v for k, v in quality.items() if k[2] == 0.001}
  row = [v for k, v in fixed.items() if k[0] >= 10 and k[1] == 0.0316228]
  page.claim(
    'plateau',
    *(10, 1000, min(row), max(row)),
  )
  best = {
    client: max(
      (k[1] for k in fixed if k[0] == client),
      key=lambda server, c=client: fixed[c, server],
    )
    for client in sorted({k[0] for k in fixed})
  }
  rates = list(best)
  page.claim(
    'best_server_rates',
    *(best[rates[0]], *rates[:2], best[rates[2]], rates[2]),
  )
  page.claim('best_server_rate_from', best[rates[3]], rates[3])
  assert best[rates[0]] == best[rates[1]]
  assert len({best[r] for r in rates[3:]}) == 1
  found = max(quality, key=quality.get)
  page.claim('oracle', quality[found])
  page.claim('best_of_all', *found[1:])


_SERVERS = {
  'FedAdam': 'fedadam',
  'FedYogi': 'fedyogi',
  'FedAdagrad': 'fedadagrad',
  'FedAvg': 'fedavg',
  'FedAvgM': 'fedavgm',
}


class _Autoencoder:
  """A recording of the autoencoder; errors x 1,000.

  Attributes:
    error: Of the methods at the end, on test examples.
    by_round: On validation examples, by round.
    left: The first evaluation of each method below the plateau, or None.
  """

  def __init__(self, sweeps, sweep):
    self._sweeps, self._sweep = sweeps, sweep
    assert sorted(_SERVERS.values()) == sorted(sweeps.settings(sweep))
    self.error = {m: self._shown(m, 'test/metric') for m in _SERVERS.values()}
    self.by_round = {}
    for method in _SERVERS.values():
      (curve,) = sweeps.curves(sweep, method)
      self.by_round[method] = {n: 1000 * v for n, v in curve.items()}
    self.left = {
      method: min((n for n, v in by.items() if v < 65), default=None)
      for method, by in self.by_round.items()
    }

  def _shown(self, method, measure):
    (value,) = self._sweeps.shown(self._sweep, method, measure)
    return value if measure == 'train/loss' else 1000 * value

  def check(self, table):
    def expected(label, place):
      if place > len(sweeps_lib.MEASURES):
        return None  # The paper's.
      return [self._shown(_SERVERS[label], sweeps_lib.MEASURES[place - 1])]

    reading.check_table(table, expected)
    order = sorted(self.error, key=self.error.get)
    assert [_SERVERS[row[0]] for row in table[1]] == order


def _check_autoencoder(page, sweeps):
  summed = _Autoencoder(sweeps, 'autoencoder')
  summed.check(page.table(len(_TASKS) + 1))
  error, by_round, left = summed.error, summed.by_round, summed.left
  page.claim(
    'autoencoder_fedavgm', error['fedavgm'] / error['fedavg'], 1.65 / 6.47
  )
  page.claim(
    'autoencoder_left', *(left[m] for m in ('fedavgm', 'fedadagrad', 'fedavg'))
  )
  at_first = [by[100] for m, by in by_round.items() if m != 'fedavgm']
  page.claim('autoencoder_error', min(at_first), max(at_first))
  assert left['fedadam'] is None and left['fedyogi'] is None
  plain, adagrad = by_round['fedavg'], by_round['fedadagrad']
  page.claim(
    'autoencoder_fedadagrad', max(n for n in plain if adagrad[n] < plain[n])
  )
  assert adagrad[500] < min(plain[500], by_round['fedavgm'][500])
  assert adagrad[1500] - adagrad[3000] < 2
  page.claim(
    'autoencoder_plateau',
    min(v for m in ('fedadam', 'fedyogi') for v in by_round[m].values()),
  )
  page.claim('times_the_papers', error['fedavgm'] / 1.65)
  mean = _Autoencoder(sweeps, 'autoencoder_mean')
  mean.check(page.table(len(_TASKS) + 2))
  page.claim(
    'autoencoder_mean',
    *(
      n
      for method in ('fedadam', 'fedyogi', 'fedadagrad')
      for n in (mean.left[method] - 100, mean.left[method])
    ),
  )
  assert mean.left['fedavg'] is None and mean.left['fedavgm'] is None


def _check_characters(page, sweeps):
  def shown(sweep, label, measure):
    return sweeps.shown(sweep, _SERVERS[label], measure)[0]

  heading, rows = page.table(len(_TASKS) + 3)
  columns = (*sweeps_lib.MEASURES, None)
  for sweep, first in (('characters', 1), ('characters_decay', 5)):
    kept = [0, *range(first, first + len(columns))]
    half = [[cells[n] for n in kept] for cells in (heading, *rows)]
    sweeps.check((half[0], half[1:]), sweep, columns, _SERVERS)
  assert len(heading) == 1 + 2 * len(columns)
  paper = [float(row[4]) for row in rows]
  ends, decayed = (
    {label: shown(sweep, label, 'validation/metric') for label in _SERVERS}
    for sweep in ('characters', 'characters_decay')
  )
  page.claim(
    'spread',
    max(ends.values()) - min(ends.values()),
    max(paper) - min(paper),
  )
  share = ends['FedAvg'] / 100
  page.claim(
    'error_of_the_mean',
    2982,
    100 * (share * (1 - share) / 2982) ** 0.5,
  )
  curves = {
    label: sweeps.curves('characters', _SERVERS[label])[0] for label in _SERVERS
  }
  for number in range(50, 501, 50):
    first = sorted(curves, key=lambda label, n=number: -curves[label][n])[:2]
    assert {*first} == {'FedAdam', 'FedYogi'}, number
  lead = {
    n: 100 * (curves['FedAdam'][n] - curves['FedAvg'][n]) for n in (50, 500)
  }
  page.claim(
    'lead_over_fedavg',
    *(lead[50], 50, lead[500], 500),
  )
  gains = {label: decayed[label] - ends[label] for label in _SERVERS}
  lost = [-v for v in gains.values() if v < 0]
  assert len(lost) == 3
  page.claim(
    'decay_gains',
    gains['FedAdam'],
    gains['FedYogi'],
  )
  page.claim('decay_loses', min(lost), max(lost))
  losses = {label: shown('characters', label, 'train/loss') for label in ends}
  adaptive = {'FedAdam', 'FedYogi', 'FedAdagrad'}
  assert {*sorted(losses, key=losses.get)[:3]} == adaptive
  assert max(ends, key=ends.get) not in adaptive
  assert all(
    losses[label] < shown('characters_decay', label, 'train/loss')
    for label in _SERVERS
  )
  lower = [
    shown('characters', label, 'test/loss')
    - shown('characters_decay', label, 'test/loss')
    for label in _SERVERS
  ]
  page.claim('decay_lowers_losses', min(lower), max(lower))
  page.claim(
    'accuracies',
    *(min(ends.values()), max(ends.values()), min(paper), max(paper)),
  )


def _check_scaffold(page, sweeps):
  for place, task in enumerate(_TASKS):
    table = page.table(place)
    sweeps.check(table, f'scaffold_{task}', settings=_settings(table))

  def end(task, method, rate):
    return sweeps.shown(f'scaffold_{task}', _setting(method, rate))[0]

  def all_ends(task, rates):
    return [[end(task, m, r) for r in rates] for m in _METHODS.values()]

  character = all_ends('emnist_character', ('0.0316228', '0.1'))
  assert all(a > b for a, b in zip(*character, strict=True))
  page.claim(
    'scaffold_on_characters',
    end('emnist_character', 'scaffold', '0.1'),
    end('emnist_character', 'fedavg', '0.316228'),
  )
  (diverged,) = [row for row in sweeps.ends if row['status'] == 'diverged']
  assert diverged['sweep'] == 'scaffold_emnist_character'
  assert diverged['setting'] == _setting('scaffold', '0.316228')
  assert int(diverged['rounds']) <= 10
  shakespeare = all_ends('shakespeare_character', ('0.316228', '1', '3.16228'))
  page.claim(
    'scaffold_on_shakespeare',
    shakespeare[1][2],
    shakespeare[0][2],
    max(a - b for a, b in zip(*shakespeare, strict=True)),
  )
  autoencoder = all_ends('emnist_autoencoder', ('3.16228', '10', '31.6228'))
  behind = [b > a for a, b in zip(*autoencoder, strict=True)]
  assert behind == [True, True, False]
  page.claim(
    'scaffold_on_tags',
    end('stackoverflow_tag', 'scaffold', '10'),
    end('stackoverflow_tag', 'fedavg', '10'),
  )
  (by_round,) = sweeps.curves(
    'scaffold_stackoverflow_tag', _setting('fedavg', '10')
  )
  page.claim(
    'fedavg_falls',
    10,
    100 * by_round[55],
    100 * by_round[60],
  )
  words = all_ends('stackoverflow_word', ('0.1', '0.316228', '1'))
  assert all(a >= b for a, b in zip(*words, strict=True))
