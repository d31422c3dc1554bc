"""The papers' settings as flag files, and --preset."""

import os
import pathlib
import subprocess
import sys

import pytest

import main
import tasks
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive.flags import parsing as flags
from tff_adaptive.flags import presets

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(name='parser', scope='module')
def parser_fixture():
  return flags.Flags()


def test_every_preset_is_an_experiment(parser):
  names = presets.names()
  assert len(names) > 100
  for name in names:
    preset = presets.load(name)
    settings = parser.parse([f'--preset={name}']).settings
    paper, task, _ = name.split('/')
    assert settings.task == task == preset.flags['task'], name
    assert settings.algorithm == preset.flags['algorithm'], name
    for flag, text in preset.flags.items():
      value = settings.identity[flag]
      if isinstance(value, float):
        assert value == float(text), (name, flag)
      else:
        assert str(value) == text, (name, flag)
    # The same file serves absl's own flag for files.
    file = presets.FOLDER / f'{name}.flags'
    again = parser.parse([f'--flagfile={file}']).settings
    assert again.identity == settings.identity, name
    assert preset.source and paper in (
      'reddi2021',
      'kim2024',
      'mukherjee2023',
      'fedada2',
    )


def test_files_are_what_the_tables_say():
  done = subprocess.run(
    [sys.executable, str(_ROOT / 'tools' / 'make_presets.py'), '--check'],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, (
    f'run tools/make_presets.py; these differ: {done.stdout} {done.stderr}'
  )


def test_adaptive_federated_optimization_is_complete(parser):
  for task in (
    'cifar10_image',
    'cifar100_image',
    'emnist_autoencoder',
    'emnist_character',
    'shakespeare_character',
    'stackoverflow_tag',
    'stackoverflow_word',
  ):
    for method in ('fedadagrad', 'fedadam', 'fedyogi', 'fedavgm', 'fedavg'):
      preset = presets.load(f'reddi2021/{task}/{method}')
      assert preset.published
      settings = parser.parse([f'--preset={preset.name}']).settings
      published = tasks.info(task).published
      assert settings.total_rounds == published.rounds
      assert settings.clients_per_round == published.clients_per_round


@pytest.mark.parametrize(
  'name, expected',
  [
    # Table 8: 10^-1.5 and 10^-2.5, Table 9: 10^-4, Table 1: 85.6.
    (
      'reddi2021/emnist_character/fedadam',
      dict(
        client_learning_rate=0.0316228,
        server_learning_rate=0.00316228,
        server_adaptivity=1e-4,
        beta_1=0.9,
        beta_2=0.99,
      ),
    ),
    (
      'reddi2021/emnist_autoencoder/fedadagrad',
      dict(
        client_learning_rate=31.6228,
        server_learning_rate=0.0316228,
        server_adaptivity=1e-3,
        beta_1=0.0,
      ),
    ),
    (
      'reddi2021/stackoverflow_tag/fedavg',
      dict(client_learning_rate=100.0, server_learning_rate=1.0),
    ),
  ],
)
def test_numbers_of_the_tables(parser, name, expected):
  settings = parser.parse([f'--preset={name}']).settings
  for flag, value in expected.items():
    assert settings.hyperparameters[flag] == pytest.approx(value, rel=1e-5)


def test_flags_beside_a_preset_win_wherever_they_stand(parser):
  name = '--preset=reddi2021/emnist_character/fedadam'
  for arguments in (
    [name, '--total_rounds=7', '--server_adam_epsilon=0.5'],
    ['--server_adam_epsilon=0.5', '--total_rounds=7', name],
  ):
    parsed = parser.parse(arguments)
    assert parsed.settings.total_rounds == 7
    # Another name of --server_adaptivity, which the preset sets.
    assert parsed.settings.hyperparameters['server_adaptivity'] == 0.5
    assert parsed.settings.clients_per_round == 10
    assert parsed.preset.published.startswith('85.6')
  # What the settings are decides what a run is, not where they came from.
  assert 'preset' not in parsed.settings.identity
  assert parser.parse(['--total_rounds=7']).preset is None


@pytest.mark.parametrize(
  'arguments, parts',
  [
    (['--preset=reddi2021/emnist_character'], ['below it', 'fedavgm']),
    (
      ['--preset=kim2024/fmnist/nope'],
      ['beside it', 'kim2024/fmnist/sgdm_alpha_0.1'],
    ),
    (
      ['--preset=reddi2021/emnist_character/fedadamm'],
      ['did you mean', 'reddi2021/emnist_character/fedadam'],
    ),
    (['--preset=what'], ['METHOD below', 'kim2024/fmnist']),
    (['--preset=../../setup'], ['no preset']),
    (
      ['--preset=reddi2021/emnist_character/fedadam', '--algorithm=fedavg'],
      ['--server_adaptivity', 'part of --preset='],
    ),
  ],
)
def test_complaints(parser, arguments, parts):
  with pytest.raises(errors.SettingsError) as raised:
    parser.parse(arguments)
  for part in parts:
    assert part in str(raised.value)
  assert '\n' not in str(raised.value)


def test_damaged_file(tmp_path, monkeypatch):
  monkeypatch.setattr(presets, 'FOLDER', tmp_path)
  folder = tmp_path / 'a' / 'b'
  folder.mkdir(parents=True)
  file = folder / 'c.flags'
  for text, part in (
    ('# source: x\n--task=digits\ntotal_rounds=3\n', 'line 3'),
    ('# source: x\n--task=digits\n--task=fmnist\n', 'line 3'),
    ('--task=digits\n', 'source'),
  ):
    file.write_text(text)
    with pytest.raises(errors.SettingsError, match=part):
      presets.load('a/b/c')


def test_dry_run_shows_the_published_number(capsys, tmp_path):
  code = main.main(
    [
      '--preset=mukherjee2023/mnist_logistic/fedavg',
      '--data=synthetic',
      '--dry_run',
      f'--root_output_dir={tmp_path}',
    ]
  )
  shown = capsys.readouterr().out
  assert code == 0
  assert 'reported     91.81 (accuracy %, test, last round)' in shown
  assert '--client_learning_rate=0.1' in shown
  assert not list(tmp_path.iterdir())


def test_needs_no_tensorflow():
  script = (
    'import sys; from tff_adaptive.flags import parsing as flags, presets; '
    'parser = flags.Flags(); '
    '[parser.parse([f"--preset={n}"]) for n in presets.names()[:3]]; '
    'assert "tensorflow" not in sys.modules'
  )
  subprocess.run(
    [sys.executable, '-c', script],
    env={**os.environ, 'PYTHONPATH': str(_ROOT)},
    check=True,
  )


def test_list_names_presets_and_algorithms_exist(capsys):
  assert main.main(['list']) == 0
  shown = capsys.readouterr().out
  assert 'reddi2021/emnist_character/' in shown
  used = {presets.load(n).flags['algorithm'] for n in presets.names()}
  assert used <= set(algorithms.names())
