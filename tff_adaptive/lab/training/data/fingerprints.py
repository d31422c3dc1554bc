"""Fingerprint of a run's input data, compared when the run is resumed.

Settings name files, whose content may change between two starts. The
fingerprint is of the data as the task loads them, so that files may be moved,
and is stored in hparams.json.
"""

import hashlib
import json
import pathlib
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import client_data
from tff_adaptive import errors

# Sample of data that are not in memory: clients, and examples of each.
_CLIENTS = 8
_EXAMPLES = 20
# Of larger arrays, evenly spaced rows are covered.
_WHOLE_BYTES = 256 * 2**20


def fingerprint(task: tff.simulation.baselines.BaselineTask) -> Optional[str]:
  """Computes a hexadecimal fingerprint of a run's input data.

  It covers the names of clients, examples in memory or else a sample of them,
  and the first test examples; `None` for unreadable data.

  Args:
    task: The run's task, as `experiment.create_task` returns it.
  """
  train, test = task.datasets.train_data, task.datasets.test_data
  ids = list(train.client_ids)
  read: list[Any] = []
  parts: list[Any] = [json.dumps(list(map(str, ids)))]

  def sample(data: tff.simulation.datasets.ClientData) -> None:
    ids = list(data.client_ids)
    places = np.linspace(0, len(ids) - 1, min(len(ids), _CLIENTS)).astype(int)
    read.extend(data.create_tf_dataset_for_client(ids[p]) for p in places)

  if isinstance(test, tf.data.Dataset):
    read.append(test)
  elif isinstance(test, tff.simulation.datasets.ClientData):
    parts.append(json.dumps(list(map(str, test.client_ids))))
    sample(test)
  if isinstance(train, client_data.ArrayClientData):
    parts += [np.concatenate(train.partition.indices), train.partition.sizes]
    for name, array in sorted(train.arrays.items()):
      parts += [name, array[:: array.nbytes // _WHOLE_BYTES + 1]]
  else:
    sample(train)
  try:
    for dataset in read:
      for example in dataset.take(_EXAMPLES).as_numpy_iterator():
        parts += map(np.asarray, tf.nest.flatten(example))
  # A dataset's own functions may raise anything. The round that reads it
  # reports the error, so here the comparison is skipped.
  except Exception:  # pylint: disable=broad-exception-caught
    return None
  digest = hashlib.blake2b(digest_size=16)
  for part in parts:
    array = np.asarray(part)
    digest.update(f'{array.dtype.str} {array.shape} '.encode())
    plain = array.dtype.kind in 'OSU'
    digest.update(repr(array.tolist()).encode() if plain else array.tobytes())
  return digest.hexdigest()


def check_same(
  before: Optional[str], now: Optional[str], folder: pathlib.Path
) -> None:
  """Checks that a resumed run reads the data that it was started with.

  Args:
    before: The fingerprint in hparams.json; not compared if `None`.
    now: The current fingerprint, likewise.
    folder: The run's folder.

  Raises:
    SettingsError: If they differ.
  """
  if before and now and before != now:
    raise errors.SettingsError(
      f'The run in {folder} was started with a different version of its data, '
      'though with the same flags: restore the original, or choose another '
      '--experiment_name.'
    )
