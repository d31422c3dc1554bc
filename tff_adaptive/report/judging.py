"""Which configuration of a method is best, and how sure that is."""

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np

from tff_adaptive.recording import metric_names
from tff_adaptive.report import runs as results
from tff_adaptive.report import selection

# Quantiles of Student's t for a 95 % interval, by degrees of freedom from 1.
_T = (
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
  2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Configuration:
  """Runs that differ in their seeds only.

  Attributes:
    method: As `results.Run.method`.
    settings: What they share.
    runs: The finished ones.
    complete: Whether no run of it failed or is unfinished.
  """

  method: str
  settings: Mapping[str, Any]
  runs: Sequence[results.Run]
  complete: bool = True

  def values(self, measure: str) -> list[float]:
    """A measure of every run that has it."""
    found = [r.measures().get(measure, math.nan) for r in self.runs]
    return [v for v in found if math.isfinite(v)]

  def mean(self, measure: str) -> float:
    """The mean over seeds; not a number where there is none."""
    return results.mean(self.values(measure))


def interval(values: Sequence[float]) -> float:
  """Half the width of a 95 % confidence interval of the mean; 0 for one."""
  if len(values) < 2:
    return 0.0
  quantile = _T[len(values) - 2] if len(values) - 2 < len(_T) else 1.96
  return quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def quality(metric: Optional[str]) -> str:
  """What is drawn of a model, for people: its metric, or else the loss."""
  return 'loss' if metric is None else metric_names.short(metric)


@dataclasses.dataclass(frozen=True)
class Judge:
  """The measure that is shown, and which of several configurations is best.

  Attributes:
    rule: The rule by which configurations are chosen.
    metric: The task's, if it has one.
  """

  rule: selection.Rule
  metric: Optional[str]

  @property
  def shown(self) -> str:
    """The measure that is drawn: the validation metric as reported."""
    return 'validation/loss' if self.metric is None else 'validation/metric'

  @property
  def label(self) -> str:
    return f'validation {quality(self.metric)}'

  @property
  def more_is_better(self) -> bool:
    return selection.higher_is_better(self.metric)

  def scores(self, configuration: Configuration) -> list[float]:
    """Of a configuration's runs; infinite ones if it is not complete."""
    if not configuration.complete or not configuration.runs:
      return [math.inf]
    return [
      selection.score(self.rule, run.measures(), self.metric)
      for run in configuration.runs
    ]

  def best(
    self, configurations: Sequence[Configuration]
  ) -> Optional[Configuration]:
    """The best by the rule."""
    chosen = selection.best(
      {i: self.scores(c) for i, c in enumerate(configurations)}
    )
    return None if chosen is None else configurations[chosen]
