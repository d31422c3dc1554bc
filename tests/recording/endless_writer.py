"""Changes and saves clients' states until it is killed; see the test.

Run as a script with the path of the file. Says, a line a save, the round and
what a checkpoint would hold.
"""

import pathlib
import sys

import numpy as np

from tff_adaptive.lab.recording import client_states


def state(number):
  return np.full(30_000, number, '<f4')


def clients_of(number):
  """Ids of the clients that change in a round."""
  return [str((number + client) % 5) for client in range(3)]


def main(path, memory_bytes):
  store = client_states.ClientStates(state(0), path, memory_bytes)
  number = 0
  while True:
    number += 1
    store.snapshot()
    store.keep(clients_of(number), [state(number)] * 3)
    store.snapshot()
    print(number, *map(int, store.save().values()), flush=True)


if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]), float(sys.argv[2]))
