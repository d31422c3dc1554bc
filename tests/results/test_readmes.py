"""Every number of a results page is in its CSV files, or a named setting.

Measurements in the text are marked, and a line here reads what each must be;
every other number must be one that the page itself lists as given.
"""

import shutil
import statistics

import pytest

from tests.results import reading
from tests.results import studies
from tff_adaptive.privacy import mechanism as privacy

REDDI = 'reproduction_reddi2021'
SEEDS = ('0', '1')


def check_main_job(page):
  curves = reading.curves('main_job/agreement.csv', 'method', 'seed')
  names = {
    'tff.learning FedAdam': 'tff.learning FedAdam',
    'fedadam, ': 'fedadam',
    "delta_sgd, untuned, smoothness_batch='succ": 'delta_sgd successive',
    "delta_sgd, untuned, smoothness_batch='same": 'delta_sgd same',
  }

  def at(method, number):
    return [100 * curves[method, s][number]['accuracy'] for s in SEEDS]

  def expected(label, place):
    method = next(
      (m for start, m in names.items() if label.startswith(start)), label
    )
    return at(method, 20 * place)

  reading.check_table(page.table(0), expected)
  ends = {m: at(m, 60) for m, _ in curves}
  apart = [a - b for a, b in zip(ends['fedadam'], ends['tff.learning FedAdam'])]
  page.claim('fedadam_apart', max(map(abs, apart)))
  assert min(apart) < 0 < max(apart)  # "In either direction."
  best = 'fedavg, SGD at 0.1'
  forms = ('delta_sgd same', 'delta_sgd successive')
  ahead = min(
    min(ends[form][i] - ends[f'fedavg, SGD at {rate}'][i] for form in forms)
    for i in (0, 1)
    for rate in ('0.001', '0.01', '1')
  )
  page.claim('ahead_of_sgd', int(ahead))
  behind = [a - b for a, b in zip(ends[best], ends[forms[1]])]
  page.claim('successive_behind', min(behind), max(behind))
  assert all(a > b for a, b in zip(ends[forms[0]], ends[best]))


def check_quadratic(page):
  columns = (1, 3, 10, 30, 100)
  methods = {
    'own Polyak steps': 'own steps (fedsps)',
    'the best common step': 'best common step (fedavg)',
    'the best step of a': 'the best step of a = 100 (fedavg)',
    'FedSPS-Global': 'common Polyak step (fedsps_global b)',
  }
  counts = {
    (row['axes'], row['method'], int(row['a'])): int(row['rounds'])
    for row in reading.rows('quadratic/rounds.csv')
  }

  def expected(label, place):
    axes, _, kind = label.partition(' axis: ')
    if not kind:
      axes, _, kind = label.partition(' axes: ')
    method = next(m for start, m in methods.items() if kind.startswith(start))
    return [counts[axes, method, columns[place - 1]]]

  reading.check_table(page.table(0), expected)


def check_smoothness_batch(page):
  curves = reading.curves(
    'smoothness_batch/curves.csv', 'task', 'alpha', 'form', 'seed'
  )
  timed = reading.curves('smoothness_batch/mnist.csv', 'client', 'alpha')

  def accuracy(experiment, form, number):
    task, alpha = 'emnist_character', ''
    if experiment.startswith('MNIST'):
      task, alpha = 'mnist_character', experiment.split(' = ')[1]
    return 100 * statistics.fmean(
      by[number]['accuracy']
      for (t, a, f, _), by in curves.items()
      if (t, a, f) == (task, alpha, form)
    )

  for experiment, number, *shown in page.table(0)[1]:
    values = (
      accuracy(experiment, 'same', int(number)),
      accuracy(experiment, 'successive', int(number)),
      accuracy(experiment, 'same', int(number) // 2),
    )
    for text, value in zip(shown, values):
      assert reading.agrees(text, value), (experiment, number, text, value)

  def seconds(alpha, form, number):
    key = f'delta_sgd {form}', f'{float(alpha)}'
    return timed[key][number]['seconds']

  for experiment, limit, one, of_one, other, of_other in page.table(1)[1]:
    alpha = experiment.split(' = ')[1]
    number, *rest = map(float, reading.numbers(one))
    assert not rest
    assert reading.agrees(
      of_one, accuracy(f'MNIST = {alpha}', 'successive', number)
    )
    assert reading.agrees(limit, seconds(alpha, 'successive', number))
    number, *took = reading.numbers(other)
    assert reading.agrees(
      of_other, accuracy(f'MNIST = {alpha}', 'same', int(number))
    )
    spent = seconds(alpha, 'same', int(number))
    assert reading.agrees(took[0] if took else limit, spent)
  ends = {
    form: [seconds(alpha, form, 60) for alpha in ('1', '0.1', '0.01')]
    for form in ('same', 'successive')
  }
  page.claim(
    'seconds_of_same',
    *(60, min(ends['same']), max(ends['same'])),
  )
  page.claim(
    'seconds_of_successive', min(ends['successive']), max(ends['successive'])
  )
  ratios = [a / b for a, b in zip(ends['same'], ends['successive'])]
  page.claim('times_as_many', statistics.fmean(ratios))


def both(table):
  """Results by method and seed, of a sweep's table of presets."""
  return {
    (row['preset'].rpartition('/')[2], row['seed']): {
      k: reading.number(v) for k, v in row.items()
    }
    for row in reading.rows(table)
  }


def seeds_of(curves, method):
  return [s for s in SEEDS if (method, s) in curves]


class Study:
  """One task of the reproduction: its curves and its table."""

  def __init__(self, task, metric, scale=100.0):
    self.curves = reading.curves(f'{REDDI}/{task}_curves.csv', 'method', 'seed')
    self.table = both(f'{REDDI}/{task}_results.csv')
    self.metric, self.scale = metric, scale

  def validation(self, method, number, metric=None):
    column = f'validation/{metric or self.metric}'
    return self._each(method, lambda by: by[number][column], metric)

  def test(self, method):
    return self._each(
      method, lambda by: by[max(by)][f'test/{self.metric}'], None
    )

  def last_loss(self, method):
    return self._each(method, lambda by: by[max(by)]['train/loss'], 'loss')

  def mean_loss(self, method):
    return [
      self.table[method, s]['train/loss'] for s in seeds_of(self.table, method)
    ]

  def _each(self, method, read, metric):
    scale = 1.0 if metric == 'loss' else self.scale
    seeds = seeds_of(self.curves, method)
    return [scale * read(self.curves[method, s]) for s in seeds]


SERVERS = ('fedadagrad', 'fedadam', 'fedyogi', 'fedavgm', 'fedavg')


def check_reddi_tags(page, table):
  study = Study('stackoverflow_tag', 'recall_at_5')

  def expected(label, place):
    if label not in SERVERS:
      return [30.7] if place == 3 else []  # A setting; see below.
    return {
      1: study.mean_loss(label),
      2: study.validation(label, 40),
      3: study.test(label),
    }.get(place)

  reading.check_table(table, expected)
  # In both seeds in this order, FedAdam and FedYogi together.
  for s in (0, 1):
    ends = [study.validation(m, 40)[s] for m in SERVERS]
    assert ends == sorted(ends, reverse=True)
  early = [v for m in ('fedadam', 'fedyogi') for v in study.validation(m, 5)]
  page.claim('recall_after_five_rounds', statistics.fmean(early))
  assert min(early) > max(
    v for m in SERVERS for n in range(10, 41, 5) for v in study.validation(m, n)
  )
  swings = {
    m: [
      study.curves[m, s][n]['train/loss'] for s in SEEDS for n in range(1, 41)
    ]
    for m in ('fedavg', 'fedavgm')
  }
  page.claim(
    'losses_swing_between',
    *(f(swings[m]) for m in ('fedavg', 'fedavgm') for f in (min, max)),
  )
  page.claim(
    'untrained_loss', study.curves['fedavg', '0'][0]['validation/loss']
  )
  assert min(study.test('fedadagrad')) > 30.7
  assert all(max(study.test(m)) < 30.7 for m in SERVERS[1:])


def check_reddi_characters(page, table):
  study = Study('emnist_character', 'sparse_categorical_accuracy')

  def expected(label, place):
    method = label.partition(',')[0]
    if place == 1:
      if method in SERVERS:
        return study.mean_loss(method)
      return study.last_loss(method)
    if place < 5:
      return study.validation(method, 20 * (place - 1))
    return study.test(method) if place == 5 else None

  reading.check_table(table, expected)
  ends = {n: {m: study.validation(m, n) for m in SERVERS} for n in (40, 60)}

  def apart(number):
    return [
      max(v[s] for v in ends[number].values())
      - min(v[s] for v in ends[number].values())
      for s in (0, 1)
    ]

  page.claim(
    'apart_at_40_and_60',
    *(40, *apart(40), 60, *apart(60)),
  )
  gains = {
    m: [b - a for a, b in zip(ends[40][m], ends[60][m])]
    for m in ('fedavgm', 'fedyogi')
  }
  page.claim('gains_of_fedavgm', *gains['fedavgm'])
  page.claim('gains_of_fedyogi', *gains['fedyogi'])
  lead = [
    a - b
    for n in (40, 60)
    for m in ('fedadam', 'fedyogi')
    for a, b in zip(ends[n][m], ends[n]['fedavg'])
  ]
  page.claim('lead_of_adam_and_yogi', min(lead), max(lead))
  scaffold = study.validation('scaffold', 60)[0]
  page.claim('scaffold_behind', ends[60]['fedavg'][0] - scaffold)
  pooled = study.validation('centralized', 60)[0]
  page.claim('pooled_ahead', pooled - ends[60]['fedyogi'][0])


def check_reddi_autoencoder(page, table):
  study = Study('emnist_autoencoder', 'mean_squared_error', 1000.0)

  def expected(label, place):
    if place < 4:
      return study.validation(label, (10, 30, 60)[place - 1])
    return study.test(label) if place == 4 else None

  reading.check_table(table, expected)


def check_reddi_shakespeare(page, table):
  study = Study('shakespeare_character', 'accuracy')

  def expected(label, place):
    if place == 1:
      return study.last_loss(label)
    if place < 5:
      return study.validation(label, 5 * (place - 1))
    return study.test(label) if place == 5 else None

  reading.check_table(table, expected)
  ends = [study.test(m)[0] for m in SERVERS]
  page.claim('ends_within', max(ends) - min(ends))
  ranks = []
  for n in (5, 10, 15):
    order = sorted(SERVERS, key=lambda m, n=n: -study.validation(m, n)[0])
    ranks.append([order.index(m) for m in SERVERS])
  same = {m for m, of in zip(SERVERS, zip(*ranks)) if len(set(of)) == 1}
  assert same == {'fedadam', 'fedyogi'}


def check_reddi_words(page, table):
  study = Study('stackoverflow_word', 'accuracy_without_special_tokens')

  def expected(label, place):
    if label == 'fedadagrad':
      return [] if place < 5 else None
    return {
      1: study.last_loss(label),
      2: study.validation(label, 15, 'loss'),
      3: study.validation(label, 15),
      4: study.test(label),
    }.get(place)

  reading.check_table(table, expected)
  losses = {
    n: row['train/loss'] for n, row in study.curves['fedadagrad', '0'].items()
  }
  assert max(losses) == 5
  page.claim(
    'loss_of_fedadagrad',
    *(losses[3], 3, losses[5], 5),
  )
  name = f'{REDDI}/fedadagrad_by_tokens.csv'
  by_tokens = reading.curves(name, 'method', 'seed')['fedadagrad', '0']
  page.claim(
    'losses_by_tokens', *(by_tokens[n]['train/loss'] for n in range(1, 6))
  )
  page.claim('validation_by_tokens', by_tokens[10]['validation/loss'])
  page.claim('test_by_tokens', 100 * by_tokens[10][f'test/{study.metric}'])
  column = f'validation/{study.metric}'
  (again,) = {
    row[column]
    for row in study.curves['fedavg', '0'].values()
    if row[column] > 0.01
  } & {row[column] for row in study.curves['fedavgm', '0'].values()}
  page.claim('accuracy_comes_back', 100 * again)


def check_reddi(page):
  # What the paper had and what is had here: settings, each of which a run's
  # command or the data's own files say.
  assert len(page.table(0)[1]) == 10
  for place, check in enumerate(
    (
      check_reddi_tags,
      check_reddi_characters,
      check_reddi_autoencoder,
      check_reddi_shakespeare,
      check_reddi_words,
    ),
    start=1,
  ):
    check(page, page.table(place))


def epsilon_of(clients, sampling, accounting):
  """What 500 rounds of 40 users cost at delta = 0.0025."""
  budget = privacy.Budget(
    clients=clients,
    clients_per_round=40,
    delta=0.0025,
    rounds=500,
    sampling=sampling,
    accounting=accounting,
  )
  return budget.epsilon(1.0, 500)


def check_private_tags(page):
  place = 'stackoverflow_tag_dp'
  curves = reading.curves(f'{place}/curves.csv', 'method', 'seed')
  table = both(f'{place}/results.csv')

  def end(method, column, scale=1.0):
    return [scale * curves[method, s][500][f'{column}'] for s in SEEDS]

  def traffic(method):
    row = curves[method, '0'][500]
    return row['bytes_down'] + row['bytes_up']

  def expected(label, column):
    if label not in {m for m, _ in curves}:
      return [30.7] if column == 2 else []
    return {
      1: [table[label, s]['train/loss'] for s in SEEDS],
      2: end(label, 'test/recall_at_5', 100),
      3: end(label, 'test/loss'),
      4: [traffic(label)],
      5: [traffic(label) * 40 * 500 / 1e6],
    }[column]

  reading.check_table(page.table(1), expected)
  tests = {m: end(m, 'test/recall_at_5', 100) for m, _ in curves}
  joint = ('fedada2', 'joint_zero_init')
  leads = [
    a - b for m in joint for a, b in zip(tests[m], tests['direct_joint'])
  ]
  page.claim('joint_ahead', min(leads), max(leads))
  leads = [a - b for a, b in zip(tests['direct_joint'], tests['fedadagrad'])]
  page.claim('zero_start_ahead', min(leads), max(leads))
  gaps = [
    100 * abs(row['validation/recall_at_5'] - other['validation/recall_at_5'])
    for s in SEEDS
    for row, other in zip(
      curves[joint[0], s].values(), curves[joint[1], s].values()
    )
  ]
  page.claim('fedada2_within', max(gaps))
  # Where the others end, direct joint adaptivity is in round 333.
  until = traffic('fedada2') * 500 / traffic('direct_joint')
  number = int(until // 10) * 10
  recalls = [
    100 * curves['direct_joint', s][number]['validation/recall_at_5']
    for s in SEEDS
  ]
  page.claim('direct_at_equal_bytes', *recalls)
  page.claim(
    'fedada2_at_the_end', *end('fedada2', 'validation/recall_at_5', 100)
  )
  page.claim('megabytes', traffic('fedada2') * 40 * 500 / 1e6)
  worst = {
    column: max(
      n
      for s in SEEDS
      for n in curves['fedavg', s]
      if min(curves[m, s][n][column] for m in joint)
      <= max(
        curves[m, s][n][column]
        for m in ('direct_joint', 'fedavg', 'fedadagrad')
      )
    )
    for column in ('train/loss', 'validation/loss')
  }
  page.claim(
    'ahead_from_round',
    *(worst['train/loss'] + 10, worst['validation/loss'] + 10),
  )
  assert len(page.table(0)[1]) == 4  # Settings.
  epsilons = {
    ('400', 'RDP, order 2'): epsilon_of(400, 'poisson', 'rdp'),
    ('400', 'PLD'): epsilon_of(400, 'fixed', 'pld'),
    ('365', 'RDP'): curves['fedada2', '0'][500]['privacy/epsilon'],
    ('365', 'PLD'): epsilon_of(365, 'fixed', 'pld'),
  }
  for _, users, _, accountant, shown in page.table(2)[1]:
    value = reading.numbers(shown)[0]
    assert reading.agrees(value, epsilons[users, accountant]), users
  page.claim('epsilon_rdp', epsilons['365', 'RDP'])
  page.claim('epsilon_pld', epsilons['365', 'PLD'])


PAGES = {
  REDDI: check_reddi,
  'stackoverflow_tag_dp': check_private_tags,
  'main_job': check_main_job,
  'quadratic': check_quadratic,
  'smoothness_batch': check_smoothness_batch,
  **studies.PAGES,
}


def test_every_results_page_is_read():
  there = {path.parent.name for path in reading.FOLDER.glob('*/README.md')}
  # Of the vectors, test_vectors.py reads everything.
  assert there - {'vectors'} == PAGES.keys()


@pytest.mark.parametrize(
  'wrong',
  [
    ('| FedDecSPS | 0.228 ', '| FedDecSPS | 0.230 '),
    ('by 4 to 13<!--', 'by 4 to 14<!--'),
    (
      'Pixels are between 0 and 1 here.',
      'Pixels are between 0 and 1 here: 93.',
    ),
  ],
)
def test_a_number_that_is_nowhere_is_found(wrong, tmp_path, monkeypatch):
  """In a table, in a claim, and in a sentence that nobody has accounted for."""
  folder = tmp_path / 'mukherjee_mnist'
  shutil.copytree(reading.FOLDER / folder.name, folder)
  text = (folder / 'README.md').read_text(encoding='utf-8')
  assert wrong[0] in text
  (folder / 'README.md').write_text(text.replace(*wrong), encoding='utf-8')
  monkeypatch.setattr(reading, 'FOLDER', tmp_path)
  with pytest.raises(AssertionError):
    test_numbers_are_in_the_csv_files(folder.name)


@pytest.mark.parametrize('name', sorted(PAGES))
def test_numbers_are_in_the_csv_files(name):
  page = reading.Page(name)
  PAGES[name](page)
  assert not page.left()
