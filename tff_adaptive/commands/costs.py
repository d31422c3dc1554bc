"""What methods cost a client, side by side: `main.py costs`.

Importing this module imports no TensorFlow; `measured_costs` does the work.
"""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.flags import options as options_lib
from tff_adaptive.flags import parsing as flags
from tff_adaptive.recording import formatting
from tff_adaptive.training import experiment

USAGE = """costs [--methods=NAME,NAME,...] [--task=NAME] [--flag=value ...]

Measures what a client of each method receives, sends, holds and computes, for
the model of a task, in bytes and in units of d, the model's size; beside it
what the FedAda2 paper states (Table 2). Flags of the task are as in training;
methods are taken as they come, unless --algorithm and its flags choose one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
  """What a method costs one client.

  Attributes:
    model: Bytes of the trainable weights, the unit d.
    down, up: Bytes that a client receives and sends in a round.
    optimizer_state: Bytes that its optimizer holds from one local step to the
      next.
    context: Bytes of what the method adds to the gradient or the loss in a
      round: a correction, a previous model.
    kept: Bytes that it keeps from one round to the next; they do not travel.
    gradients: Evaluations of the gradient on a batch for each local step,
      those of the pass over the data before or after the steps included.
  """

  model: int
  down: int
  up: int
  optimizer_state: int
  context: int
  kept: int
  gradients: int

  def in_models(self, size: float) -> float:
    """Bytes in units of d."""
    return size / self.model

  @property
  def traffic(self) -> float:
    """Down and up together, in units of d."""
    return self.in_models(self.down + self.up)

  @property
  def memory(self) -> float:
    """Model, optimizer state, context and what is kept, in units of d.

    As ADA2 counts: the model itself is among it once; batches, activations, the
    gradient at hand and the received model are not.
    """
    return self.in_models(
      self.model + self.optimizer_state + self.context + self.kept
    )


@dataclasses.dataclass(frozen=True)
class Published:
  """A row of ADA2's Table 2, in units of d."""

  traffic: int
  gradients: int
  memory: int


# arXiv 2410.18117, Table 2.
PUBLISHED: Mapping[str, Published] = {
  'fedavg': Published(2, 1, 1),
  'fedadagrad': Published(2, 1, 1),
  'direct_joint': Published(3, 1, 2),
  'fedada2': Published(2, 1, 2),
  'mime': Published(5, 3, 4),
  'mimelite': Published(4, 2, 3),
}


def table(rows: Mapping[str, Optional[Costs]]) -> str:
  """The costs side by side, with the paper's figures where it has them.

  Args:
    rows: Costs by method; `None` for a method that the model does not suit.
  """
  header = [
    'method', 'down B', 'up B', 'down d', 'up d', 'traffic d', 'paper',
    'optimizer B', 'kept B', 'memory d', 'paper', 'gradients', 'paper',
  ]  # fmt: skip
  lines = [header]
  for name, costs in rows.items():
    if costs is None:
      lines.append([name, 'not for this model', *([''] * (len(header) - 2))])
      continue
    said = PUBLISHED.get(name)
    lines.append(
      [
        name,
        f'{costs.down:,}',
        f'{costs.up:,}',
        f'{costs.in_models(costs.down):.3f}',
        f'{costs.in_models(costs.up):.3f}',
        f'{costs.traffic:.3f}',
        '' if said is None else f'{said.traffic}',
        f'{costs.optimizer_state:,}',
        f'{costs.kept:,}',
        f'{costs.memory:.3f}',
        '' if said is None else f'{said.memory}',
        f'{costs.gradients}',
        '' if said is None else f'{said.gradients}',
      ]
    )
  return '\n'.join(formatting.aligned(lines, left=1))


def build_options() -> options_lib.Options:
  """The flags of `main.py costs`, beside those of an experiment."""
  return options_lib.Options(
    parameters.Parameter(
      'methods',
      str,
      None,
      'The methods to measure; all unless given.',
    )
  )


def main(arguments: Sequence[str]) -> int:
  """`main.py costs`; returns the exit code."""
  values, rest = build_options().split(arguments)
  parser = flags.Flags()
  settings = parser.parse(rest).settings
  choices = {'algorithm', 'client_optimizer', 'server_optimizer', 'preset'}
  chosen = bool(choices & set(parser.given(rest)))
  if chosen and values['methods'] is not None:
    raise errors.SettingsError(
      '--methods takes methods as they come; leave it out to measure the one '
      'that the other flags choose.'
    )
  names = algorithms.names()
  if values['methods'] is not None:
    names = values['methods'].split(',')
    for name in names:
      if name not in algorithms.names():
        raise errors.SettingsError(
          f'--methods may name {", ".join(algorithms.names())}, got {name!r}.'
        )
  # Only now does TensorFlow come in.
  from tff_adaptive.commands import measured_costs  # pylint: disable=g-import-not-at-top

  if chosen and not settings.plan.method.has_clients:
    raise errors.SettingsError(
      f'The algorithm {settings.algorithm} has no clients whose costs could be '
      'measured.'
    )
  experiment.set_runtime(settings)
  task = experiment.create_task(settings)
  if chosen:
    built = experiment.build(settings, task)
    rows: dict[str, Optional[Costs]] = {
      settings.algorithm: measured_costs.of_process(built.process, built.pieces)
    }
  else:
    rows = measured_costs.of_methods(names, task.model_fn)
  print(f'{settings.task}: {_model_line(rows)}')
  print(table(rows))
  return 0


def _model_line(rows: Mapping[str, Optional[Costs]]) -> str:
  sizes = [costs.model for costs in rows.values() if costs is not None]
  return f'd = {sizes[0]:,} bytes of trainable weights' if sizes else ''
