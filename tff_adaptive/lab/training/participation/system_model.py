"""Devices, links and dropouts of simulated clients, in virtual time.

A client answers after a number of virtual seconds: for each example that it
iterates, or each gradient, and for receiving and sending.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Optional

from tff_adaptive import errors
from tff_adaptive.lab.flags import general
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.training import seeds


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
_NORMAL = statistics.NormalDist()


class ClientSystemModel:
  """Speed and dropouts of clients, a function of seed, client and round.

  With m the mean, s the spread and z standard normal, drawn per client:

    seconds = m exp(s z - s^2/2) examples

  or, with m per gradient, times the gradients of all local steps. A link adds
  `seconds_on_the_way`.

  Attributes:
    timed: Whether clients take any time.
    per_step: Whether m is per gradient instead of per example.
  """

  def __init__(
    self,
    *,
    seed: int,
    seconds_per_example: Optional[float] = None,
    seconds_per_step: Optional[float] = None,
    gradients: int = 1,
    link: Optional[Link] = None,
    spread: float = 0.0,
    dropout: float = 0.0,
  ):
    """Initializes the model.

    Args:
      seed: The run's seed.
      seconds_per_example: m; by default computing takes no time.
      seconds_per_step: m per gradient, instead of `seconds_per_example`.
      gradients: Number of gradients per local step; a full-gradient pass over
        the data counts as one more per step.
      link: Rates and latency of messages; by default these take no time.
      spread: s.
      dropout: Probability that a client does not answer in a round.
    """
    self._seed = seed
    self.per_step = seconds_per_step is not None
    self._mean = seconds_per_example
    if seconds_per_step is not None:
      self._mean = gradients * seconds_per_step
    self._link = link
    self._bytes = (0, 0)
    self._spread = spread
    self._dropout = dropout
    self.timed = self._mean is not None or link is not None

  def carry(self, down: int, up: int) -> None:
    """Sets the bytes that a client receives and sends in a round."""
    self._bytes = (down, up)

  def pace(self, client: str) -> float:
    """Returns a client's virtual seconds per example, or per local step."""
    if self._mean is None:
      return 0.0
    return self._lognormal(self._mean, self._spread, 'client speed', client)

  def seconds(self, client: str, work: int) -> float:
    """Returns the virtual seconds after which a client answers.

    Args:
      client: The client's id.
      work: Number of examples that it iterates; of local steps if `per_step`.
    """
    computing = self.pace(client) * work
    if self._link is None:
      return computing
    rates = [
      self._lognormal(
        rate * math.exp(spread**2 / 2), spread, f'client link {way}', client
      )
      for way, rate, spread in (
        ('down', self._link.mbit_down, self._link.spread_down),
        ('up', self._link.mbit_up, self._link.spread_up),
      )
    ]
    return computing + seconds_on_the_way(
      self._link.latency, self._bytes, rates
    )

  def drops_out(self, client: str, number: int) -> bool:
    """Returns whether a client drops out of a round."""
    if not self._dropout:
      return False
    return self._uniform('client dropout', number, client) < self._dropout

  def _uniform(self, purpose: str, *parts: Any) -> float:
    """Draws a uniform number from (0, 1)."""
    integer = int(seeds.seed_pair(self._seed, purpose, *parts)[0])
    return ((integer >> 11) + 0.5) / 2**52

  def _lognormal(
    self, mean: float, spread: float, purpose: str, *parts: Any
  ) -> float:
    """Draws a log-normal number; `spread` is its logarithm's deviation."""
    if not spread:
      return mean
    normal = _NORMAL.inv_cdf(self._uniform(purpose, *parts))
    drawn = mean * math.exp(spread * normal - spread**2 / 2)
    # The last bits of exp and log depend on the machine's libraries.
    return float(f'{drawn:.9g}')


def seconds_on_the_way(
  latency: float, sizes: Sequence[int], rates: Sequence[float]
) -> float:
  """Computes the seconds that a client's messages take in a round.

  Args:
    latency: Seconds one way.
    sizes: Bytes down and up.
    rates: Mbit/s down and up; infinite if transfers take no time.
  """
  travels = [
    8e-6 * size / rate for size, rate in zip(sizes, rates, strict=True)
  ]
  return 2 * latency + sum(travels)


def system_model_of(
  settings: settings_lib.Settings,
) -> Optional[ClientSystemModel]:
  """Builds the system model of a run's clients; `None` if none is asked for."""
  if not is_asked(settings):
    return None
  per_step = settings.client_seconds_per_step
  kind = KINDS.get(settings.client_devices or '')
  if kind is not None and per_step is None:
    per_step = kind.seconds_per_step
  return ClientSystemModel(
    seed=settings.seed,
    seconds_per_example=settings.client_seconds_per_example,
    seconds_per_step=per_step,
    gradients=settings.configuration.gradients_per_step,
    link=link_of(settings),
    spread=spread_of(settings),
    dropout=settings.client_dropout or 0.0,
  )


def spread_of(settings: settings_lib.Settings) -> float:
  """Returns the spread of the speed of a run's clients."""
  kind = KINDS.get(settings.client_devices or '')
  spread = settings.client_speed_spread
  if kind is not None and spread is None:
    spread = kind.speed_spread
  return spread or 0.0


def link_of(settings: settings_lib.Settings) -> Optional[Link]:
  """Builds the links of a run's clients; `None` if messages take no time."""
  given = {
    name: value
    for name in ('mbit_down', 'mbit_up', 'latency')
    if (value := getattr(settings, f'client_{name}')) is not None
  }
  kind = KINDS.get(settings.client_devices or '')
  if kind is not None:
    return dataclasses.replace(kind.link, **given)
  return Link(**given) if given else None


def work_of(
  system_model: ClientSystemModel,
  work: Callable[[str, int], int],
  client: str,
  number: int,
) -> int:
  """Returns a client's work in a round; 0 where work takes no time.

  Args:
    system_model: Speed of the clients.
    work: As `Availability` takes it.
    client: The client's id.
    number: The round's number.
  """
  if not system_model.timed:
    return 0
  try:
    return work(client, number)
  except errors.RunError:
    return 0  # The round reports the error when it reads the client.


def is_asked(settings: settings_lib.Settings) -> bool:
  """Returns whether a run's clients take time, or may fail to answer."""
  return any(getattr(settings, name) is not None for name in general.ABSENCE)
