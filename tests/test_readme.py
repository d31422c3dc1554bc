"""Every command and snippet of the README does what it says."""

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from tff_adaptive import algorithms

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_TEXT = (_ROOT / 'README.md').read_text()
_CONTRIBUTING = (_ROOT / 'CONTRIBUTING.md').read_text()
_BLOCKS = re.findall(r'^```(\w*)\n(.*?)^```', _TEXT, re.M | re.S)
_SNIPPETS = [text for language, text in _BLOCKS if language == 'python']
_COMMANDS = [
  line.split('#')[0].strip()
  for language, text in _BLOCKS
  if not language
  for line in text.replace('\\\n', ' ').splitlines()
  if line.startswith(('make ', 'python '))
]


def run(arguments, folder):
  log = folder / 'log'
  with open(log, 'w', encoding='utf-8') as file:
    done = subprocess.run(
      arguments,
      cwd=_ROOT,
      stdout=file,
      stderr=subprocess.STDOUT,
      timeout=300,
      check=False,
    )
  return done.returncode, log.read_text(encoding='utf-8')


def test_there_is_something_to_test():
  assert len(_SNIPPETS) == 2
  assert {'make demo', 'make test'} <= set(_COMMANDS)


@pytest.mark.exhaustive
def test_snippets(tmp_path):
  file = tmp_path / 'snippets.py'
  # One process for all: importing TFF takes longer than what they do.
  parts = [
    f'exec(compile({text!r}, "README.md", "exec"), {{}})' for text in _SNIPPETS
  ]
  file.write_text(
    '\n'.join(['import sys', f'sys.path.insert(0, {str(_ROOT)!r})', *parts])
  )
  code, output = run([sys.executable, file], tmp_path)
  assert code == 0, output
  assert 'sparse_categorical_accuracy' in output
  assert '21.7 degrees' in output


def test_the_table_has_every_method_with_what_was_measured():
  page = (_ROOT / 'docs' / 'algorithms' / 'index.md').read_text()
  rows = dict(re.findall(r'^\| (\w+) \|.*\| ([^|]+) \|$', page, re.MULTILINE))
  costs = (_ROOT / 'docs' / 'costs.md').read_text()
  measured = {}
  for line in re.findall(r'^\| (\w.*?) \|$', costs, re.MULTILINE):
    cells = [cell.strip() for cell in line.split('|')]
    for name in cells[0].split(', '):
      measured[name] = cells[5]
  for name in algorithms.names():
    if rows[name] != 'its own':
      number, d = rows[name].split()
      assert float(number) == float(measured[name].split()[0]) and d == 'd'


@pytest.mark.parametrize(
  'command', [c for c in _COMMANDS if c.startswith('python ')]
)
def test_command(command, tmp_path):
  words = shlex.split(command)
  code, output = run([sys.executable, *words[1:], '--dry_run'], tmp_path)
  assert code == 0, output
  assert ('3 runs' if 'sweep' in words else 'bytes per round') in output


@pytest.mark.parametrize(
  'command',
  sorted(
    {c for c in _COMMANDS if c.startswith('make ')}
    | set(re.findall(r'`(make [a-z-]+)`', _TEXT + _CONTRIBUTING))
  ),
)
def test_make_target_exists(command, tmp_path):
  code, output = run(
    ['make', '--no-print-directory', '-n', command.split()[1]], tmp_path
  )
  assert code == 0, output


def test_the_demo_is_the_program_without_flags(tmp_path):
  _, output = run(['make', '--no-print-directory', '-n', 'demo'], tmp_path)
  assert output.splitlines()[-1].endswith('python main.py')
