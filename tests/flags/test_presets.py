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
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.flags import presets

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(name='parser', scope='module')
def parser_fixture():
  return flags.Flags()


def test_every_preset_is_an_experiment(parser, tmp_path):
  names = presets.names()
  assert len(names) > 400
  folders = set()
  for name in names:
    preset = presets.load(name)
    settings = parser.parse([f'--preset={name}']).settings
    paper, task, _ = name.split('/')
    assert settings.task == task == preset.flags['task'], name
    assert settings.algorithm == preset.flags['algorithm'], name
    # The papers' split is not told in the identity: older runs have it too.
    found = {'validation_split': settings.validation_split}
    found |= settings.identity
    if found['num_validation_examples'] is None:
      found['num_validation_examples'] = -1
    for flag, text in preset.flags.items():
      value = found[flag]
      if isinstance(value, float):
        assert value == float(text), (name, flag)
      else:
        assert str(value) == text, (name, flag)
    # The same file serves absl's own flag for files: one of each folder does.
    if (paper, task) not in folders:
      folders.add((paper, task))
      file = tmp_path / 'preset.flags'
      file.write_text(preset.text(), encoding='utf-8')
      again = parser.parse([f'--flagfile={file}']).settings
      assert again.identity == settings.identity, name
    assert preset.source and paper in (
      'reddi2021',
      'kim2024',
      'mukherjee2023',
      'fedada2',
    )


def test_a_preset_is_printed_as_a_flag_file(capsys, parser, tmp_path):
  name = 'reddi2021/emnist_character/fedadam'
  assert main.main(['list', name]) == 0
  text = capsys.readouterr().out
  assert text.startswith('# source: Reddi et al.')
  file = tmp_path / 'preset.flags'
  file.write_text(text, encoding='utf-8')
  again = parser.parse([f'--flagfile={file}']).settings
  assert again.identity == parser.parse([f'--preset={name}']).settings.identity
  assert main.main(['list', 'reddi2021/emnist_character/fedadma']) == 2
  assert 'similar ones are' in capsys.readouterr().err
  assert main.main(['list', '--all']) == 2


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


@pytest.mark.parametrize(
  'name, published, expected',
  [
    # Kim et al.: Table 1's arrow, footnote 4, ResNet-50; Tables 2a, 3 to 6.
    (
      'kim2024/mnist_character/sgdm_decay_alpha_0.01',
      '94.0',
      dict(client_lr_schedule='step_decay', client_lr_decay_steps=500),
    ),
    ('kim2024/mnist_character/adam_alpha_1', '94.7', {}),
    (
      'kim2024/fmnist/sps_alpha_1',
      '85.9',
      dict(algorithm='fedsps', gamma_b=1e30, c=0.5),
    ),
    (
      'kim2024/cifar100_image/delta_sgd_resnet50_alpha_1',
      '65.8',
      dict(cifar100_image_model='resnet50', total_rounds=2000),
    ),
    (
      'kim2024/ag_news/delta_sgd_alpha_1',
      '90.7',
      dict(clients_per_round=5, ag_news_num_clients=50),
    ),
    (
      'kim2024/cifar100_image/sps_fedadam_alpha_0.1',
      '1.6',
      dict(client_optimizer='polyak', server_learning_rate=0.001),
    ),
    (
      'kim2024/cifar10_image/sgd_sizes_alpha_0.1',
      '80.7',
      dict(
        cifar10_image_smallest_client=100,
        cifar10_image_examples_per_client=500,
      ),
    ),
    ('kim2024/cifar10_image/sps_moon_alpha_0.1', '9.5', dict(algorithm='moon')),
    (
      'kim2024/cifar100_image/adagrad_fedprox_resnet50_alpha_0.01',
      '4.1',
      dict(algorithm='fedprox', client_optimizer='adagrad'),
    ),
    # Mukherjee et al.: Tables 1 and 2, Figure 3; five steps of 20 everywhere.
    (
      'mukherjee2023/cifar100_image/local_amsgrad_alpha_0.01',
      '26.21',
      dict(cifar100_image_model='resnet50', total_rounds=500),
    ),
    ('mukherjee2023/cifar10_image/mime_alpha_0.1', '83.41', {}),
    ('mukherjee2023/mnist_logistic/fedams_rate_0.01', '83.05', {}),
    (
      'mukherjee2023/mnist_logistic/mime_classes',
      None,
      dict(
        mnist_logistic_num_clients=100,
        mnist_logistic_classes_per_client=2,
        clients_per_round=10,
      ),
    ),
    (
      'mukherjee2023/libsvm_logistic/fedsps_global_phishing',
      None,
      dict(client_epochs_per_round=2, max_elements_per_client=100),
    ),
    (
      'mukherjee2023/cifar10_image/fedsps_iid',
      None,
      dict(client_examples=500, smoothing='bound'),
    ),
    (
      'mukherjee2023/mnist_lenet/feddecsps_classes',
      None,
      dict(memory='client', count='round'),
    ),
    # FedAda2: Tables 4, 5 and 6, G.2.
    (
      'fedada2/cifar100_image/fedadagrad',
      None,
      dict(
        server_learning_rate=1e-2,
        client_learning_rate=1e-5,
        server_adaptivity=1e-10,
        cifar100_image_fine_tune='head',
      ),
    ),
    (
      'fedada2/gld23k/fedavg',
      None,
      dict(client_learning_rate=0.04, clients_per_round=2),
    ),
    (
      'fedada2/gld23k/joint_zero_init_full',
      None,
      dict(
        gld23k_fine_tune='all',
        client_learning_rate=1e-2,
        client_adaptivity=1.0,
        client_epochs_per_round=5,
      ),
    ),
    (
      'fedada2/gld23k/fedada2_epochs_20',
      None,
      dict(
        client_epochs_per_round=20,
        server_adaptivity=1e-7,
        client_adaptivity=0.1,
        client_optimizer='sm3_adam',
      ),
    ),
  ],
)
def test_numbers_of_other_tables(parser, name, published, expected):
  preset = presets.load(name)
  settings = parser.parse([f'--preset={name}']).settings
  for flag, value in expected.items():
    assert settings.identity[flag] == value, flag
  if published is None:
    assert preset.published is None
  else:
    assert preset.published.split()[0] == published
    if name.startswith('kim2024'):
      assert 'final' in preset.published and 'best' not in preset.published


def test_libsvm_presets_do_five_steps_of_twenty(parser):
  """8,124 and 11,055 examples, a fifth set aside, are 65 and 88 a client."""
  sizes = dict(mushrooms=65, phishing=88, w8a=398, a9a=326, ijcnn1=500)
  for name in presets.names():
    if not name.startswith('mukherjee2023/libsvm_logistic/'):
      continue
    options = parser.parse([f'--preset={name}']).settings.task_options
    examples = min(
      sizes[options['dataset']] * options['epochs'], options['max_elements']
    )
    assert -(-examples // options['batch_size']) == 5, name


def test_flags_beside_a_preset_win_wherever_they_stand(parser):
  name = '--preset=reddi2021/emnist_character/fedadam'
  for arguments in (
    [name, '--total_rounds=7', '--server_adaptivity=0.5'],
    ['--server_adaptivity=0.5', '--total_rounds=7', name],
  ):
    parsed = parser.parse(arguments)
    assert parsed.settings.total_rounds == 7
    assert parsed.settings.hyperparameters['server_adaptivity'] == 0.5
    assert parsed.settings.clients_per_round == 10
    assert parsed.preset.published.startswith('85.6')
  # What the settings are decides what a run is, not where they came from.
  assert 'preset' not in parsed.settings.identity
  assert parser.parse(['--total_rounds=7']).preset is None


@pytest.mark.parametrize(
  'arguments, parts',
  [
    (['--preset=reddi2021/emnist_character'], ['similar ones are', 'fedavgm']),
    (
      ['--preset=kim2024/fmnist/nope'],
      ['similar ones are', 'kim2024/fmnist/s'],
    ),
    (
      ['--preset=reddi2021/emnist_character/fedadamm'],
      ['similar', 'reddi2021/emnist_character/fedadam'],
    ),
    (['--preset=what'], ['main.py list names them']),
    (['--preset=../../setup'], ['not a preset']),
    (
      ['--preset=reddi2021/emnist_character/fedadam', '--algorithm=fedavg'],
      ['--server_adaptivity', 'set by --preset='],
    ),
  ],
)
def test_complaints(parser, arguments, parts):
  with pytest.raises(errors.SettingsError) as raised:
    parser.parse(arguments)
  for part in parts:
    assert part in str(raised.value)
  assert '\n' not in str(raised.value)


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
    'import sys; from tff_adaptive.lab.flags import parsing as flags, presets; '
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
