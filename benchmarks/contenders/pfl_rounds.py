"""pfl-research's federated averaging on PyTorch, for the benchmarks.

The contender pfl_2 is two processes, as pfl spreads a cohort: this one and
another, which it starts and tells of each round.
"""

import asyncio
import atexit
import functools
import itertools
import os
import socket
import subprocess
import sys

import numpy as np
import torch
import torch_models
import workload
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel

_RANK = 'PFL_WORKER_RANK'
_ADDRESSES = 'PFL_WORKER_ADDRESSES'


class _Model(torch.nn.Sequential):
  """A model in the form that pfl asks for."""

  def loss(self, x, y):
    return torch_models.loss(self(x), y)

  def metrics(self, x, y):
    with torch.no_grad():
      return {'loss': Weighted(float(self.loss(x, y)) * len(y), len(y))}


def _other_process():
  """Starts the second of two processes, if this is the first."""
  if _RANK in os.environ:
    return None
  with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    port = probe.getsockname()[1]
  # pfl takes the number of addresses for that of the processes.
  os.environ[_ADDRESSES] = f'127.0.0.1:{port},127.0.0.1:{port}'
  os.environ[_RANK] = '0'
  other = subprocess.Popen(
    [sys.executable, *sys.argv],
    stdin=subprocess.PIPE,
    stdout=subprocess.DEVNULL,
    env={**os.environ, _RANK: '1'},
  )
  atexit.register(other.kill)  # By itself it would wait for this one.
  return other


def _model(module):
  """Builds the module with the optimizers of client and server."""
  return PyTorchModel(
    module,
    torch.optim.SGD,
    torch.optim.Adam(
      [p for p in module.parameters() if p.requires_grad],
      workload.SERVER_RATE,
      betas=(0.9, workload.SERVER_BETA_2),
      eps=workload.SERVER_EPSILON,
    ),
  )


def make(options):
  """Builds the contender as `workload.serve` expects it."""
  other = None
  if options.contender == 'pfl_2':
    other = _other_process()
    torch.set_num_threads(1)
  # Chosen before the model, so that both processes find each other.
  set_framework_module(pytorch_ops)
  torch.manual_seed(0)
  np.random.seed(0)
  module = _Model(*torch_models.layers(options))
  model = _model(module)
  data = {
    client: torch_models.tensors(options, client)
    for client in workload.population(options)
  }

  def load(client):
    tensors = data[client]
    if options.population:  # pfl itself keeps the order of a user's examples.
      order = torch.randperm(len(tensors[0]))
      tensors = tuple(t[order] for t in tensors)
    return PyTorchTensorDataset(tensors, user_id=str(client))

  sampler = get_user_sampler('minimize_reuse', list(data))
  if options.population:
    drawn = itertools.chain.from_iterable(
      workload.cohort(options, n) for n in itertools.count(1)
    )
    sampler = functools.partial(next, drawn)
  dataset = FederatedDataset(load, sampler)
  backend = SimulatedBackend(dataset, dataset)
  algorithm = FederatedAveraging()
  train = NNTrainHyperParams(
    local_num_epochs=1,
    local_learning_rate=workload.CLIENT_RATE,
    local_batch_size=options.batch_size,
  )
  parameters = NNAlgorithmParams(
    central_num_iterations=10**9,
    evaluation_frequency=10**9,
    train_cohort_size=options.clients,
    val_cohort_size=0,
  )
  number = [1]  # pfl evaluates before iteration 0.

  def run():
    if other is not None:
      other.stdin.write(b'round\n')
      other.stdin.flush()
    contexts, _, _ = algorithm.get_next_central_contexts(
      model, number[0], parameters, train, NNEvalHyperParams(None)
    )
    (context,) = contexts
    statistics, metrics = asyncio.run(
      backend.async_gather_results(model, algorithm, central_context=context)
    )
    algorithm.process_aggregated_statistics(context, metrics, model, statistics)
    number[0] += 1

  def loss():
    module.eval()
    with torch.no_grad():
      losses = [float(module.loss(*data[client])) for client in data]
    module.train()
    return sum(losses) / len(losses)

  return run, loss


if __name__ == '__main__':
  parsed = workload.parse()
  workload.serve(parsed, make)
