"""From pieces to a learning process."""

import collections
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.optimizers import tree
from tff_adaptive.processes import client_work as client_work_lib
from tff_adaptive.processes import local_model


def _reject_non_finite(state, update):
  """Keeps model and optimizer as they were after an update with NaN or inf."""
  reject, measurements = tff.learning.templates.reject_non_finite_update(
      state, update
  )
  measurements = collections.OrderedDict(
      measurements, update_norm=tree.norm(update)
  )
  return reject, measurements


def compose(
    model: local_model.Model,
    client_optimizer: tff.learning.optimizers.Optimizer,
    server_optimizer: tff.learning.optimizers.Optimizer,
    *,
    server_schedule: Optional[client_work_lib.Schedule] = None,
    model_aggregator: Optional[
        tff.aggregators.WeightedAggregationFactory
    ] = None,
    **client_work: Any,
) -> tff.learning.templates.LearningProcess:
  """Composes a learning process: broadcast, client work, mean, server step.

  Args:
    model: A no-argument function returning a
      `tff.learning.models.VariableModel`, or a `FunctionalModel`.
    client_optimizer: What a client steps with.
    server_optimizer: What the server steps with; its gradient is minus the
      aggregated client update.
    server_schedule: Server learning rate by completed rounds, in place of the
      optimizer's own.
    model_aggregator: How updates are aggregated; a weighted mean unless given.
    **client_work: Further arguments of `build_client_work`.

  Returns:
    A `tff.learning.templates.LearningProcess`. Its metrics are those of
    `tff.learning.templates.compose_learning_process`, with `build_client_work`'s
    under `client_work`, and under `finalizer` `update_non_finite` (1 if the
    round was thrown away) and `update_norm` (of the aggregated update).
  """
  work = client_work_lib.build_client_work(
      model, client_optimizer, **client_work
  )
  facts = local_model.facts(model)
  weights_type = facts.weights_type
  if server_schedule is not None:
    server_optimizer = tff.learning.optimizers.schedule_learning_rate(
        server_optimizer, server_schedule
    )
  model_aggregator = model_aggregator or tff.aggregators.MeanFactory()
  return tff.learning.templates.compose_learning_process(
      facts.initial_weights,
      tff.learning.templates.build_broadcast_process(weights_type),
      work,
      model_aggregator.create(
          weights_type.trainable, tff.TensorType(tf.float32.as_numpy_dtype)
      ),
      tff.learning.templates.build_apply_optimizer_finalizer(
          server_optimizer, weights_type, _reject_non_finite
      ),
  )
