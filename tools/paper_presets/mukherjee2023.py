"""Presets of Mukherjee et al., arXiv 2307.06306."""

from collections.abc import Iterator
from typing import Any
from typing import Optional

from tools.paper_presets import preset

_PAPER = 'Mukherjee et al., arXiv 2307.06306'
_SOURCE = f'{_PAPER}, Section 6 and Table 3'
_LIBSVM = ('a9a', 'w8a', 'ijcnn1', 'mushrooms', 'phishing')


def _setting(task: str) -> dict[str, Any]:
  """Returns 500 rounds of 5 local steps, 10 clients a round."""
  return dict(
    task=task,
    total_rounds=500,
    clients_per_round=10,
    client_epochs_per_round=1,
    client_batch_size=20,
    max_elements_per_client=100,
  )


def _clients(examples: Optional[int] = None) -> dict[str, dict[str, Any]]:
  """The paper's own methods; smoothed if the examples of a client are given."""
  own: dict[str, Any] = dict(c=0.5, gamma_b=1.0, lower_bound=0.0)
  grows = dict(smoothing='bound', client_examples=examples) if examples else {}
  return {
    'fedsps': dict(algorithm='fedsps', **own, **grows),
    'feddecsps': dict(algorithm='feddecsps', **own, memory='client'),
  }


def _tuned(rate: float, stabilization: float) -> dict[str, dict[str, Any]]:
  """Lists Table 3: FedAvg and FedAMS."""
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


def rows() -> Iterator[preset.Row]:
  """Lists the presets of Section 6, with Tables 1 and 3."""
  yield from _mnist_logistic()
  yield from _libsvm()
  yield from _lenet()
  yield from _table_1()


def _mnist_logistic() -> Iterator[preset.Row]:
  numbers = {'fedavg': '91.81', 'fedavg_rate_0.01': '79.97'}
  clients = _clients() | _tuned(0.1, 1e-3)
  clients['fedavg_rate_0.01'] = dict(
    algorithm='fedavg', client_learning_rate=0.01
  )
  for method, flags in clients.items():
    yield preset.Row(
      f'mukherjee2023/mnist_logistic/{method}',
      _setting('mnist_logistic') | flags,
      _SOURCE,
      f'{numbers[method]} (accuracy %, test, last round)'
      if method in numbers
      else None,
    )


def _libsvm() -> Iterator[preset.Row]:
  for dataset in _LIBSVM:
    for method, flags in (_clients() | _tuned(1.0, 1e-2)).items():
      yield preset.Row(
        f'mukherjee2023/libsvm_logistic/{method}_{dataset}',
        _setting('libsvm_logistic')
        | {'libsvm_logistic_dataset': dataset}
        | flags,
        _SOURCE,
      )


def _lenet() -> Iterator[preset.Row]:
  for method, flags in (_clients(600) | _tuned(0.1, 1e-3)).items():
    for partition in ('iid', 'classes'):
      yield preset.Row(
        f'mukherjee2023/mnist_lenet/{method}_{partition}',
        _setting('mnist_lenet') | {'mnist_lenet_partition': partition} | flags,
        _SOURCE,
      )


def _table_1() -> Iterator[preset.Row]:
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
      _clients(500).items(), pair, strict=True
    ):
      setting = _setting(task) | {
        f'{task}_partition': 'lda',
        f'{task}_num_clients': 100,
        f'{task}_examples_per_client': 500,
        f'{task}_alpha': alpha,
        **preset.whole_images(task),
      }
      if task == 'cifar100_image':
        setting[f'{task}_model'] = 'resnet50'
      yield preset.Row(
        f'mukherjee2023/{task}/{method}_alpha_{alpha}',
        setting | flags,
        f'{_PAPER}, Table 1',
        f'{number} (accuracy %, test, mean of 3 seeds)',
      )
