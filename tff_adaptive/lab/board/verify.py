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
) -> int:
  """Runs a random part of an entry's runs again and compares.

  The part is a twentieth of the groups that train together, as runs alone may
  round otherwise.

  Args:
    entry: The entry.
    root: A folder for the runs, which are deleted afterwards.
    options: As `runner.Runner` takes them.
    shared: Likewise.

  Returns:
    The exit code: 1 if a run gives something else.

  Raises:
    SettingsError: If the method refuses the entry's trials, or files that the
      runs read are missing or damaged.
  """
  known = {n: r for of in entry.records.values() for n, r in of.items()}
  groups: dict[Any, list[str]] = {}
  for name in known:
    workload, setting, seed = entries.split(name)
    key = workload, seed, setting == entries.DEFAULT
    groups.setdefault(key, []).append(name)
  count = max(1, round(_SHARE * len(groups)))
  drawn = sorted(random.SystemRandom().sample(sorted(groups), count))
  names = [name for key in drawn for name in groups[key]]
  print(
    f'{len(names)} of {len(known)} runs again, which must agree to the bit, or '
    f'to {_TOLERANCE:g} where another machine made them.',
    flush=True,
  )
  chosen = workloads_lib.choose(','.join(key[0] for key in drawn))
  wrong = 0
  files.make_folder(root)
  with tempfile.TemporaryDirectory(dir=root, prefix='verify-') as folder:
    made = runner.Runner(
      entry.submission, chosen, pathlib.Path(folder), options, shared
    )
    made.check(entry.protocol)
    made.check_files()
    for key in drawn:
      maker = entry.made[key[0]]['made_with']
      together = maker.get('runs') == runner.TOGETHER
      tolerance = 0.0 if maker == runner.made_with() else _TOLERANCE
      for name, again in made.run(groups[key], together=together).items():
        if key[1] in entry.protocol.tuning_seeds:
          again = again.of_tuning()
        found = difference(known[name], again, tolerance)
        why = f': {made.reasons[name]}' if name in made.reasons else ''
        wrong += found is not None
        print(f'differs  {name}  {found}{why}' if found else f'equal  {name}')
  print(f'{len(names) - wrong} of {len(names)} runs agree.')
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
  columns = [
    ('untrained', np.array([one.untrained]), np.array([other.untrained])),
    ('losses', one.losses, other.losses),
    *zip(records_lib.MEASURES, one.costs.T, other.costs.T, strict=True),
  ]
  for name, before, after in columns:
    if len(before) != len(after):
      return f'{name}: {len(before)} values, again {len(after)}'
    near = np.isclose(before, after, rtol=tolerance, atol=0.0, equal_nan=True)
    if not near.all():
      place = int(np.argmin(near))
      return f'{name}: {before[place]} at {place}, again {after[place]}'
  return None
