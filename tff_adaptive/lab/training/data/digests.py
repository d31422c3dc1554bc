"""Digests of a run's input data, compared when the run is resumed.

Settings name files, whose content may change between two starts. Digests are of
the data as the task loads them, so that files may be moved, and are stored in
hparams.json.
"""

import hashlib
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import client_data
from tff_adaptive import errors

# Sample of data that are not in memory: clients, and examples of each.
_CLIENTS = 8
_EXAMPLES = 20
# Arrays in memory up to this size are hashed whole, of others a row sample.
_WHOLE_BYTES = 256 * 2**20
_ROWS = 10_000
_WORDS = {
  'clients': 'the names of the clients',
  'examples': "the clients' examples",
  'test': 'the test data',
}


def digests(
  task: tff.simulation.baselines.BaselineTask,
) -> dict[str, Optional[str]]:
  """Computes digests of a run's input data.

  Args:
    task: The run's task, as `experiment.create_task` returns it.

  Returns:
    Hexadecimal digests by key of `_WORDS`; `None` for unreadable data.
  """
  train = task.datasets.train_data
  found: dict[str, Optional[str]] = {
    'clients': _digest(str(client).encode() for client in train.client_ids),
    'examples': _examples(train),
  }
  if isinstance(task.datasets.test_data, tf.data.Dataset):
    found['test'] = _of_datasets([task.datasets.test_data])
  return found


def check_same(
  before: Mapping[str, Any], now: Mapping[str, Any], folder: pathlib.Path
) -> None:
  """Checks that a resumed run reads the data that it was started with.

  Args:
    before: The digests in hparams.json; missing ones are not compared.
    now: The current digests.
    folder: The run's folder.

  Raises:
    SettingsError: If a digest differs.
  """
  changed = [
    _WORDS[name]
    for name, digest in now.items()
    if digest and before.get(name) and before[name] != digest
  ]
  if changed:
    raise errors.SettingsError(
      f'The run in {folder} was started with a different version of '
      f'{" and ".join(changed)}, though with the same flags: restore the '
      'original, or choose another --experiment_name.'
    )


def _digest(pieces: Iterable[bytes]) -> str:
  digest = hashlib.blake2b(digest_size=16)
  for piece in pieces:
    digest.update(len(piece).to_bytes(8, 'little'))
    digest.update(piece)
  return digest.hexdigest()


def _examples(data: tff.simulation.datasets.ClientData) -> Optional[str]:
  """Computes a digest of clients' examples; of a sample if all are slow."""
  if isinstance(data, client_data.ArrayClientData):
    pieces = [_bytes(np.concatenate(data.partition.indices))]
    pieces.append(_bytes(data.partition.sizes))
    for name, array in sorted(data.arrays.items()):
      step = 1
      if array.nbytes > _WHOLE_BYTES:
        step = max(1, len(array) // _ROWS)
      pieces += [name.encode(), _bytes(array[::step])]
    return _digest(pieces)
  ids = list(data.client_ids)
  places = np.linspace(0, len(ids) - 1, min(len(ids), _CLIENTS)).astype(int)
  return _of_datasets(
    data.create_tf_dataset_for_client(ids[place]) for place in places
  )


def _of_datasets(datasets: Iterable[tf.data.Dataset]) -> Optional[str]:
  """Computes a digest of datasets' first examples; `None` if unreadable."""
  pieces = []
  try:
    for dataset in datasets:
      for example in dataset.take(_EXAMPLES).as_numpy_iterator():
        pieces += [
          _bytes(np.asarray(leaf)) for leaf in tf.nest.flatten(example)
        ]
  # A dataset's own functions may raise anything. The round that reads it
  # reports the error (`faults.Guard`), so here the comparison is skipped.
  except Exception:  # pylint: disable=broad-exception-caught
    return None
  return _digest(pieces)


def _bytes(array: np.ndarray) -> bytes:
  if array.dtype.kind == 'O':
    return repr(array.tolist()).encode()
  head = f'{array.dtype.str} {array.shape} '.encode()
  return head + np.ascontiguousarray(array).tobytes()
