"""`main.py board`: a method of one's own, from idea to LaTeX table."""

import dataclasses
import json
import pathlib
import re
import shlex
import sys
import time

import numpy as np
import pytest

from tests import programs
from tests import test_docs
from tests.board import made_up
from tests.board import test_entries
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import records
from tff_adaptive.lab.board import references
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import workloads
from tff_adaptive.lab.commands import command_line

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TINY = dataclasses.replace(entries.QUICK, trials=4, seeds=[1, 2], budgets=[4])


@pytest.fixture(name='folder')
def folder_fixture(tmp_path, monkeypatch):
  """A folder with the guide's files, and recorded entries on a tiny board."""
  small = dataclasses.replace(workloads.choose('hospitals')[0], rounds=4)
  monkeypatch.setitem(workloads.TABLE, 'hospitals', small)
  monkeypatch.setattr(workloads, 'QUICK', ('hospitals',))
  monkeypatch.setattr(entries, 'QUICK', _TINY)
  # Other tests are not to see the guide's method.
  monkeypatch.setattr(methods._TABLE, '_rows', dict(methods._TABLE))
  monkeypatch.setattr(sys, 'path', list(sys.path))
  monkeypatch.setenv('TFF_ADAPTIVE_EXTENSIONS', '')
  monkeypatch.chdir(tmp_path)
  test_docs.apply('board.md', tmp_path)
  recorded = tmp_path / 'results' / 'board'
  references.make(made_up.baselines(['hospitals']), recorded / references.FILE)
  for method, speed in (('fedavg', 0.9), ('fedprox', 20.0)):
    entry = made_up.entry(method, speed, workloads=['hospitals'])
    entries.write(recorded / 'entries' / f'{method}.npz', entry)
  yield tmp_path
  sys.modules.pop('my_method', None)


def runs_of(folder):
  """The finished runs that commands saved."""
  return {
    f'{path.parent.name}/{name}': repr(record)
    for path in folder.glob('*-*/*.npz')
    for name, record in records.read(path)[1].items()
  }


@pytest.mark.exhaustive
def test_the_guide_from_idea_to_latex(folder, capsys):
  lines = [
    line
    for language, title, text in test_docs.blocks('board.md')
    if not language and not title and '=my_' in text
    for line in text.splitlines()
  ]
  assert len(lines) == 2
  for line in lines:
    program, main, *arguments = shlex.split(line)
    assert (program, main) == ('python', 'main.py')
    assert command_line.main([*arguments, '--workers=0']) == 0, line
  said = capsys.readouterr().out
  # One of the groups that train together, of one run or of four.
  assert re.search(r'\b(\d) of \1 runs agree\.', said), said
  made = folder / 'runs' / 'board'
  assert 'pulled (quick)' in (made / 'board.csv').read_text(), said
  latex = (made / 'board.tex').read_text()
  assert 'pulled (quick) &' in latex and 'FedProx &' in latex
  entry = entries.read(made / 'entries' / 'pulled-quick.npz')
  _check_entry(entry)
  # Nothing is run twice, and a changed number is found by running it again.
  before = runs_of(made)
  again = [*shlex.split(lines[0])[2:], '--workers=0']
  assert command_line.main(again) == 0
  said = capsys.readouterr().out
  assert 'pulled: recorded. To enter changed code, delete' in said
  assert runs_of(made) == before
  _check_changed_numbers(made / 'entries' / 'pulled-quick.npz', capsys)
  # An entry that cannot be used is made of its runs once more.
  (made / 'entries' / 'pulled-quick.npz').write_bytes(b'PK')
  assert command_line.main(again) == 0
  assert 'Left out' in capsys.readouterr().err
  again = entries.read(made / 'entries' / 'pulled-quick.npz')
  assert made_up.content(again) == made_up.content(entry)
  assert runs_of(made) == before


def _check_entry(entry):
  runs = entry.records['hospitals']
  tuned = {name for name in runs if name.endswith('seed1000')}
  assert len(tuned) == 4 and entry.protocol == _TINY and not entry.reasons
  finished = [r for r in runs.values() if r.status == 'finished']
  assert finished and all(
    np.all(np.diff(r.costs, axis=0) > 0) for r in finished
  )
  default = runs['hospitals-default-seed1']
  rounds = default.costs[:, records.MEASURES.index('rounds')]
  assert rounds.tolist() == [*range(1, 7)]
  # Comparisons are paired: first weights follow from the seed alone.
  one, other = (
    {r.untrained for n, r in runs.items() if n.endswith(f'seed{seed}')}
    for seed in (1, 2)
  )
  assert len(one) == len(other) == 1 and one != other


def _check_changed_numbers(path, capsys):
  """Numbers that somebody changed."""
  found = entries.read(path)
  changed = {
    name: dataclasses.replace(
      run, losses=run.losses * 1.001, untrained=run.untrained * 1.001
    )
    for name, run in found.records['hospitals'].items()
  }
  entries.write(
    path, dataclasses.replace(found, records={'hospitals': changed})
  )
  arguments = ['board', 'verify', f'{path}', '--workers=0']
  assert command_line.main(arguments) == 1
  assert re.search(r'\b0 of [14] runs agree\.', capsys.readouterr().out)


_SPACE = '{"source": "x", "dimensions": {"client_learning_rate": %s}}'


_REFUSED = [
  (['board', '--workloads=nowhere'], "got 'nowhere'"),
  (['board', '--methods=nobody'], "got 'nobody'"),
  (['board', '--quick', '--workloads=core'], 'both choose workloads'),
  (['board', '--algorithm=mine:mine'], 'go together'),
  (
    ['board', '--algorithm=json:fedavg', '--space=unbounded.json'],
    "at $.dimensions.client_learning_rate, 'high' is a required property",
  ),
  (['board', '--algorithm=mine:mine', '--space=space.json'], 'no module mine'),
  (
    ['board', '--algorithm=json:mine', '--space=space.json'],
    "'mine', and there is no such method",
  ),
  (
    ['board', '--algorithm=json:fedsps', '--space=space.json'],
    'fedsps does not use',
  ),
  (['board', 'verify'], 'verify ENTRY.npz'),
  (['board', 'verify', 'other.npz', '--quick'], '--quick would be ignored'),
  (['board', 'verify', 'older.npz'], 'no runs in the form of now'),
  (['board', 'verify', 'other.npz'], 'cannot be read as an entry'),
  (['board', 'baselines', '--methods=fedavg'], 'leave --methods out'),
  (['board', 'verified'], "got 'verified'"),
]

# All in one process, which imports what light commands need once.
_LIGHT = """
import contextlib, io, json, sys
import main
found = []
for arguments in json.loads(sys.argv[1]):
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    code = main.main(arguments)
  heavy = {"tensorflow", "altair", "optuna", "pandas"} & set(sys.modules)
  found.append([code, out.getvalue(), err.getvalue(), sorted(heavy)])
json.dump(found, sys.stdout)
"""


def test_bad_input_is_refused_at_once(tmp_path):
  (tmp_path / 'unbounded.json').write_text(_SPACE % '{"low": 1}')
  (tmp_path / 'space.json').write_text(_SPACE % '{"low": 0.1, "high": 1}')
  np.savez(tmp_path / 'older.npz', about=np.array('{"board": 1}'))
  (tmp_path / 'other.npz').write_text('{"board": 1}')
  before = sorted(tmp_path.iterdir())
  commands = [arguments for arguments, _ in _REFUSED]
  words = ('-c', _LIGHT, json.dumps(commands))
  done = programs.run(*words, cwd=tmp_path, PYTHONPATH=_ROOT)
  assert not done.stderr and sorted(tmp_path.iterdir()) == before
  answers = zip(_REFUSED, json.loads(done.stdout), strict=True)
  for (arguments, message), (code, out, err, heavy) in answers:
    assert (code, out, heavy) == (2, '', []), arguments
    assert message in err and err.count('\n') == 1, arguments


_RATE = {'client_learning_rate': 0.05}


@pytest.mark.parametrize(
  'method, dimensions',
  [
    ('fedavg', {'task': {'values': [_RATE, 'evil_mod:pwn']}}),
    ('fedavg', {'task': {'values': ['evil_mod:pwn']}}),
    ('fedavg', {'it': {'values': [{**_RATE, 'task': 'evil_mod:pwn'}]}}),
    ('fedavg', {'algorithm': {'values': ['evil_mod:pwn']}}),
    ('fedavg', {'total_rounds': {'values': [_RATE, 3]}}),
    ('fedavg', {'initial_weights': {'values': [_RATE, 'evil_mod']}}),
    ('evil_mod:pwn', {'client_learning_rate': {'values': [0.05]}}),
    ('evil_mod', {'client_learning_rate': {'values': [0.05]}}),
    ('pwn', {'client_learning_rate': {'values': [0.05]}}),
  ],
)
def test_entries_import_nothing(folder, capsys, method, dimensions):
  """What an entry's file names is neither imported nor run nor written."""
  (folder / 'evil_mod.py').write_text(
    "open('imported', 'w').close()\ndef pwn():\n  open('called', 'w').close()\n"
  )
  sys.path.insert(0, str(folder))
  recorded = pathlib.Path('results', 'board', 'entries', 'fedavg.npz')

  def change(about):
    about['method'] = method
    about['space']['dimensions'] = dimensions

  test_entries.rewrite(recorded, change)
  before = set(folder.rglob('*'))
  assert command_line.main(['board', 'verify', f'{recorded}']) == 2
  said = capsys.readouterr()
  assert f'The space of {recorded}' in said.err and said.err.count('\n') == 1
  assert set(folder.rglob('*')) == before and 'evil_mod' not in sys.modules
  # Nor is it placed.
  moon = made_up.entry('moon', 1.0, protocol=_TINY, workloads=['hospitals'])
  entries.write(recorded.with_name('moon-quick.npz'), moon)
  assert command_line.main(['board', '--quick', '--methods=moon']) == 0
  said = capsys.readouterr()
  assert f'Left out: The space of {recorded}' in said.err
  assert '\nFedProx ' in said.out and '\nFedAvg ' not in said.out
  assert 'evil_mod' not in sys.modules and not (folder / 'imported').exists()


def test_verifying_imports_no_optimizer(folder, capsys):
  (folder / 'evil_mod.py').write_text("open('imported', 'w').close()\n")
  sys.path.insert(0, str(folder))
  recorded = pathlib.Path('results', 'board', 'entries', 'fedavg.npz')
  form = {'client_optimizer': {'values': ['evil_mod:pwn']}}
  test_entries.rewrite(
    recorded, lambda about: about['space'].update(dimensions=form)
  )
  assert command_line.main(['board', 'verify', f'{recorded}']) == 2
  assert "got 'evil_mod:pwn'. (In the run" in capsys.readouterr().err
  assert 'evil_mod' not in sys.modules and not (folder / 'imported').exists()


def test_without_files_nothing_is_run(folder, monkeypatch, capfd):
  """Runs that all fail for want of a file would count against the method."""
  # As the program has it, unless TensorFlow was imported before.
  monkeypatch.setenv('TF_CPP_MIN_LOG_LEVEL', '3')
  place = folder / 'recorded.npz'
  entry = made_up.entry('fedavg', 1.0, workloads=['hospitals', 'shakespeare'])
  # So many runs of it that a random twentieth has some.
  runs = entry.records['shakespeare']
  run = runs['shakespeare-0-seed1000']
  runs |= {f'shakespeare-0-seed{seed}': run for seed in range(2000, 2400)}
  entries.write(place, entry)
  before = set(folder.rglob('*'))
  for arguments in (
    ['board', '--workloads=hospitals,shakespeare', '--methods=fedavg'],
    ['board', 'verify', str(place)],
  ):
    given = [*arguments, '--cache_dir=nowhere', '--workers=0']
    assert command_line.main(given) == 2, arguments
    said = capfd.readouterr()
    assert 'no file nowhere/shakespeare.sqlite' in said.err, arguments
    # Nor does the process that looked for it say anything else.
    assert said.err.count('\n') == 1 and 'agree.' not in said.out
    assert set(folder.rglob('*')) - before <= {
      folder / 'runs',
      folder / 'runs' / 'board',
    }


def test_failed_workloads_are_entered_again(folder, monkeypatch, capsys):
  place = folder / 'runs' / 'board' / 'entries' / 'fedavg-quick.npz'
  entry = made_up.entry('fedavg', 1.0, protocol=_TINY, workloads=['hospitals'])
  made = {**entry.made['hospitals'], 'failed': 'It was killed.'}
  failed = dataclasses.replace(entry, made={'hospitals': made})
  entries.write(place, failed)
  monkeypatch.setattr(runner.Runner, 'enter', lambda *_: entry)
  given = ['board', '--quick', '--methods=fedavg']
  assert command_line.main(given) == 0
  assert 'fedavg: recorded.' in capsys.readouterr().out
  assert command_line.main([*given, '--retry_failed']) == 0
  assert 'fedavg: hospitals\n' in capsys.readouterr().out
  assert not entries.read(place).reasons


def test_verify_says_why_a_run_failed(folder, monkeypatch, capsys):
  """As when a file goes away while it runs."""
  monkeypatch.setattr(runner.Runner, 'check_files', lambda self: None)
  place = folder / 'recorded.npz'
  entries.write(place, made_up.entry('fedavg', 1.0, workloads=['shakespeare']))
  arguments = ['board', 'verify', f'{place}', '--cache_dir=nowhere']
  assert command_line.main([*arguments, '--workers=0']) == 1
  line, *_ = (
    line
    for line in capsys.readouterr().out.splitlines()
    if line.startswith('differs')
  )
  assert 'again failed: There is no file nowhere/shakespeare.sqlite' in line


def test_what_cannot_be_placed_is_not_run(folder, capsys):
  """Targets are checked first: none for a workload, or of another version."""
  before = set(folder.rglob('*'))
  given = ['board', '--methods=moon', '--workers=0']
  assert command_line.main([*given, '--workloads=digits']) == 2
  assert 'no targets for digits; there are for hospitals' in (
    capsys.readouterr().err
  )
  # Elsewhere the package's own are used, of which this board is no part.
  assert command_line.main([*given, '--quick', '--recorded_dir=none']) == 2
  assert f'{references.FROZEN}' in capsys.readouterr().err
  assert set(folder.rglob('*')) == before


@pytest.mark.exhaustive
def test_baselines_make_the_targets_that_entries_are_placed_by(
  folder, monkeypatch, capsys
):
  """From nothing: the targets, then an entry among them."""
  full = dataclasses.replace(_TINY, seeds=[1, 2, 3])
  monkeypatch.setitem(entries.PROTOCOLS, 1, full)
  arguments = ['--workloads=hospitals', '--workers=0', '--output_dir=made']
  assert command_line.main(['board', 'baselines', *arguments]) == 0
  assert 'targets' in capsys.readouterr().out
  found = references.read(folder / 'made' / references.FILE)
  quality = found.quality['hospitals']
  assert quality['reference'] < quality['untrained']
  assert quality['of'] in ('fedavg', 'fedavgm', 'fedadam', 'scaffold')
  runs = folder / 'runs' / 'board'
  before = runs_of(runs)
  assert command_line.main(['board', 'baselines', *arguments]) == 0
  assert runs_of(runs) == before
  # The tuning runs of a baseline are those of its entry, too.
  arguments = ['--quick', '--workers=0', '--methods=fedavg']
  assert command_line.main(['board', *arguments, '--recorded_dir=made']) == 0
  assert before.items() <= runs_of(runs).items()
  assert 'FedAvg (quick)' in capsys.readouterr().out


@pytest.mark.exhaustive
def test_a_later_command_adds_workloads(folder, monkeypatch, capsys):
  """To the same folder, where the runs of the first one are."""
  names = ['hospitals', 'quadratics']
  small = dataclasses.replace(workloads.choose('quadratics')[0], rounds=4)
  monkeypatch.setitem(workloads.TABLE, 'quadratics', small)
  monkeypatch.setitem(
    entries.PROTOCOLS, 1, dataclasses.replace(_TINY, seeds=[1])
  )
  references.make(made_up.baselines(names), folder / 'made' / references.FILE)
  given = ['board', '--methods=fedavg', '--workers=0', '--recorded_dir=made']
  for name in names:
    assert command_line.main([*given, f'--workloads={name}']) == 0
    assert '\nFedAvg ' in capsys.readouterr().out
  entry = entries.read(folder / 'runs/board/entries/fedavg.npz')
  assert {n: len(runs) for n, runs in entry.records.items()} == dict.fromkeys(
    names, 4 + 1 + 1
  )


@pytest.mark.exhaustive
def test_a_killed_board_goes_on(folder):
  """A kill in the middle; nothing that was finished is run again."""
  del folder
  script = (
    'import dataclasses, sys; '
    'from tff_adaptive.lab.board import entries, workloads; '
    'from tff_adaptive.lab.commands import command_line; '
    'small = dataclasses.replace(workloads.choose("hospitals")[0], rounds=4); '
    'workloads.TABLE["hospitals"] = small; '
    'workloads.QUICK = ("hospitals",); '
    'entries.QUICK = dataclasses.replace('
    '  entries.QUICK, trials=4, budgets=[4]); '
    'sys.exit(command_line.main(sys.argv[1:]))'
  )
  arguments = ['board', '--quick', '--methods=fedavg', '--workers=0']
  runs = pathlib.Path('runs/board')

  def start():
    words = ('-c', script, *arguments)
    return programs.start(pathlib.Path('log'), *words, PYTHONPATH=_ROOT)

  with start() as process:
    while process.poll() is None and not list(runs.glob('*-*/*.npz')):
      time.sleep(0.1)
    process.kill()
  assert not list(runs.glob('entries/*'))
  ended = runs_of(runs)
  assert ended
  with start() as process:
    assert process.wait() == 0
  assert ended.items() <= runs_of(runs).items()
  entry = entries.read(runs / 'entries' / 'fedavg-quick.npz')
  assert len(entry.records['hospitals']) == 4 + 2 + 2
