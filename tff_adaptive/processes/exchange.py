"""What a method's server keeps, sends and collects beside the model.

Some methods share statistics: FedDecSPS a count of steps, Local-AdaAlter an
accumulator, FedSPS-Global a step size. An `Exchange` says what the server
keeps, how a client's optimizer starts from it, what the client reports at its
end, and how the server takes up what the cohort reported. The client work does
the sending, so that such a method needs no client work of its own.
"""

import abc
import collections
from typing import Any, NamedTuple

import tensorflow as tf


class Local(NamedTuple):
  """What a client's training came to.

  Attributes:
    optimizer_state: The client optimizer's state after the last step.
    num_steps: Local steps done, int32 scalar.
    num_examples: Examples iterated, int64 scalar.
    weight: The weight of the client's update, float32 scalar, unless the
      exchange chooses another.
  """

  optimizer_state: Any
  num_steps: tf.Tensor
  num_examples: tf.Tensor
  weight: tf.Tensor


class Report(NamedTuple):
  """What a client sends back beside its update; each an ordered dict.

  Attributes:
    weighted: Averaged over clients with the weights of their updates.
    mean: Averaged over clients that took part, all alike.
    maximum: Scalars of which the largest counts; float32 or int32.
  """

  weighted: collections.OrderedDict
  mean: collections.OrderedDict
  maximum: collections.OrderedDict


def report(**parts: collections.OrderedDict) -> Report:
  """A `Report` with nothing in the parts that are not given."""
  none = {name: collections.OrderedDict() for name in Report._fields}
  return Report(**(none | parts))


class Exchange(abc.ABC):
  """The statistics of a method that is stateless on clients."""

  def initialize(self, specs: Any) -> Any:
    """The server's first statistics: an ordered dict of tensors.

    Args:
      specs: Flat tuple of `tf.TensorSpec`s of the trainable weights.
    """
    del specs
    return collections.OrderedDict()

  def begin(self, statistics: Any, optimizer_state: Any) -> Any:
    """The client's optimizer state at its first step.

    Args:
      statistics: As the server sent them.
      optimizer_state: As the optimizer's `initialize` made it.
    """
    del statistics
    return optimizer_state

  def weight(self, local: Local) -> tf.Tensor:
    """The weight of the client's update in the mean, float32 scalar."""
    return local.weight

  def report(self, local: Local) -> Report:
    """What the client sends back beside its update."""
    del local
    return report()

  def merge(self, statistics: Any, report: Report) -> Any:
    """The server's next statistics.

    Not called for a round in which no client took part: the statistics stay.

    Args:
      statistics: The server's statistics.
      report: The cohort's reports, each averaged or maximised as it says.
    """
    del report
    return statistics


class NoExchange(Exchange):
  """Nothing but the model travels."""
