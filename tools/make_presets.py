"""Writes the flag files below tff_adaptive/presets/ from the papers' tables.

  python tools/make_presets.py           writes them
  python tools/make_presets.py --check   says which differ from the tables

A preset is left out while the program has no such task, algorithm or flag;
run this again once it has.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Iterator
from typing import Any
from typing import Optional

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

# pylint: disable=g-import-not-at-top
import tasks  # noqa: E402
from tff_adaptive import algorithms  # noqa: E402
from tff_adaptive.experiment import flags as flags_lib  # noqa: E402
from tff_adaptive.experiment import presets  # noqa: E402

_AFO = 'Reddi et al., arXiv 2003.00295'
_KIM = 'Kim et al., arXiv 2306.11201'
_SPS = 'Mukherjee et al., arXiv 2307.06306'
_ADA2 = 'FedAda2, "Efficient Adaptive Federated Optimization"'


@dataclasses.dataclass(frozen=True)
class Row:
  """One preset: PAPER/TASK/METHOD, its flags and what the paper says."""

  name: str
  flags: dict[str, Any]
  source: str
  published: Optional[str] = None
  note: Optional[str] = None

  def text(self) -> str:
    lines = [f'# source: {self.source}']
    if self.published is not None:
      lines.append(f'# published: {self.published}')
    if self.note is not None:
      lines.append(f'# note: {self.note}')
    for name, value in self.flags.items():
      shown = f'{value:.6g}' if isinstance(value, float) else value
      lines.append(f'--{name}={shown}')
    return '\n'.join(lines) + '\n'


# Tables 1, 8 and 9 of AFO, columns fedadagrad, fedadam, fedyogi, fedavgm,
# fedavg: the number; log10 of the client and the server rate; log10 of tau.
_AFO_METHODS = ('fedadagrad', 'fedadam', 'fedyogi', 'fedavgm', 'fedavg')
_AFO_TABLE = {
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
_AFO_MEASURE = {
  'emnist_autoencoder': 'mean squared error x 1000',
  'stackoverflow_tag': 'recall at 5 x 100',
}


def _afo() -> Iterator[Row]:
  for task, (numbers, rates, taus) in _AFO_TABLE.items():
    published = tasks.info(task).published
    assert published is not None
    measure = _AFO_MEASURE.get(task, 'accuracy %')
    for i, method in enumerate(_AFO_METHODS):
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
      note = None
      if i < len(taus):
        flags['server_adaptivity'] = 10.0 ** taus[i]
      if method in ('fedadam', 'fedyogi'):
        note = (
          'the released code also corrected Adam and Yogi for bias, as '
          '--variant=reference does'
        )
      if task == 'stackoverflow_word':
        flags['max_elements_per_client'] = 1000
      yield Row(
        f'reddi2021/{task}/{method}',
        flags,
        f'{_AFO}, Tables 1, 8 and 9',
        f'{numbers[i]} ({measure}, validation, mean of the last 100 rounds)',
        note,
      )


# Table 1 of Kim et al.: best test accuracy %, FedAvg server.
_KIM_DELTA = {
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
_KIM_OTHERS = {
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
_KIM_FEDADAM = {
  'mnist_character': 97.9,
  'fmnist': 85.8,
  'cifar10_image': 63.8,
  'cifar100_image': 41.9,
}
_KIM_TEXT = {'ag_news': 90.0, 'dbpedia': 98.6}
_KIM_ROUNDS = {
  'mnist_character': 500,
  'fmnist': 1000,
  'cifar10_image': 2000,
  'cifar100_image': 2000,
}
# What the other clients' rates are is not published, the grids are.
_KIM_CLIENTS: dict[str, tuple[dict[str, Any], Optional[str]]] = {
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
_KIM_OWN = dict(
  algorithm='delta_sgd',
  gamma=2.0,
  delta=0.1,
  eta_0=0.2,
  theta_0=1.0,
  smoothness_batch='same',
)
_KIM_OWN_NOTE = (
  'both gradients of the smoothness estimate on the same batch, as in the '
  'code that the table comes from'
)


def _kim_setting(task: str, alpha: str) -> dict[str, Any]:
  setting = dict(
    task=task,
    total_rounds=_KIM_ROUNDS[task],
    clients_per_round=10,
    client_epochs_per_round=1,
    client_batch_size=64,
  )
  if task == 'cifar100_image':
    setting[f'{task}_partition'] = 'lda'
  setting[f'{task}_num_clients'] = 100
  setting[f'{task}_examples_per_client'] = 500
  setting[f'{task}_alpha'] = alpha
  return setting


def _kim() -> Iterator[Row]:
  measure = '(accuracy %, test, best round)'
  for (task, alpha), number in _KIM_DELTA.items():
    yield Row(
      f'kim2024/{task}/delta_sgd_alpha_{alpha}',
      _kim_setting(task, alpha) | _KIM_OWN,
      f'{_KIM}, Table 1',
      f'{number} {measure}',
      _KIM_OWN_NOTE,
    )
  for (task, alpha), numbers in _KIM_OTHERS.items():
    for client, number in numbers.items():
      flags, grid = _KIM_CLIENTS[client]
      yield Row(
        f'kim2024/{task}/{client}_alpha_{alpha}',
        _kim_setting(task, alpha) | flags,
        f'{_KIM}, Table 1',
        f'{number} {measure}',
        None
        if grid is None
        else f'the paper tells the grid of the client rate ({grid}), not '
        'which point of it was best',
      )
  for task, number in _KIM_FEDADAM.items():
    yield Row(
      f'kim2024/{task}/delta_sgd_fedadam_alpha_0.1',
      _kim_setting(task, '0.1')
      | _KIM_OWN
      | dict(
        algorithm='fedadam',
        client_optimizer='delta_sgd',
        variant='reference',
        server_learning_rate=0.001,
        server_adaptivity=1e-8,
        beta_1=0.9,
        beta_2=0.999,
      ),
      f'{_KIM}, Table 4',
      f'{number} {measure}',
      "the server has PyTorch's default Adam, as in the paper",
    )
  for task, number in _KIM_TEXT.items():
    yield Row(
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
        **_KIM_OWN,
      },
      f'{_KIM}, Table 2a',
      f'{number} {measure}',
      _KIM_OWN_NOTE,
    )


_LIBSVM = ('a9a', 'w8a', 'ijcnn1', 'mushrooms', 'phishing')


def _sps_setting(task: str) -> dict[str, Any]:
  """500 rounds of 5 local steps, 10 clients a round."""
  return dict(
    task=task,
    total_rounds=500,
    clients_per_round=10,
    client_epochs_per_round=1,
    client_batch_size=20,
    max_elements_per_client=100,
  )


def _sps_clients(smoothing: bool) -> dict[str, dict[str, Any]]:
  own: dict[str, Any] = dict(c=0.5, gamma_b=1.0, lower_bound=0.0)
  grows = dict(smoothing='bound') if smoothing else {}
  return {
    'fedsps': dict(algorithm='fedsps', **own, **grows),
    'feddecsps': dict(algorithm='feddecsps', **own),
  }


def _sps_tuned(rate: float, stabilization: float) -> dict[str, dict[str, Any]]:
  """Table 3: FedAvg and FedAMS."""
  return {
    'fedavg': dict(algorithm='fedavg', client_learning_rate=rate),
    'fedams': dict(
      algorithm='fedams',
      client_learning_rate=rate,
      server_learning_rate=1.0,
      server_adaptivity=stabilization,
      beta_1=0.9,
      beta_2=0.99,
    ),
  }


def _sps() -> Iterator[Row]:
  source = f'{_SPS}, Section 6 and Table 3'
  numbers = {'fedavg': '91.81', 'fedavg_rate_0.01': '79.97'}
  clients = _sps_clients(False) | _sps_tuned(0.1, 1e-3)
  clients['fedavg_rate_0.01'] = dict(
    algorithm='fedavg', client_learning_rate=0.01
  )
  for method, flags in clients.items():
    yield Row(
      f'mukherjee2023/mnist_logistic/{method}',
      _sps_setting('mnist_logistic') | flags,
      source,
      f'{numbers[method]} (accuracy %, test, last round)'
      if method in numbers
      else None,
    )
  for dataset in _LIBSVM:
    for method, flags in (_sps_clients(False) | _sps_tuned(1.0, 1e-2)).items():
      yield Row(
        f'mukherjee2023/libsvm_logistic/{method}_{dataset}',
        _sps_setting('libsvm_logistic')
        | {'libsvm_logistic_dataset': dataset}
        | flags,
        source,
      )
  for method, flags in (_sps_clients(True) | _sps_tuned(0.1, 1e-3)).items():
    for partition in ('iid', 'classes'):
      yield Row(
        f'mukherjee2023/mnist_lenet/{method}_{partition}',
        _sps_setting('mnist_lenet')
        | {'mnist_lenet_partition': partition}
        | flags,
        source,
      )
  table = {
    ('cifar10_image', '1'): (89.92, 89.91),
    ('cifar10_image', '0.1'): (84.74, 85.78),
    ('cifar10_image', '0.01'): (31.15, 32.57),
    ('cifar100_image', '1'): (65.24, 65.11),
    ('cifar100_image', '0.1'): (62.91, 63.05),
    ('cifar100_image', '0.01'): (30.66, 31.29),
  }
  for (task, alpha), pair in table.items():
    for (method, flags), number in zip(
      _sps_clients(True).items(), pair, strict=True
    ):
      setting = _sps_setting(task) | {
        f'{task}_partition': 'lda',
        f'{task}_num_clients': 100,
        f'{task}_examples_per_client': 500,
        f'{task}_alpha': alpha,
      }
      if task == 'cifar100_image':
        setting[f'{task}_model'] = 'resnet50'
      yield Row(
        f'mukherjee2023/{task}/{method}_alpha_{alpha}',
        setting | flags,
        f'{_SPS}, Table 1',
        f'{number} (accuracy %, test, mean of 3 seeds)',
      )


def _ada2() -> Iterator[Row]:
  """Private training on Stack Overflow tags, Table 3, and ViT, Tables 4, 5."""
  rows: dict[str, dict[str, Any]] = {
    'fedavg': dict(dp_clip_norm=1.0, client_learning_rate=20.0),
    'fedadagrad': dict(
      dp_clip_norm=0.1,
      client_learning_rate=1.0,
      server_learning_rate=1.0,
      server_adaptivity=1e-3,
    ),
  }
  for method, (clip, client, tau) in {
    'direct_joint': (0.5, 1.0, 1e-3),
    'joint_zero_init': (0.5, 0.1, 1e-5),
    'fedada2': (0.1, 0.1, 1e-5),
  }.items():
    rows[method] = dict(
      dp_clip_norm=clip,
      client_learning_rate=client,
      server_learning_rate=1.0,
      server_adaptivity=tau,
      client_adaptivity=1e-3,
    )
  for method, flags in rows.items():
    yield Row(
      f'fedada2/stackoverflow_tag/{method}',
      dict(
        task='stackoverflow_tag',
        algorithm=method,
        total_rounds=500,
        clients_per_round=40,
        stackoverflow_tag_num_users=400,
        dp_noise_multiplier=1.0,
        dp_delta=0.0025,
        dp_sampling='poisson',
        dp_accounting='rdp',
        **flags,
      ),
      f'{_ADA2}, Table 3',
      None,
      'noise multiplier 1, sampling 0.1, 500 rounds: the paper states epsilon '
      '13.1 at delta 0.0025',
    )
  shared = dict(
    clients_per_round=10,
    client_epochs_per_round=5,
    client_batch_size=32,
  )
  for task, client_tau in (('cifar100_image', 1.0), ('gld23k', 0.1)):
    setting: dict[str, Any] = dict(task=task, **shared)
    if task == 'cifar100_image':
      setting |= {
        'cifar100_image_partition': 'lda',
        'cifar100_image_alpha': 0.001,
        'cifar100_image_num_clients': 1000,
        'cifar100_image_model': 'vit_s',
        'cifar100_image_crop_size': 224,
      }
    for method in ('direct_joint', 'joint_zero_init', 'fedada2'):
      yield Row(
        f'fedada2/{task}/{method}',
        setting
        | dict(
          algorithm=method,
          client_optimizer='sm3_adam' if method == 'fedada2' else 'adam',
          server_optimizer='adam',
          client_learning_rate=0.01,
          server_learning_rate=0.001,
          server_adaptivity=1e-5,
          client_adaptivity=client_tau,
          beta_1=0.9,
          beta_2=0.999,
          client_beta_1=0.9,
          client_beta_2=0.999,
          client_warmup_steps=10,
        ),
        f'{_ADA2}, Tables 4 and 5',
        None,
        'the paper fine-tunes a ViT-S that was trained before',
      )


def rows() -> list[Row]:
  """Every preset of the tables that this program could run."""
  parser = flags_lib.Flags()
  known = set(parser.values)
  return [
    row
    for make in (_afo, _kim, _sps, _ada2)
    for row in make()
    if row.flags['task'] in tasks.names()
    and row.flags['algorithm'] in algorithms.names()
    and set(row.flags) <= known
  ]


def main(arguments: list[str]) -> int:
  folder = presets.FOLDER
  check = arguments == ['--check']
  if arguments and not check:
    print(__doc__)
    return 2
  expected = {folder / f'{row.name}.flags': row.text() for row in rows()}
  there = set(folder.rglob('*.flags'))
  wrong = [
    path
    for path, text in expected.items()
    if path not in there or path.read_text(encoding='utf-8') != text
  ]
  for path in sorted({*wrong, *(there - set(expected))}):
    print(path.relative_to(_ROOT))
    if check:
      continue
    if path in expected:
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(expected[path], encoding='utf-8')
    else:
      path.unlink()
  return 1 if check and (wrong or there - set(expected)) else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
