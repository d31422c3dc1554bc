"""pfl-research's own run of its CIFAR-10 benchmark, on this project's clients.

  python benchmarks/pfl_cifar10.py prepare iid cifar10.npz --cache_dir=data
  .pfl/bin/python benchmarks/pfl_cifar10.py train cifar10.npz curve.csv

The first command writes images, standardized by channel, and the clients of the
preset pfl2024/cifar10_image/fedavg_iid (or fedavg_alpha_0.1, for alpha_0.1).
The second one trains in pfl-research's environment (benchmarks/runtime.py says
how to make it), by `benchmarks/image_classification/configs/baseline.yaml` of
github.com/apple/pfl-research: 1,500 rounds of 50 users, batches of 10, SGD 0.1
at users and 1.0 at the server, uniform weights. A row every ten rounds has loss
and accuracy on 10,000 test images, and the seconds of the rounds since the last
one. A user's examples keep their order, as in pfl-research.
"""

import argparse
import asyncio
import csv
import time

import numpy as np


def prepare(options) -> None:
  """Writes images and clients of a preset."""
  from tff_adaptive.lab.flags import parsing
  from tff_adaptive.lab.training import experiment

  parsed = parsing.Flags().parse(
    [
      f'--preset=pfl2024/cifar10_image/fedavg_{options.form}',
      f'--cache_dir={options.cache_dir}',
    ]
  )
  task = experiment.create_task(parsed.settings)
  datasets = task.datasets
  clients = datasets.train_data
  test = list(datasets.test_data.apply(datasets.eval_preprocess_fn))
  import tensorflow as tf

  raw = tf.data.Dataset.from_tensor_slices(clients.arrays)
  train = list(raw.apply(datasets.eval_preprocess_fn))
  arrays = {
    f'{split}_{name}': np.concatenate([np.asarray(batch[i]) for batch in found])
    for split, found in (('train', train), ('test', test))
    for i, name in enumerate(('images', 'labels'))
  }
  indices = clients.partition.indices
  np.savez(
    options.path,
    members=np.concatenate(indices),
    ends=np.cumsum([len(i) for i in indices]),
    **arrays,
  )


def train(options) -> None:
  """Trains with pfl-research."""
  import torch
  from pfl.aggregate.simulate import SimulatedBackend
  from pfl.aggregate.weighting import WeightByUser
  from pfl.algorithm.base import NNAlgorithmParams
  from pfl.algorithm.federated_averaging import FederatedAveraging
  from pfl.data.federated_dataset import FederatedDataset
  from pfl.data.pytorch import PyTorchTensorDataset
  from pfl.hyperparam import NNEvalHyperParams
  from pfl.hyperparam import NNTrainHyperParams
  from pfl.internal.ops import pytorch_ops
  from pfl.internal.ops.selector import set_framework_module
  from pfl.metrics import Weighted
  from pfl.model.pytorch import PyTorchModel

  set_framework_module(pytorch_ops)
  torch.manual_seed(options.seed)
  arrays = np.load(options.path)

  def tensors(split):
    images = torch.tensor(arrays[f'{split}_images']).permute(0, 3, 1, 2)
    return images.contiguous(), torch.tensor(arrays[f'{split}_labels']).long()

  images, labels = tensors('train')
  test_images, test_labels = tensors('test')
  users = np.split(arrays['members'], arrays['ends'][:-1])
  layers = torch.nn

  class Model(layers.Sequential):
    """The network in the form that pfl asks for."""

    def loss(self, x, y):
      return layers.functional.cross_entropy(self(x), y)

    def metrics(self, x, y):
      with torch.no_grad():
        return {'loss': Weighted(float(self.loss(x, y)) * len(y), len(y))}

  network = Model(
    layers.Conv2d(3, 32, 3),
    layers.ReLU(),
    layers.Conv2d(32, 64, 3),
    layers.ReLU(),
    layers.MaxPool2d(2),
    layers.Dropout(0.25),
    layers.Flatten(),
    layers.Linear(14 * 14 * 64, 128),
    layers.ReLU(),
    layers.Dropout(0.5),
    layers.Linear(128, 10),
  )
  for layer in network:
    if isinstance(layer, (layers.Conv2d, layers.Linear)):
      # As the benchmark's own model: Glorot's weights, PyTorch's biases.
      torch.nn.init.xavier_uniform_(layer.weight)
  model = PyTorchModel(
    network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0)
  )
  rng = np.random.default_rng(options.seed)

  def cohorts():
    while True:
      yield from rng.choice(len(users), options.cohort, replace=False)

  def load(user):
    own = users[user]
    return PyTorchTensorDataset((images[own], labels[own]), user_id=str(user))

  drawn = cohorts()
  dataset = FederatedDataset(load, lambda: next(drawn))
  backend = SimulatedBackend(dataset, dataset, postprocessors=[WeightByUser()])
  algorithm = FederatedAveraging()
  hyperparameters = NNTrainHyperParams(
    local_num_epochs=1, local_learning_rate=0.1, local_batch_size=10
  )
  parameters = NNAlgorithmParams(
    central_num_iterations=10**9,
    evaluation_frequency=10**9,
    train_cohort_size=options.cohort,
    val_cohort_size=0,
  )
  with open(options.output, 'w', encoding='utf-8', newline='') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(['round', 'loss', 'accuracy', 'seconds'])
    seconds = 0.0
    for number in range(1, options.rounds + 1):
      start = time.perf_counter()
      network.train()
      contexts, _, _ = algorithm.get_next_central_contexts(
        model, number, parameters, hyperparameters, NNEvalHyperParams(None)
      )
      (context,) = contexts
      statistics, metrics = asyncio.run(
        backend.async_gather_results(model, algorithm, central_context=context)
      )
      algorithm.process_aggregated_statistics(
        context, metrics, model, statistics
      )
      seconds += time.perf_counter() - start
      if number % 10 == 0:
        network.eval()
        with torch.no_grad():
          logits = torch.cat([network(x) for x in test_images.split(1000)])
        loss = float(layers.functional.cross_entropy(logits, test_labels))
        right = float((logits.argmax(1) == test_labels).float().mean())
        writer.writerow([number, f'{loss:.5f}', right, f'{seconds:.3f}'])
        file.flush()
        seconds = 0.0


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  commands = parser.add_subparsers(required=True)
  command = commands.add_parser('prepare')
  command.add_argument('form', choices=['iid', 'alpha_0.1'])
  command.add_argument('path')
  command.add_argument('--cache_dir', required=True)
  command.set_defaults(run=prepare)
  command = commands.add_parser('train')
  command.add_argument('path')
  command.add_argument('output')
  command.add_argument('--rounds', type=int, default=1500)
  command.add_argument('--cohort', type=int, default=50)
  command.add_argument('--seed', type=int, default=0)
  command.set_defaults(run=train)
  options = parser.parse_args()
  options.run(options)


if __name__ == '__main__':
  main()
