"""The benchmarks that need nothing beside the project still run."""

import re

import pytest

from benchmarks import gpu
from benchmarks import outputs
from benchmarks import step_studies
from tests import made_up
from tests import programs


def _run(tmp_path, *command, **more):
  more |= dict(cwd=programs.ROOT, TF_CPP_MIN_LOG_LEVEL=3)
  return programs.logged(tmp_path / 'log', *command, **more)


@pytest.mark.slow
def test_the_whole_program_beside_its_runtime(tmp_path):
  text = _run(
    tmp_path,
    'benchmarks/program.py',
    '--models=logistic',
    '--contenders=program,in_process,hand',
    '--rounds=2',
  )
  assert re.search(r'^logistic +10 +100 program .*-> +\d', text, re.MULTILINE)
  assert re.search(r'^logistic +10 +100 in_process', text, re.MULTILINE)


@pytest.mark.native
@pytest.mark.slow
def test_what_rounds_wait_for_their_data(tmp_path):
  text = _run(tmp_path, '-m', 'benchmarks.data', 'digits', '--rounds=4')
  assert re.search(r'^digits +native +\d+ .*\d%$', text, re.MULTILINE)


@pytest.mark.slow
def test_clients_in_lockstep(tmp_path):
  text = _run(
    tmp_path,
    'benchmarks/lockstep.py',
    '--tasks=quadratics',
    '--methods=fedadam',
    '--rounds=1',
  )
  assert re.search(r'^quadratics,fedadam,10,', text, re.MULTILINE), text


def test_the_best_rate_of_a_client_in_a_sweep(tmp_path, monkeypatch, capsys):
  """Made-up runs are the better, the nearer their rate is to 0.1."""
  clients = {
    'sgdm_decay': (
      *('--client_momentum=0.9', '--client_lr_schedule=step_decay'),
      (0.05, 0.5),
      '0.05',
    ),
    'adam': ('--client_optimizer=adam', (1, 0.1), '0.1'),
  }
  for name, (*flags, rates, _) in clients.items():
    for rate in rates:
      made_up.run(
        tmp_path,
        f'{name.split()[-1]}_{rate}',
        *('--task=digits', '--algorithm=fedavg', '--total_rounds=6'),
        *(f'--client_learning_rate={rate}', *flags),
      )

  def ask(client):
    words = ['step_studies.py', str(tmp_path), f'--best={client}']
    monkeypatch.setattr('sys.argv', words)
    step_studies.main()
    return capsys.readouterr().out.strip()

  for name, (*_, best) in clients.items():
    assert ask(name) == best
  with pytest.raises(SystemExit):
    ask('sgd')
  assert 'its clients are adam, sgdm_decay' in capsys.readouterr().err


@pytest.mark.slow
def test_the_script_for_a_gpu_runs_on_a_cpu(tmp_path):
  small = ('benchmarks/gpu.py', '--small', f'--output={tmp_path / "gpu"}')
  _run(tmp_path, *small, '--minutes=0.2', '--models=tag')
  page = (tmp_path / 'gpu' / 'README.md').read_text(encoding='utf-8')
  assert 'Left out, most to end within 0.2 minutes' in page
  assert '* by default of tag: it had not ended when' in page
  assert re.search(r'^\| tag \| 0.015 \| - \| - ', page, re.MULTILINE), page
  _run(tmp_path, *small, '--minutes=30', timeout=1800)
  page = (tmp_path / 'gpu' / 'README.md').read_text(encoding='utf-8')
  assert '* device: CPU' in page and '* TensorFlow: 2.' in page
  rows = outputs.read_rows(tmp_path / 'gpu' / 'rounds.csv')
  assert [row['model'] for row in rows] == ['digits', 'cnn', 'lstm', 'tag']
  assert all(row['equal'] == 'yes' for row in rows), page
  for column in ('by default, s', 'without XLA, s', 'one at a time, s'):
    assert all(float(row[column]) > 0 for row in rows), column


@pytest.mark.parametrize(
  'driver, says', [(True, 'Run `make gpu`'), (False, 'no NVIDIA driver')]
)
def test_the_script_for_a_gpu_says_what_is_missing(
  driver, says, tmp_path, monkeypatch
):
  if driver:
    (tmp_path / 'version').write_text('')
  monkeypatch.setattr(gpu, '_DRIVER', tmp_path / 'version')
  monkeypatch.setattr('sys.argv', ['gpu.py'])
  monkeypatch.setattr(
    'tensorflow.config.list_physical_devices', lambda kind: []
  )
  with pytest.raises(SystemExit, match=f'sees no GPU.*{says}'):
    gpu.main()
