"""Presets of Mukherjee et al., arXiv 2307.06306."""

from collections.abc import Iterator
from typing import Any
from typing import Optional

from tff_adaptive.lab.flags.papers import preset

_PAPER = 'Mukherjee et al., arXiv 2307.06306'
_SOURCE = f'{_PAPER}, Section 6 and Table 3'
_LIBSVM = ('a9a', 'w8a', 'ijcnn1', 'mushrooms', 'phishing')
# With 100 clients, each has fewer than the 100 examples of five steps.
_TWO_PASSES = ('mushrooms', 'phishing')
_UNPUBLISHED = 'the paper publishes no rates of {}; {}'


def _setting(task: str) -> dict[str, Any]:
  """Returns the flags of 500 rounds of 5 local steps, 10 clients per round."""
  return dict(
    task=task,
    total_rounds=500,
    clients_per_round=10,
    client_epochs_per_round=1,
    client_batch_size=20,
    max_elements_per_client=100,
  )


def _clients(examples: Optional[int] = None) -> dict[str, dict[str, Any]]:
  """Returns the paper's own methods, smoothed if a client size is given."""
  own: dict[str, Any] = dict(c=0.5, gamma_b=1.0, lower_bound=0.0)
  grows = dict(smoothing='bound', client_examples=examples) if examples else {}
  return {
    'fedsps': dict(algorithm='fedsps', **own, **grows),
    'feddecsps': dict(
      algorithm='feddecsps', **own, memory='client', count='round'
    ),
    'fedsps_global': dict(algorithm='fedsps_global', **own, aggregation='a'),
    'fedsps_normalized': dict(algorithm='fedsps_normalized', **own, **grows),
  }


def _tuned(rate: float, stabilization: float) -> dict[str, dict[str, Any]]:
  """Returns FedAvg and FedAMS of Table 3, and baselines not in it."""
  server = dict(
    client_learning_rate=rate,
    server_learning_rate=1.0,
    server_adaptivity=stabilization,
    beta_1=0.9,
    beta_2=0.99,
  )
  return {
    'fedavg': dict(algorithm='fedavg', client_learning_rate=rate),
    'fedams': dict(algorithm='fedams', **server),
    'fedadam': dict(algorithm='fedadam', **server),
    'mime': dict(algorithm='mime', client_learning_rate=rate),
    'local_adaalter': dict(
      algorithm='local_adaalter', client_learning_rate=rate
    ),
    'local_amsgrad': dict(algorithm='local_amsgrad', client_learning_rate=rate),
  }


def _note(method: str) -> Optional[str]:
  """Builds the note of a preset whose rates are not published."""
  others = {
    'fedadam': 'FedADAM',
    'mime': 'MIME',
    'local_adaalter': 'Local-AdaAlter',
    'local_amsgrad': 'Local-AMSGrad',
  }
  if method not in others:
    return None
  like = "they are FedAMS'" if method == 'fedadam' else "it is FedAvg's"
  return _UNPUBLISHED.format(others[method], like)


def rows() -> Iterator[preset.Preset]:
  """Yields the presets of Section 6, Tables 1 and 3, and the appendix."""
  yield from _mnist_logistic()
  yield from _libsvm()
  yield from _lenet()
  yield from _cifar_10()
  yield from _table_1()


def _mnist_logistic() -> Iterator[preset.Preset]:
  task = 'mnist_logistic'
  methods = _clients() | _tuned(0.1, 1e-3)
  table_2 = {
    'fedavg': {'': 91.81, '_rate_0.01': 79.97},
    'fedams': {'': 91.23, '_rate_0.01': 83.05},
  }
  for method in ('fedsps', 'fedsps_normalized'):
    yield preset.Preset(
      f'mukherjee2023/{task}/{method}',
      _setting(task) | methods[method],
      _SOURCE,
    )
  for method, numbers in table_2.items():
    for suffix, number in numbers.items():
      rate = dict(client_learning_rate=0.01) if suffix else {}
      yield preset.Preset(
        f'mukherjee2023/{task}/{method}{suffix}',
        _setting(task) | methods[method] | rate,
        f'{_PAPER}, Tables 2 and 3' if not suffix else f'{_PAPER}, Table 2',
        f'{number} (accuracy %, test, last round)',
      )
  for method in (
    'fedsps',
    'feddecsps',
    'fedsps_normalized',
    'fedavg',
    'fedams',
    'fedadam',
    'mime',
  ):
    yield preset.Preset(
      f'mukherjee2023/{task}/{method}_classes',
      _setting(task)
      | {f'{task}_partition': 'classes', f'{task}_num_clients': 100}
      | methods[method],
      f'{_PAPER}, Figure 3(c)'
      if method != 'fedsps_normalized'
      else f'{_PAPER}, Figure 6(b)',
      None,
      _note(method),
    )


def _libsvm() -> Iterator[preset.Preset]:
  methods = _clients() | _tuned(1.0, 1e-2)
  for dataset in _LIBSVM:
    for method in (
      'fedsps',
      'fedsps_global',
      'feddecsps',
      'fedavg',
      'fedams',
      'fedadam',
    ):
      setting = _setting('libsvm_logistic') | {
        'libsvm_logistic_dataset': dataset
      }
      passes = None
      if dataset in _TWO_PASSES:
        setting['client_epochs_per_round'] = 2
        passes = (
          'a client has fewer than 100 examples: five steps of 20 take a '
          'second pass'
        )
      notes = filter(None, [passes, _note(method)])
      yield preset.Preset(
        f'mukherjee2023/libsvm_logistic/{method}_{dataset}',
        setting | methods[method],
        _SOURCE,
        None,
        '; '.join(notes) or None,
      )


def _lenet() -> Iterator[preset.Preset]:
  methods = _clients(600) | _tuned(0.1, 1e-3)
  for method in ('fedsps', 'fedsps_global', 'feddecsps', 'fedavg', 'fedams'):
    for partition in ('iid', 'classes'):
      yield preset.Preset(
        f'mukherjee2023/mnist_lenet/{method}_{partition}',
        _setting('mnist_lenet')
        | {'mnist_lenet_partition': partition, 'mnist_lenet_units': 'tanh'}
        | methods[method],
        _SOURCE
        if method != 'fedsps_global'
        else f'{_PAPER}, first version, Figure 4',
      )


def _cifar(task: str, **partition: Any) -> dict[str, Any]:
  """Returns the flags of 100 clients with 500 images standardized by channel.

  The paper does not specify pixel values; the code that its own is based on
  does.
  """
  return (
    _setting(task)
    | {
      f'{task}_partition': 'lda',
      f'{task}_num_clients': 100,
      f'{task}_examples_per_client': 500,
      f'{task}_pixels': 'per_channel',
    }
    | {f'{task}_{name}': value for name, value in partition.items()}
    | preset.whole_images(task)
  )


_NO_RATES = _UNPUBLISHED.format(
  'this network', 'they are those of its Table 3 for MNIST'
)


def _cifar_10() -> Iterator[preset.Preset]:
  """Yields the presets of Figure 5.

  The first version of the paper also has two classes per client.
  """
  methods = _clients(500) | _tuned(0.1, 1e-3)
  figures = {
    'iid': f'{_PAPER}, Figure 5',
    'classes': f'{_PAPER}, first version, Figure 5',
  }
  for partition, source in figures.items():
    for method in ('fedsps', 'feddecsps', 'fedavg', 'fedams'):
      yield preset.Preset(
        f'mukherjee2023/cifar10_image/{method}_{partition}',
        _cifar('cifar10_image', partition=partition) | methods[method],
        source,
        None,
        _NO_RATES if method in ('fedavg', 'fedams') else None,
      )


# FedAvg, FedAMS, FedADAM, MIME, Local-AdaAlter, Local-AMSGrad, FedSPS,
# FedDecSPS: the rows of Table 1.
_TABLE_1_METHODS = (
  'fedavg',
  'fedams',
  'fedadam',
  'mime',
  'local_adaalter',
  'local_amsgrad',
  'fedsps',
  'feddecsps',
)
_C10, _C100 = 'cifar10_image', 'cifar100_image'
_TABLE_1 = {
  (_C10, '1'): (86.71, 88.66, 87.79, 87.53, 86.98, 86.89, 89.92, 89.91),
  (_C10, '0.1'): (82.68, 84.98, 83.62, 83.41, 82.49, 82.39, 84.74, 85.78),
  (_C10, '0.01'): (27.71, 31.94, 30.15, 30.35, 28.87, 29.18, 31.15, 32.57),
  (_C100, '1'): (56.34, 64.32, 63.91, 63.78, 60.34, 61.02, 65.24, 65.11),
  (_C100, '0.1'): (47.91, 62.24, 61.67, 61.39, 57.72, 58.81, 62.91, 63.05),
  (_C100, '0.01'): (23.22, 30.61, 28.96, 27.98, 26.23, 26.21, 30.66, 31.29),
}


def _table_1() -> Iterator[preset.Preset]:
  methods = _clients(500) | _tuned(0.1, 1e-3)
  for (task, alpha), numbers in _TABLE_1.items():
    setting = _cifar(task, alpha=alpha)
    if task == 'cifar100_image':
      setting[f'{task}_model'] = 'resnet50'
    for method, number in zip(_TABLE_1_METHODS, numbers, strict=True):
      tuned = method not in ('fedsps', 'feddecsps')
      yield preset.Preset(
        f'mukherjee2023/{task}/{method}_alpha_{alpha}',
        setting | methods[method],
        f'{_PAPER}, Table 1',
        f'{number} (accuracy %, test, mean of 3 seeds)',
        _NO_RATES if tuned else None,
      )
