"""Presets of Reddi et al., arXiv 2003.00295."""

from collections.abc import Iterator
from typing import Any

import tasks
from tff_adaptive.lab.flags.papers import preset

_PAPER = 'Reddi et al., arXiv 2003.00295'
# Tables 1, 8 and 9, columns fedadagrad, fedadam, fedyogi, fedavgm,
# fedavg: the number; log10 of the client and the server rate; log10 of tau.
_METHODS = ('fedadagrad', 'fedadam', 'fedyogi', 'fedavgm', 'fedavg')
_TABLE = {
  'cifar10_image': (
    (72.1, 77.4, 78.0, 77.4, 72.8),
    ((-1.5, -1), (-1.5, -2), (-1.5, -2), (-1.5, -0.5), (-0.5, 0)),
    (-2, -3, -3),
  ),
  'cifar100_image': (
    (47.9, 52.5, 52.4, 52.4, 44.7),
    ((-1, -1), (-1.5, 0), (-1.5, 0), (-1.5, 0), (-1, 0.5)),
    (-2, -1, -1),
  ),
  'emnist_autoencoder': (
    (4.20, 1.01, 0.98, 1.65, 6.47),
    ((1.5, -1.5), (1, -1.5), (1, -1.5), (0.5, 0), (1, 0)),
    (-3, -3, -3),
  ),
  'emnist_character': (
    (85.1, 85.6, 85.5, 85.2, 84.9),
    ((-1.5, -1), (-1.5, -2.5), (-1.5, -2.5), (-1.5, -0.5), (-1, 0)),
    (-2, -4, -4),
  ),
  'shakespeare_character': (
    (57.5, 57.0, 57.2, 57.3, 56.9),
    ((0, -0.5), (0, -2), (0, -2), (0, -0.5), (0, 0)),
    (-1, -3, -3),
  ),
  'stackoverflow_tag': (
    (67.1, 65.8, 65.9, 36.9, 30.0),
    ((2, 1), (2, -0.5), (2, -0.5), (2, 0), (2, 0)),
    (-2, -5, -5),
  ),
  'stackoverflow_word': (
    (23.8, 25.2, 25.2, 23.8, 19.5),
    ((-0.5, -1.5), (-0.5, -2), (-0.5, -2), (-0.5, 0), (-0.5, 0)),
    (-4, -5, -5),
  ),
}
# Flags and notes by task from the released code
# (docs/released_code/reddi2021.csv).
_ADAPTIVE = (
  'the released code corrected Adam and Yogi for bias and had beta_2 0.999, as '
  '--variant=reference --beta_2=0.999 does'
)
_TOKENS = (
  'as in the released code, clients count by tokens, and their loss counts '
  'padding'
)
# The whole test split, which has more than 10,000 examples.
_ENTIRE = {'num_validation_examples': -1}
_RELEASED: dict[str, tuple[dict[str, Any], str]] = {
  'cifar10_image': ({}, ''),
  'cifar100_image': ({}, ''),
  'emnist_autoencoder': (
    _ENTIRE
    | {
      'emnist_autoencoder_bottleneck': 'linear',
      'emnist_autoencoder_loss': 'sum',
    },
    'as in the released code, the loss is summed over the batch and the '
    'bottleneck is linear',
  ),
  'emnist_character': (_ENTIRE, ''),
  'shakespeare_character': (
    {
      'client_weighting': 'tokens',
      'shakespeare_character_padding': 'counted',
    },
    _TOKENS,
  ),
  'stackoverflow_tag': (
    {'max_elements_per_client': 1000},
    'as in the released code, a client trains on its first 1,000 sentences',
  ),
  'stackoverflow_word': (
    {
      'max_elements_per_client': 1000,
      'client_weighting': 'tokens',
      'stackoverflow_word_padding': 'counted',
    },
    _TOKENS,
  ),
}
_MEASURE = {
  'emnist_autoencoder': 'mean squared error x 1000',
  'stackoverflow_tag': 'recall at 5 x 100',
}


def rows() -> Iterator[preset.Preset]:
  for task, (numbers, rates, taus) in _TABLE.items():
    published = tasks.info(task).published
    assert published is not None
    measure = _MEASURE.get(task, 'accuracy %')
    for i, method in enumerate(_METHODS):
      flags: dict[str, Any] = dict(
        task=task,
        algorithm=method,
        total_rounds=published.rounds,
        clients_per_round=published.clients_per_round,
        client_epochs_per_round=1,
        client_batch_size=published.batch_size,
        client_learning_rate=10.0 ** rates[i][0],
        server_learning_rate=10.0 ** rates[i][1],
      )
      if i < len(taus):
        flags['server_adaptivity'] = 10.0 ** taus[i]
      released, note = _RELEASED[task]
      flags |= released
      notes = [note, _ADAPTIVE if method in ('fedadam', 'fedyogi') else '']
      yield preset.Preset(
        f'reddi2021/{task}/{method}',
        flags,
        f'{_PAPER}, Tables 1, 8 and 9',
        f'{numbers[i]} ({measure}, validation, mean of the last 100 rounds)',
        '; '.join(filter(None, notes)) or None,
      )
