"""Checks of the page of the MNIST columns of Kim et al."""

import itertools
import statistics

from benchmarks import pictures
from tests.results import reading
from tff_adaptive.lab.flags import presets

_EVALUATIONS = (460, 480, 500)
# The presets' names by the page's.
_CLIENTS = {label: name for name, label in pictures.CLIENTS.items()}
# Tables of the page in their order: the folder, alpha, and the presets' ending.
_COLUMNS = (
  ('table_1', '1.0', 'alpha_1'),
  ('table_1', '0.1', 'alpha_0.1'),
  ('table_1', '0.01', 'alpha_0.01'),
  ('table_4', '0.1', 'fedadam_alpha_0.1'),
  ('table_6', '0.01', 'fedprox_alpha_0.01'),
)


def _published(client, ending):
  """Returns what the paper has, in %."""
  name = f'kim2024/mnist_character/{_CLIENTS[client]}_{ending}'
  return float(presets.load(name).published.split()[0])


class _Column:
  """A column of one of the paper's tables.

  Attributes:
    rates: Of every client, by the page's name; empty where it has none.
    final: Accuracy on the test images after the last round, in %, by rate.
    last: The mean of the last three evaluations.
    paper: What the paper has at the end.
  """

  def __init__(self, table, alpha, ending, clients=tuple(_CLIENTS)):
    curves = reading.curves(
      f'kim_mnist/{table}/curves.csv', 'client', 'alpha', 'rate'
    )
    self._curves, self.final, self.last = {}, {}, {}
    for name in clients:
      at = (_CLIENTS[name], alpha)
      runs = {r: by for (*place, r), by in curves.items() if tuple(place) == at}
      assert runs, (name, alpha)
      self._curves[name] = runs
      self.final[name] = {r: 100 * by[500]['test'] for r, by in runs.items()}
      self.last[name] = {
        r: 100 * statistics.fmean(by[n]['accuracy'] for n in _EVALUATIONS)
        for r, by in runs.items()
      }
    self.rates = {n: max(by, key=by.get) for n, by in self.last.items()}
    self.paper = {n: _published(n, ending) for n in clients}

  def at(self, name, number):
    """Returns the accuracy after a round, in %."""
    return 100 * self._curves[name][self.rates[name]][number]['accuracy']

  def end(self, name):
    return self.final[name][self.rates[name]]

  def behind(self, name):
    """Returns how far a client is behind the best at the end, in points."""
    return max(map(self.end, _CLIENTS)) - self.end(name)

  def check(self, table):
    heading, rows = table
    assert heading[1:] == ['rate', 'end', 'last three', 'paper']
    assert [row[0].strip('*') for row in rows] == [*_CLIENTS]

    def expected(name, place):
      rate = self.rates[name]
      return (
        [float(rate)] if rate else [],
        [self.end(name)],
        [self.last[name][rate]],
        [self.paper[name]],
      )[place - 1]

    reading.check_table(table, expected)


def check_kim_mnist(page):
  columns = [_Column(*column) for column in _COLUMNS]
  for place, column in enumerate(columns):
    column.check(page.table(place))
  one, tenth, hundredth, adam, prox = columns
  for column in (one, hundredth, adam, prox):
    assert column.rates == tenth.rates
    assert all(len(by) == 1 for by in column.last.values())
  for place in (len(columns), len(columns) + 1):
    heading, _ = page.table(place)
    reading.check_table(
      page.table(place),
      lambda name, n, rates=heading: [tenth.last[name][rates[n]]],
    )
  _check_published(page, page.table(len(columns) + 2))
  _check_verdicts(page, one, tenth, hundredth)
  _check_other_servers_and_losses(page, hundredth, adam, prox)


# Of the table at the rates of the released code, by client.
_PUBLISHED = {
  'SGD with momentum': '0.1',
  'SGD with momentum, decay': '0.1',
  'Adagrad': '0.01',
}


def _check_published(page, table):
  columns = [
    _Column(f'published/{table}', alpha, ending, tuple(_PUBLISHED))
    for table, alpha, ending in _COLUMNS
  ]
  assert all(column.rates == _PUBLISHED for column in columns)
  assert [row[0] for row in table[1]] == [*_PUBLISHED]

  def expected(name, place):
    column = columns[place - 1]
    return [column.end(name), column.paper[name]]

  reading.check_table(table, expected)
  one, tenth, hundredth, *_ = columns
  adagrad = 'Adagrad'
  page.claim('adagrad_falls', one.end(adagrad), tenth.end(adagrad), 0.1)
  page.claim('paper_adagrad_falls', one.paper[adagrad], tenth.paper[adagrad])
  momentum = 'SGD with momentum', 'SGD with momentum, decay'
  page.claim(
    'momentum_off',
    max(abs(c.end(n) - c.paper[n]) for c in (one, tenth) for n in momentum),
  )
  for name in momentum:
    assert abs(hundredth.end(name) - 10) < 0.5
  prox = columns[-1]
  page.claim(
    'fedprox_momentum',
    *(prox.end(name) for name in momentum),
    max(abs(prox.end(name) - prox.paper[name]) for name in momentum),
  )
  page.claim('paper_momentum', hundredth.paper[momentum[0]])
  page.claim('paper_momentum_decay', hundredth.paper[momentum[1]])


def _check_other_servers_and_losses(page, hundredth, adam, prox):
  assert adam.behind('Delta-SGD') == 0
  page.claim(
    'delta_sgd_under_fedadam',
    *(adam.end('Delta-SGD'), adam.paper['Delta-SGD']),
  )

  def farthest(ends):
    """How far momentum and SGD are behind Delta-SGD at most."""
    return ends('Delta-SGD') - min(map(ends, ('SGD', 'SGD with momentum')))

  page.claim('sgd_under_fedadam', farthest(adam.end))
  page.claim('paper_sgd_under_fedadam', farthest(adam.paper.get))
  assert prox.behind('Delta-SGD') <= 0.5
  assert all(abs(prox.end(n) - hundredth.end(n)) <= 1 for n in _CLIENTS)
  decayed = 'SGD with momentum, decay'
  page.claim(
    'paper_fedprox_gains',
    prox.paper['SPS'] - hundredth.paper['SPS'],
    hundredth.paper[decayed] - prox.paper[decayed],
  )


def _check_verdicts(page, *columns):
  one, tenth, hundredth = columns
  near = {
    n for n in _CLIENTS if all(column.behind(n) <= 0.5 for column in columns)
  }
  assert near == {'Delta-SGD'}
  assert one.behind('Delta-SGD') == hundredth.behind('Delta-SGD') == 0
  page.claim(
    'delta_sgd_behind',
    *(1, 0.01, tenth.behind('Delta-SGD'), 0.1),
  )

  def off(*names):
    """How far the farthest is from the paper's numbers."""
    return max(abs(c.end(n) - c.paper[n]) for c in columns for n in names)

  page.claim('delta_sgd_off', off('Delta-SGD'))
  plain = ('SGD', 'SGD, decay')
  page.claim('sgd_off', off(*plain))
  assert all(0.5 < hundredth.behind(n) < 1.5 for n in plain)
  page.claim(
    'sps',
    *(1, 0.01, one.end('SPS'), hundredth.end('SPS')),
    *(one.paper['SPS'], hundredth.paper['SPS']),
  )
  adaptive = ('Adam', 'Adagrad')
  assert min(hundredth.behind(n) for n in adaptive) > 15
  page.claim(
    'adaptive_behind',
    *(1, statistics.fmean(one.behind(n) for n in adaptive)),
  )
  momentum = 'SGD with momentum', 'SGD with momentum, decay'
  page.claim('momentum', hundredth.end(momentum[0]))
  assert hundredth.rates[momentum[1]] == '0.1'
  assert abs(hundredth.end(momentum[1]) - 10) < 0.5
  for name in momentum:
    assert abs(tenth.last[name]['0.05'] - tenth.last[name]['0.1']) < 0.2
  for name in (*plain, *momentum):
    assert abs(tenth.last[name]['0.5'] - 10) < 1
  for name in adaptive:
    assert abs(tenth.last[name]['0.1'] - 10) < 1
  ahead = [
    column.at('SGD with momentum', 2 * n) - column.at('Delta-SGD', n)
    for column in columns
    for n in range(20, 241, 20)
  ]
  page.claim('momentum_ahead_after', 240, min(ahead), max(ahead))
  late = [hundredth.at('Delta-SGD', n) for n in range(200, 501, 20)]
  page.claim(
    'ups_and_downs',
    *(0.01, max(abs(b - a) for a, b in itertools.pairwise(late))),
  )
