"""The command line, as people run it."""

import importlib.metadata
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests import programs
from tests import tiers
from tff_adaptive import runtime
from tff_adaptive.lab.commands import command_line

_ROOT, _MAIN = programs.ROOT, str(programs.MAIN)
_SMALL = [
  *('--task=table', '--data=synthetic', '--clients_per_round=2'),
  *('--rounds_per_eval=2', '--num_validation_examples=20'),
]


# TensorFlow sets it in whichever process imports it, such as this one.
_AS_USUAL = {'TF_CPP_MIN_LOG_LEVEL': None}


@pytest.fixture(name='main', scope='module')
def main_fixture():
  sys.path.insert(0, str(_ROOT))
  try:
    import main  # pylint: disable=g-import-not-at-top
  finally:
    sys.path.pop(0)
  return main


_TABLE = (
  '--task=table',
  f'--table_path={_ROOT}/docs/released_code/reddi2021.csv',
  '--table_label=verdict',
  '--table_features=line',
)
_AT_ONCE = [
  (['--help'], 0),
  (['--helpfull'], 0),
  (['list'], 0),
  (['--runtime=ray', '--ray_address=here'], 2),
  (['sweep', '--help'], 0),
  (['sweep', '--axis=seed=0,1', '--dry_run'], 0),
  (['sweep', '--axis=what=0,1'], 2),
  (['--task=mnist'], 2),
  (['--beta_1=2'], 2),
  (['--server_optimizer=yogi', '--gamma_b=0.5'], 2),
  (['--clients_per_round=50'], 2),
  (['--task=emnist_character', '--cache_dir=.'], 2),
  (['--task=table', '--table_path=none.csv'], 2),
  ([*_TABLE, '--table_label=none'], 2),
  ([*_TABLE, '--table_client=path', '--clients_per_round=500'], 2),
]
_TOO_SLOW = 99


@pytest.mark.parametrize(
  'arguments, code',
  tiers.exhaustive_but([_AT_ONCE[i] for i in (0, 2, 5, 7, 10, -2)], _AT_ONCE),
)
def test_answers_at_once_without_tensorflow(tmp_path, arguments, code):
  script = (
    'import sys, time; import main; '
    'code = main.main(sys.argv[1:]); '
    'heavy = {"tensorflow", "tensorflow_federated", "sklearn"}; '
    # What reads a table's head.
    'heavy |= {"pandas"} if "table" not in str(sys.argv) else set(); '
    'assert not heavy & set(sys.modules); '
    # Of the processor: what else the machine does is not the program's time.
    f'sys.exit(code if time.process_time() < 2 else {_TOO_SLOW})'
  )
  for _ in range(3):  # Others on the core make it slower, and never faster.
    done = programs.run(
      *('-c', script, *arguments), code=None, cwd=tmp_path, PYTHONPATH=_ROOT
    )
    if done.returncode != _TOO_SLOW:
      break
  assert done.returncode == code, done.stderr
  assert bool(done.stdout) == (code == 0)
  if code:
    assert len(done.stderr.splitlines()) == 1
  assert not list(tmp_path.iterdir())


def test_help_is_a_command(main, capsys):
  for asked, same in (
    (['help'], ['--help']),
    (['help', 'sweep'], ['sweep', '--help']),
    (['help', 'list'], ['list', '--help']),
    (['--help=full'], ['--helpfull']),
  ):
    assert main.main(asked) == 0
    shown = capsys.readouterr().out
    assert main.main(same) == 0
    assert shown == capsys.readouterr().out
  for words in (['--task=table', '--help'], ['costs', '-h', '--task=table']):
    assert main.main(words) == 0
    assert '  --table_path\n' in capsys.readouterr().out
  assert main.main(['help', 'swep']) == 2
  assert "got 'swep'" in capsys.readouterr().err


def test_another_tff_is_refused_in_a_sentence(main, capsys, monkeypatch):
  versions = {'tensorflow-federated': '0.88.0'}
  with monkeypatch.context() as patch:
    patch.setattr(importlib.metadata, 'version', versions.__getitem__)
    for command in (['--dry_run'], ['sweep', '--dry_run']):
      assert main.main(command) == 2
      message = capsys.readouterr().err
      assert message.count('\n') == 1
      assert '0.87.0 is required, 0.88.0 is installed' in message
    assert main.main(['list']) == 0
  # What is refused is what the lock does not have.
  lock = (_ROOT / 'requirements.txt').read_text()
  assert f'\ntensorflow-federated=={command_line._TFF} ' in lock


def test_a_reader_that_has_enough_is_no_error():
  reader, writer = os.pipe()
  os.close(reader)
  try:
    done = subprocess.run(
      [sys.executable, _MAIN, 'list'],
      stdout=writer,
      stderr=subprocess.PIPE,
      check=False,
    )
  finally:
    os.close(writer)
  assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b'')


@pytest.mark.parametrize(
  'words',
  tiers.exhaustive_but(
    [['list']], [['list'], [*_SMALL, '--total_rounds=1', '--experiment_name=a']]
  ),
)
def test_a_full_disk_behind_the_output_ends_no_run(tmp_path, words):
  with open('/dev/full', 'w', encoding='utf-8') as full:
    done = subprocess.run(
      [sys.executable, _MAIN, *words],
      cwd=tmp_path,
      stdout=full,
      stderr=subprocess.PIPE,
      text=True,
      check=False,
    )
  assert done.returncode == 1
  assert done.stderr.endswith(
    'Standard output cannot be written: No space left on device.\n'
  )
  assert 'Traceback' not in done.stderr
  curves = tmp_path / 'runs' / 'a' / 'curves.png'
  assert curves.exists() == (words != ['list'])


def test_a_closed_output_ends_no_run():
  done = subprocess.run(
    f'{sys.executable} {_MAIN} list >&-',
    shell=True,
    stderr=subprocess.PIPE,
    check=False,
  )
  assert (done.returncode, done.stderr) == (0, b'')


def test_docstrings_are_needed():
  done = programs.run('-OO', _MAIN, '--help', code=2)
  assert 'python -OO removes docstrings' in done.stderr


def test_list_names_everything(main, capsys):
  assert main.main(['list']) == 0
  text = capsys.readouterr().out
  for word in (
    *('digits', 'emnist_character', 'emnist_all.sqlite', 'fedadam'),
    *('delta_sgd', 'polyak', 'yogi', 'native', 'beta_1=0.9'),
  ):
    assert word in text


@pytest.mark.parametrize(
  'arguments, part',
  [
    (['trian'], "'trian'"),
    (['list', '--task=digits'], '--task=digits'),
    (['--root_output_dir=/dev/null/x'], '--root_output_dir'),
    (['--algorithm=fedadam', '--client_learning_rate=-1'], 'above 0'),
  ],
)
def test_complaints_are_one_sentence_and_exit_code_2(
  main, capsys, arguments, part
):
  assert main.main(arguments) == 2
  captured = capsys.readouterr()
  assert part in captured.err and len(captured.err.splitlines()) == 1
  assert not captured.out


@pytest.mark.ray
def test_runtime_that_cannot_start_is_one_sentence_and_exit_code_1(
  main, capsys, monkeypatch, tmp_path
):
  def fail(address):
    raise runtime.WorkerFailure(f'No Ray cluster answers at {address}.')

  monkeypatch.setattr(runtime, 'create_ray_context', fail)
  words = ['--runtime=ray', '--ray_address=a:1']
  assert main.main([*words, f'--root_output_dir={tmp_path / "runs"}']) == 1
  assert capsys.readouterr().err == 'No Ray cluster answers at a:1.\n'
  assert not list(tmp_path.iterdir())


def test_train_finish_refuse(main, capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  arguments = [*_SMALL, '--total_rounds=3', '--experiment_name=a']
  assert main.main(arguments) == 0
  out = capsys.readouterr().out
  assert 'round 3/3' in out and 'curves   runs/a/curves.png' in out
  names = {p.name for p in (tmp_path / 'runs' / 'a').iterdir()}
  assert names >= {
    'metrics.csv',
    'hparams.json',
    'checkpoints',
    'tensorboard',
    'curves.png',
  }
  assert main.main(arguments) == 0
  out = capsys.readouterr().out
  assert 'finished' in out and 'curves   runs/a/curves.png' in out
  assert main.main([*arguments, '--server_learning_rate=0.5']) == 2
  err = capsys.readouterr().err
  assert '--server_learning_rate was 0.01, now 0.5' in err


@pytest.mark.parametrize(
  'number, runtime',
  tiers.exhaustive_but(
    [(signal.SIGTERM, 'in_process')],
    [(signal.SIGTERM, 'in_process'), (signal.SIGINT, 'native')],
  ),
)
def test_signal_saves_and_the_same_command_goes_on(tmp_path, number, runtime):
  words = [_MAIN, *_SMALL, '--total_rounds=100000', '--experiment_name=a']
  words.append(f'--runtime={runtime}')
  log = tmp_path / 'log'
  errors = tmp_path / 'errors'
  process = programs.start(log, *words, errors=errors, **_AS_USUAL)
  rows = tmp_path / 'runs' / 'a' / 'metrics.csv'
  deadline = time.monotonic() + 120
  while not rows.exists() or rows.read_text().count('\n') < 6:
    assert process.poll() is None and time.monotonic() < deadline
    time.sleep(0.1)
  workers = psutil.Process(process.pid).children(recursive=True)
  assert bool(workers) == (runtime == 'native')
  process.send_signal(number)
  assert process.wait(240) == 128 + number
  said = log.read_text()
  assert 'which is saved; the same command resumes' in said
  assert 'Traceback' not in errors.read_text()
  assert not psutil.wait_procs(workers, timeout=10)[1]
  last = rows.read_text().splitlines()[-1].split(',')[0]
  checkpoints = os.listdir(tmp_path / 'runs' / 'a' / 'checkpoints')
  assert f'round_{last}.safetensors' in checkpoints
  if number == signal.SIGTERM:
    process = programs.start(log, *words, errors=errors, **_AS_USUAL)
    deadline = time.monotonic() + 120
    while rows.read_text().splitlines()[-1].split(',')[0] == last:
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.1)
    process.send_signal(number)
    process.wait(240)
    assert f'Resuming after round {last}.' in log.read_text()


def test_dry_run_and_data_errors_leave_nothing(
  tmp_path, main, capsys, monkeypatch
):
  words = [_MAIN, '--dry_run', *_SMALL]
  dry = programs.run(*words, cwd=tmp_path, timeout=240, **_AS_USUAL)
  assert 'bytes per round' in dry.stdout and 'Loading' not in dry.stdout
  assert dry.stderr == 'Loading TensorFlow ...\n'
  monkeypatch.chdir(tmp_path)
  missing = ['--task=emnist_character', f'--cache_dir={tmp_path}']
  assert main.main(missing) == 2
  said = capsys.readouterr().err
  assert 'emnist_all.sqlite' in said and len(said.splitlines()) == 1
  assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
  'arguments, code, part',
  [
    (['list'], 0, '  digits  '),
    (['--task=digits', '--digits_alpha=0'], 2, '--digits_alpha must be'),
    (['--task=tasks:mine'], 2, 'rename your own module'),
    (['--task=own_data:make'], 2, 'rename your own module'),
  ],
)
def test_a_module_called_tasks_in_front(tmp_path, arguments, code, part):
  (tmp_path / 'tasks.py').write_text('def mine(size=1):\n  return size\n')
  (tmp_path / 'own_data.py').write_text(
    'from tasks import mine\n\ndef make(size=mine()):\n  return size\n'
  )
  # The installed command.
  script = 'from tff_adaptive.lab.commands import command_line as c; c.run()'
  text = programs.logged(
    *(tmp_path / 'log', '-c', script, *arguments),
    code=code,
    PYTHONPATH=f'{tmp_path}{os.pathsep}{_ROOT}',
  )
  assert 'Traceback' not in text and part in text, text


def test_a_library_beside_a_module_called_tasks(tmp_path):
  (tmp_path / 'tasks.py').write_text('')
  script = (
    'import tasks\n'
    'from tff_adaptive import parameters, optimizers\n'
    'try:\n  from tff_adaptive import training\n'
    'except ImportError as e:\n  print(e)\n'
  )
  done = programs.run('-c', script, cwd=tmp_path, PYTHONPATH=_ROOT)
  assert done.stdout == (
    f'tff_adaptive needs its own package `tasks`, but {tmp_path}/tasks.py is '
    'imported under that name already: rename that module, or '
    'import tff_adaptive.training before it.\n'
  )


@pytest.mark.exhaustive
def test_a_run_whose_operations_are_deterministic(tmp_path):
  """TensorFlow then refuses random operations that have no seed."""
  words = [_MAIN, '--total_rounds=1', '--clients_per_round=2']
  words.append(f'--root_output_dir={tmp_path}')
  done = programs.run(*words, TF_DETERMINISTIC_OPS=1)
  assert 'round 1/1' in done.stdout
