"""Changes and saves clients' states until it is killed; see the test.

Run as a script with the path of the file. Says, a line a save, the round and
what a checkpoint would hold.
"""

import pathlib
import sys

import numpy as np

from tff_adaptive.lab.recording.client_state import files as client_states

RECORD = client_states.Record(((30_000,),), (np.dtype('<f4'),))


def clients_of(number):
  """Ids of the clients that change in a round."""
  return [str((number + client) % 5) for client in range(3)]


def main(path):
  store = client_states.ClientStates(RECORD, pathlib.Path(path))
  number = 0
  while True:
    number += 1
    store.snapshot()
    for client in clients_of(number):
      store.put(client, [np.full(30_000, number, '<f4')])
    print(number, *map(int, store.save().values()), flush=True)


if __name__ == '__main__':
  main(sys.argv[1])
