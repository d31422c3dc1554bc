"""Flower's simulation on PyTorch, for benchmarks/program.py.

Clients train in Ray's processes, one a core. Flower's own FedAdam has no bias
correction, so the server's step is written out here.
"""

import os
import queue
import threading

import flower_client
import numpy as np
import torch
import torch_models
import workload
from flwr.app import ArrayRecord
from flwr.app import ConfigRecord
from flwr.app import Message
from flwr.app import RecordDict
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

# Ray's processes import flower_client.
_HERE = os.path.dirname(os.path.abspath(__file__))
os.environ['PYTHONPATH'] = os.pathsep.join(
  filter(None, [_HERE, os.environ.get('PYTHONPATH')])
)
_BETA_1 = 0.9


class _Strategy(FedAvg):
  """FedAvg, then Adam's step; each round waits for its turn."""

  def __init__(self, options, text, begin, done):
    super().__init__(fraction_evaluate=0.0)
    self._options, self._text = options, text
    self._begin, self._done = begin, done
    self._received = None
    self._moments = None

  def configure_train(self, server_round, arrays, config, grid):
    self._begin.acquire()
    self._received = arrays.to_numpy_ndarrays()
    nodes = sorted(grid.get_node_ids())
    messages = []
    for client in workload.cohort(self._options, server_round):
      asked = ConfigRecord({'client': client, 'options': self._text})
      content = RecordDict({'arrays': arrays, 'config': asked})
      messages.append(
        Message(
          content=content, message_type='train', dst_node_id=nodes[client]
        )
      )
    return messages

  def aggregate_train(self, server_round, replies):
    mean, metrics = super().aggregate_train(server_round, replies)
    x = self._received
    if self._moments is None:
      self._moments = [(np.zeros_like(w), np.zeros_like(w)) for w in x]
    b1, b2 = _BETA_1, workload.SERVER_BETA_2
    rate = workload.SERVER_RATE * np.sqrt(1 - b2**server_round)
    rate /= 1 - b1**server_round
    updated = []
    for i, (w, new) in enumerate(zip(x, mean.to_numpy_ndarrays())):
      delta = new - w
      m, v = self._moments[i]
      m, v = b1 * m + (1 - b1) * delta, b2 * v + (1 - b2) * delta**2
      self._moments[i] = m, v
      step = rate * m / (np.sqrt(v) + workload.SERVER_EPSILON)
      updated.append((w + step).astype(np.float32))
    self._done.put(updated)
    return ArrayRecord(updated), metrics


def main() -> None:
  options = workload.parse()
  text = ' '.join(
    f'--{name}={value}'
    for name, value in vars(options).items()
    if value is not None and not isinstance(value, bool)
  )
  begin, done = threading.Semaphore(0), queue.Queue()
  ready = threading.Event()
  server = ServerApp()
  module = torch.nn.Sequential(*torch_models.layers(options))
  first = [p.detach().numpy().copy() for p in flower_client.parameters(module)]

  @server.main()
  def serve(grid, context):
    del context
    ready.set()
    _Strategy(options, text, begin, done).start(
      grid=grid,
      initial_arrays=ArrayRecord(first),
      num_rounds=options.rounds,
    )

  def make(options):
    ready.wait()
    latest = [first]

    def run():
      begin.release()
      latest[0] = done.get()

    def loss():
      module.eval()
      with torch.no_grad():
        for parameter, array in zip(
          flower_client.parameters(module), latest[0]
        ):
          parameter.copy_(torch.tensor(array))
        losses = []
        for client in workload.population(options):
          x, y = torch_models.tensors(options, client)
          losses.append(float(torch_models.loss(module(x), y)))
      return sum(losses) / len(losses)

    return run, loss

  speaker = threading.Thread(target=workload.serve, args=(options, make))
  speaker.start()
  run_simulation(
    server_app=server,
    client_app=flower_client.app,
    num_supernodes=len(workload.population(options)),
    backend_config={'client_resources': {'num_cpus': 1, 'num_gpus': 0.0}},
  )
  speaker.join()


if __name__ == '__main__':
  main()
