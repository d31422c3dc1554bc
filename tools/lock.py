"""A writer of requirements.txt from uv.lock, for those who have pip alone.

uv lock && python tools/lock.py
"""

import pathlib
import tomllib
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PROJECT = 'tff-adaptive'
_HEAD = """\
# Everything that tff-adaptive runs on, pinned as it was installed and tested
# together on Python 3.11, 3.12 and 3.13: what uv.lock has (`make lock`).
# Without uv, install it in the checkout with
#
#   pip install --no-deps --ignore-requires-python -r requirements.txt
#
# pip refuses without the two options: tensorflow-federated 0.87.0 and
# tensorflow-privacy 0.9.0 ask for the TensorFlow, NumPy and Python of 2023, and
# for a jaxlib that the registry has lost. The last line is what lets them run
# on these versions; docs/SECURITY.md says how.
"""


def requirements(lock: dict[str, Any]) -> str:
  """Renders the packages that the project and its tests need, with versions.

  Args:
    lock: What uv.lock holds.
  """
  packages = {package['name']: package for package in lock['package']}
  project = packages[_PROJECT]
  waiting = [
    *project['dependencies'],
    *(one for group in project['dev-dependencies'].values() for one in group),
  ]
  # Of each package where it is needed: everywhere, if nothing is said.
  found: dict[str, str] = {}
  while waiting:
    needed = waiting.pop()
    name, marker = needed['name'], needed.get('marker', '')
    if name in found and (not found[name] or marker):
      continue
    found[name] = marker
    for one in packages[name].get('dependencies', []):
      waiting.append({'marker': marker, **one})
  lines = [
    f'{name}=={packages[name]["version"]}' + (f' ; {marker}' if marker else '')
    for name, marker in sorted(found.items())
    if 'registry' in packages[name]['source']
  ]
  return _HEAD + '\n'.join(lines) + '\n./tools/tff_today\n'


def read() -> str:
  """Renders requirements.txt from the project's uv.lock."""
  lock = (_ROOT / 'uv.lock').read_text(encoding='utf-8')
  return requirements(tomllib.loads(lock))


if __name__ == '__main__':
  (_ROOT / 'requirements.txt').write_text(read(), encoding='utf-8')
