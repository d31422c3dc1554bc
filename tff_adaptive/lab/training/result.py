"""The result of a run."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Result:
  """The result of a run.

  Attributes:
    rows: Rows of metrics.csv, as text by column.
    seconds: Seconds by phase, spent in this process; empty if the run was
      finished before.
    resumed_from: Round of the checkpoint that the run resumed from, or `None`.
  """

  rows: Sequence[Mapping[str, str]]
  seconds: Mapping[str, float]
  resumed_from: Optional[int] = None
