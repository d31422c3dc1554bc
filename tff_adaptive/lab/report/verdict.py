"""The verdict of a report: the best method, its margin and its cost."""

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive.algorithms import methods
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import printed_names
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections

# The data behind validation figures, by --validation_split.
_VALIDATION = {
  'examples': 'on test examples set apart, of which test figures are not',
  'clients': 'on clients held out from training',
  'test': 'on test examples: whatever is chosen by it has looked at them',
}


@dataclasses.dataclass(frozen=True)
class Verdict:
  """The verdict on one experiment.

  Attributes:
    headline: The verdict in a few words.
    points: Headings with a text for each.
  """

  headline: str
  points: Sequence[tuple[str, str]]


def words(flag: str, task: Optional[str] = None) -> str:
  """Returns a flag's name in words; a task's own without the task's name."""
  if task:
    flag = flag.removeprefix(sections.prefix(task))
  return flag.replace('_', ' ')


def settings_words(
  settings: Mapping[str, Any], flags: Sequence[str], task: Optional[str] = None
) -> str:
  """Formats settings in words, such as 'client learning rate 0.1, ...'."""
  return ', '.join(
    f'{words(flag, task)} {_value(settings[flag])}'
    for flag in flags
    if settings.get(flag) is not None
  )


def _value(value: Any) -> str:
  if isinstance(value, bool):
    return 'on' if value else 'off'
  return f'{value:.4g}' if isinstance(value, float) else f'{value}'


def spread(
  values: Sequence[float], bounds: tuple[float, float], of: int = 0
) -> str:
  """Formats a mean over seeds with its interval.

  The interval is the 95 % confidence interval, in brackets. For two seeds it
  would be too wide to mean anything, so that their range is shown instead.

  Args:
    values: One value per seed.
    bounds: The smallest and the largest possible value.
    of: Number of all seeds, including those without a value.
  """
  middle = scores.mean(values)
  low, high = formatting.number(min(values)), formatting.number(max(values))
  text = formatting.number(middle)
  notes = []
  if low != high and len(values) >= scores.SEEDS_FOR_AN_INTERVAL:
    text = formatting.with_interval(middle, *scores.confidence(values, bounds))
  elif low != high:
    notes = [f'{low} to {high}']
  if len(values) < of:
    notes.append(f'n = {len(values)}')
  return text + (f' ({", ".join(notes)})' if notes else '')


def ranked(
  best: Mapping[str, sections.Configuration], judge: sections.Judge
) -> list[str]:
  """Sorts methods, the best first and those without a value last."""
  measure = _measure(best, judge)[0]
  sign = -1 if _more_is_better(measure, judge) else 1

  def place(method: str) -> float:
    value = best[method].mean(measure)
    return sign * value if math.isfinite(value) else math.inf

  return sorted(best, key=place)


def reach(
  section: sections.Section,
  best: Mapping[str, sections.Configuration],
  judge: sections.Judge,
  flags: Sequence[str],
) -> Optional[Verdict]:
  """Builds the verdict; `None` if no method has a result.

  Args:
    section: All configurations.
    best: The best configuration of every method that has one.
    judge: The judge of the experiment.
    flags: The settings to name.
  """
  federated = {
    m: c for m, c in best.items() if methods.has_clients(m.partition(' ')[0])
  }
  order = ranked(federated or best, judge)
  if not order:
    return None
  measure, label = _measure(best, judge)
  first = best[order[0]]
  values = first.values(measure)
  if not values:
    return None
  task = section.setting.get('task')
  tried = {m: len(c) for m, c in section.by_method.items()}
  points = [
    (
      'Result',
      f'{label} {_spread(values, measure, judge)}, '
      + _count(len(values), 'seed'),
    ),
    *_test_point(first, judge),
  ]
  if chosen := settings_words(first.settings, flags, task):
    points.append(('Settings', chosen))
  name = printed_names.method(order[0])
  headline = f'{name}: {label} {_number(scores.mean(values), measure, judge)}'
  if len(order) > 1 and best[order[1]].values(measure):
    headline, margin = _margin(order, best, measure, label, judge)
    points.append(('Margin', margin))
  if measure.startswith(('validation/', 'best/', 'recent/')):
    split = section.setting.get('validation_split', 'test')
    points.append(('Validation', _VALIDATION.get(split, f'{split}')))
  if cost := _cost(first):
    points.append(('Cost', cost))
  if max(tried.values()) > 1:
    points.append(('Chosen', _chosen(tried, first, judge)))
  return Verdict(headline, points)


def _chosen(
  tried: Mapping[str, int],
  first: sections.Configuration,
  judge: sections.Judge,
) -> str:
  """Describes how the settings of each method were selected."""
  counts = sorted(set(tried.values()))
  number = (
    f'{counts[0]}' if len(counts) == 1 else f'{counts[0]} to {counts[-1]}'
  )
  text = (
    'the settings of each method are the best of those that were tried '
    f'({number} a method), by {judge.rule.help}'
  )
  chose = [run.tuned_on for run in first.runs if not run.chose]
  if chose and chose[0] is not None:
    text += f'; on seed {chose[0]}, of which the results are not'
  return text


def _measure(
  best: Mapping[str, sections.Configuration], judge: sections.Judge
) -> tuple[str, str]:
  """Returns the measure that methods are compared by, and its name."""
  measure, label = judge.compared
  if any(c.values(measure) for c in best.values()):
    return measure, label
  # Never evaluated.
  return 'train/loss', 'training loss'


def _more_is_better(measure: str, judge: sections.Judge) -> bool:
  return measure.endswith('/metric') and judge.more_is_better


def _test_point(
  first: sections.Configuration, judge: sections.Judge
) -> list[tuple[str, str]]:
  """Returns the best method's result on the test split, if there is one."""
  measure = 'test/metric' if judge.metric else 'test/loss'
  values = first.values(measure)
  if not values:
    return []
  return [('Test', f'test {judge.quality} {_spread(values, measure, judge)}')]


def _is_share(measure: str, judge: sections.Judge) -> bool:
  return measure.endswith('/metric') and judge.is_share


def _number(value: float, measure: str, judge: sections.Judge) -> str:
  """Formats a measure, in percent if it is a fraction."""
  if _is_share(measure, judge):
    return f'{formatting.number(100 * value)} %'
  return formatting.number(value)


def _spread(
  values: Sequence[float], measure: str, judge: sections.Judge
) -> str:
  """Formats a measure's mean and spread, in percent if it is a fraction."""
  bounds = scores.measure_bounds(measure, judge.metric)
  if not _is_share(measure, judge):
    return spread(values, bounds)
  low, high = bounds
  text = spread([100 * v for v in values], (100 * low, 100 * high))
  number, space, rest = text.partition(' ')
  return f'{number} %{space}{rest}'


def _margin(
  order: Sequence[str],
  best: Mapping[str, sections.Configuration],
  measure: str,
  label: str,
  judge: sections.Judge,
) -> tuple[str, str]:
  """Returns a headline, and the margin of the best method over the next."""
  first, second = order[:2]
  names = printed_names.methods(order)
  means = [_number(best[m].mean(measure), measure, judge) for m in order]
  equal = [
    names[m] for m, shown in zip(order, means, strict=True) if shown == means[0]
  ]
  if len(equal) > 1:
    listed = f'{", ".join(equal[:-1])} and {equal[-1]}'
    return f'{listed} are equal', f'none: {label} {means[0]} for each'
  # Differences of shares are in points of percent.
  factor, unit = (100.0, ' points') if _is_share(measure, judge) else (1.0, '')
  ahead = factor * abs(best[first].mean(measure) - best[second].mean(measure))
  found = scores.difference(
    best[first].by_seed(measure), best[second].by_seed(measure)
  )
  behind = f'{unit} ahead of {names[second]}'
  if found is None:
    fewest = min(len(best[m].values(measure)) for m in (first, second))
    return (
      f'{names[first]} is ahead',
      f'{label} {ahead:.2g}{behind}; {_count(fewest, "seed")} cannot tell '
      'whether by chance',
    )
  low, high = (factor * end for end in found)
  if not _more_is_better(measure, judge):
    low, high = -high, -low
  shown = formatting.with_interval(ahead, low, high)
  text = f'{label} {shown}{behind}'
  if low <= 0:
    return f'{names[first]} is ahead, perhaps by chance', text
  return f'{names[first]} is best', text


def _cost(configuration: sections.Configuration) -> str:
  """Describes the cost of a run, mean over seeds."""
  # Runs may end early.
  fewest, most = (
    f(run.rounds for run in configuration.runs) for f in (min, max)
  )
  parts = [_count(most, 'round')]
  if fewest < most:
    parts = [f'{fewest:,} to {parts[0]}']
  if seconds := configuration.values('seconds'):
    parts.append(formatting.duration(scores.mean(seconds)))
  if virtual := configuration.values('virtual_seconds'):
    parts.append(f'{formatting.duration(scores.mean(virtual))} of virtual time')
  if megabytes := configuration.values('megabytes'):
    parts.append(f'{formatting.number(scores.mean(megabytes))} MB sent')
  return f'{", ".join(parts)} (a run, mean over seeds)'


def _count(number: int, noun: str) -> str:
  return f'{number:,} {noun}' + ('' if number == 1 else 's')
