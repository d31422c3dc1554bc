"""Every command and snippet of the README does what it says."""

import pathlib
import re
import shlex
import subprocess

import pytest
import tensorflow as tf

from tff_adaptive import algorithms
from tff_adaptive import runtime
from tff_adaptive.lab.commands import command_line

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


def test_snippets(in_process_context, monkeypatch, capsys):
  monkeypatch.setattr(
    runtime, 'set_in_process_context', lambda: in_process_context
  )
  for text in _SNIPPETS:
    exec(compile(text, 'README.md', 'exec'), {})  # pylint: disable=exec-used
  output = capsys.readouterr().out
  assert 'sparse_categorical_accuracy' in output
  assert '21.7 degrees' in output


def test_commands(tmp_path, monkeypatch, capsys):
  """Every command, of two rounds, then those that look at the runs."""
  monkeypatch.chdir(tmp_path)
  ran = 0
  for page in ('README.md', 'docs/getting_started.md'):
    text = (_ROOT / page).read_text(encoding='utf-8')
    blocks = re.findall(r'^```(\w*)\n(.*?)^```', text, re.M | re.S)
    # The block that begins with a space is what a run prints.
    shown = [b for language, b in blocks if not language and b[0] != ' ']
    lines = [line for block in shown for line in block.splitlines()]
    for line in lines:
      words = shlex.split(line.split('#')[0])
      if words[:2] == ['python', 'main.py']:
        words = ['tff-adaptive', *words[2:]]
      if line.startswith('tf.saved_model'):
        assert eval(line, {'tf': tf}).structured_outputs  # pylint: disable=eval-used
      elif words[0] == 'tff-adaptive':
        made = sorted(p.name for p in tmp_path.glob('runs/digits-*'))
        names = {'runs/NAME': f'runs/{made[-1]}'} if made else {}
        names |= {'runs/OTHER': f'runs/{made[0]}'} if made else {}
        words = [names.get(w, w) for w in words[1:]]
        if not words or words[0].startswith('--') or words[0] == 'sweep':
          words = [w for w in words if not w.startswith('--total_rounds')]
          words.append('--total_rounds=2')
        assert command_line.main(words) == 0, line
        ran += 1
      else:  # A test of what is installed, and of make, follows.
        assert words[0] in ('make', 'uv', 'pip'), line
  assert ran == 11 and 'fedprox' in capsys.readouterr().out
  assert (tmp_path / 'runs' / 'report.html').exists()


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
