"""Types of the tensor structures of optimizers, processes and methods.

TensorFlow and TFF are untyped, so mypy accepts any leaf. It checks the nesting:
a flat tuple of weights is not a state, a state's entries have names, and a
function that maps a structure returns one of the same form.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TYPE_CHECKING, TypeAlias, TypeVar, Union

if TYPE_CHECKING:
  import tensorflow as tf
  import tensorflow_federated as tff

# A nested structure of tensors, as in `tf.nest`.
Structure: TypeAlias = Union[
  'tf.Tensor', Sequence['Structure'], Mapping[str, 'Structure']
]

# Any structure, for functions that return the form of their argument.
Tree = TypeVar('Tree')

# The trainable weights as an optimizer sees them; gradients, updates and
# per-weight entries of a state have the same form.
WeightsT = TypeVar('WeightsT')

# Specs in the form of the trainable weights.
Specs: TypeAlias = Union[
  'tf.TensorSpec', Sequence['Specs'], Mapping[str, 'Specs']
]

# Weights or gradients in client work, always flat.
FlatWeights: TypeAlias = tuple['tf.Tensor', ...]
FlatSpecs: TypeAlias = tuple['tf.TensorSpec', ...]

# Hyperparameters by name, each a float32 scalar.
HParams: TypeAlias = collections.OrderedDict[str, 'tf.Tensor']

# An optimizer's state by name: its hyperparameters, and tensors or structures
# in the form of the weights.
OptimizerState: TypeAlias = collections.OrderedDict[str, Any]

# A method's statistics at the server, by name; the method defines the form.
Statistics: TypeAlias = collections.OrderedDict[str, Any]

# A method's client state, by name; likewise.
ClientState: TypeAlias = collections.OrderedDict[str, Any]

# Measurements and unfinalized metrics, by name.
Metrics: TypeAlias = collections.OrderedDict[str, Any]

# A batch of a dataset: inputs and labels by name `x` and `y`, or as a pair.
Examples: TypeAlias = Union[Mapping[str, Structure], Sequence[Structure]]

# A value at the server or at clients, inside a federated computation.
Placed: TypeAlias = 'tff.Value'


class ModelWeights(Protocol):
  """`tff.learning.models.ModelWeights`, as a client receives it.

  Attributes:
    trainable: The weights that optimizers update.
    non_trainable: The other weights.
  """

  trainable: Structure
  non_trainable: Structure
