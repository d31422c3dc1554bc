"""A writer of requirements*.txt from uv.lock, for those who have pip alone.

uv lock && python tools/lock.py
"""

import pathlib
import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PROJECT = 'tff-adaptive'
_OPTIONS = '--no-deps --ignore-requires-python'
_HEADS = {
  '': f"""\
# Everything that tff-adaptive runs on, pinned as it was installed and tested
# together on Python 3.11, 3.12 and 3.13: what uv.lock has (`make lock`), with
# the hashes of its files. Without uv, install it in the checkout with
#
#   pip install {_OPTIONS} -r requirements.txt
#   pip install --no-deps --no-build-isolation ./tools/tff_today
#
# pip refuses without the two options: tensorflow-federated 0.87.0 and
# tensorflow-privacy 0.9.0 ask for the TensorFlow, NumPy and Python of 2023, and
# for a jaxlib that the registry has lost. The second command, which pip cannot
# check by a hash, is what lets them run on these versions; docs/SECURITY.md
# says how.
""",
  'data': """\
# requirements.txt and pyarrow, with which --task=table reads Parquet, Arrow and
# datasets that save_to_disk wrote; installed in the same way.
""",
  'dev': """\
# What `make check`, `make dist` and `make coverage` need beside
# requirements.txt; installed in the same way.
""",
  'docs': """\
# What `make docs` needs, of requirements.txt only what is named here too;
# installed in the same way.
""",
  'gpu': """\
# requirements.txt and the CUDA 12 libraries that TensorFlow itself asks for as
# tensorflow[and-cuda]; installed in the same way. The machine needs an NVIDIA
# driver of version 525.60.13 or newer, and no CUDA of its own.
""",
  'ray': """\
# requirements.txt and Ray, for --runtime=ray, without Ray's extras; installed
# in the same way, on every machine of a cluster.
""",
}
# Wheels for the Pythons and machines that this project knows.
_WHEEL = re.compile(
  r'-(py3|py2\.py3|cp3\d+)-(none|abi3|cp31[123])-'
  r'(any|[^-]*(manylinux|macosx)[^-]*_(x86_64|aarch64|arm64|universal2))\.whl'
)

_Package = dict[str, Any]


def requirements(lock: _Package) -> dict[str, str]:
  """Renders packages with versions and hashes.

  Args:
    lock: The content of uv.lock.

  Returns:
    By the middle of a file's name, such as 'gpu': what is needed beside the
    project and its tests, whose name is ''; all of it for 'docs'.
  """
  packages = {package['name']: package for package in lock['package']}
  project = packages[_PROJECT]
  groups = project['dev-dependencies']
  wanted = {
    '': [*project['dependencies'], *groups['dev']],
    'dev': groups.get('checks', []),
    'docs': groups.get('docs', []),
    **{
      name: project.get('optional-dependencies', {}).get(name, [])
      for name in ('data', 'gpu', 'ray')
    },
  }
  found = {
    name: dict(_lines(_closure(needs, packages), packages))
    for name, needs in wanted.items()
  }
  texts = {}
  for name, lines in found.items():
    beside = name not in ('', 'docs')
    shown = [
      line
      for package, line in lines.items()
      if not (beside and package in found[''])
    ]
    above = ['-r requirements.txt'] if beside else []
    texts[name] = _HEADS[name] + '\n'.join([*above, *shown]) + '\n'
  return texts


def _closure(
  needs: Iterable[_Package], packages: dict[str, _Package]
) -> dict[str, str]:
  """Returns where each needed package is needed: everywhere, if it is ''."""
  found: dict[str, str] = {}
  waiting = list(needs)
  while waiting:
    needed = waiting.pop()
    name, marker = needed['name'], needed.get('marker', '')
    # Packages whose own requirements pip ignores.
    marker = '' if marker.startswith('python_full_version >=') else marker
    for extra in needed.get('extra', []):
      waiting += packages[name]['optional-dependencies'][extra]
    if name in found and (not found[name] or marker):
      continue
    found[name] = marker
    for one in packages[name].get('dependencies', []):
      waiting.append({'marker': marker, **one})
  return found


def _lines(
  found: dict[str, str], packages: dict[str, _Package]
) -> Iterator[tuple[str, str]]:
  """Yields each package of the registry with its line."""
  for name, marker in sorted(found.items()):
    package = packages[name]
    if 'registry' not in package['source']:
      continue
    wheels = package.get('wheels', [])
    files = [w for w in wheels if _WHEEL.search(w['url'])]
    files = files or [*wheels, *filter(None, [package.get('sdist')])]
    words = [f'{name}=={package["version"]}', *([f'; {marker}'] * bool(marker))]
    yield name, ' '.join([*words, *(f'--hash={f["hash"]}' for f in files)])


def read() -> dict[str, str]:
  """Renders the requirements of the project's uv.lock; see `requirements`."""
  lock = (_ROOT / 'uv.lock').read_text(encoding='utf-8')
  return requirements(tomllib.loads(lock))


def path_of(name: str) -> pathlib.Path:
  """Returns the file of a part of the requirements."""
  return _ROOT / f'requirements{"-" * bool(name)}{name}.txt'


if __name__ == '__main__':
  for name, text in read().items():
    path_of(name).write_text(text, encoding='utf-8')
