"""The hyperparameter grids of papers."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional
from typing import TypeAlias

import tasks
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.sweep.blocks import Block

# A method's axes, by its name.
_Axes: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]


def _decades(low: float, high: float, step: float = 0.5) -> list[str]:
  """Lists powers of ten from 10**low to 10**high."""
  count = round((high - low) / step) + 1
  return [f'{10 ** (low + i * step):.6g}' for i in range(count)]


def _texts(*values: float) -> list[str]:
  return [f'{value:g}' for value in values]


# Flags that the presets of the released FedOpt code set for every task.
_RELEASED = (
  'client_weighting',
  'max_elements_per_client',
  'num_validation_examples',
)


def _flags_of(preset: str, *starts: str) -> dict[str, str]:
  """Returns the flags of a preset whose names have one of the prefixes."""
  flags = presets.load(preset).flags
  return {name: text for name, text in flags.items() if name.startswith(starts)}


def _afo() -> dict[str, list[Block]]:
  """Builds the grids of Reddi et al., Appendix D.2."""
  default = (_decades(-3, 0.5), _decades(-3, 1))
  rates = {
    'cifar10_image': default,
    'cifar100_image': default,
    'emnist_autoencoder': (_decades(-1.5, 2), _decades(-2, 1)),
    'emnist_character': default,
    'shakespeare_character': default,
    'stackoverflow_tag': (_decades(-1, 3), _decades(-2, 1.5)),
    'stackoverflow_word': default,
  }
  adaptivity = _decades(-5, -1, 1)
  grids = {}
  for task, (client, server) in rates.items():
    published = tasks.info(task).published
    assert published is not None
    shared = dict(
      task=task,
      total_rounds=str(published.rounds),
      clients_per_round=str(published.clients_per_round),
      client_batch_size=str(published.batch_size),
    )
    # Settings of the released code, taken from the presets.
    shared |= _flags_of(f'reddi2021/{task}/fedavg', f'{task}_', *_RELEASED)
    blocks = []
    for method in ('fedadagrad', 'fedadam', 'fedyogi', 'fedavgm', 'fedavg'):
      axes = dict(client_learning_rate=client, server_learning_rate=server)
      if method in ('fedadagrad', 'fedadam', 'fedyogi'):
        axes['server_adaptivity'] = adaptivity
      block = Block(dict(shared, algorithm=method), axes)
      blocks.append(block)
      grids[f'reddi2021/{task}/{method}'] = [block]
    grids[f'reddi2021/{task}'] = blocks
    # SCAFFOLD appears in Figures 1 and 4, but not in Table 1.
    grids[f'reddi2021/{task}/scaffold'] = [
      Block(
        dict(shared, algorithm='scaffold'),
        dict(client_learning_rate=client, server_learning_rate=server),
      )
    ]
  return grids


def _kim() -> dict[str, list[Block]]:
  """Builds the grids of Kim et al., Section 4: rates of the baseline clients.

  The grid on CIFAR-10 is the paper's; the one on MNIST tunes on MNIST itself.
  """
  grids = {}
  for task, rounds in (('cifar10_image', '2000'), ('mnist_character', '500')):
    shared = {
      'task': task,
      'total_rounds': rounds,
      'clients_per_round': '10',
      'client_batch_size': '64',
      **_flags_of(f'kim2024/{task}/sgd_alpha_0.1', f'{task}_'),
    }
    blocks = _kim_clients(shared)
    grids[f'kim2024/{task}'] = list(blocks.values())
    grids |= {f'kim2024/{task}/{k}': [v] for k, v in blocks.items()}
  return grids


def _kim_clients(shared: Mapping[str, str]) -> dict[str, Block]:
  """Builds a block of learning rates for each baseline client."""

  # The paper leaves epsilon open; its code is PyTorch's, with these defaults.
  def clients(optimizer: str, epsilon: str) -> dict[str, str]:
    return dict(
      algorithm='fedavg', client_optimizer=optimizer, client_adaptivity=epsilon
    )

  decay = dict(client_lr_schedule='step_decay')
  sgd, adaptive = _texts(0.01, 0.05, 0.1, 0.5), _texts(0.001, 0.01, 0.1)
  rows = {
    'sgd': (dict(algorithm='fedavg'), sgd),
    'sgd_decay': (dict(algorithm='fedavg', **decay), sgd),
    'sgdm': (dict(algorithm='fedavg', client_momentum='0.9'), sgd),
    'sgdm_decay': (
      dict(algorithm='fedavg', client_momentum='0.9', **decay),
      sgd,
    ),
    'adam': (clients('adam', '1e-08'), adaptive),
    'adagrad': (clients('adagrad', '1e-10'), adaptive),
  }
  return {
    name: Block({**shared, **fixed}, dict(client_learning_rate=rates))
    for name, (fixed, rates) in rows.items()
  }


def _sps() -> dict[str, list[Block]]:
  """Builds the grids of Mukherjee et al., Appendix F.4."""
  grids = {}
  client = _texts(1e-4, 1e-3, 1e-2, 0.1, 1.0)
  for task in ('mnist_logistic', 'libsvm_logistic', 'mnist_lenet'):
    shared = dict(
      task=task,
      total_rounds='500',
      clients_per_round='10',
      client_batch_size='20',
      max_elements_per_client='100',
    )
    averaging = Block(
      dict(shared, algorithm='fedavg'), dict(client_learning_rate=client)
    )
    ams = Block(
      dict(shared, algorithm='fedams'),
      dict(
        client_learning_rate=client,
        server_learning_rate=_texts(1e-3, 1e-2, 0.1, 1.0),
        server_adaptivity=_texts(1e-8, 1e-4, 1e-3, 1e-2, 0.1, 1.0),
      ),
    )
    grows = {}
    if task == 'mnist_lenet':
      grows = dict(smoothing='bound', client_examples='600')
    steps = Block(dict(shared, algorithm='fedsps', **grows), {})
    decreasing = Block(dict(shared, algorithm='feddecsps', memory='client'), {})
    name = f'mukherjee2023/{task}'
    grids[name] = [averaging, ams, steps, decreasing]
    grids[f'{name}/fedavg'] = [averaging]
    grids[f'{name}/fedams'] = [ams]
  return grids


_JOINT = ('direct_joint', 'joint_zero_init', 'fedada2')


def _adaptive_axes(
  client: Sequence[str],
  server: Sequence[str],
  client_adaptivity: Sequence[str],
  server_adaptivity: Sequence[str],
) -> _Axes:
  """Returns the axes of FedAda2's methods with an adaptive side, by method."""
  one_side = dict(
    client_learning_rate=client,
    server_learning_rate=server,
    server_adaptivity=server_adaptivity,
  )
  both = dict(one_side, client_adaptivity=client_adaptivity)
  return {
    **dict.fromkeys(('fedadagrad', 'fedadam'), one_side),
    **dict.fromkeys(_JOINT, both),
  }


def _ada2() -> dict[str, list[Block]]:
  """Builds the grids of FedAda2, Appendix H.1."""
  rates = _texts(0.001, 0.01, 0.1, 0.5, 1)
  adaptivity = _texts(1e-7, 1e-5, 1e-3)
  shared = dict(
    task='stackoverflow_tag',
    total_rounds='500',
    clients_per_round='40',
    client_batch_size='32',
    **_flags_of(
      'fedada2/stackoverflow_tag/fedavg',
      'stackoverflow_tag_',
      'dp_noise_multiplier',
      'dp_delta',
      'dp_sampling',
      'dp_accounting',
    ),
  )
  clip = dict(dp_clip_norm=_texts(0.1, 0.5, 1))
  blocks = {
    'fedavg': Block(
      dict(shared, algorithm='fedavg'),
      dict(
        **clip,
        client_learning_rate=_texts(
          0.001, 0.01, 0.1, 0.5, 1, 5, 20, 40, 80, 160
        ),
      ),
    ),
  }
  axes = _adaptive_axes(rates, rates, adaptivity, adaptivity)
  for method in ('fedadagrad', *_JOINT):
    blocks[method] = Block(
      dict(shared, algorithm=method), {**clip, **axes[method]}
    )
  return {
    'fedada2/stackoverflow_tag': list(blocks.values()),
    **{f'fedada2/stackoverflow_tag/{k}': [v] for k, v in blocks.items()},
  }


def _of_presets(folder: str, axes: _Axes) -> dict[str, Block]:
  """Builds one block per method from presets, which set all flags but its axes.

  Args:
    folder: The presets' name with a placeholder for the method: PAPER/TASK/{}.
    axes: The axes of each method, by name.
  """
  blocks = {}
  for method, own in axes.items():
    flags = presets.load(folder.format(method)).flags
    fixed = {k: v for k, v in flags.items() if k not in own}
    blocks[method] = Block(fixed, own)
  return blocks


def _ada2_images() -> dict[str, list[Block]]:
  """Builds the two-step grids of FedAda2, Appendix H.2."""
  rates = (0.001, 0.01, 0.1, 0.5, 1, 5, 20)
  small = _texts(1e-9, 1e-7, 1e-5, 1e-3)
  first: _Axes = {
    'fedavg': dict(
      client_learning_rate=_texts(*rates, 40, 80, 160, 320),
    ),
    **_adaptive_axes(_texts(*rates), _texts(*rates), small, small),
  }
  plain = _texts(
    *(k / 1000 for k in range(1, 10)), *(k / 100 for k in range(1, 11))
  )
  client = _decades(-6, -1, 1)
  client_adaptivity = _texts(1e-7, 1e-5, 1e-3, 0.1, 1)
  server_adaptivity = _texts(1e-12, 1e-11, 1e-10, 1e-9, 1e-5)

  def second(server: Sequence[str]) -> _Axes:
    return {
      'fedavg': dict(client_learning_rate=plain),
      **_adaptive_axes(client, server, client_adaptivity, server_adaptivity),
    }

  narrow = second(_decades(-7, -2, 1))
  wide = second([*_decades(-3, -1, 1), *_texts(1, 4, 16, 32)])
  grids = {}
  for task, ending, refined in (
    ('cifar100_image', '', narrow),
    ('gld23k', '', narrow),
    ('gld23k', '_full', narrow),
    ('gld23k', '_epochs_1', narrow),
    ('gld23k', '_epochs_20', wide),
  ):
    for step, axes in (('', first), ('_step_2', refined)):
      blocks = _of_presets(f'fedada2/{task}/{{}}{ending}', axes)
      name = f'fedada2/{task}{ending}{step}'
      grids[name] = list(blocks.values())
      grids |= {f'{name}/{k}': [block] for k, block in blocks.items()}
  return grids


def _ada2_pairs() -> dict[str, list[Block]]:
  """Builds the grids of FedAda2, Appendices I.1 and I.2, on landmarks.

  They contain every pair of Adam and AdaGrad, and FedAda2 with delays, where
  preconditioners are frozen for zero, one or three local epochs after the
  first.
  """
  rates = _decades(-4, -1, 1)
  adaptivity = _texts(1e-7, 1e-5, 1e-3, 0.1, 1)
  tuned = dict(
    client_learning_rate=rates,
    server_learning_rate=rates,
    client_adaptivity=adaptivity,
    server_adaptivity=adaptivity,
  )
  delayed = dict(
    tuned,
    client_adaptivity=_texts(1e-3, 0.1, 1),
    server_adaptivity=_texts(1e-5, 1e-3, 0.1),
    delay=_texts(1, 2, 4),
  )
  grids = {}
  for name, methods, axes, given in (
    ('gld23k_pairs', _JOINT, tuned, {}),
    ('gld23k_delays', ('fedada2',), delayed, dict(delay_unit='epochs')),
  ):
    blocks = {method: _pairs(method, axes, given) for method in methods}
    grids[f'fedada2/{name}'] = [b for some in blocks.values() for b in some]
    grids |= {f'fedada2/{name}/{k}': some for k, some in blocks.items()}
  return grids


def _pairs(
  method: str, axes: Mapping[str, Sequence[str]], given: Mapping[str, str]
) -> list[Block]:
  """Builds a block for each pair of optimizers of a joint method."""
  (block,) = _of_presets('fedada2/gld23k/{}', {method: axes}).values()
  kind = 'sm3_' if method == 'fedada2' else ''
  found = []
  for client in ('adam', 'adagrad'):
    for server in ('adam', 'adagrad'):
      chosen = {
        **block.fixed,
        **given,
        'client_optimizer': kind + client,
        'server_optimizer': server,
      }
      useless = set()  # Decays that AdaGrad does not have.
      if client != 'adam':
        useless |= {'client_beta_1', 'client_beta_2'}
      if server != 'adam':
        useless.add('beta_2')
      fixed = {k: v for k, v in chosen.items() if k not in useless}
      found.append(Block(fixed, axes))
  return found


def built_in() -> dict[str, list[Block]]:
  """Builds the papers' grids by name, PAPER/TASK or PAPER/TASK/METHOD."""
  grids = {}
  for make in (_afo, _kim, _sps, _ada2, _ada2_images, _ada2_pairs):
    for name, blocks in make().items():
      runnable = [
        b
        for b in blocks
        if b.fixed['task'] in tasks.names()
        and b.fixed['algorithm'] in algorithms.names()
      ]
      if runnable:
        grids[name] = runnable
  return grids


def load(name: str, algorithm: Optional[str] = None) -> list[Block]:
  """Returns the blocks of a paper's grid.

  Args:
    name: One of `built_in()`.
    algorithm: The method whose blocks to return; by default all.

  Raises:
    SettingsError: If the grid is unknown or has no block of the method.
  """
  known = built_in()
  if name not in known:
    papers = ', '.join(n for n in known if n.count('/') == 1)
    raise errors.SettingsError(
      f'--grid must be one of {papers}, or one of these with /METHOD, got '
      f'{name!r}.'
    )
  blocks = known[name]
  if algorithm is not None:
    blocks = [b for b in blocks if b.fixed['algorithm'] == algorithm]
    if not blocks:
      raise errors.SettingsError(
        f'--grid={name} has no points of --algorithm={algorithm}.'
      )
  return blocks
