"""Device classes of clients: speed of computation and network links."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Link:
  """The clients' links to the server; by default messages take no time.

  Attributes:
    mbit_down, mbit_up: Medians of the rates, in Mbit/s.
    spread_down, spread_up: Standard deviations of the rates' logarithms.
    latency: Seconds one way.
  """

  mbit_down: float = math.inf
  mbit_up: float = math.inf
  spread_down: float = 0.0
  spread_up: float = 0.0
  latency: float = 0.0


@dataclasses.dataclass(frozen=True)
class Devices:
  """The speed and the links of a class of clients.

  Attributes:
    seconds_per_step: Seconds per gradient of a batch, mean over clients.
    speed_spread: Standard deviation of its logarithm over clients.
    link: The clients' links.
  """

  seconds_per_step: float
  speed_spread: float
  link: Link


# Phones as FLASH measured them (github PKU-Chengxu/FLASH 55cbede,
# models/utils/device_util/device_util.py and models/speed_distri.json): LEAF's
# FEMNIST CNN, batches of 10, on slow, middle and fast phones, 53.2, 46.4 and
# 0.45 % of the devices of unknown model; 19 connections.
#
# Silos as in Marfoq et al. (arXiv 2010.12229; github
# omarfoq/communication-in-cross-silo-fl 01b2aa3, graph_utils/): links of
# 1 Gbit/s, 4 + 0.0085 ms a kilometre at 3,000 km, FEMNIST's local step.
KINDS = {
  'cross_device': Devices(1.15, 0.52, Link(35.4, 26.9, 0.47, 0.68)),
  'cross_silo': Devices(0.0046, 0.0, Link(1000.0, 1000.0, latency=0.0295)),
}
