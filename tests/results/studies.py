"""Checks of the pages whose files `benchmarks/studies.py` wrote."""

import collections
import itertools
import statistics

from benchmarks import studies
from tests.results import kim_mnist
from tests.results import private_tags
from tests.results import reading
from tests.results import reddi_full
from tests.results import sweeps as sweeps_lib


def _rises(by_round):
  """Lists how much a curve rises from each recorded round to the next."""
  values = [by_round[n] for n in sorted(by_round)]
  return [b - a for a, b in itertools.pairwise(values)]


def check_noise(page):
  sweeps = sweeps_lib.Sweeps('noise')
  names = ('figure_1_sgd', 'figure_1_sps', 'student_t', 'cauchy')
  for place, sweep in enumerate(names):
    sweeps.check(page.table(place), sweep, ['validation/metric'])
  assert all(
    by[20] < 1e-9 and by[200] == 0
    for by in sweeps.curves('figure_1_sps', 'fedsps')
  )
  rate_1 = 'client_learning_rate=1'
  page.claim(
    'student_t_jump',
    max(
      r
      for by in sweeps.curves('student_t', f'sgd, {rate_1}')
      for r in _rises(by)
    ),
  )
  page.claim(
    'cauchy_jump',
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


def check_mukherjee_mnist(page):
  sweeps = sweeps_lib.Sweeps('mukherjee_mnist')
  rates = ('0.0001', '0.001', '0.01', '0.1', '1')
  measures = sweeps_lib.MEASURES
  of = sweeps.shown

  def end(sweep, setting):
    return of(sweep, setting)[0]

  def check(place, where, first=1):
    """Holds a table of measures against the sweep and setting of each row."""

    def expected(label, column):
      if not 0 <= column - first < len(measures):
        return None  # A rate, or a number of the paper.
      return of(*where(label), measures[column - first])

    reading.check_table(page.table(place), expected)

  check(0, lambda label: ('bounds', label))
  check(1, lambda label: ('fedavg', label))
  check(2, lambda label: ('fedams', label))
  kinds = ('unit', 'standardized')

  def pixels(label, column):
    if column > len(kinds):
      return None
    setting = f'mnist_logistic_pixels={kinds[column - 1]}, {label}'
    return of('pixels', setting, 'test/metric')

  reading.check_table(page.table(3), pixels)
  check(
    4,
    {
      'FedSPS': ('classes', 'fedsps_classes'),
      'FedDecSPS': ('classes', 'feddecsps_classes'),
      **{
        f'FedDecSPS, {setting}': ('classes_memory', setting)
        for setting in sweeps.settings('classes_memory')
      },
    }.__getitem__,
  )

  def tuned(method, rate):
    return 'classes_tuned', f'client_learning_rate={rate}, {method}_classes'

  best = {
    method: max(
      rates,
      key=lambda rate: sweeps.mean(*tuned(method, rate))[0],
    )
    for method in ('fedavg', 'fedams', 'fedadam', 'mime')
  }
  assert [row[:2] for row in page.table(5)[1]] == [
    [name, best[name.lower()]]
    for name in ('FedAvg', 'FedAMS', 'FedAdam', 'MIME')
  ]
  check(5, lambda label: tuned(label.lower(), best[label.lower()]), first=2)
  endings = {'i.i.d.': '', 'two classes': '_classes'}

  def normalized(label):
    clients, _, nu = label.partition(', ')
    return 'normalized', f'{nu}, fedsps_normalized{endings[clients]}'

  check(6, normalized)
  steps = collections.defaultdict(list)
  for row in reading.rows('mukherjee_mnist/steps.csv'):
    if int(row['round']) >= 100:
      steps[row['sweep'], row['setting']].append(row)

  def of_steps(label, column):
    place = {
      'FedSPS, two classes': ('classes', 'fedsps_classes'),
      'FedDecSPS, two classes': ('classes', 'feddecsps_classes'),
    }.get(label, ('bounds', label.rpartition(', ')[2]))
    name = studies.STEPS[column - 1]
    return [statistics.fmean(float(row[name]) for row in steps[place])]

  reading.check_table(page.table(7), of_steps)
  bounds = [end('bounds', s) for s in sweeps.settings('bounds')]
  assert max(bounds) - min(bounds) < 0.4
  spans = [end('fedavg', f'client_learning_rate={r}') for r in rates]
  page.claim('fedavg_spans', max(spans) - min(spans))
  losses = [
    sweeps.mean('bounds', f'gamma_b={b}', 'train/loss')[0] for b in (1, 5, 10)
  ]
  assert losses == sorted(losses)
  page.claim('mean_step', of_steps('gamma_b=10', 1)[0])
  page.claim('untuned_and_tuned', end('bounds', 'gamma_b=1'), max(spans))
  page.claim(
    'tuned_at_a_tenth',
    end('fedavg', 'client_learning_rate=0.1'),
    end('fedams', 'client_learning_rate=0.1'),
    91.81,
    91.23,
  )
  ahead = {
    (method, rate): end(method, f'client_learning_rate={rate}') - paper
    for method, numbers in (
      ('fedavg', (76.38, 78.27, 79.97, 91.81, 79.32)),
      ('fedams', (80.75, 81.52, 83.05, 91.23, 82.85)),
    )
    for rate, paper in zip(rates, numbers)
    if rate != '0.1'
  }
  page.claim('fedavg_behind', -ahead.pop(('fedavg', '0.0001')))
  page.claim('ahead_of_the_paper', min(ahead.values()), max(ahead.values()))
  assert max(ahead, key=ahead.get) == ('fedavg', '1')
  loss = {
    m: sweeps.mean(*tuned(m, r), 'train/loss')[0] for m, r in best.items()
  }
  page.claim(
    'loss_of_classes',
    sweeps.mean('classes', 'fedsps_classes', 'train/loss')[0],
    loss.pop('fedavg'),
  )
  page.claim('loss_of_others', min(loss.values()))
  fedsps = of_steps('FedSPS, two classes', 1)[0]
  whole = 'memory=client, count=training'
  counted = [float(r['mean']) for r in steps['classes_memory', whole]]
  assert 100 < fedsps / statistics.fmean(counted) < 250  # "A hundredth."
  fedsps = end('classes', 'fedsps_classes')
  page.claim('feddecsps_ahead', end('classes', 'feddecsps_classes') - fedsps)
  page.claim('fedsps_behind', fedsps - end('classes_memory', whole))
  same = sweeps.mean('classes_memory', 'memory=client, count=round')
  assert same == sweeps.mean('classes', 'feddecsps_classes')
  lead = {
    m: end(*tuned(m, r)) - end('classes', 'fedsps_classes')
    for m, r in best.items()
  }
  page.claim('lead_of_fedavg', lead.pop('fedavg'))
  page.claim('lead_of_others', min(lead.values()), max(lead.values()))
  statuses = {
    row['status']
    for row in sweeps.ends
    if row['setting'] == tuned('fedadam', '0.1')[1]
  }
  assert statuses == {'diverged'}


_LIBSVM = {
  'FedSPS': 'fedsps',
  'FedSPS-Global': 'fedsps_global',
  'FedDecSPS': 'feddecsps',
  'FedAvg': 'fedavg',
  'FedAMS': 'fedams',
  'FedAdam': 'fedadam',
}


def check_mukherjee_libsvm(page):
  sweeps = sweeps_lib.Sweeps('mukherjee_libsvm')
  sets = ('w8a', 'a9a', 'ijcnn1', 'phishing', 'mushrooms')

  def of(name, method, measure='test/metric'):
    return sweeps.shown(name, _LIBSVM[method], measure)

  for place, name in enumerate(sets):
    sweeps.check(page.table(place), name, settings=_LIBSVM)
    for measure in sweeps_lib.MEASURES:
      same = of(name, 'FedAvg', measure)
      assert of(name, 'FedSPS-Global', measure) == same
      if name != 'mushrooms':
        assert of(name, 'FedSPS', measure) == same
  steps = reading.rows('mukherjee_libsvm/steps.csv')
  below = {
    (row['sweep'], row['round'])
    for row in steps
    if row['setting'] == 'fedsps' and float(row['at_bound']) < 1
  }
  assert below == {('mushrooms', '1')}
  assert all(
    float(row['mean']) == float(row['at_bound']) == 1
    for row in steps
    if row['setting'] == 'fedsps_global'
  )
  last = [
    float(row['mean'])
    for row in steps
    if row['setting'] == 'feddecsps' and row['round'] == '500'
  ]
  page.claim('smallest_step', min(last))
  page.claim(
    'fedams_on_w8a',
    of('w8a', 'FedAMS')[0],
    of('w8a', 'FedSPS')[0],
  )
  page.claim(
    'losses_on_w8a',
    of('w8a', 'FedAMS', 'train/loss')[0],
    of('w8a', 'FedSPS', 'train/loss')[0],
  )
  ahead = {
    name: of(name, 'FedAdam')[0] - of(name, 'FedSPS')[0] for name in sets
  }
  page.claim('behind_on_a9a', -ahead.pop('a9a'))
  assert min(ahead.values()) > 0
  page.claim('fedadam_ahead', max(ahead.values()))
  for name in sets:
    best = min(of(name, m, 'train/loss')[0] for m in ('FedSPS', 'FedAvg'))
    behind = of(name, 'FedDecSPS', 'train/loss')[0] > best
    assert behind == (name != 'a9a')
  apart = [of(n, 'FedSPS')[0] - of(n, 'FedDecSPS')[0] for n in sets]
  page.claim('feddecsps_near', max(map(abs, apart)))


_TUNING_FREE = {
  'Delta-SGD': 'delta_sgd',
  'FedSPS': 'fedsps',
  'schedule-free SGD': 'fedavg + schedule_free_sgd',
  'Prodigy': 'fedavg + prodigy',
  'Prodigy, d_0 = 0.01': 'fedavg + prodigy, d_0=0.01',
  'DoG': 'fedavg + dog',
  'DoG, r_epsilon = 0.01': 'fedavg + dog, r_epsilon=0.01',
  'FedExP': 'fedexp',
  'FedAvg': 'fedavg',
  'FedAdam': 'fedadam',
}


def check_tuning_free(page):
  sweeps = sweeps_lib.Sweeps('tuning_free')
  tasks = ('digits', 'emnist_character', 'mnist_character')
  tasks = (*tasks, 'shakespeare_character')

  def of(task, method, measure='test/metric'):
    return sweeps.shown(task, _TUNING_FREE[method], measure)

  for place, task in enumerate(tasks):
    sweeps.check(page.table(place), task, settings=_TUNING_FREE)

  def ends(method):
    return [of(task, method)[0] for task in tasks]

  free = ('Delta-SGD', 'FedSPS', 'Prodigy', 'DoG')
  best = [max(free, key=lambda m, i=i: ends(m)[i]) for i in range(len(tasks))]
  assert best == ['Delta-SGD', 'Delta-SGD', 'FedSPS', 'Prodigy']
  behind = [a - b for a, b in zip(ends('FedAdam')[:3], ends('Delta-SGD')[:3])]
  page.claim('fedadam_on_images', max(behind))
  page.claim('delta_sgd_on_shakespeare', ends('Delta-SGD')[3])
  page.claim('fedadam_on_shakespeare', ends('FedAdam')[3])
  sps = sorted(
    100 * v for v in sweeps.values(tasks[1], 'fedsps', 'test/metric')
  )
  page.claim('worst_seed', sps[0])
  assert sps[1] > 50 and min(ends('FedSPS')) > 25
  assert max(ends('Prodigy')[0], ends('DoG')[0]) < 65
  assert max(ends('Prodigy')[2], ends('DoG')[2]) < 65
  assert max(ends('Prodigy')[1], ends('DoG')[1]) < 10
  page.claim('prodigy_on_shakespeare', ends('Prodigy')[3])
  dog = ends('DoG, r_epsilon = 0.01')[:3]
  page.claim('dog_on_images', *dog)
  chance = ends('Prodigy, d_0 = 0.01')
  assert max(chance[0], chance[2]) < 12 and chance[1] < 5  # "At chance."
  ahead = [a - b for a, b in zip(ends('FedExP'), ends('FedAvg'))]
  page.claim('fedexp_ahead', ahead[0])
  page.claim('fedexp_behind', *(-a for a in ahead[1:3]))
  lead = [a - b for a, b in zip(ends('FedAvg'), ends('schedule-free SGD'))]
  assert lead[0] < 0 < min(lead[1:3])
  still = [ends(m)[3] for m in ('FedAvg', 'FedExP', 'schedule-free SGD')]
  assert max(still) - min(still) < 0.01
  page.claim('most_frequent_character', still[0])


_LENET = {
  'FedSPS': 'fedsps',
  'FedSPS-Global': 'fedsps_global',
  'FedDecSPS': 'feddecsps',
  'FedAvg': 'fedavg',
  'FedAMS': 'fedams',
}
_ADAPTIVE = {
  'FedAvg': 'fedavg',
  'FedAdaGrad': 'fedadagrad',
  'direct joint adaptivity': 'direct_joint',
  'joint adaptivity from zero': 'joint_zero_init',
  'FedAda2': 'fedada2',
}


def check_local_steps(page):
  sweeps = sweeps_lib.Sweeps('local_steps')

  def of(sweep, setting, measure='test/metric'):
    return sweeps.shown(sweep, setting, measure)[0]

  _check_lenet(page, sweeps, of)
  _check_steps(page, of)
  _check_joint(page, sweeps, of)


def _check_lenet(page, sweeps, of):
  measures = ('train/loss', 'best/metric', 'validation/metric', 'test/metric')
  for place, split in enumerate(('iid', 'classes')):
    settings = {label: f'{k}_{split}' for label, k in _LENET.items()}
    sweeps.check(page.table(place), f'lenet_{split}', measures, settings)
  iid = {
    k: of('lenet_iid', f'{k}_iid')
    for k in _LENET.values()
    if k != 'fedsps_global'  # It diverged with one seed.
  }
  classes = {k: of('lenet_classes', f'{k}_classes') for k in _LENET.values()}
  page.claim('iid_ends', iid['fedsps'], iid['fedavg'])
  page.claim('classes_ends', classes['fedsps'], classes['fedavg'])
  page.claim('ahead_of_fedams', iid['fedsps'] - iid['fedams'])
  page.claim('behind_fedams', classes['fedams'] - classes['fedsps'])
  page.claim('global_classes', classes['fedsps_global'])
  of_global = {
    row['seed']: row
    for row in sweeps.ends
    if (row['sweep'], row['setting']) == ('lenet_iid', 'fedsps_global_iid')
  }
  assert of_global['0']['status'] == 'diverged'
  page.claim('global_iid', 100 * float(of_global['1']['test/metric']))
  steps = collections.defaultdict(list)
  for row in reading.rows('local_steps/steps.csv'):
    steps[row['setting'], int(row['round'])].append(float(row['mean']))
  assert steps['fedsps_global_iid', 1] == [1.0, 1.0]
  page.claim('feddecsps_ends', iid['feddecsps'], classes['feddecsps'])
  page.claim(
    'feddecsps_steps',
    statistics.fmean(steps['feddecsps_iid', 500]),
    statistics.fmean(steps['feddecsps_classes', 500]),
  )


def _check_steps(page, of):
  scales = ('0.01', '0.1', '0.5', '1', '5', '10', '20', '40')
  counts = (5, 10, 20, 50, 100)
  for place, measure in ((2, 'test/metric'), (3, 'train/loss')):
    heading, rows = page.table(place)
    assert heading[1:] == [f'c = {c}' for c in scales]
    assert [row[0] for row in rows] == [str(n) for n in counts]
    reading.check_table(
      (heading, rows),
      lambda count, column, measure=measure: [
        of(f'steps_{count}', f'c={scales[column - 1]}', measure)
      ],
    )
  ends = {n: [of(f'steps_{n}', f'c={c}') for c in scales] for n in counts}
  losses = {
    n: [of(f'steps_{n}', f'c={c}', 'train/loss') for c in scales]
    for n in counts
  }
  page.claim(
    'small_c_apart',
    max(max(by[:4]) - min(by[:4]) for by in ends.values()),
  )
  assert all(abs(by[0] - by[1]) < 1e-3 for by in losses.values())
  behind = [ends[n][2] - ends[n][-1] for n in counts]
  assert behind == sorted(behind, reverse=True)
  page.claim('large_c_behind', 40, behind[0], 0.5)
  page.claim('large_c_still_behind', behind[-1])
  lowest = [scales[by.index(min(by))] for by in losses.values()]
  assert lowest == ['1', '5', '5', '5', '5']


def _check_joint(page, sweeps, of):
  best = {
    method: max(
      (s for s in sweeps.settings('joint') if s.split(', ')[0] == method),
      key=lambda s: of('joint', s, 'validation/metric'),
    )
    for method in _ADAPTIVE.values()
  }
  table = page.table(4)
  assert [row[0] for row in table[1]] == [*_ADAPTIVE]
  for label, rate, adaptivity, *_ in table[1]:
    words = [_ADAPTIVE[label], f'client_learning_rate={rate}']
    if adaptivity != 'none':
      words.append(f'server_adaptivity={adaptivity}')
    assert best[_ADAPTIVE[label]] == ', '.join(words)
  reading.check_table(
    table,
    lambda label, column: (
      None
      if column < 3
      else [
        of('joint', best[_ADAPTIVE[label]], sweeps_lib.MEASURES[column - 3])
      ]
    ),
  )
  sweeps.check(page.table(5), 'private_batch_32', settings=_ADAPTIVE)
  end = {method: of('joint', setting) for method, setting in best.items()}
  assert abs(end['fedada2'] - end['joint_zero_init']) < 0.1
  page.claim('fedada2_joint', end['fedada2'])
  page.claim('fedadagrad_joint', end['fedadagrad'])
  page.claim('direct_joint', end['direct_joint'])
  page.claim('fedavg_joint', end['fedavg'])
  private = {m: of('private_batch_32', m) for m in _ADAPTIVE.values()}
  order = sorted(private, key=private.get, reverse=True)
  assert order == [
    'fedada2',
    'joint_zero_init',
    'fedavg',
    'direct_joint',
    'fedadagrad',
  ]
  page.claim('private_lead', private['joint_zero_init'] - private['fedavg'])


PAGES = {
  'kim_mnist': kim_mnist.check_kim_mnist,
  'private_tags': private_tags.check_private_tags,
  'noise': check_noise,
  'mukherjee_libsvm': check_mukherjee_libsvm,
  'local_steps': check_local_steps,
  'mukherjee_mnist': check_mukherjee_mnist,
  'reddi_full': reddi_full.check_reddi_full,
  'tuning_free': check_tuning_free,
}
