"""Every client's step sizes per round, as rows of step_sizes.csv."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive.lab.recording import tables
from tff_adaptive.processes.local import step_sizes as measured

_WHOLE = ('took_part', 'steps')


class StepFile(tables.RowFile):
  """step_sizes.csv: one row per client and round, with the client's id.

  A round without answers has no row.
  """

  _every_round = False


def rows(cohort: Sequence[str], metrics: Any) -> list[dict[str, Any]]:
  """Builds one row per client, in the cohort's order; empty without records.

  Args:
    cohort: Ids of the round's clients.
    metrics: The metrics that the process returned for the round.
  """
  work = metrics.get('client_work') if isinstance(metrics, Mapping) else None
  if not isinstance(work, Mapping) or 'step_size_of_clients' not in work:
    return []
  result = []
  records = np.asarray(work['step_size_of_clients'])
  for client, record in zip(cohort, records, strict=True):
    row: dict[str, Any] = {'client': client}
    for name, value in zip(measured.RECORD, record, strict=True):
      if name in _WHOLE:
        row[name] = int(value)
      else:
        # A client without steps has no step sizes: an empty cell.
        row[name] = value if np.isfinite(value) else None
    result.append(row)
  return result
