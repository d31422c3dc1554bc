"""Bi2Clip: two-sided clipping on clients and server."""

from __future__ import annotations

from tff_adaptive.algorithms import methods


@methods.method(
  'bi2clip',
  printed='Bi2Clip',
  client='biclip',
  server='biclip',
  fixes=('client', 'server'),
  client_words='two-sided clipping',
  server_words='two-sided clipping of the mean',
  look=34,
)
class Bi2Clip(methods.Options):
  """Two-sided clipping on clients and server (Lee et al.)."""
