"""The hook that records a run's rounds and clients' step sizes."""

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import tables
from tff_adaptive.processes.local import step_sizes

# What checkpoints hold of the tables: number and checksum of the rows so far.
ROW_SUMS: Mapping[str, np.ndarray] = {
  'metrics': np.zeros(2, np.int64),
  'step_sizes': np.zeros(2, np.int64),
}


class Records(hooks.Hook):
  """The records of a run, truncated to the round from which it resumes.

  Checkpoints hold checksums of the rows. Without these, a row with altered
  digits would be carried over by a resumed run.

  Attributes:
    rows: Rows of metrics.csv.
    dropped: Number of rows of later rounds, which were dropped.
  """

  def __init__(
    self,
    folder: files.RunFolder,
    checkpoint: Optional[checkpoints.Checkpoint] = None,
  ):
    """Reads existing rows and drops those of later rounds.

    Args:
      folder: The run's folder, entered by the caller.
      checkpoint: The checkpoint from which the run resumes; by default all rows
        are dropped.

    Raises:
      RunError: If rows up to the checkpoint are missing or were changed, or if
        files cannot be read or written.
    """
    self._metrics = tables.RowFile(folder.metrics)
    self._step_sizes = tables.RowFile(folder.step_sizes)
    self._clients = folder.clients
    self._files = {'metrics': self._metrics, 'step_sizes': self._step_sizes}
    last_round = -1
    if checkpoint is not None:
      last_round = checkpoint.round_number
      for name, file in self._files.items():
        wanted = checkpoint.row_sums[name]
        found = file.checksum(last_round)
        if not np.array_equal(found, wanted):
          raise errors.RunError(
            f'{file.path} is damaged: its {found[0]:,} rows up to round '
            f'{last_round} are not the {wanted[0]:,} that the checkpoint of '
            f'that round is of; {tables.ADVICE} to start over.'
          )
    self.dropped = self._metrics.drop_after(last_round)
    self._step_sizes.drop_after(last_round)

  @property
  def rows(self) -> list[dict[str, str]]:
    return self._metrics.rows

  def round(self, event: hooks.Round) -> None:
    """Appends a round's row and the step sizes of its clients.

    Raises:
      RunError: If they cannot be written.
    """
    for record in event.steps:
      self._step_sizes.append({'round': event.number, **record})
    self._metrics.append(event.row)

  def evaluation(self, event: hooks.Evaluation) -> None:
    """Writes the clients' rows and adds final values to the last round's row.

    Raises:
      RunError: If they cannot be written.
    """
    if event.clients:
      tables.write(self._clients, event.clients)
    if event.final:  # Others are in the row of their round.
      self._metrics.set_final(event.values)

  def forget_final(self) -> None:
    """Drops a final evaluation, because more rounds follow."""
    self._clients.unlink(missing_ok=True)
    self._metrics.set_final({})

  def sync(self, last_round: int) -> dict[str, np.ndarray]:
    """Flushes rows to disk; returns number and checksum of rows, by table.

    Args:
      last_round: The last round whose row counts. A later row belongs to a
        round that failed after its row was written.

    Raises:
      RunError: If rows cannot be written.
    """
    for file in self._files.values():
      if file.rows:
        file.sync()
    return {n: file.checksum(last_round) for n, file in self._files.items()}


def step_rows(cohort: Sequence[str], metrics: Any) -> list[dict[str, Any]]:
  """Builds the rows of step_sizes.csv, one per client; empty without records.

  Args:
    cohort: Ids of the round's clients.
    metrics: The metrics that the process returned for the round.
  """
  work = metrics.get('client_work') if isinstance(metrics, Mapping) else None
  if not isinstance(work, Mapping) or 'step_size_of_clients' not in work:
    return []
  found = np.asarray(work['step_size_of_clients'])
  return [
    {
      'client': client,
      **{
        name: int(value)
        if name in ('took_part', 'steps')
        # A client without steps has no step sizes: an empty cell.
        else (value if np.isfinite(value) else None)
        for name, value in zip(step_sizes.RECORD, record, strict=True)
      },
    }
    for client, record in zip(cohort, found, strict=True)
  ]
