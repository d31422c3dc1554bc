"""The benchmarks' models in PyTorch, with the start weights of all."""

import torch
import workload


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


def layers(options):
  """Builds layers with the start weights, which are in Keras' layout."""
  w = workload.start_weights(options)
  if options.model in ('logistic', 'tag'):
    return [_dense(*w)]
  if options.model == 'lstm':
    embedding = torch.nn.Embedding(*w[0].shape)
    with torch.no_grad():
      embedding.weight.copy_(torch.tensor(w[0]))
    return [embedding, _LSTM(*w[1:4]), _LSTM(*w[4:7]), _dense(*w[7:])]
  # PyTorch flattens channels first, Keras last.
  size = int((len(w[4]) / 64) ** 0.5)
  flat = w[4].reshape(size, size, 64, 128).transpose(2, 0, 1, 3)
  dropout = options.model == 'cifar'
  return [
    _convolution(w[0], w[1]),
    torch.nn.ReLU(),
    _convolution(w[2], w[3]),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Dropout(0.25 if dropout else 0),
    torch.nn.Flatten(),
    _dense(flat.reshape(-1, 128), w[5]),
    torch.nn.ReLU(),
    torch.nn.Dropout(0.5 if dropout else 0),
    _dense(w[6], w[7]),
  ]


def loss(logits, labels):
  """Computes the mean loss of a batch; of several labels each, if floats."""
  if labels.is_floating_point():
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
  return torch.nn.functional.cross_entropy(
    logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
  )


def tensors(options, client: int):
  """Makes a client's examples and labels, images with channels first."""
  x, y = workload.arrays(options, client)
  if options.model in ('cnn', 'cifar'):
    x = x.transpose(0, 3, 1, 2)
  return torch.tensor(x), torch.tensor(y)
