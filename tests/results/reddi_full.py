"""Checks of the page of longer studies of Reddi et al."""

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
    '57.2 against 60.6 % at the best',
    end('emnist_character', 'scaffold', '0.1'),
    end('emnist_character', 'fedavg', '0.316228'),
  )
  (diverged,) = [row for row in sweeps.ends if row['status'] == 'diverged']
  assert diverged['sweep'] == 'scaffold_emnist_character'
  assert diverged['setting'] == _setting('scaffold', '0.316228')
  assert int(diverged['rounds']) <= 10
  page.take('at 0.316228 SCAFFOLD diverges')
  shakespeare = all_ends('shakespeare_character', ('0.316228', '1', '3.16228'))
  page.claim(
    '30.8 against 30.9 %, and within 0.6 points',
    shakespeare[1][2],
    shakespeare[0][2],
    max(a - b for a, b in zip(*shakespeare, strict=True)),
  )
  autoencoder = all_ends('emnist_autoencoder', ('3.16228', '10', '31.6228'))
  assert all(b > a for a, b in zip(*autoencoder, strict=True))
  sweep = 'scaffold_stackoverflow_tag'
  page.claim(
    'SCAFFOLD ends at 28.7, FedAvg at 12.0 %',
    end('stackoverflow_tag', 'scaffold', '10'),
    end('stackoverflow_tag', 'fedavg', '10'),
  )
  (by_round,) = sweeps.curves(sweep, _setting('fedavg', '10'))
  page.claim(
    'rate of 10 from 28.4 to 9.0 % in the last five rounds',
    10,
    100 * by_round[55],
    100 * by_round[60],
  )
  words = all_ends('stackoverflow_word', ('0.1', '0.316228', '1'))
  assert all(a >= b for a, b in zip(*words, strict=True))
  for setting in (
    '160 writers of UNIPEN in place of 3,400 of NIST, 365 users of four',
    'place of 342,477 of Stack Overflow, 1,000 words and 100 tags, and 964',
    'validation on 2,000 test examples',
    'recall at 5 in %',
    'Figures 1 and 4',
    "60 of the paper's 1,500 rounds",
    '60 of 3,000 rounds',
    'Shakespeare, 15 of 1,500 rounds',
    'Tags, 60 of 1,500 rounds, recall at 5',
    'words, 15 of 1,500 rounds, 20 clients a round in place of 50',
    'as far as 15 rounds',
    'after 60 rounds all',
    '600 draws are made of 365 users',
    'as good as either (30.7 %)',
  ):
    page.take(setting)
