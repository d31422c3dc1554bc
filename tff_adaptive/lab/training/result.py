"""The result of a run."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Result:
  """The result of a run.

  Attributes:
    rows: Of metrics.csv, as text by column.
    seconds: By what they were spent on, in this process; empty if the run was
      finished before.
    resumed_from: The round of the checkpoint it went on from, if any.
  """

  rows: Sequence[Mapping[str, str]]
  seconds: Mapping[str, float]
  resumed_from: Optional[int] = None
