"""The points of a sweep: axes and their products, and the papers' grids.

A grid is a list of blocks. A block has flags that are fixed in it and axes,
whose product it is; several blocks let every method have its own axes (no
adaptivity for plain averaging).
"""

import dataclasses
import hashlib
import itertools
import math
import re
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

import tasks
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.flags import parsing as flags_lib
from tff_adaptive.flags import settings as settings_lib
from tff_adaptive.report import runs

_LONGEST_NAME = 180


@dataclasses.dataclass(frozen=True)
class Block:
  """A product of axes.

  Attributes:
    fixed: Flags that all points of the block share, as text.
    axes: Values of a flag, as text, by flag.
  """

  fixed: Mapping[str, str] = dataclasses.field(default_factory=dict)
  axes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

  def points(self) -> list[dict[str, str]]:
    """Lists all combinations, the last axis changing fastest."""
    return [
      {**self.fixed, **dict(zip(self.axes, values, strict=True))}
      for values in itertools.product(*self.axes.values())
    ]


@dataclasses.dataclass(frozen=True)
class Point:
  """One experiment of a sweep.

  Attributes:
    name: Of its folder; made from its flags alone, so that a sweep whose axes
      grow finds its earlier runs.
    flags: What tells it from the others, as text.
    settings: All of it; its results go below the sweep's folder.
    left_out: Axes of the sweep that it has no use for.
  """

  name: str
  flags: Mapping[str, str]
  settings: settings_lib.Settings
  left_out: tuple[str, ...] = ()


Configuration = tuple[tuple[str, str], ...]


def configuration(flags: Mapping[str, str]) -> Configuration:
  """Takes a point's seeds, over which results are averaged, from its flags."""
  return tuple((k, v) for k, v in flags.items() if k not in runs.SEEDS)


def number(text: str) -> Optional[float]:
  """Reads a flag's value as a number; `None` if it is a word."""
  try:
    value = float(text)
  except ValueError:
    return None
  return value if math.isfinite(value) else None


def parse_axis(text: str) -> tuple[str, list[str]]:
  """Reads FLAG=V1,V2,...

  Raises:
    SettingsError: If it is not of that form.
  """
  match = re.fullmatch(r'(?:--)?(\w+)=(.+)', text)
  values = [v.strip() for v in match.group(2).split(',')] if match else []
  if not match or '' in values:
    raise errors.SettingsError(
      f'--axis must be FLAG=VALUE,VALUE,..., got {text!r}.'
    )
  repeated = sorted({v for v in values if values.count(v) > 1})
  if repeated:
    raise errors.SettingsError(
      f'--axis={match.group(1)} has the value {repeated[0]} twice.'
    )
  return match.group(1), values


def with_axes(
  blocks: Sequence[Block], axes: Mapping[str, Sequence[str]]
) -> list[Block]:
  """Adds axes to blocks, or replaces those that a block has."""
  return [
    Block(
      {k: v for k, v in block.fixed.items() if k not in axes},
      {**block.axes, **axes},
    )
    for block in blocks
  ]


def name_of(flags: Mapping[str, str]) -> str:
  """Makes a folder's name that tells a point's flags."""
  text = ','.join(f'{k}={v}' for k, v in flags.items()) or 'run'
  safe = re.sub(r'[^\w=,.+-]', '_', text).lstrip('.')
  if safe == text and len(text) <= _LONGEST_NAME:
    return text
  digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
  return f'{safe[:_LONGEST_NAME]}-{digest}'


@dataclasses.dataclass(frozen=True)
class Understood:
  """The flags of a point, understood.

  Attributes:
    parsed: What they come to.
    flags: Those of the point, without the axes that it has no use for.
    left_out: Those, and what was said of each.
  """

  parsed: flags_lib.Parsed
  flags: Mapping[str, str]
  left_out: Mapping[str, errors.SettingsError]


def understand(
  parser: flags_lib.Flags,
  told: Mapping[str, str],
  flags: Mapping[str, str],
  axes: Collection[str],
) -> Understood:
  """Reads a point's flags; leaves axes out that its method has no use for.

  Args:
    parser: Reads them.
    told: Flags that hold for all points, as text.
    flags: The point's own.
    axes: Which of these are axes of the sweep.

  Raises:
    SettingsError: If something else is wrong with them.
  """
  left_out: dict[str, errors.SettingsError] = {}
  flags = dict(flags)
  while True:
    try:
      parsed = parser.parse(flags_lib.words({**told, **flags}))
      return Understood(parsed, flags, left_out)
    except errors.SettingsError as e:
      unused = e.__cause__
      if (
        not isinstance(unused, parameters.UnusedError)
        or unused.parameter not in flags
        or unused.parameter not in axes
      ):
        raise
      del flags[unused.parameter]
      left_out[unused.parameter] = e


def points(
  told: Mapping[str, str], blocks: Sequence[Block], folder: str
) -> list[Point]:
  """Makes every experiment of a sweep, and checks it.

  Args:
    told: Flags that hold for all of them, as text; a block's of the same name
      are left out.
    blocks: The grid.
    folder: Where the runs have their folders.

  Raises:
    SettingsError: If a flag is unknown or one of the experiments is none.
  """
  parser = flags_lib.Flags()
  result: list[Point] = []
  seen: dict[str, str] = {}
  useless: dict[str, errors.SettingsError] = {}
  for block in blocks:
    for axis in block.axes:
      if axis in told:
        raise errors.SettingsError(
          f'--{axis} is an axis of the sweep and a flag beside it; give one '
          'of them.'
        )
    for flags in block.points():
      # What the user says beside a grid holds for it too.
      flags = {k: v for k, v in flags.items() if k not in told}
      try:
        found = understand(parser, told, flags, block.axes)
      except errors.SettingsError as e:
        if len(flags) < 2:
          raise
        raise errors.SettingsError(
          f'{e} (In the point {name_of(flags)}.)'
        ) from e
      useless = {**found.left_out, **useless}
      name = name_of(found.flags)
      settings = dataclasses.replace(
        found.parsed.settings, root_output_dir=folder, experiment_name=name
      )
      key = repr(sorted(settings.identity.items()))
      if key in seen and seen[key] == name and found.left_out:
        continue  # The values of an axis that it has no use for.
      if key in seen:
        raise errors.SettingsError(
          f'The points {seen[key]} and {name} of the sweep are one and the '
          'same experiment; leave one of them out.'
        )
      seen[key] = name
      result.append(Point(name, found.flags, settings, tuple(found.left_out)))
  for flag, error in useless.items():
    if not any(flag in point.flags for point in result):
      raise error  # No point has a use for it.
  return result


def _decades(low: float, high: float, step: float = 0.5) -> list[str]:
  """Lists powers of ten from 10**low to 10**high."""
  count = round((high - low) / step) + 1
  return [f'{10 ** (low + i * step):.6g}' for i in range(count)]


def _texts(*values: float) -> list[str]:
  return [f'{value:g}' for value in values]


def _afo() -> dict[str, list[Block]]:
  """Makes the grids of Reddi et al., Appendix D.2."""
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
    if task == 'stackoverflow_word':
      shared['max_elements_per_client'] = '1000'
    blocks = []
    for method in ('fedadagrad', 'fedadam', 'fedyogi', 'fedavgm', 'fedavg'):
      axes = dict(client_learning_rate=client, server_learning_rate=server)
      if method in ('fedadagrad', 'fedadam', 'fedyogi'):
        axes['server_adaptivity'] = adaptivity
      block = Block(dict(shared, algorithm=method), axes)
      blocks.append(block)
      grids[f'reddi2021/{task}/{method}'] = [block]
    grids[f'reddi2021/{task}'] = blocks
    # Only of Figures 1 and 4: Table 1 is without it.
    grids[f'reddi2021/{task}/scaffold'] = [
      Block(
        dict(shared, algorithm='scaffold'),
        dict(client_learning_rate=client, server_learning_rate=server),
      )
    ]
  return grids


def _kim() -> dict[str, list[Block]]:
  """Makes the grids of Kim et al., Section 4: rates of the other clients.

  The paper's is the one on CIFAR-10; that on MNIST tunes on the data itself.
  """
  grids = {}
  for task, rounds, network in (
    (
      'cifar10_image',
      '2000',
      {
        'cifar10_image_crop_size': '32',
        'cifar10_image_stem': 'small',
        'cifar10_image_weight_decay': '0',
      },
    ),
    ('mnist_character', '500', {}),
  ):
    shared = {
      'task': task,
      'total_rounds': rounds,
      'clients_per_round': '10',
      'client_batch_size': '64',
      f'{task}_num_clients': '100',
      f'{task}_examples_per_client': '500',
      f'{task}_alpha': '0.1',
      **network,
    }
    blocks = _kim_clients(shared)
    grids[f'kim2024/{task}'] = list(blocks.values())
    grids |= {f'kim2024/{task}/{k}': [v] for k, v in blocks.items()}
  return grids


def _kim_clients(shared: Mapping[str, str]) -> dict[str, Block]:
  """Makes a block of rates for each client that has one."""
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
    'adam': (dict(algorithm='fedavg', client_optimizer='adam'), adaptive),
    'adagrad': (dict(algorithm='fedavg', client_optimizer='adagrad'), adaptive),
  }
  return {
    name: Block({**shared, **fixed}, dict(client_learning_rate=rates))
    for name, (fixed, rates) in rows.items()
  }


def _sps() -> dict[str, list[Block]]:
  """Makes the grids of Mukherjee et al., Appendix F.4."""
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


def _ada2() -> dict[str, list[Block]]:
  """Makes the grids of FedAda2, Appendix H.1."""
  rates = _texts(0.001, 0.01, 0.1, 0.5, 1)
  adaptivity = _texts(1e-7, 1e-5, 1e-3)
  shared = dict(
    task='stackoverflow_tag',
    total_rounds='500',
    clients_per_round='40',
    client_batch_size='32',
    stackoverflow_tag_num_users='400',
    dp_noise_multiplier='1',
    dp_delta='0.0025',
    dp_sampling='poisson',
    dp_accounting='rdp',
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
    'fedadagrad': Block(
      dict(shared, algorithm='fedadagrad'),
      dict(
        **clip,
        client_learning_rate=rates,
        server_learning_rate=rates,
        server_adaptivity=adaptivity,
      ),
    ),
  }
  for method in ('direct_joint', 'joint_zero_init', 'fedada2'):
    blocks[method] = Block(
      dict(shared, algorithm=method),
      dict(
        **clip,
        client_learning_rate=rates,
        server_learning_rate=rates,
        server_adaptivity=adaptivity,
        client_adaptivity=adaptivity,
      ),
    )
  return {
    'fedada2/stackoverflow_tag': list(blocks.values()),
    **{f'fedada2/stackoverflow_tag/{k}': [v] for k, v in blocks.items()},
  }


def built_in() -> dict[str, list[Block]]:
  """Makes the papers' grids by name, PAPER/TASK or PAPER/TASK/METHOD."""
  grids = {}
  for make in (_afo, _kim, _sps, _ada2):
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
  """Finds a paper's grid.

  Args:
    name: One of `built_in()`.
    algorithm: Only this method's blocks.

  Raises:
    SettingsError: If there is none of that name.
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
