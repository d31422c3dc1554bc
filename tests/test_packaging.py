"""What is installed, from which files, in which versions."""

import ast
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from packaging import requirements

import tff_adaptive
from tests import programs

_ROOT = pathlib.Path(__file__).resolve().parents[1]


def pins(name):
  text = (_ROOT / name).read_text(encoding='utf-8')
  return dict(re.findall(r'^([A-Za-z0-9._-]+)==([^;\s]+)', text, re.MULTILINE))


def _made_up_wheel(folder):
  """A wheel like TFF's, of one module and the worker."""
  path = folder / 'tensorflow_federated-9.9-py3-none-manylinux_2_31_x86_64.whl'
  info = 'tensorflow_federated-9.9.dist-info'
  parts = {
    'tensorflow_federated/__init__.py': 'x = 1\n',
    'tensorflow_federated/data/worker_binary': 'a program',
    f'{info}/METADATA': (
      'Metadata-Version: 2.1\nName: tensorflow-federated\nVersion: 9.9\n'
    ),
    f'{info}/WHEEL': (
      'Wheel-Version: 1.0\nGenerator: setuptools (75.1.0)\n'
      'Root-Is-Purelib: true\nTag: py3-none-manylinux_2_31_x86_64\n'
    ),
    f'{info}/RECORD': '',
  }
  with zipfile.ZipFile(path, 'w') as wheel:
    for name, text in parts.items():
      wheel.writestr(name, text)
  return path


def test_a_wheel_of_tff_for_any_platform(tmp_path):
  """What is made of it, pip or uv installs without the worker."""
  made = tmp_path / 'made'
  tool = _ROOT / 'tools' / 'portable_tff.py'
  wheel = _made_up_wheel(tmp_path)
  programs.run(tool, made, wheel)
  (portable,) = made.iterdir()
  assert portable.name == 'tensorflow_federated-9.9-py3-none-any.whl'
  installed = tmp_path / 'installed'
  # uv makes environments without pip.
  has_pip = importlib.util.find_spec('pip') is not None
  installer = [sys.executable, '-m', 'pip'] if has_pip else ['uv', 'pip']
  command = [*installer, 'install', '--quiet', '--no-deps', '--no-index']
  command += [f'--target={installed}', portable]
  subprocess.run(command, check=True)
  found = {str(p.relative_to(installed)) for p in installed.rglob('*.*')}
  assert 'tensorflow_federated/__init__.py' in found
  assert not (installed / 'tensorflow_federated' / 'data').exists()
  record = installed / 'tensorflow_federated-9.9.dist-info' / 'RECORD'
  assert 'worker' not in record.read_text(encoding='utf-8')


def test_nothing_on_an_index_takes_the_place_of_the_local_package():
  project = tomllib.loads((_ROOT / 'pyproject.toml').read_text('utf-8'))
  by_name = project['project']['dependencies']
  for extra in project['project']['optional-dependencies'].values():
    by_name += extra
  assert not [name for name in by_name if name.startswith('tff')]
  lock = tomllib.loads((_ROOT / 'uv.lock').read_text('utf-8'))
  (found,) = [p for p in lock['package'] if p['name'] == 'tff-today']
  assert found['source'] == {'directory': 'tools/tff_today'}
  for path in _ROOT.glob('requirements*.txt'):
    assert 'tff-today' not in pins(path.name)


def test_cuda_libraries_are_those_that_tensorflow_asks_for():
  asked = {}
  for text in importlib.metadata.requires('tensorflow'):
    if 'and-cuda' in text:
      requirement = requirements.Requirement(text)
      asked[requirement.name] = requirement.specifier
  pinned = {
    name: version
    for name, version in pins('requirements-gpu.txt').items()
    if name.startswith('nvidia-')
  }
  assert asked and set(pinned) == set(asked)
  for name, version in pinned.items():
    assert version in asked[name], name


def test_pip_and_uv_install_the_same():
  sys.path.insert(0, str(_ROOT / 'tools'))
  import lock  # pylint: disable=g-import-not-at-top

  files = {
    path.name: path.read_text('utf-8') for path in _ROOT.glob('req*.txt')
  }
  assert files == {
    lock.path_of(n).name: text for n, text in lock.read().items()
  }
  for text in files.values():
    for line in text.splitlines():
      assert line.startswith(('#', '-r ')) or '--hash=sha256:' in line, line
  # What pyproject.toml asks for is in uv.lock, by uv's own test if it is there.
  if shutil.which('uv'):
    subprocess.run(['uv', 'lock', '--check'], cwd=_ROOT, check=True)


def test_what_tests_import_is_what_make_test_installs():
  packages = importlib.metadata.packages_distributions()
  locked = {
    name.lower().replace('_', '-')
    for file in ('requirements.txt', 'requirements-ray.txt')
    for name in pins(file)
  }
  # A build leaves metadata of the project itself.
  locked |= {'tff-adaptive', 'tff-today'}
  missing = set()
  for path in (_ROOT / 'tests').rglob('*.py'):
    # Imports inside of functions may follow a skip.
    for node in ast.parse(path.read_text(encoding='utf-8')).body:
      names = []
      if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
      elif isinstance(node, ast.ImportFrom):
        names = [node.module or '']
      for name in names:
        first = name.partition('.')[0]
        # Another package may have a folder of tests, too.
        for package in (
          () if (_ROOT / first).is_dir() else packages.get(first, ())
        ):
          if package.lower().replace('_', '-') not in locked:
            missing.add(f'{path.name}: {package}')
  assert not missing


def test_the_citation_has_the_version():
  text = (_ROOT / 'CITATION.cff').read_text(encoding='utf-8')
  assert f'\nversion: {tff_adaptive.__version__}\n' in text


def test_the_version_stands_in_one_place():
  written = []
  for path in _ROOT.glob('*'):
    if path.suffix in ('.py', '.toml', '.cfg') or path.name == 'BUILD':
      text = path.read_text(encoding='utf-8')
      # Versions of other packages, whose requirements are overridden for uv.
      text = re.sub(r'\[\[tool\.uv\..*?(?=\n\[)', '', text, flags=re.DOTALL)
      written += re.findall(r'^.*version = "\d+\.\d+.*$', text, re.MULTILINE)
  # mypy's is the version of Python.
  assert written == ['python_version = "3.11"']
  assert re.fullmatch(r'\d+\.\d+\.\d+', tff_adaptive.__version__)


def _targets(build_file):
  """The targets of a BUILD file, which is Python, with their files."""
  folder = build_file.parent
  targets = []

  def glob(include, exclude=(), allow_empty=False):
    found = {p for pattern in include for p in folder.glob(pattern)}
    left_out = {p for pattern in exclude for p in folder.glob(pattern)}
    files = sorted(p for p in found - left_out if p.is_file())
    assert files or allow_empty, include
    return [p.relative_to(folder).as_posix() for p in files]

  def target(name, srcs=(), data=(), deps=(), **_):
    targets.append((name, list(srcs), list(data), list(deps)))

  def nothing(*_, **__):
    return None

  names = dict.fromkeys(
    ('py_library', 'py_binary', 'python_tests'), target
  ) | dict.fromkeys(('load', 'package', 'licenses', 'exports_files'), nothing)
  code = compile(build_file.read_text(), str(build_file), 'exec')
  exec(code, {'glob': glob, **names})  # pylint: disable=exec-used
  return targets


def test_build_files_and_sources_are_in_step():
  owners = {}
  known = set()
  needed = set()
  for build_file in (_ROOT / 'BUILD', _ROOT / 'tools' / 'BUILD'):
    package = build_file.parent.relative_to(_ROOT)
    for name, srcs, data, deps in _targets(build_file):
      known.add(f'//{package}:{name}'.replace('//.:', '//:'))
      needed |= {d if d.startswith('//') else f'//:{d[1:]}' for d in deps}
      for file in srcs + [d for d in data if not d.startswith('//')]:
        path = (package / file).as_posix()
        assert (_ROOT / path).is_file(), f'{name} lists {path}'
        if file in srcs:
          owners.setdefault(path, []).append(name)
  for dependency in needed:
    label = dependency if ':' in dependency else f'{dependency}:tools'
    assert label in known, dependency
  roots = ('benchmarks', 'examples', 'tasks', 'tests', 'tff_adaptive', 'tools')
  sources = {
    path.relative_to(_ROOT).as_posix()
    for path in [
      _ROOT / 'main.py',
      *(p for r in roots for p in (_ROOT / r).rglob('*.py')),
    ]
  }
  assert sources == set(owners), sources ^ set(owners)
  twice = {path: names for path, names in owners.items() if len(names) > 1}
  assert not twice


@pytest.mark.slow
def test_wheel_and_sdist(tmp_path):
  tree = tmp_path / 'tree'
  ignored = shutil.ignore_patterns(
    '.git', '.venv*', 'build', 'dist', 'runs', 'bazel-*', '*.egg-info'
  )
  shutil.copytree(_ROOT, tree, ignore=ignored, symlinks=True)
  for command in (
    ['-m', 'build', '--no-isolation', '--outdir', 'dist'],
    [
      *('-m', 'build', '--no-isolation', '--wheel', '--outdir', 'dist'),
      'tools/tff_today',
    ],
    ['tools/check_dist.py', 'dist'],
  ):
    done = programs.run(*command, cwd=tree)
  assert 'installs and runs' in done.stdout
  (sdist,) = (tree / 'dist').glob('*.tar.gz')
  assert tff_adaptive.__version__ in sdist.name


@pytest.mark.parametrize(
  'system, machine, fits',
  [
    ('Linux', 'x86_64', True),
    ('Linux', 'aarch64', True),
    ('Darwin', 'arm64', True),
    ('Darwin', 'x86_64', False),
  ],
)
def test_machines_that_tensorflow_has_builds_for(
  tmp_path, system, machine, fits
):
  uname = tmp_path / 'uname'
  uname.write_text(
    f'#!/bin/sh\n[ "$1" = -s ] && echo {system} || echo {machine}\n'
  )
  uname.chmod(0o755)
  found = subprocess.run(
    ['sh', 'tools/find_python.sh'],
    cwd=_ROOT,
    env=programs.environment(
      PATH=f'{tmp_path}{os.pathsep}{os.environ["PATH"]}', PYTHON=sys.executable
    ),
    capture_output=True,
    text=True,
    check=False,
  )
  assert (found.returncode == 0) == fits
  if not fits:
    assert f'this is {system} on {machine}' in found.stderr
