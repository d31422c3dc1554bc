"""Structures of tensors that optimizers, processes and methods hand around.

TensorFlow and TFF come without types, so that mypy takes every leaf for what it
is used as. What it checks is the nesting: a flat tuple of weights is no state,
a state's entries go by name, and what leaves a function that maps a structure
has the form of what went in.
"""

import collections
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Protocol
from typing import TYPE_CHECKING
from typing import TypeAlias
from typing import TypeVar
from typing import Union

if TYPE_CHECKING:
  import tensorflow as tf
  import tensorflow_federated as tff

# Tensors, nested as `tf.nest` understands it.
Structure: TypeAlias = Union[
  'tf.Tensor', Sequence['Structure'], Mapping[str, 'Structure']
]

# Any structure, for functions whose result has the form of their argument.
Tree = TypeVar('Tree')

# The trainable weights as an optimizer sees them; gradients, updates and what
# a state keeps for each weight have the same form.
WeightsT = TypeVar('WeightsT')

# `tf.TensorSpec`s in the form of the trainable weights.
Specs: TypeAlias = Union[
  'tf.TensorSpec', Sequence['Specs'], Mapping[str, 'Specs']
]

# Weights, or gradients, inside a client's work: always flat.
FlatWeights: TypeAlias = tuple['tf.Tensor', ...]
FlatSpecs: TypeAlias = tuple['tf.TensorSpec', ...]

# Hyperparameters by name, each a float32 scalar.
HParams: TypeAlias = collections.OrderedDict[str, 'tf.Tensor']

# An optimizer's state by name: its hyperparameters, and beside them tensors or
# structures in the form of the weights, as the rule decides.
OptimizerState: TypeAlias = collections.OrderedDict[str, Any]

# What a method's server keeps and sends, by name; the method decides the form.
Statistics: TypeAlias = collections.OrderedDict[str, Any]

# What a method's clients keep between rounds, by name; likewise.
ClientState: TypeAlias = collections.OrderedDict[str, Any]

# Measurements, and metrics before TFF finalizes them, by name.
Metrics: TypeAlias = collections.OrderedDict[str, Any]

# A batch as a data set yields it: inputs `x` and labels `y`, or the pair.
Examples: TypeAlias = Union[Mapping[str, Structure], Sequence[Structure]]

# A value at the server or at clients, inside a federated computation.
Placed: TypeAlias = 'tff.Value'


class ModelWeights(Protocol):
  """`tff.learning.models.ModelWeights`, as a client receives it.

  Attributes:
    trainable: The weights that optimizers move.
    non_trainable: The others.
  """

  trainable: Structure
  non_trainable: Structure
