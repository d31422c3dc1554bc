"""Every preset's resolved settings, held to what they were.

A change of a default, of a range or of how flags are resolved shows here as the
names of the presets that it changes. If they are meant to change,

  python -m tests.flags.test_preset_settings

writes the file anew, and CHANGELOG.md says which did and why.
"""

import csv
import hashlib
import json
import pathlib

from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.flags import resolving

_FILE = pathlib.Path(__file__).with_name('preset_settings.csv')


def _digest(name):
  settings = resolving.settings(preset=name)
  resolved = dict(
    identity=settings.identity,
    task_options=settings.task_options,
    optimizers=settings.configuration.optimizer,
    hyperparameters=settings.configuration.values,
  )
  text = json.dumps(resolved, sort_keys=True, default=str)
  return hashlib.blake2b(text.encode('utf-8'), digest_size=8).hexdigest()


def test_no_preset_changes_unnoticed():
  with open(_FILE, newline='', encoding='utf-8') as file:
    before = dict(csv.reader(file))
  now = {name: _digest(name) for name in presets.names()}
  changed = [n for n in before if n in now and before[n] != now[n]]
  assert not changed
  assert list(now) == list(before)


if __name__ == '__main__':
  with open(_FILE, 'w', newline='', encoding='utf-8') as out:
    writer = csv.writer(out, lineterminator='\n')
    writer.writerows((name, _digest(name)) for name in presets.names())
