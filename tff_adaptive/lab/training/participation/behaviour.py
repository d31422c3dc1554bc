"""Speed and reliability of clients, in virtual time.

A client answers after a number of virtual seconds: for each example that it
iterates, or each gradient, and for receiving and sending. Its speed is a
function of seed, client and round, or read from a file.
"""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.lab.flags import availability as availability_flags
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.training import seeds
from tff_adaptive.lab.training.participation import client_files
from tff_adaptive.lab.training.participation import devices

_COLUMNS = ('client', 'seconds_per_example', 'dropout')
_MOST_SECONDS = 1e9
_NORMAL = statistics.NormalDist()


@dataclasses.dataclass(frozen=True)
class Known:
  """A client's figures in a file; `None` if the file has none.

  Attributes:
    seconds_per_example: Virtual seconds per example.
    dropout: Probability that the client does not answer in a round.
  """

  seconds_per_example: Optional[float]
  dropout: Optional[float]


def read_behaviour(
  path: pathlib.Path, client_ids: Collection[str]
) -> dict[str, Known]:
  """Reads --client_behaviour: figures by client id.

  Args:
    path: A CSV file with the columns client, seconds_per_example and dropout,
      of which one of the last two may be missing; cells may be empty.
    client_ids: The task's clients.

  Raises:
    SettingsError: If the file cannot be used; names the line at fault.
  """
  name = f'--client_behaviour={path}'

  def check(columns: Sequence[str]) -> None:
    if not {*columns} <= {*_COLUMNS} or len({*columns}) < max(len(columns), 2):
      raise errors.SettingsError(
        f'{name} must have the columns {", ".join(_COLUMNS)}, one of the last '
        f'two being optional, got {", ".join(columns) or "none"}.'
      )
    if 'client' not in columns:
      raise errors.SettingsError(f'{name} has no column client.')

  found: dict[str, Known] = {}
  for line, row in client_files.read(name, path, client_ids, check):
    if row['client'] in found:
      raise errors.SettingsError(
        f'{line}: the client {row["client"]!r} is listed twice.'
      )
    found[row['client']] = Known(
      _cell(line, row, 'seconds_per_example', _MOST_SECONDS),
      _cell(line, row, 'dropout', 1.0),
    )
  return found


def _cell(
  line: str, row: Mapping[str, str], column: str, most: float
) -> Optional[float]:
  """Parses a number from 0 to `most`; seconds must be positive."""
  text = row.get(column, '').strip()
  if not text:
    return None
  try:
    value = float(text)
  except ValueError:
    value = math.nan
  timed = column != 'dropout'
  if not 0 <= value <= most or (timed and not value):
    low = 'above 0 and' if timed else 'from 0 to'
    high = f'at most {most:g}' if timed else f'{most:g}'
    raise errors.SettingsError(
      f'{line}: {column} must be a number {low} {high}, got {text!r}.'
    )
  return value


class Behaviour:
  """Speed and reliability of clients, a function of seed, client and round.

  With m the mean, s the spread, j the jitter, and z and y standard normal, z
  drawn per client, y per client and round:

    seconds = m exp(s z - s^2/2) exp(j y - j^2/2) examples

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
    link: Optional[devices.Link] = None,
    spread: float = 0.0,
    jitter: float = 0.0,
    dropout: float = 0.0,
    known: Optional[Mapping[str, Known]] = None,
  ):
    """Initializes the behaviour.

    Args:
      seed: The run's seed.
      seconds_per_example: m; by default computing takes no time.
      seconds_per_step: m per gradient, instead of `seconds_per_example`.
      gradients: Number of gradients per local step; a full-gradient pass over
        the data counts as one more per step.
      link: Rates and latency of messages; by default these take no time.
      spread: s.
      jitter: j.
      dropout: Probability that a client does not answer in a round.
      known: Figures by client id, which override the others.
    """
    self._seed = seed
    self.per_step = seconds_per_step is not None
    self._mean = seconds_per_example
    if seconds_per_step is not None:
      self._mean = gradients * seconds_per_step
    self._link = link
    self._bytes = (0, 0)
    self._spread = spread
    self._jitter = jitter
    self._dropout = dropout
    self._known = known or {}
    self.timed = (
      self._mean is not None
      or link is not None
      or any(k.seconds_per_example is not None for k in self._known.values())
    )

  def carry(self, down: int, up: int) -> None:
    """Sets the bytes that a client receives and sends in a round."""
    self._bytes = (down, up)

  def pace(self, client: str) -> float:
    """Returns a client's virtual seconds per example, or per local step."""
    known = self._known.get(client)
    if known is not None and known.seconds_per_example is not None:
      return known.seconds_per_example
    if self._mean is None:
      return 0.0
    return self._lognormal(self._mean, self._spread, 'client speed', client)

  def seconds(self, client: str, number: int, work: int) -> float:
    """Returns the virtual seconds after which a client answers.

    Args:
      client: The client's id.
      number: The round's number.
      work: Number of examples that it iterates; of local steps if `per_step`.
    """
    drawn = self._lognormal(
      1.0, self._jitter, 'client speed in a round', number, client
    )
    computing = self.pace(client) * drawn * work
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
    probability = self._dropout
    known = self._known.get(client)
    if known is not None and known.dropout is not None:
      probability = known.dropout
    if not probability:
      return False
    return self._uniform('client dropout', number, client) < probability

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


def behaviour_of(
  settings: settings_lib.Settings, client_ids: Collection[str]
) -> Optional[Behaviour]:
  """Builds the behaviour of a run's clients; `None` if none was requested.

  Args:
    settings: The run's settings.
    client_ids: The training clients of its task.

  Raises:
    SettingsError: If the file of --client_behaviour cannot be used.
  """
  if not is_asked(settings):
    return None
  known: dict[str, Known] = {}
  if settings.client_behaviour is not None:
    path = pathlib.Path(settings.client_behaviour)
    known = read_behaviour(path, client_ids)
    _check_known(settings, path, known, client_ids)
  kind = devices.KINDS.get(settings.client_devices or '')
  per_step, spread = (
    settings.client_seconds_per_step,
    settings.client_speed_spread,
  )
  if kind is not None:
    per_step = kind.seconds_per_step if per_step is None else per_step
    spread = kind.speed_spread if spread is None else spread
  return Behaviour(
    seed=settings.seed,
    seconds_per_example=settings.client_seconds_per_example,
    seconds_per_step=per_step,
    gradients=settings.plan.gradients_per_step,
    link=link_of(settings),
    spread=spread or 0.0,
    jitter=settings.client_speed_jitter or 0.0,
    dropout=settings.client_dropout or 0.0,
    known=known,
  )


def link_of(settings: settings_lib.Settings) -> Optional[devices.Link]:
  """Builds the links of a run's clients; `None` if messages take no time."""
  given = {
    name: getattr(settings, f'client_{name}')
    for name in ('mbit_down', 'mbit_up', 'latency')
  }
  if settings.client_mbit_spread is not None:
    given |= dict.fromkeys(
      ('spread_down', 'spread_up'), settings.client_mbit_spread
    )
  given = {name: value for name, value in given.items() if value is not None}
  kind = devices.KINDS.get(settings.client_devices or '')
  if kind is not None:
    return dataclasses.replace(kind.link, **given)
  return devices.Link(**given) if given else None


def _check_known(
  settings: settings_lib.Settings,
  path: pathlib.Path,
  known: Mapping[str, Known],
  client_ids: Collection[str],
) -> None:
  """Raises `SettingsError` if a file's figures contradict other settings."""
  timed = [c for c, k in known.items() if k.seconds_per_example is not None]
  for name in ('client_seconds_per_step', 'client_devices'):
    if timed and getattr(settings, name) is not None:
      raise errors.SettingsError(
        f'--client_behaviour={path} has seconds_per_example, and --{name} sets '
        'seconds per step; omit one of them.'
      )
  if settings.client_seconds_per_example is None:
    missing = [c for c in client_ids if c not in {*timed}]
    needs = [
      f'--{name}'
      for name in ('client_speed_jitter', 'deadline')
      if getattr(settings, name) is not None
    ]
    if timed and missing:
      raise errors.SettingsError(
        f'--client_behaviour={path} has no seconds_per_example of '
        f'{len(missing):,} clients, such as {missing[0]!r}; add them, or give '
        '--client_seconds_per_example as their default.'
      )
    if needs and not timed:
      raise errors.SettingsError(
        f'{needs[0]} would be ignored: --client_behaviour={path} has no '
        'seconds_per_example; give --client_seconds_per_example.'
      )
  if settings.plan.private and any(k.dropout for k in known.values()):
    raise errors.SettingsError(
      f'--client_behaviour={path} has dropout probabilities per client, which '
      'might depend on the data; under differential privacy, use '
      '--client_dropout, the same for all clients.'
    )


def work_of(
  behaviour: Behaviour,
  work: Callable[[str, int], int],
  client: str,
  number: int,
) -> int:
  """Returns a client's work in a round; 0 where work takes no time.

  Args:
    behaviour: Speed of the clients.
    work: As `Availability` takes it.
    client: The client's id.
    number: The round's number.
  """
  if not behaviour.timed:
    return 0
  try:
    return work(client, number)
  except errors.RunError:
    return 0  # The round reports the error when it reads the client.


def is_asked(settings: settings_lib.Settings) -> bool:
  """Returns whether a run's clients take time, or may fail to answer."""
  return any(
    getattr(settings, name) is not None for name in availability_flags.ABSENCE
  )
