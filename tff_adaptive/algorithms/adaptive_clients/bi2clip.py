"""Bi2Clip: two-sided clipping on clients and server."""

from __future__ import annotations

import dataclasses
from typing import Literal

from tff_adaptive.algorithms import methods


@methods.method(
  'bi2clip',
  printed='Bi2Clip',
  client='biclip',
  server='biclip',
  fixes=('client', 'server'),
  hides=('clip_mode',),
  client_words='two-sided clipping',
  server_words='two-sided clipping of the mean',
  look=34,
)
class Bi2Clip(methods.Options):
  """Two-sided clipping on clients and server (Lee et al.)."""

  clip_mode: Literal['coordinate', 'norm'] = 'coordinate'
  """Whether to clip each coordinate or the global norm."""

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    client, server = (
      dataclasses.replace(rule, clip_mode=self.clip_mode)
      for rule in (chosen.client_optimizer, chosen.server_optimizer)
    )
    return {'client_optimizer': client, 'server_optimizer': server}
