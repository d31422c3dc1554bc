"""`main.py costs`: costs of methods per client, side by side.

Importing this module imports no TensorFlow; `measured_costs` measures.
"""

from collections.abc import Sequence

from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.flags import options as options_lib
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.training import experiment

USAGE = """costs [--methods=NAME,NAME,...] [--task=NAME] [--flag=value ...]

Measures what a client of each method downloads, uploads, holds and computes for
the model of a task, in bytes and in units of d, the model's size; beside it
what the FedAda2 paper states (Table 2). Flags of the task are as in training;
methods use their defaults, unless --algorithm and its flags select one.
        """


def build_options() -> options_lib.Options:
  """Builds the flags specific to `main.py costs`."""
  return options_lib.Options(
    parameters.Parameter(
      'methods',
      str,
      None,
      'Methods to measure; by default all.',
    )
  )


def main(arguments: Sequence[str]) -> int:
  """Runs `main.py costs`; returns the exit code."""
  values, rest = build_options().split(arguments)
  parser = flags.Flags()
  given = parser.given(rest)
  settings = parser.resolve(given).settings
  choices = {'algorithm', 'client_optimizer', 'server_optimizer', 'preset'}
  chosen = bool(choices & {*given})
  if not chosen and (alone := [n for n in given if parser.tunes(n)]):
    raise errors.SettingsError(
      f'--{alone[0]}={given[alone[0]]} would be ignored, as methods are '
      'measured with their defaults; name the method that it configures with '
      '--algorithm.'
    )
  names = (values['methods'] or ','.join(algorithms.names())).split(',')
  for name in names:
    if name not in algorithms.names():
      raise errors.SettingsError(
        f'--methods may name {", ".join(algorithms.names())}, got {name!r}.'
      )
  if chosen and values['methods'] is not None:
    raise errors.SettingsError(
      '--methods measures methods with their defaults and excludes flags of '
      'an algorithm; omit it to measure the method that those flags configure.'
    )
  if chosen and not settings.configuration.method.has_clients:
    raise errors.SettingsError(
      f'The algorithm {settings.algorithm} has no clients, so there are no '
      'client costs to measure.'
    )
  experiment.announce()
  # Imports TensorFlow.
  from tff_adaptive.lab.commands import measured_costs  # pylint: disable=g-import-not-at-top

  experiment.set_runtime(settings)
  task = experiment.create_task(settings)
  configurations = (
    [settings.configuration] if chosen else map(algorithms.resolve, names)
  )
  for line in measured_costs.table(configurations, task.model_fn):
    print(line, flush=True)
  return 0
