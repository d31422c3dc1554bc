"""Detection, exclusion and reporting of clients that cannot take part.

A client without data, or whose update is not finite, is excluded by the process
itself, which counts such clients but does not identify them. A client whose
data cannot be read, or whose preprocessing, loss or metrics raise an error,
would abort the round. Such clients are searched for after a round has failed,
and the round is repeated without them, so that rounds without failures have no
overhead.
"""

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional, TypeAlias, Union

import tensorflow as tf

from tff_adaptive import errors
from tff_adaptive import runtime
from tff_adaptive.lab.training.data import datasets as data_lib
from tff_adaptive.lab.training.loop import rounds as rounds_lib

# Sources of a cohort's batches.
Clients: TypeAlias = Union[data_lib.Prefetcher, data_lib.Clients]

# Maximum number of warnings of one kind, and of clients named in a warning.
_SAID_IN_FULL = 3
_MOST_NAMES = 5


@dataclasses.dataclass(frozen=True)
class Finding:
  """The result of examining a client's batches.

  Attributes:
    error: The error message raised while reading them; `None` without one.
    empty: Whether there are no batches.
    finite: Whether all floating point values are finite.
  """

  error: Optional[str]
  empty: bool
  finite: bool


def examine(dataset: data_lib.Batches) -> Finding:
  """Reads all of a client's batches, for errors and non-finite values."""
  finite, count, error = True, 0, None
  try:
    for batch in dataset:
      count += 1
      for tensor in tf.nest.flatten(batch):
        if tensor.dtype.is_floating:
          finite &= bool(tf.reduce_all(tf.math.is_finite(tensor)))
  # A reference, whose client cannot be read, raises `RunError`.
  except (tf.errors.OpError, errors.RunError) as e:
    error = errors.reason(e)
  return Finding(error, count == 0, finite)


def explain(error: BaseException) -> str:
  """Describes an error of TensorFlow, with a hint on labels out of range."""
  cause = error if error.__cause__ is None else error.__cause__
  reason = errors.reason(cause)
  found = re.search(
    r'label value of (\d+) .*valid range of \[0, (\d+)\)', reason
  )
  if found and found.group(1) == found.group(2):
    count = int(found.group(2))
    reason = (
      f'labels seem to be 1 to {count}, but a model with {count} outputs takes '
      f'0 to {count - 1}: subtract 1 ({reason.rstrip(".")})'
    )
  return reason


class ClientFailureHandler:
  """A runner of rounds that excludes clients which cannot take part."""

  def __init__(
    self,
    rounds: rounds_lib.Rounds,
    clients: Clients,
    *,
    most: Optional[int],
    say: Callable[[str], None],
  ):
    """Initializes the handler.

    Args:
      rounds: The rounds to run.
      clients: The training clients.
      most: Maximum number of clients per round to exclude because of an error
        or an update that is not finite; `None` for any number.
      say: Called with a message naming the excluded clients and the reason.
    """
    self._rounds = rounds
    self._clients = clients
    self._most = most
    self._say = say
    self._counts: collections.Counter[str] = collections.Counter()
    self._failed: dict[str, str] = {}
    self._unread: dict[str, str] = {}

  def read(self, number: int, cohort: Sequence[str]) -> list[data_lib.Batches]:
    """Reads the cohort's batches; empty for clients that cannot be read.

    Raises:
      RunError: If no client's data can be read.
    """
    found = self._clients.for_round(number, cohort)
    self._unread = found.failures
    self._failed = dict(found.failures)
    return found.batches

  def run(
    self,
    number: int,
    cohort: Sequence[str],
    datasets: Sequence[data_lib.Batches],
  ) -> Mapping[str, Any]:
    """Runs a round; returns its columns of metrics.csv.

    Raises:
      RunError: If no client's data can be used, or more than `most` clients
        were excluded. The caller then rolls the round back.
    """
    try:
      reported = self._rounds.run(cohort, datasets)
    except runtime.WorkerFailure:
      raise  # Not caused by a client.
    except (runtime.RuntimeFailure, tf.errors.OpError) as e:
      reported, datasets = self._run_without_failing(
        number, cohort, datasets, e
      )
    row = collections.OrderedDict(reported)
    if cohort and 'clients/count' in row:
      # The process counted these as empty, as it got no data for them.
      row['clients/empty'] = int(row.get('clients/empty', 0)) - len(
        self._failed
      )
      row['clients/failed'] = len(self._failed)
    if cohort:
      self._report(number, row, cohort, datasets)
    else:
      self._warn(
        'rounds had no client that answered',
        lambda: f'Round {number}: no client answered; the model is unchanged.',
      )
    return row

  def _run_without_failing(
    self,
    number: int,
    cohort: Sequence[str],
    datasets: Sequence[data_lib.Batches],
    error: Exception,
  ) -> tuple[rounds_lib.Columns, Sequence[data_lib.Batches]]:
    """Runs a round without the clients that raise an error.

    These are clients whose data cannot be read and, one at a time, those whose
    loss, metrics or update raise an error.

    Returns:
      What the round reported, and its datasets, with those clients' emptied.

    Raises:
      RunError: If all clients raise errors. If none do, raises `error`.
    """
    if self._rounds.pooled:
      # Pooled data belong to no single client.
      raise errors.RunError(
        f'Round {number} cannot be trained: {explain(error).rstrip(".")}.'
      ) from error
    for client, found in self._examined(cohort, datasets).items():
      if found.error is not None:
        self._failed[client] = found.error
    known = len(self._unread)
    while True:
      if len(self._failed) == known:
        if not isinstance(error, runtime.ClientFailure) or isinstance(
          error.__cause__, (tf.errors.ResourceExhaustedError, MemoryError)
        ):
          raise error
        client = cohort[error.client_index]
        if client in self._failed:
          raise error  # It fails without data, too.
        self._failed[client] = explain(error)
      known = len(self._failed)
      if known == len(cohort):
        raise errors.RunError(
          'Every client of a round raises an error: client '
          f'{cohort[0]!r}, {self._failed[cohort[0]].rstrip(".")}.'
        ) from error
      # Rebuilt, as datasets that were iterated in part may not restart alike.
      again = self._clients.for_round(number, cohort).batches
      datasets = [
        data_lib.without_elements(data) if client in self._failed else data
        for client, data in zip(cohort, again, strict=True)
      ]
      try:
        return self._rounds.run(cohort, datasets), datasets
      except runtime.ClientFailure as e:
        error = e

  def _report(
    self,
    number: int,
    row: rounds_lib.Columns,
    cohort: Sequence[str],
    datasets: Sequence[data_lib.Batches],
  ) -> None:
    """Reports excluded clients, and a round that did not change the model.

    Raises:
      RunError: If there are more than `most`.
    """
    count = int(row.get('clients/count', len(cohort)))
    rejected = int(row.get('clients/rejected', 0))
    empty = int(row.get('clients/empty', 0))
    failed = len(self._failed)
    if failed:
      client, why = next(iter(self._failed.items()))
      self._warn(
        'rounds excluded clients that raise an error',
        lambda: (
          f'Round {number}: {failed} of {count} clients raise an '
          f'error; they were excluded: {_names(self._failed)} ({client!r}: '
          f'{why}).'
        ),
      )
    if rejected:
      self._warn(
        'rounds excluded clients with updates that are not finite',
        lambda: (
          f'Round {number}: {rejected} of {count} clients sent an update that '
          f'is not finite and were excluded; {self._blame(cohort, datasets)}'
        ),
      )
    if empty:
      self._warn(
        'rounds had clients without data',
        lambda: (
          f'Round {number}: {empty} of {count} clients have no data: '
          + _names(
            client
            for client, found in self._examined(cohort, datasets).items()
            if found.empty and client not in self._failed
          )
          + '.'
        ),
      )
    if row.get('update/non_finite'):
      self._warn(
        'rounds had an update that is not finite',
        lambda: (
          f'Round {number}: the model is not finite any more.'
          if self._rounds.pooled
          else f'Round {number}: the aggregated update is not finite and was '
          'not applied; the model is unchanged.'
        ),
      )
    elif 'update/norm' in row and not float(row['update/norm']):
      self._warn(
        'rounds did not change the model',
        lambda: (
          f'Round {number}: the model did not change (the update is zero); '
          "check the learning rates and the clients' data."
        ),
      )
    if self._most is not None and rejected + failed > self._most:
      raise errors.RunError(
        f'Round {number} was aborted: {rejected + failed} of {count} clients '
        f'were excluded ({rejected} with updates that are not finite, {failed} '
        'that raise an error), more than '
        f'--max_rejected_clients={self._most} allows. The same command with a '
        'higher limit resumes from the previous round.'
      )

  def _examined(
    self, cohort: Sequence[str], datasets: Sequence[data_lib.Batches]
  ) -> dict[str, Finding]:
    """Examines all clients' batches; pooled data belong to no single client."""
    if self._rounds.pooled:
      return {}
    return {c: examine(d) for c, d in zip(cohort, datasets, strict=True)}

  def _blame(
    self, cohort: Sequence[str], datasets: Sequence[data_lib.Batches]
  ) -> str:
    """Describes which clients' data are not finite, in a clause."""
    found = self._examined(cohort, datasets)
    if wrong := [client for client in found if not found[client].finite]:
      return f'the data of {_names(wrong)} are not finite.'
    return 'their data are finite: a lower client learning rate may help.'

  def _warn(self, kind: str, sentence: Callable[[], str]) -> None:
    self._counts[kind] += 1
    # Building the message may read the clients' data once more.
    if self._counts[kind] <= _SAID_IN_FULL:
      self._say(sentence())

  def sum_up(self) -> None:
    """Reports the number of warnings of each kind, if some were suppressed."""
    for kind, count in self._counts.items():
      if count > _SAID_IN_FULL:
        self._say(f'{count} {kind}.')


def _names(clients: Iterable[str]) -> str:
  names = [repr(client) for client in clients]
  more = len(names) - _MOST_NAMES
  text = ', '.join(names[:_MOST_NAMES])
  return f'{text} and {more} more' if more > 0 else text
