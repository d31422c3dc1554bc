"""The experiments that a report is about, and the runs of each."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive.report import judging
from tff_adaptive.report import runs as results
from tff_adaptive.sweep import grids

# Settings that make an experiment another one, so that its runs have a section
# of their own, beside those of the task.
SETTING = (
  'task',
  'data',
  'total_rounds',
  'clients_per_round',
  'client_epochs_per_round',
  'client_batch_size',
  'max_elements_per_client',
)


@dataclasses.dataclass(frozen=True)
class Section:
  """The runs of one experiment: a task with one setting.

  Attributes:
    setting: What they share, by flag.
    by_method: Configurations by method.
    metric: The task's first measure of quality, if it has one.
  """

  setting: Mapping[str, Any]
  by_method: Mapping[str, Sequence[judging.Configuration]]
  metric: Optional[str]


def sections(runs: Sequence[results.Run]) -> list[Section]:
  """Sorts runs by experiment, method and configuration."""
  groups: dict[tuple, dict[str, dict[tuple, list[results.Run]]]] = {}
  for run in runs:
    task = run.settings.get('task')
    setting = tuple(
      (k, v)
      for k, v in run.settings.items()
      if (k in SETTING or k.startswith(f'{task}_')) and v is not None
    )
    methods = groups.setdefault(setting, {})
    configurations = methods.setdefault(run.method, {})
    configurations.setdefault(_key(run.configuration), []).append(run)
  result = []
  for setting, methods in groups.items():
    by_method = {
      method: [
        judging.Configuration(
          method,
          {k: v for k, v in same[0].settings.items() if k not in grids.SEEDS},
          [run for run in same if run.finished],
          all(run.finished for run in same),
        )
        for same in configurations.values()
      ]
      for method, configurations in methods.items()
    }
    metrics = [
      run.metric
      for configurations in by_method.values()
      for c in configurations
      for run in c.runs
      if run.metric
    ]
    result.append(
      Section(dict(setting), by_method, metrics[0] if metrics else None)
    )
  return result


def _key(configuration: tuple) -> tuple:
  """Something that can be a key, whatever JSON held."""
  return tuple((k, repr(v)) for k, v in configuration)


def varied(section: Section) -> list[str]:
  """Flags that differ between configurations of a method."""
  names: dict[str, None] = {}
  for configurations in section.by_method.values():
    for flag in configurations[0].settings:
      seen = {repr(c.settings.get(flag)) for c in configurations}
      if len(seen) > 1:
        names[flag] = None
  return list(names)
