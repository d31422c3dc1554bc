"""Layers that stay on each client."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.processes import exchange

# Maps the names of the trainable variables to whether each stays on clients.
Choice = Callable[[Sequence[str]], Sequence[bool]]


class PersonalLayers(exchange.Exchange):
  """Clients keep some variables and share the others.

  A client starts from its own values of these variables, or from the server's
  if it takes part for the first time. It sends no updates of them, so the
  server's values keep their initialization.
  """

  keeps_layers = True
  # Clients may start from any model; the server only drops noise.
  of_one_version = False
  sees_update = True

  def __init__(self, choose: Choice):
    self._choose = choose
    self._stays: Sequence[bool] = ()

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    self._stays = self._choose([spec.name or '' for spec in specs])
    return super().initialize(specs)

  def step(self, server: exchange.Server) -> structures.FlatWeights:
    # Noise for differential privacy is in all of the update.
    return tuple(
      tf.zeros_like(u) if stays else u
      for u, stays in zip(server.update, self._stays, strict=True)
    )

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> structures.ClientState:
    chosen = self._choose([spec.name or '' for spec in specs])
    if not any(chosen) or all(chosen):
      names = ', '.join(spec.name or 'one without a name' for spec in specs)
      raise exchange.UnsuitableModelError(
        'Some variables must stay on clients and the others be shared, but '
        f'{"all" if all(chosen) else "none"} of them would stay on clients: '
        f'{names}.'
      )
    own = {
      f'variable_{i}': tf.zeros(spec.shape, spec.dtype)
      for i, (spec, stays) in enumerate(zip(specs, chosen))
      if stays
    }
    return collections.OrderedDict(seen=tf.constant(False), **own)

  def start(self, client: exchange.Client) -> structures.FlatWeights:
    return tuple(
      tf.where(client.state['seen'], own, x) if own is not None else x
      for own, x in zip(self._own(client), client.received)
    )

  def update(self, client: exchange.Client) -> structures.FlatWeights:
    return tuple(
      u if own is None else tf.zeros_like(u)
      for own, u in zip(self._own(client), super().update(client))
    )

  def next_client_state(
    self, client: exchange.Client
  ) -> structures.ClientState:
    ends = zip(self._own(client), client.end)
    own = {f'variable_{i}': x for i, (o, x) in enumerate(ends) if o is not None}
    return collections.OrderedDict(seen=tf.constant(True), **own)

  def _own(self, client: exchange.Client) -> list[Any]:
    """Returns the client's own variables, with `None` for shared ones."""
    return [
      client.state.get(f'variable_{i}') for i in range(len(client.received))
    ]
