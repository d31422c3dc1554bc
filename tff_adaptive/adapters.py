"""Federated training of low-rank adapters: LoRA, Hu et al., arXiv 2106.09685.

The kernel W0 of a dense or attention layer is frozen, and a trained matrix of
low rank r is added to it. For Keras' kernels, which are multiplied by inputs
from the left, of m rows and n columns:

  W = W0 + (alpha / r) A B        A is m x r, B is r x n

A is initialized uniformly in +-1/sqrt(m), as in the authors' code, and B with
zeros, so that training starts from the model itself. (The papers write W x, so
their matrices are the transposes: their A, of r rows, is the A here.)

  lora    clients train A and B, and the server averages each
  ffa     clients train B alone: FFA-LoRA, Sun et al., arXiv 2403.12313
  fedex   as lora, and the error of averaging A and B apart is added to W0:
          FedEx-LoRA, Singhal et al., arXiv 2410.09432,

            W0 = W0 + (alpha / r) (mean(A_i B_i) - mean(A_i) mean(B_i))

          with the weights of clients' updates in all means. With a server that
          only averages (SGD, rate 1) the model is then the mean of the clients'
          models; other servers move A and B from there.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive import structures
from tff_adaptive import tff_internals

Rule = Literal['lora', 'ffa', 'fedex']


class AdapterError(ValueError):
  """Raised if a model cannot have adapters, or a method cannot train them."""


class Matrix(NamedTuple):
  """A kernel seen as a matrix from inputs to outputs.

  Attributes:
    shape: Shape of the kernel.
    order: The kernel's axes, those of inputs first.
    rows: Product of the input dimensions.
    columns: Product of the output dimensions.
  """

  shape: tuple[int, ...]
  order: tuple[int, ...]
  rows: int
  columns: int

  def kernel(self, matrix: tf.Tensor) -> tf.Tensor:
    """Reshapes a matrix [rows, columns] to the kernel's shape."""
    sides = [self.shape[axis] for axis in self.order]
    back = [self.order.index(axis) for axis in range(len(self.order))]
    return tf.transpose(tf.reshape(matrix, sides), back)


class Residual(NamedTuple):
  """Location of an adapter whose averaging the server corrects.

  Attributes:
    a, b: Indices of A and B among the trainable weights.
    kernel: Index of W0 among the non-trainable weights.
    matrix: W0 as a matrix.
    scale: alpha / r.
  """

  a: int
  b: int
  kernel: int
  matrix: Matrix
  scale: float


def products(
  residuals: Sequence[Residual], trainable: structures.FlatWeights
) -> tuple[tf.Tensor, ...]:
  """Computes a client's products A_i B_i from its trainable weights."""
  return tuple(tf.matmul(trainable[r.a], trainable[r.b]) for r in residuals)


def corrected(
  residuals: Sequence[Residual],
  weights: structures.ModelWeights,
  mean_trainable: structures.FlatWeights,
  mean_products: Sequence[tf.Tensor],
) -> tuple[tf.Tensor, ...]:
  """Adds the error of averaging A and B apart to each W0.

  Args:
    residuals: The adapters.
    weights: The model's weights after the server's step.
    mean_trainable: Mean of the clients' trainable weights, flat.
    mean_products: Mean of the clients' `products`.

  Returns:
    The corrected non-trainable weights, flat.
  """
  fixed = list(tf.nest.flatten(weights.non_trainable))
  for found, product in zip(residuals, mean_products, strict=True):
    apart = tf.matmul(mean_trainable[found.a], mean_trainable[found.b])
    rest = found.matrix.kernel(found.scale * (product - apart))
    kernel = fixed[found.kernel]
    fixed[found.kernel] = kernel + tf.cast(rest, kernel.dtype)
  return tuple(fixed)


def adapt(
  model_fn: models.ModelFn,
  rank: int,
  *,
  rule: Rule = 'lora',
  alpha: Optional[float] = None,
  adapts: Callable[[str], bool] = lambda name: True,
  trains: Callable[[str], bool] = lambda name: False,
) -> models.ModelFn:
  """Adds adapters to a model, which are trained in place of its weights.

  Args:
    model_fn: Builds a model that wraps one of Keras 2 or 3, as returned by
      `models.model_fn` or `tff.learning.models.from_keras_model`.
    rank: r, at least 1.
    rule: The averaging rule, as above.
    alpha: The adapters' scale times r; by default r.
    adapts: Whether the dense or attention kernel of a given name, such as
      'dense/kernel', gets an adapter.
    trains: Whether the other variable of a given name is trained itself.

  Returns:
    A function that builds the model. Its trainable variables are A and B of
    each kernel, in order, followed by those that are trained themselves.

  Raises:
    AdapterError: If no kernel gets an adapter.
  """
  if rank < 1:
    raise AdapterError(f'The rank of adapters must be at least 1, got {rank}.')
  names = models.variable_names(model_fn)
  with tf.Graph().as_default(), models.without_values():
    kernels = kernels_of(model_fn())
  if not kernels:
    raise AdapterError(
      'Adapters need a dense or attention layer with a trainable kernel; this '
      'model has none.'
    )
  chosen = {place for place in kernels if adapts(names[place])}
  if not chosen:
    raise AdapterError(
      'The patterns select no dense or attention kernel; the model has '
      f'{", ".join(names[place] for place in kernels)}.'
    )
  whole = {
    place
    for place, name in enumerate(names)
    if place not in chosen and trains(name)
  }
  scale = (rank if alpha is None else alpha) / rank
  return functools.partial(_make, model_fn, rank, rule, scale, chosen, whole)


def _make(model_fn: models.ModelFn, *options: Any) -> 'AdaptedModel':
  return AdaptedModel(model_fn(), *options)


def kernels_of(
  model: tff.learning.models.VariableModel,
) -> dict[int, tuple[Any, Matrix]]:
  """Returns the kernels that can have adapters.

  Returns:
    Layer and matrix by the kernel's index among the trainable variables, in
    order.

  Raises:
    AdapterError: If the model does not wrap a Keras model.
  """
  of_keras_3 = models.keras_3_of(model)
  keras_model: Any = tff_internals.keras_model_of(model)
  if of_keras_3 is not None:
    layers = of_keras_3.layers_with('Dense', 'EinsumDense')
  elif keras_model is None:
    raise AdapterError('Adapters need a Keras model.')
  else:
    kinds = (tf.keras.layers.Dense, tf.keras.layers.EinsumDense)
    layers = [
      (layer, layer.kernel)
      for layer in keras_model.submodules
      if isinstance(layer, kinds)
    ]
  places = {id(v): i for i, v in enumerate(model.trainable_variables)}
  found = {}
  for layer, kernel in layers:
    matrix = _matrix_of(layer, tuple(kernel.shape))
    if id(kernel) in places and matrix is not None:
      found[places[id(kernel)]] = layer, matrix
  return dict(sorted(found.items()))


def _matrix_of(layer: Any, shape: tuple[int, ...]) -> Optional[Matrix]:
  """Returns a layer's kernel as a matrix; `None` if it is more than one."""
  equation = getattr(layer, 'equation', 'bi,io->bo').replace(' ', '')
  given, _, outputs = equation.partition('->')
  inputs, _, axes = given.partition(',')
  of_inputs = [i for i, a in enumerate(axes) if a not in outputs]
  of_outputs = [i for i, a in enumerate(axes) if a not in inputs]
  if len(axes) != len(shape) or len(of_inputs) + len(of_outputs) != len(axes):
    return None
  return Matrix(
    shape,
    (*of_inputs, *of_outputs),
    math.prod(shape[i] for i in of_inputs),
    math.prod(shape[i] for i in of_outputs),
  )


class _Adapter(NamedTuple):
  """An adapter and its variables."""

  place: int
  layer: Any
  matrix: Matrix
  a: tf.Variable
  b: tf.Variable


class _Sum:
  """The kernel of an adapted Keras 2 layer: a sum computed on each use.

  Attributes:
    shape, dtype: Shape and dtype of the kernel.
  """

  def __init__(self, make: Callable[[], tf.Tensor], kernel: tf.Variable):
    self._make = make
    self.shape, self.dtype = kernel.shape, kernel.dtype

  def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
    return tf.convert_to_tensor(self._make(), dtype=dtype, name=name)


def _replace(layer: Any, kernel: Any) -> None:
  """Replaces the kernel of a Keras 2 layer."""
  tff_internals.regularize_instead(layer, layer.kernel, kernel)
  # Bypasses Keras, which would untrack the kernel as a weight.
  object.__setattr__(layer, 'kernel', kernel)


class AdaptedModel(models.Wrapped):
  """A model whose kernels are sums of frozen kernels and adapters.

  Attributes:
    unfrozen: The wrapped model.
    residuals: The adapters that the server corrects with the rule `fedex`;
      empty with others.
  """

  def __init__(
    self,
    unfrozen: tff.learning.models.VariableModel,
    rank: int,
    rule: Rule,
    scale: float,
    chosen: set[int],
    whole: set[int],
  ):
    """Adds adapters to a newly built model.

    Args:
      unfrozen: The model; its layers are changed in place.
      rank, rule: As in `adapt`.
      scale: alpha / r.
      chosen, whole: Indices of its trainable variables that get adapters, and
        that are trained themselves.
    """
    super().__init__(unfrozen)
    self._scale = scale
    self._kernels = list(unfrozen.trainable_variables)
    self._whole = sorted(whole)
    self._fixed = [i for i in range(len(self._kernels)) if i not in whole]
    self._adapters = [
      _Adapter(
        place,
        layer,
        matrix,
        tf.Variable(
          tf.random.uniform(
            [matrix.rows, rank], -(matrix.rows**-0.5), matrix.rows**-0.5
          ),
          name='adapter_a',
          trainable=rule != 'ffa',
        ),
        tf.Variable(tf.zeros([rank, matrix.columns]), name='adapter_b'),
      )
      for place, (layer, matrix) in kernels_of(unfrozen).items()
      if place in chosen
    ]
    of_keras_3 = models.keras_3_of(unfrozen)
    for adapter in self._adapters:
      kernel = self._kernels[adapter.place]
      made = functools.partial(self._adapted, adapter)
      if of_keras_3 is not None:
        of_keras_3.substitute(kernel, made)
      else:
        _replace(adapter.layer, _Sum(made, kernel))
    self.residuals: tuple[Residual, ...] = ()
    if rule == 'fedex':
      first = len(unfrozen.non_trainable_variables)
      order = [id(variable) for variable in self.trainable_variables]
      self.residuals = tuple(
        Residual(
          order.index(id(adapter.a)),
          order.index(id(adapter.b)),
          first + self._fixed.index(adapter.place),
          adapter.matrix,
          scale,
        )
        for adapter in self._adapters
      )

  def _adapted(self, adapter: _Adapter) -> tf.Tensor:
    """Computes the adapted kernel W."""
    kernel = self._kernels[adapter.place]
    low = tf.matmul(adapter.a, adapter.b)
    added = adapter.matrix.kernel(self._scale * low)
    return kernel.read_value() + tf.cast(added, kernel.dtype)

  def variable_name(self, variable: tf.Variable) -> str:
    for adapter in self._adapters:
      if variable is adapter.a or variable is adapter.b:
        part = 'a' if variable is adapter.a else 'b'
        return f'{super().variable_name(self._kernels[adapter.place])}/{part}'
    return super().variable_name(variable)

  @property
  def trainable_variables(self) -> Sequence[tf.Variable]:
    # In the model's order of layers, which `fedper` counts.
    parts = {i: [self._kernels[i]] for i in self._whole}
    parts |= {own.place: [own.a, own.b] for own in self._adapters}
    return [v for i in sorted(parts) for v in parts[i] if v.trainable]

  @property
  def non_trainable_variables(self) -> Sequence[tf.Variable]:
    return [
      *self.unfrozen.non_trainable_variables,
      *(self._kernels[i] for i in self._fixed),
      *(a.a for a in self._adapters if not a.a.trainable),
    ]

  def merge(self) -> tff.learning.models.VariableModel:
    """Assigns the sums W to the kernels, for use without adapters.

    Returns:
      The wrapped model; the adapted one must not be used afterwards.
    """
    of_keras_3 = models.keras_3_of(self.unfrozen)
    for adapter in self._adapters:
      kernel = self._kernels[adapter.place]
      kernel.assign(self._adapted(adapter))
      if of_keras_3 is not None:
        of_keras_3.substitute(kernel, kernel.read_value)
      else:
        _replace(adapter.layer, kernel)
    return self.unfrozen
