"""The table of results of a report: methods by measures."""

import math
from collections.abc import Mapping
from typing import Optional

from tff_adaptive.algorithms import methods
from tff_adaptive.recording import formatting
from tff_adaptive.recording import metric_names
from tff_adaptive.report import judging
from tff_adaptive.report import page as report_page
from tff_adaptive.report import runs as results
from tff_adaptive.report import sections as report_sections

_RATES = ('client_learning_rate', 'server_learning_rate', 'server_adaptivity')
# Columns of the table of results: measure, heading, less is better (None: as
# the metric).
_MEASURES: tuple[tuple[str, str, Optional[bool]], ...] = (
  ('train/loss', 'training loss', True),
  ('validation/metric', 'validation {metric}', None),
  ('best/metric', 'best validation {metric}', None),
  ('test/metric', 'test {metric}', None),
  ('test/loss', 'test loss', True),
  ('megabytes', 'megabytes sent', True),
  ('seconds', 'seconds', True),
)


def table(
  section: report_sections.Section,
  best: Mapping[str, judging.Configuration],
  judge: judging.Judge,
) -> str:
  """Methods by measures, the best of every column in bold.

  Args:
    section: All configurations of the methods.
    best: The best configuration of every method that has one.
    judge: Says what is better.
  """
  measures = [m for m in _MEASURES if any(best[n].values(m[0]) for n in best)]
  metric = metric_names.short(section.metric) if section.metric else 'metric'
  varying = [
    f
    for f in report_sections.varied(section)
    if f not in report_sections.SETTING
  ]
  flags = [f for f in _RATES if f not in varying] + varying
  central = judge.best(
    [c for m, c in best.items() if not methods.has_clients(m.partition(' ')[0])]
  )
  head = ['method', 'runs']
  head += [heading.format(metric=metric) for _, heading, _ in measures]
  if central is not None:
    head.append('gap to centralized')
  head.append('configuration')
  tops = {
    measure: _top(
      best, measure, not judge.more_is_better if less is None else less
    )
    for measure, _, less in measures
  }
  rows = []
  for method in sorted(best, key=lambda m: results.mean(judge.scores(best[m]))):
    configuration = best[method]
    cells = [
      report_page.cell(method),
      report_page.cell(len(configuration.runs)),
      *(_measure_cell(configuration, m, tops[m]) for m in tops),
    ]
    if central is not None:
      gap = central.mean(judge.shown) - configuration.mean(judge.shown)
      cells.append(report_page.cell(f'{gap:+.4f}'))
    settings = configuration.settings
    words = report_page.words(
      {f: settings[f] for f in flags if settings.get(f) is not None}
    )
    cells.append(report_page.cell(words, words=True, code=True))
    rows.append(cells)
  return report_page.table(head, rows)


def _top(
  best: Mapping[str, judging.Configuration], measure: str, less: bool
) -> Optional[float]:
  """The best mean of a measure; where all are equal none is best."""
  means = [configuration.mean(measure) for configuration in best.values()]
  means = [v for v in means if math.isfinite(v)]
  several = len(set(means)) > 1 or len(best) == 1
  return (min if less else max)(means) if several else None


def _measure_cell(
  configuration: judging.Configuration, measure: str, top: Optional[float]
) -> str:
  values = configuration.values(measure)
  if not values:
    return report_page.EMPTY_CELL
  mean = results.mean(values)
  text = formatting.number(mean)
  half = judging.interval(values)
  if half:
    text += f' ± {half:.2g}'
  return report_page.cell(text, best=mean == top)
