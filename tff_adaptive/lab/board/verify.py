"""Verification of an entry: a random part of its runs, run again."""

import pathlib
import random
import tempfile
from collections.abc import Mapping
from typing import Any, Optional

import numpy as np

from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import records as records_lib
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.recording import files

_SHARE = 0.05
# Between machines whose libraries round differently.
_TOLERANCE = 1e-3


def verify(
  entry: entries.Entry,
  root: pathlib.Path,
  options: Mapping[str, Any],
  shared: Mapping[str, str],
  share: float = _SHARE,
) -> int:
  """Runs a random part of an entry's runs again and compares.

  Args:
    entry: The entry.
    root: A folder for the runs, which are deleted afterwards.
    options: As `runner.Runner` takes them.
    shared: Likewise.
    share: The part of the runs, at least those that train with one.

  Returns:
    The exit code: 1 if a run gives something else.

  Raises:
    SettingsError: If files that the runs read are missing or damaged.
  """
  known = {n: r for of in entry.records.values() for n, r in of.items()}
  # All that trained together, as runs alone may round otherwise.
  groups: dict[Any, list[str]] = {}
  for name in known:
    workload, setting, seed = runner.split(name)
    key = workload, seed, setting == runner.DEFAULT
    groups.setdefault(key, []).append(name)
  drawn = random.SystemRandom().sample(
    sorted(groups), max(1, round(share * len(groups)))
  )
  names = [name for key in drawn for name in groups[key]]
  count = len(names)
  here = runner.made_with()
  allowed = {
    workload: 0.0 if made == here else _TOLERANCE
    for workload, made in entry.made_with.items()
  }
  print(
    f'{count} of {len(known)} runs again, which must agree '
    + (
      f'to {_TOLERANCE:g} where another machine made them.'
      if any(allowed.values())
      else 'to the bit.'
    ),
    flush=True,
  )
  chosen = workloads_lib.choose(
    ','.join(sorted({runner.split(n)[0] for n in names}))
  )
  files.make_folder(root)
  with tempfile.TemporaryDirectory(dir=root, prefix='verify-') as folder:
    made = runner.Runner(
      entry.submission, chosen, pathlib.Path(folder), options, shared
    )
    made.check_files()
    again = made.run(
      names,
      alone=[
        workload
        for workload, made_by in entry.made_with.items()
        if made_by.get('runs') != runner.TOGETHER
      ],
    )
  wrong = 0
  for name in sorted(names):
    workload, _, seed = runner.split(name)
    made_again = again[name]
    if seed in entry.protocol.tuning_seeds:
      made_again = made_again.of_tuning()
    found = difference(known[name], made_again, allowed[workload])
    if found is not None and name in made.reasons:
      found += f': {made.reasons[name]}'
    print(f'{"equal" if found is None else "differs"}  {name}  {found or ""}')
    wrong += found is not None
  print(f'{count - wrong} of {count} runs agree.')
  return 1 if wrong else 0


def difference(
  one: records_lib.Record, other: records_lib.Record, tolerance: float
) -> Optional[str]:
  """Describes in what two records of a run differ; `None` if in nothing.

  Args:
    one: As recorded.
    other: As run again.
    tolerance: The largest relative difference of numbers.
  """
  if one.status != other.status:
    return f'status {one.status}, again {other.status}'
  pairs = {
    'untrained': (np.array([one.untrained]), np.array([other.untrained])),
    'losses': (one.losses, other.losses),
    **{
      measure: (one.costs[:, i], other.costs[:, i])
      for i, measure in enumerate(records_lib.MEASURES)
    },
  }
  for name, (before, after) in pairs.items():
    if len(before) != len(after):
      return f'{name}: {len(before)} values, again {len(after)}'
    near = np.isclose(before, after, rtol=tolerance, atol=0.0, equal_nan=True)
    if not near.all():
      place = int(np.argmin(near))
      return f'{name}: {before[place]} at {place}, again {after[place]}'
  return None
