"""A client of Flower's simulation; see flower_rounds.py."""

import functools

import torch
import torch_models
import workload
from flwr.app import ArrayRecord
from flwr.app import Message
from flwr.app import MetricRecord
from flwr.app import RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@functools.cache
def _module(options_text: str):
  torch.set_num_threads(1)
  return torch.nn.Sequential(*torch_models.layers(_options(options_text)))


@functools.cache
def _tensors(options_text: str, client: int):
  return torch_models.tensors(_options(options_text), client)


def _options(text: str):
  return workload.parse(text.split())


def parameters(module):
  """Lists the trainable weights."""
  return [p for p in module.parameters() if p.requires_grad]


@app.train()
def train(message, context):
  """Trains a client's epoch; the message says which client it is."""
  del context
  config = message.content['config']
  text = config['options']
  options, module = _options(text), _module(text)
  weights = parameters(module)
  received = message.content['arrays'].to_numpy_ndarrays()
  with torch.no_grad():
    for parameter, array in zip(weights, received):
      parameter.copy_(torch.tensor(array))
  optimizer = torch.optim.SGD(weights, workload.CLIENT_RATE)
  x, y = _tensors(text, config['client'])
  order = torch.randperm(len(x))
  for start in range(0, len(x), options.batch_size):
    rows = order[start : start + options.batch_size]
    optimizer.zero_grad()
    torch_models.loss(module(x[rows]), y[rows]).backward()
    optimizer.step()
  trained = [p.detach().numpy() for p in weights]
  content = RecordDict(
    {
      'arrays': ArrayRecord(trained),
      'metrics': MetricRecord({'num-examples': len(x)}),
    }
  )
  return Message(content=content, reply_to=message)
