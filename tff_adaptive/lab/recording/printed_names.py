"""Printed names of methods, optimizers and metrics, as in papers."""

from collections.abc import Collection
from typing import Optional

from tff_adaptive import optimizers
from tff_adaptive.algorithms import methods as table
from tff_adaptive.lab.recording import metric_names


def method(name: str) -> str:
  """Returns the printed name of a method, such as 'FedAdam + \u0394-SGD'.

  Args:
    name: A name as returned by `report.runs.method_of`; unknown names are
      returned unchanged.
  """
  rest, _, server = name.partition(' / ')
  base, _, client = rest.partition(' + ')
  row = table.table().get(base)
  text = base if row is None else row.printed or base
  if client:
    text += f' + {_optimizer(client)}'
  if server:
    text += f' / {_optimizer(server)}'
  return text


def _optimizer(name: str) -> str:
  """Returns the printed name of an optimizer, the same on both sides."""
  rows = (optimizers.TABLES[side].get(name) for side in optimizers.SIDES)
  return next((row.printed for row in rows if row and row.printed), name)


def methods(names: Collection[str]) -> dict[str, str]:
  """Returns printed names of methods, without duplicates."""
  printed = {name: method(name) for name in names}
  taken = list(printed.values())
  return {n: p if taken.count(p) == 1 else n for n, p in printed.items()}


def heading(words: str, metric: Optional[str]) -> str:
  """Formats words as a heading, such as 'Test accuracy (%)'.

  Args:
    words: The words, such as 'test accuracy'.
    metric: The metric that they describe, if any.
  """
  text = words[:1].upper() + words[1:]
  share = metric is not None and metric_names.is_share(metric)
  return f'{text} (%)' if share else text
