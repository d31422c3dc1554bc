"""The experiments of a report, and the runs of each."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import tasks
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import scores

# Settings that define the task and its training and validation data.
PROBLEM = ('task', 'data', 'validation_split', 'validation_share')
# Settings that, with the task's own, define an experiment. Each experiment has
# its own section in the report.
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
  'client_latency',
  'client_devices',
  'client_speed_spread',
  'client_dropout',
  'model',
)
# Of the axes of a sweep, those that a method's name tells.
_OF_METHOD = ('algorithm', 'client_optimizer', 'server_optimizer', 'preset')
_RATES = ('client_learning_rate', 'server_learning_rate', 'server_adaptivity')


@dataclasses.dataclass(frozen=True)
class Configuration:
  """The runs that differ only in their seeds.

  Attributes:
    method: The method; see `runs.Run.method`.
    settings: The settings that the runs share.
    runs: The finished runs that results are computed from.
    complete: Whether all runs that it is selected by have finished.
    chosen_by: The runs that it is selected by; `runs` if empty.
    planned: Number of runs that results are planned on; all runs unless given.
  """

  method: str
  settings: Mapping[str, Any]
  runs: Sequence[results.Run]
  complete: bool = True
  chosen_by: Sequence[results.Run] = ()
  planned: int = 0

  @property
  def seeds(self) -> str:
    """The number of runs, and the number planned if that is larger."""
    count = f'{len(self.runs)}'
    return (
      f'{count} of {self.planned}' if self.planned > len(self.runs) else count
    )

  @property
  def only_chosen(self) -> bool:
    """Whether its results are those that it is selected by in a sweep."""
    return bool(self.runs) and all(run.chose for run in self.runs)

  @property
  def federated(self) -> bool:
    """Whether its method trains on clients, not on pooled data."""
    return methods.has_clients(self.method.partition(' ')[0])

  def as_chosen(self) -> 'Configuration':
    """Returns a copy whose results are those of the runs it is selected by."""
    runs = self.chosen_by or self.runs
    return dataclasses.replace(self, runs=runs, planned=len(runs))

  def by_seed(self, measure: str) -> dict[tuple, float]:
    """Returns the finite values of a measure by the runs' seeds."""
    return {
      run.seeds: value
      for run in self.runs
      if math.isfinite(value := run.measures().get(measure, math.nan))
    }

  def values(self, measure: str) -> list[float]:
    """Lists the finite values of a measure over the runs."""
    return list(self.by_seed(measure).values())

  def mean(self, measure: str) -> float:
    """Returns the mean of a measure over seeds; NaN without values."""
    return scores.mean(self.values(measure))


Best = Mapping[str, Configuration]


@dataclasses.dataclass(frozen=True)
class Criterion:
  """The measure that methods are compared by, and the selection rule.

  Attributes:
    rule: The rule that selects configurations.
    metric: The task's first metric, if it has one.
    rises: Whether a higher metric is better; by its name if `None`.
  """

  rule: scores.SelectionRule
  metric: Optional[str]
  rises: Optional[bool] = None

  @property
  def quality(self) -> str:
    """The metric's short name; 'loss' if the task has no metric."""
    return 'loss' if self.metric is None else metric_names.short(self.metric)

  @property
  def column(self) -> str:
    """The column of metrics.csv that figures show."""
    return f'validation/{self.metric or "loss"}'

  @property
  def measure(self) -> str:
    """The measure of `scores.measures` that corresponds to `column`."""
    return 'validation/loss' if self.metric is None else 'validation/metric'

  @property
  def label(self) -> str:
    return f'validation {self.quality}'

  @property
  def more_is_better(self) -> bool:
    if self.rises is None:
      return metric_names.require_direction(self.metric)
    return self.rises

  @property
  def is_share(self) -> bool:
    """Whether the metric is a fraction, which is printed in percent."""
    return metric_names.is_share(self.metric or '')

  @property
  def bounds(self) -> tuple[float, float]:
    """The smallest and the largest possible value of `column`."""
    return metric_names.bounds(self.metric or 'loss')

  @property
  def compared(self) -> tuple[str, str]:
    """The measure that methods are compared by, and its name in words.

    Even if configurations are selected by training measures, methods are
    compared by validation, as in Reddi et al.
    """
    words = {
      'best': f'best validation {self.quality}',
      'recent': f'{self.label}, last 10 evaluations',
      'last': 'training loss in the last round',
    }
    measure = self.rule.of_task(self.metric)
    kind, _, _ = measure.partition('/')
    return (
      (measure, words[kind]) if kind in words else (self.measure, self.label)
    )

  def comparison(self, best: Best) -> tuple[str, bool]:
    """Returns the measure of `compared`, and whether more is better."""
    measure, _ = self.compared
    if not any(c.values(measure) for c in best.values()):
      measure = 'train/loss'  # Never evaluated.
    return measure, measure.endswith('/metric') and self.more_is_better

  def ranked(self, best: Best) -> list[str]:
    """Sorts methods, the best first and those without a value last."""
    measure, more = self.comparison(best)

    def place(method: str) -> float:
      value = best[method].mean(measure)
      return (-value if more else value) if math.isfinite(value) else math.inf

    return sorted(best, key=place)

  def score(self, configuration: Configuration) -> list[float]:
    """Scores a configuration's runs; lower is better."""
    if not configuration.complete:
      return [math.inf]
    return [
      scores.score(
        self.rule,
        run.measures(),
        self.metric,
        rises=self.rises,
        finished=run.finished,
      )
      for run in configuration.chosen_by or configuration.runs
    ]

  def best(
    self, configurations: Sequence[Configuration]
  ) -> Optional[Configuration]:
    """Returns the best configuration under the rule; `None` if it has no run.

    Of equal ones it is that which a sweep has repeated on other seeds.
    """
    ordered = sorted(configurations, key=lambda c: c.only_chosen)
    chosen = scores.best({i: self.score(c) for i, c in enumerate(ordered)})
    best = None if chosen is None else ordered[chosen]
    return best if best and best.runs else None

  def best_of(
    self, by_method: Mapping[str, Sequence[Configuration]]
  ) -> dict[str, Configuration]:
    """Returns the best configuration of every method, the best first."""
    found = {m: self.best(c) for m, c in by_method.items()}
    chosen = {m: c for m, c in found.items() if c is not None}
    return {m: chosen[m] for m in self.ranked(chosen)}


@dataclasses.dataclass(frozen=True)
class Section:
  """The runs of one experiment, a task with one setting.

  Attributes:
    setting: The settings that the runs share, by flag.
    by_method: Configurations by method.
    metric: The task's first metric, if it has one.
    rises: Whether a higher metric is better; `None` if it is not known.
  """

  setting: Mapping[str, Any]
  by_method: Mapping[str, Sequence[Configuration]]
  metric: Optional[str]
  rises: Optional[bool] = None

  def criterion(self, rule: scores.SelectionRule) -> Criterion:
    """Returns the criterion of its configurations."""
    return Criterion(rule, self.metric, self.rises)

  def heading(self, every: Sequence['Section']) -> str:
    """Describes the task, and what distinguishes it from other sections."""
    task = str(self.setting.get('task', 'runs'))
    differing = [
      name
      for name, value in self.setting.items()
      for other in every
      if other.setting.get('task') == task and other.setting.get(name) != value
    ]
    words = settings_words(self.setting, list(dict.fromkeys(differing)), task)
    return f'{task}, {words}' if words else task

  def words_of(self, configuration: Configuration) -> str:
    """Describes what distinguishes a configuration from the others."""
    task = self.setting.get('task')
    return settings_words(configuration.settings, self.varied(), task)

  def varied(self) -> list[str]:
    """Lists flags that differ between configurations, learning rates first."""
    names = dict.fromkeys(_RATES)
    for configurations in self.by_method.values():
      for flag in dict.fromkeys(f for c in configurations for f in c.settings):
        seen = {repr(c.settings.get(flag)) for c in configurations}
        if len(seen) > 1 and flag not in SETTING:
          names[flag] = None
      # Axes of which a method has one value, which others may not have.
      names |= {
        axis: None
        for c in configurations
        for run in c.runs
        for axis in (run.sweep.axes if run.sweep else ())
        if axis not in (*self.setting, *SETTING, *results.SEEDS, *_OF_METHOD)
      }
    return list(names)


def prefix(task: str) -> str:
  """Returns the prefix of a task's own settings."""
  return f'{tasks.short(task)}_'


def settings_words(
  settings: Mapping[str, Any], flags: Sequence[str], task: Optional[str] = None
) -> str:
  """Formats settings in words, such as 'client learning rate 0.1, ...'."""
  parts = []
  for flag in flags:
    value = settings.get(flag)
    if value is not None:
      name = flag.removeprefix(prefix(task)) if task else flag
      shown = f'{value:.4g}' if isinstance(value, float) else f'{value}'
      if isinstance(value, bool):
        shown = 'on' if value else 'off'
      parts.append(f'{name.replace("_", " ")} {shown}')
  return ', '.join(parts)


def experiment(settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
  """Returns the settings that define a run's experiment."""
  of_task = prefix(settings.get('task', ''))
  return tuple(
    (k, v)
    for k, v in settings.items()
    if (k in SETTING or k.startswith(of_task)) and v is not None
  )


def sections(runs: Sequence[results.Run]) -> list[Section]:
  """Groups runs by experiment, method and configuration."""
  groups: dict[tuple, dict[str, dict[tuple, list[results.Run]]]] = {}
  for run in runs:
    methods_ = groups.setdefault(experiment(run.settings), {})
    configurations = methods_.setdefault(run.method, {})
    configurations.setdefault(run.configuration, []).append(run)
  result = []
  for setting, methods_ in groups.items():
    by_method = {
      method: [_configuration(method, same) for same in configurations.values()]
      for method, configurations in methods_.items()
    }
    metric, rises = next(
      (
        (run.metric, run.rises)
        for configurations in by_method.values()
        for c in configurations
        for run in c.runs
        if run.metric
      ),
      (None, False),
    )
    result.append(Section(dict(setting), by_method, metric, rises))
  return result


def _configuration(method: str, same: Sequence[results.Run]) -> Configuration:
  """Builds a configuration from runs that differ only in their seeds.

  If a sweep selected it on one seed and repeated it on others, results are
  those of the others. Of runs with the same seeds, such as copies, one counts.
  """
  by_seeds: dict[tuple[Any, ...], results.Run] = {}
  for run in sorted(same, key=lambda run: (run.finished, run.chose)):
    by_seeds[run.seeds] = run
  same = list(by_seeds.values())
  chosen_by = [run for run in same if run.chose] or list(same)
  others = [run for run in same if not run.chose]
  over = [run for run in others if run.finished or run.lost]
  if not others or (len(over) < len(others) and all(r.lost for r in over)):
    others = chosen_by
  return Configuration(
    method,
    {k: v for k, v in same[0].settings.items() if k not in results.SEEDS},
    [run for run in others if run.finished],
    all(run.finished for run in chosen_by),
    [run for run in chosen_by if run.finished],
    len(others),
  )
