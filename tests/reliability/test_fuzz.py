"""Readers, run folders and flags under attack, for a bounded time.

What once broke is in `corpus` and is tried first, every time. The slow tests
draw further inputs, others each time, for `_SECONDS` each; what they find is
told in the form that the corpus has.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import time

import pytest

from tests.reliability import mutations
from tests.reliability import test_damaged_files
from tff_adaptive import errors
from tff_adaptive.lab.commands import command_line
from tff_adaptive.lab.flags import parsing as flags

_SECONDS = 60
_CORPUS = pathlib.Path(__file__).parent / 'corpus'


def _corpus(name):
  return json.loads((_CORPUS / f'{name}.json').read_text(encoding='utf-8'))


def _inputs(known, draw, seconds):
  """The corpus, and then whatever is drawn until the time is up."""
  yield from known
  end = time.monotonic() + seconds
  rng = random.Random()
  while time.monotonic() < end:
    yield draw(rng)


@contextlib.contextmanager
def _told(value):
  """Tells the input that broke something, for the corpus."""
  try:
    with mutations.no_hang():
      yield
  except Exception as e:
    raise AssertionError(f'for the corpus: {json.dumps(value)}') from e


_BOUNDS = [0, pytest.param(_SECONDS, marks=pytest.mark.slow)]


@pytest.mark.parametrize('seconds', _BOUNDS)
def test_readers(tmp_path, seconds):
  known = _corpus('readers')
  names = sorted(test_damaged_files.READERS)
  if not seconds:
    names = sorted({entry['reader'] for entry in known})
  readers = {}
  for name in names:
    folder = tmp_path / name
    folder.mkdir()
    reader = test_damaged_files.READERS[name]
    reader.write(folder)
    paths = sorted(p for p in folder.iterdir() if p.is_file())
    whole = reader.read(folder)
    readers[name] = reader, folder, paths, whole

  def draw(rng):
    name = rng.choice(names)
    edits = [[k, at, p.hex()] for k, at, p in mutations.draw_edits(rng)]
    return {
      'reader': name,
      'file': rng.randrange(len(readers[name][2])),
      'edits': edits,
    }

  count = 0
  for entry in _inputs(known, draw, seconds):
    reader, folder, paths, whole = readers[entry['reader']]
    path = paths[entry['file'] % len(paths)]
    original = path.read_bytes()
    changes = [(k, at, bytes.fromhex(p)) for k, at, p in entry['edits']]
    path.write_bytes(mutations.apply(original, changes))
    with _told(entry):
      try:
        reader.check(reader.read(folder), whole)
      except reader.refuses as e:
        assert str(e) and '\n' not in str(e)
    path.write_bytes(original)
    count += 1
  print(f'readers: {count} inputs')


@pytest.mark.parametrize('seconds', _BOUNDS)
def test_flags(seconds):
  table = flags.Flags()
  names = sorted(table.values)
  words = ('', '0', '-1', 'nan', '1e999', '٣', '1_0', '\ud800', '$$', '\0', '=')

  def draw(rng):
    return [
      f'--{rng.choice(names)}={rng.choice(words)}{rng.choice(words)}'
      for _ in range(rng.randrange(1, 4))
    ]

  count = 0
  for arguments in _inputs(_corpus('flags'), draw, seconds):
    with _told(arguments):
      try:
        parsed = table.parse(arguments)
      except errors.SettingsError as e:
        assert str(e) and len(str(e).splitlines()) == 1
      else:
        os.fsencode(parsed.settings.folder)
    count += 1
  print(f'flags: {count} inputs')


@pytest.fixture(name='run', scope='module')
def _run(tmp_path_factory):
  """A small run that came to its end."""
  root = tmp_path_factory.mktemp('runs')
  assert command_line.main(_train(root / 'a')) == 0
  return root / 'a'


def _train(run):
  return [
    '--task=quadratic',
    '--clients_per_round=2',
    '--total_rounds=4',
    '--rounds_per_checkpoint=2',
    f'--root_output_dir={run.parent}',
    f'--experiment_name={run.name}',
  ]


@pytest.mark.exhaustive
@pytest.mark.parametrize('seconds', _BOUNDS)
def test_run_folders(run, tmp_path, capfd, seconds):
  """Whatever is in it, commands say a sentence or do their work."""
  names = [str(p.relative_to(run)) for p in run.rglob('*') if p.is_file()]
  texts = ('', '{', '[', '"', '9', 'nan,', '1e308,', '\0', '\n', 'round,', '=')

  def draw(rng):
    return {
      'name': rng.choice(names),
      'content': ''.join(rng.choices(texts, k=rng.randrange(1, 9))),
      'times': rng.choice((1, 1, 1000)),
    }

  count = 0
  for entry in _inputs(_corpus('runs'), draw, seconds):
    victim = tmp_path / 'victim'
    shutil.rmtree(victim, ignore_errors=True)
    shutil.copytree(run, victim)
    path = victim / entry['name']
    if entry['content'] is None:
      path.mkdir()
    else:
      content = entry['content'] * entry['times']
      path.write_bytes(content.encode('utf-8', 'surrogatepass'))
    with _told(entry):
      commands = [['compare', str(victim), str(run)]]
      if seconds:
        commands += [['report', str(victim)], _train(victim)]
      for command in commands:
        assert command_line.main(command) in (0, 1, 2)
      assert 'Traceback' not in ''.join(capfd.readouterr())
    count += 1
  print(f'run folders: {count} inputs')
