"""A trial of the built wheels in a clean environment.

  python tools/check_dist.py FOLDER

Writes FOLDER/requirements.txt beside them: what the wheels run on, for people
without a checkout. The environment sees the packages that this Python has,
because the wheels are installed with --no-deps, but nothing of this checkout.
"""

import hashlib
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile

_TRY = """
import importlib.metadata, pathlib, sys
import tasks, tff_adaptive
version = importlib.metadata.version('tff-adaptive')
assert version == tff_adaptive.__version__, version
place = pathlib.Path(tff_adaptive.__file__).parent
assert str(place).startswith(sys.prefix), place
import tff_today
assert tff_today.__file__.startswith(sys.prefix), tff_today.__file__
assert (place / 'py.typed').is_file()
assert (place / 'lab' / 'report' / 'page.html').is_file()
"""
_NAMES = """
from tff_adaptive import algorithms
from tff_adaptive.lab.flags import presets
print(*algorithms.names(), *presets.names())
"""
_ROOT = pathlib.Path(__file__).resolve().parents[1]


def _run(*words: str, cwd: str) -> str:
  done = subprocess.run(
    words, cwd=cwd, capture_output=True, text=True, check=False
  )
  if done.returncode:
    raise SystemExit(f'{" ".join(words)}\n{done.stdout}{done.stderr}')
  return done.stdout


def check(wheel: pathlib.Path, today: pathlib.Path) -> None:
  """Raises `SystemExit` unless the wheels work.

  Args:
    wheel: This project's.
    today: That of tff-today.
  """
  with zipfile.ZipFile(wheel) as file:
    top = {name.split('/')[0] for name in file.namelist()}
  stray = {t for t in top if not t.endswith('.dist-info')} - {
    'tasks',
    'tff_adaptive',
  }
  if stray:
    raise SystemExit(f'{wheel} installs {", ".join(sorted(stray))} as well.')
  with tempfile.TemporaryDirectory() as folder:
    place = pathlib.Path(folder)
    venv.create(place / 'env', with_pip=False, symlinks=True)
    python = str(place / 'env' / 'bin' / 'python')
    pip = (sys.executable, '-m', 'pip', '--python', python, 'install')
    _run(
      *pip,
      '--quiet',
      '--no-deps',
      '--no-index',
      str(wheel),
      str(today),
      cwd=folder,
    )
    packages = _run(
      python,
      '-c',
      'import sysconfig; print(sysconfig.get_path("purelib"))',
      cwd=folder,
    )
    (pathlib.Path(packages.strip()) / 'locked.pth').write_text(
      # So that the packages' own .pth files are read: setuptools' is what
      # TensorFlow Probability has its distutils from.
      f'import site; site.addsitedir({sysconfig.get_path("purelib")!r})',
      encoding='utf-8',
    )
    _run(python, '-c', _TRY, cwd=folder)
    here = _run(sys.executable, '-c', _NAMES, cwd=str(_ROOT))
    assert _run(python, '-c', _NAMES, cwd=folder) == here
    command = str(place / 'env' / 'bin' / 'tff-adaptive')
    listed = _run(command, 'list', cwd=folder)
    assert 'fedadam' in listed and 'reddi2021/emnist_character/' in listed
    preset = '--preset=mukherjee2023/mnist_logistic/fedavg'
    shown = _run(command, preset, '--data=synthetic', '--dry_run', cwd=folder)
    assert 'bytes per round' in shown, shown
    _run(
      python,
      '-c',
      'from tff_adaptive.lab.board import references as r; r.read(r.FROZEN)',
      cwd=folder,
    )


def write_requirements(folder: pathlib.Path) -> None:
  """Writes the pins and the wheels in the folder, with hashes."""
  pins = (_ROOT / 'requirements.txt').read_text(encoding='utf-8')
  wheels = [
    f'./{w.name} --hash=sha256:{hashlib.sha256(w.read_bytes()).hexdigest()}\n'
    for w in sorted(folder.glob('*.whl'))
  ]
  lines = [line for line in pins.splitlines(True) if not line.startswith('#')]
  (folder / 'requirements.txt').write_text(''.join([*lines, *wheels]))


def main(arguments: list[str]) -> int:
  if len(arguments) != 1:
    print(__doc__)
    return 2
  folder = pathlib.Path(arguments[0]).resolve()
  wheels = sorted(folder.glob('*.whl'))
  if [w.name.partition('-')[0] for w in wheels] != [
    'tff_adaptive',
    'tff_today',
  ]:
    names = ', '.join(w.name for w in wheels) or 'none'
    print(f'{arguments[0]} must hold the two wheels of this project: {names}.')
    return 1
  check(*wheels)
  write_requirements(folder)
  print(f'{wheels[0].name} installs and runs.')
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
