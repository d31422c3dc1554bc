"""The experiments that a report is about, and the runs of each."""

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tasks
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import scores

# Those that decide what is learned from which data, and judged by which.
PROBLEM = ('task', 'data', 'validation_split', 'validation_share')
# Settings that make an experiment another one, so that its runs have a section
# of their own, beside those of the task.
SETTING = (
  *PROBLEM,
  'total_rounds',
  'clients_per_round',
  'client_epochs_per_round',
  'client_batch_size',
  'max_elements_per_client',
  'client_seconds_per_example',
  'client_seconds_per_step',
  'client_mbit_down',
  'client_mbit_up',
  'client_mbit_spread',
  'client_latency',
  'client_devices',
  'client_availability',
  'rounds_per_day',
  'rounds_per_block',
  'client_speed_spread',
  'client_speed_jitter',
  'client_dropout',
  'client_behaviour',
  'model',
)


@dataclasses.dataclass(frozen=True)
class Configuration:
  """The runs that differ in their seeds only.

  Attributes:
    method: As `runs.Run.method`.
    settings: What they share.
    runs: The finished ones that results are of.
    complete: Whether none that it is chosen by failed or is unfinished.
    chosen_by: The runs that it is chosen by; those that results are of unless
      given.
    planned: How many runs results are to be of; all there are unless given.
    apart: Whether figures show its runs one by one.
  """

  method: str
  settings: Mapping[str, Any]
  runs: Sequence[results.Run]
  complete: bool = True
  chosen_by: Sequence[results.Run] = ()
  planned: int = 0
  apart: bool = False

  @property
  def seeds(self) -> str:
    """Counts the runs, and those there should be if these are more."""
    count = f'{len(self.runs)}'
    return (
      f'{count} of {self.planned}' if self.planned > len(self.runs) else count
    )

  def as_chosen(self) -> 'Configuration':
    """Returns it with the runs that it is chosen by, to look at a search."""
    runs = self.chosen_by or self.runs
    return dataclasses.replace(self, runs=runs, planned=len(runs))

  def values(self, measure: str) -> list[float]:
    """Lists a measure of every run that has it."""
    found = [r.measures().get(measure, math.nan) for r in self.runs]
    return [v for v in found if math.isfinite(v)]

  def by_seed(self, measure: str) -> dict[tuple, float]:
    """Returns a measure of every run that has it, by the run's seeds."""
    return {
      tuple(run.settings.get(name) for name in results.SEEDS): value
      for run in self.runs
      if math.isfinite(value := run.measures().get(measure, math.nan))
    }

  def mean(self, measure: str) -> float:
    """Returns the mean over seeds; not a number where there is none."""
    return scores.mean(self.values(measure))


@dataclasses.dataclass(frozen=True)
class Judge:
  """The measure that is shown, and which of several configurations is best.

  Attributes:
    rule: The rule by which configurations are chosen.
    metric: The task's first measure of quality, if it has one.
  """

  rule: scores.SelectionRule
  metric: Optional[str]

  @property
  def quality(self) -> str:
    """The metric's short name; the loss where a task has no metric."""
    return 'loss' if self.metric is None else metric_names.short(self.metric)

  @property
  def column(self) -> str:
    """The column of metrics.csv that is drawn."""
    return f'validation/{self.metric or "loss"}'

  @property
  def measure(self) -> str:
    """The same as one of `scores.measures`."""
    return 'validation/loss' if self.metric is None else 'validation/metric'

  @property
  def label(self) -> str:
    return f'validation {self.quality}'

  @property
  def compared(self) -> tuple[str, str]:
    """The measure that methods are compared by, and its name in words.

    A rule that looks at training chooses configurations, but methods are
    compared by what they are for: as Reddi et al. do.
    """
    words = {
      'best/metric': f'best validation {self.quality}',
      'recent/metric': f'{self.label}, last 10 evaluations',
      'last/loss': 'training loss in the last round',
    }
    if self.rule.measure in words:
      return self.rule.measure, words[self.rule.measure]
    return self.measure, self.label

  @property
  def more_is_better(self) -> bool:
    return metric_names.higher_is_better(self.metric)

  @property
  def is_share(self) -> bool:
    """Whether the metric is a share, which is shown in percent."""
    return metric_names.is_share(self.metric or '')

  @property
  def bounds(self) -> tuple[float, float]:
    """The least and the greatest value of what is drawn."""
    return metric_names.bounds(self.metric or 'loss')

  def score(self, configuration: Configuration) -> list[float]:
    """Scores a configuration's runs; less is better."""
    if not configuration.complete or not configuration.runs:
      return [math.inf]
    return [
      scores.score(
        self.rule, run.measures(), self.metric, finished=run.finished
      )
      for run in configuration.chosen_by or configuration.runs
    ]

  def best(
    self, configurations: Sequence[Configuration]
  ) -> Optional[Configuration]:
    """Finds the best by the rule."""
    chosen = scores.best(
      {i: self.score(c) for i, c in enumerate(configurations)}
    )
    return None if chosen is None else configurations[chosen]

  def best_of(
    self, by_method: Mapping[str, Sequence[Configuration]]
  ) -> dict[str, Configuration]:
    """Finds the best configuration of every method that has one."""
    found = {m: self.best(c) for m, c in by_method.items()}
    return {m: c for m, c in found.items() if c is not None}


@dataclasses.dataclass(frozen=True)
class Section:
  """The runs of one experiment: a task with one setting.

  Attributes:
    setting: What they share, by flag.
    by_method: Configurations by method.
    metric: The task's first measure of quality, if it has one.
  """

  setting: Mapping[str, Any]
  by_method: Mapping[str, Sequence[Configuration]]
  metric: Optional[str]


def prefix(task: str) -> str:
  """Returns how the names of a task's own settings begin."""
  return f'{tasks.short(task)}_'


def experiment(settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
  """Picks the settings that runs of one experiment share."""
  of_task = prefix(settings.get('task', ''))
  return tuple(
    (k, v)
    for k, v in settings.items()
    if (k in SETTING or k.startswith(of_task)) and v is not None
  )


def sections(runs: Sequence[results.Run]) -> list[Section]:
  """Sorts runs by experiment, method and configuration."""
  groups: dict[tuple, dict[str, dict[tuple, list[results.Run]]]] = {}
  for run in runs:
    methods = groups.setdefault(experiment(run.settings), {})
    configurations = methods.setdefault(run.method, {})
    configurations.setdefault(_key(run.configuration), []).append(run)
  result = []
  for setting, methods in groups.items():
    by_method = {
      method: [_configuration(method, same) for same in configurations.values()]
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


def _configuration(method: str, same: Sequence[results.Run]) -> Configuration:
  """Makes a configuration of the runs that differ in their seeds only.

  If a sweep chose it on one seed and repeated it on others, results are of the
  others.
  """
  chosen_by = [run for run in same if run.chose] or list(same)
  others = [run for run in same if not run.chose]
  if not any(run.finished for run in others):
    others = chosen_by
  return Configuration(
    method,
    {k: v for k, v in same[0].settings.items() if k not in results.SEEDS},
    [run for run in others if run.finished],
    all(run.finished for run in chosen_by),
    [run for run in chosen_by if run.finished],
    len(others),
  )


def _key(configuration: tuple) -> tuple:
  """Makes something that can be a key, whatever JSON held."""
  return tuple((k, repr(v)) for k, v in configuration)


def varied(section: Section) -> list[str]:
  """Names the flags that differ between configurations of a method."""
  names: dict[str, None] = {}
  for configurations in section.by_method.values():
    for flag in configurations[0].settings:
      seen = {repr(c.settings.get(flag)) for c in configurations}
      if len(seen) > 1:
        names[flag] = None
  return list(names)
