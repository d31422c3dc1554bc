"""Presets of Kim et al., arXiv 2306.11201."""

from collections.abc import Iterator
from typing import Any
from typing import Optional

from tools.paper_presets import preset

_PAPER = 'Kim et al., arXiv 2306.11201'
_MEASURE = '(accuracy %, test, best round)'
# Table 1: best test accuracy %, FedAvg server.
_DELTA = {
  ('mnist_character', '1'): 98.4,
  ('mnist_character', '0.1'): 98.1,
  ('mnist_character', '0.01'): 97.5,
  ('fmnist', '1'): 87.3,
  ('fmnist', '0.1'): 86.4,
  ('fmnist', '0.01'): 80.2,
  ('cifar10_image', '1'): 89.8,
  ('cifar10_image', '0.1'): 84.5,
  ('cifar10_image', '0.01'): 31.6,
  ('cifar100_image', '1'): 61.5,
  ('cifar100_image', '0.1'): 61.1,
  ('cifar100_image', '0.01'): 31.8,
}
_OTHERS = {
  ('mnist_character', '0.1'): dict(
    sgd=98.1, sgdm=97.6, adam=96.4, adagrad=89.9, sps=96.0
  ),
  ('mnist_character', '0.01'): dict(
    sgd=96.8, sgdm=77.9, adam=80.8, adagrad=72.4, sps=69.7
  ),
  ('fmnist', '0.1'): dict(
    sgd=83.6, sgdm=83.6, adam=80.4, adagrad=46.3, sps=85.0
  ),
  ('fmnist', '0.01'): dict(
    sgd=79.0, sgdm=75.7, adam=60.6, adagrad=45.9, sps=44.0
  ),
  ('cifar10_image', '0.1'): dict(
    sgd=72.1, sgdm=79.6, adam=85.0, adagrad=84.1, sps=70.3
  ),
}
_FEDADAM = {
  'mnist_character': 97.9,
  'fmnist': 85.8,
  'cifar10_image': 63.8,
  'cifar100_image': 41.9,
}
_TEXT = {'ag_news': 90.0, 'dbpedia': 98.6}
_ROUNDS = {
  'mnist_character': 500,
  'fmnist': 1000,
  'cifar10_image': 2000,
  'cifar100_image': 2000,
}
# What the other clients' rates are is not published, the grids are.
_CLIENTS: dict[str, tuple[dict[str, Any], Optional[str]]] = {
  'sgd': (
    dict(algorithm='fedavg', client_learning_rate=0.05),
    '0.01, 0.05, 0.1, 0.5',
  ),
  'sgdm': (
    dict(algorithm='fedavg', client_learning_rate=0.05, client_momentum=0.9),
    '0.01, 0.05, 0.1, 0.5',
  ),
  'adam': (
    dict(
      algorithm='fedavg', client_optimizer='adam', client_learning_rate=0.001
    ),
    '0.001, 0.01, 0.1',
  ),
  'adagrad': (
    dict(
      algorithm='fedavg', client_optimizer='adagrad', client_learning_rate=0.01
    ),
    '0.001, 0.01, 0.1',
  ),
  'sps': (dict(algorithm='fedsps', c=0.5, lower_bound=0.0), None),
}
_OWN = dict(
  algorithm='delta_sgd',
  gamma=2.0,
  delta=0.1,
  eta_0=0.2,
  theta_0=1.0,
  smoothness_batch='same',
)
_OWN_NOTE = (
  'both gradients of the smoothness estimate on the same batch, as in the '
  'code that the table comes from'
)


def _setting(task: str, alpha: str) -> dict[str, Any]:
  setting = dict(
    task=task,
    total_rounds=_ROUNDS[task],
    clients_per_round=10,
    client_epochs_per_round=1,
    client_batch_size=64,
  )
  if task == 'cifar100_image':
    setting[f'{task}_partition'] = 'lda'
  setting[f'{task}_num_clients'] = 100
  setting[f'{task}_examples_per_client'] = 500
  setting[f'{task}_alpha'] = alpha
  if task in ('cifar10_image', 'cifar100_image'):
    setting |= preset.whole_images(task)
  return setting


def rows() -> Iterator[preset.Row]:
  """Lists the presets of Tables 1, 2a and 4."""
  yield from _table_1()
  yield from _table_4()
  yield from _table_2a()


def _table_1() -> Iterator[preset.Row]:
  for (task, alpha), number in _DELTA.items():
    yield preset.Row(
      f'kim2024/{task}/delta_sgd_alpha_{alpha}',
      _setting(task, alpha) | _OWN,
      f'{_PAPER}, Table 1',
      f'{number} {_MEASURE}',
      _OWN_NOTE,
    )
  for (task, alpha), numbers in _OTHERS.items():
    for client, number in numbers.items():
      flags, grid = _CLIENTS[client]
      yield preset.Row(
        f'kim2024/{task}/{client}_alpha_{alpha}',
        _setting(task, alpha) | flags,
        f'{_PAPER}, Table 1',
        f'{number} {_MEASURE}',
        None
        if grid is None
        else f'the paper tells the grid of the client rate ({grid}), not '
        'which point of it was best',
      )


def _table_4() -> Iterator[preset.Row]:
  for task, number in _FEDADAM.items():
    yield preset.Row(
      f'kim2024/{task}/delta_sgd_fedadam_alpha_0.1',
      _setting(task, '0.1')
      | _OWN
      | dict(
        algorithm='fedadam',
        client_optimizer='delta_sgd',
        variant='reference',
        server_learning_rate=0.001,
        server_adaptivity=1e-8,
        beta_1=0.9,
        beta_2=0.999,
      ),
      f'{_PAPER}, Table 4',
      f'{number} {_MEASURE}',
      "the server has PyTorch's default Adam, as in the paper",
    )


def _table_2a() -> Iterator[preset.Row]:
  for task, number in _TEXT.items():
    yield preset.Row(
      f'kim2024/{task}/delta_sgd_alpha_1',
      {
        'task': task,
        'total_rounds': 100,
        'clients_per_round': 6,
        'client_epochs_per_round': 1,
        'client_batch_size': 16,
        f'{task}_num_clients': 60,
        f'{task}_examples_per_client': 500,
        f'{task}_alpha': 1,
        **_OWN,
      },
      f'{_PAPER}, Table 2a',
      f'{number} {_MEASURE}',
      _OWN_NOTE,
    )
