"""pfl-research's federated averaging on PyTorch, for benchmarks/runtime.py.

The contender pfl_2 is two processes, as pfl spreads a cohort: this one and
another, which it starts and tells of each round.
"""

import asyncio
import atexit
import os
import socket
import subprocess
import sys

import numpy as np
import torch
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


class _LSTM(torch.nn.Module):
  """PyTorch's layer, with one bias as in Keras."""

  def __init__(self, kernel, recurrent, bias):
    super().__init__()
    units = recurrent.shape[0]
    self._layer = torch.nn.LSTM(kernel.shape[0], units, batch_first=True)
    with torch.no_grad():
      self._layer.weight_ih_l0.copy_(torch.tensor(kernel.T))
      self._layer.weight_hh_l0.copy_(torch.tensor(recurrent.T))
      self._layer.bias_ih_l0.copy_(torch.tensor(bias))
      self._layer.bias_hh_l0.zero_()
    self._layer.bias_hh_l0.requires_grad_(False)

  def forward(self, x):
    return self._layer(x)[0]


def _dense(kernel, bias):
  layer = torch.nn.Linear(*kernel.shape)
  with torch.no_grad():
    layer.weight.copy_(torch.tensor(kernel.T))
    layer.bias.copy_(torch.tensor(bias))
  return layer


def _convolution(kernel, bias):
  layer = torch.nn.Conv2d(kernel.shape[2], kernel.shape[3], kernel.shape[0])
  with torch.no_grad():
    layer.weight.copy_(torch.tensor(kernel.transpose(3, 2, 0, 1)))
    layer.bias.copy_(torch.tensor(bias))
  return layer


def _layers(options):
  """Builds layers with the start weights, which are in Keras' layout."""
  w = workload.start_weights(options)
  if options.model == 'logistic':
    return [_dense(*w)]
  if options.model == 'lstm':
    embedding = torch.nn.Embedding(*w[0].shape)
    with torch.no_grad():
      embedding.weight.copy_(torch.tensor(w[0]))
    return [embedding, _LSTM(*w[1:4]), _LSTM(*w[4:7]), _dense(*w[7:])]
  # PyTorch flattens channels first, Keras last.
  flat = w[4].reshape(12, 12, 64, 128).transpose(2, 0, 1, 3).reshape(-1, 128)
  return [
    _convolution(w[0], w[1]),
    torch.nn.ReLU(),
    _convolution(w[2], w[3]),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Flatten(),
    _dense(flat, w[5]),
    torch.nn.ReLU(),
    _dense(w[6], w[7]),
  ]


class _Model(torch.nn.Sequential):
  """A model in the form that pfl asks for."""

  def loss(self, x, y):
    logits = self(x)
    return torch.nn.functional.cross_entropy(
      logits.reshape(-1, logits.shape[-1]), y.reshape(-1)
    )

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


def _data(options):
  """Builds the examples and labels by client."""
  data = {}
  for client in range(options.clients):
    x, y = workload.arrays(options, client)
    if options.model == 'cnn':
      x = x.transpose(0, 3, 1, 2)
    data[client] = torch.tensor(x), torch.tensor(y)
  return data


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
  module = _Model(*_layers(options))
  model = _model(module)
  data = _data(options)
  dataset = FederatedDataset(
    lambda client: PyTorchTensorDataset(data[client], user_id=str(client)),
    get_user_sampler('minimize_reuse', list(data)),
  )
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
    with torch.no_grad():
      losses = [float(module.loss(*data[client])) for client in data]
    return sum(losses) / len(losses)

  return run, loss


if __name__ == '__main__':
  parsed = workload.parse()
  workload.serve(parsed, make)
