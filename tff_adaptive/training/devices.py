"""Named kinds of clients: how fast they compute, and their links."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Devices:
  """The speed and the links of a kind of clients.

  Attributes:
    seconds_per_step: Of a gradient of a batch, mean over clients.
    speed_spread: Standard deviation of the logarithm of that.
    mbit_down, mbit_up: Medians of the links' rates, in Mbit/s.
    spread_down, spread_up: Standard deviations of their logarithms.
    latency: Seconds one way.
  """

  seconds_per_step: float
  speed_spread: float
  mbit_down: float
  mbit_up: float
  spread_down: float
  spread_up: float
  latency: float


# Phones as FLASH measured them (github PKU-Chengxu/FLASH 55cbede,
# models/utils/device_util/device_util.py and models/speed_distri.json): LEAF's
# FEMNIST CNN, batches of 10, on slow, middle and fast phones, 53.2, 46.4 and
# 0.45 % of the devices of unknown model; 19 connections.
#
# Silos as Marfoq et al. (arXiv 2010.12229; github
# omarfoq/communication-in-cross-silo-fl 01b2aa3, graph_utils/) have them: links
# of 1 Gbit/s, 4 + 0.0085 ms a kilometre at 3,000 km, FEMNIST's local step.
KINDS = {
  'cross_device': Devices(1.15, 0.52, 35.4, 26.9, 0.47, 0.68, 0.0),
  'cross_silo': Devices(0.0046, 0.0, 1000.0, 1000.0, 0.0, 0.0, 0.0295),
}
