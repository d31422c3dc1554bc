"""The papers' settings as flag files, and --preset."""

import pytest

import main
import tasks
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.flags import presets


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
      *('reddi2021', 'kim2024', 'mukherjee2023', 'fedada2', 'pfl2024'),
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
    *('cifar10_image', 'cifar100_image', 'emnist_autoencoder'),
    *('emnist_character', 'shakespeare_character', 'stackoverflow_tag'),
    'stackoverflow_word',
  ):
    for method in ('fedadagrad', 'fedadam', 'fedyogi', 'fedavgm', 'fedavg'):
      preset = presets.load(f'reddi2021/{task}/{method}')
      assert preset.published
      settings = parser.parse([f'--preset={preset.name}']).settings
      published = tasks.info(task).published
      assert settings.total_rounds == published.rounds
      assert settings.clients_per_round == published.clients_per_round


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


def test_another_partition_leaves_its_options_out(parser):
  told = '--preset=kim2024/fmnist/delta_sgd_alpha_1'

  def options(*more):
    return parser.parse([told, *more]).settings.task_options

  assert options()['alpha'] == 1.0
  assert options('--fmnist_partition=dirichlet')['alpha'] == 1.0
  assert options('--fmnist_partition=iid')['alpha'] == 0.1
  with pytest.raises(errors.SettingsError, match='fmnist_alpha=2'):
    options('--fmnist_partition=iid', '--fmnist_alpha=2')


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
  words = ['--preset=mukherjee2023/mnist_logistic/fedavg', '--data=synthetic']
  words += ['--dry_run', f'--root_output_dir={tmp_path}']
  assert main.main(words) == 0
  shown = capsys.readouterr().out
  assert 'reported     91.81 (accuracy %, test, last round)' in shown
  assert '--client_learning_rate=0.1' in shown
  assert not list(tmp_path.iterdir())


def test_list_names_presets_and_algorithms_exist(capsys):
  assert main.main(['list']) == 0
  shown = capsys.readouterr().out
  assert 'reddi2021/emnist_character/' in shown
  used = {presets.load(n).flags['algorithm'] for n in presets.names()}
  assert used <= set(algorithms.names())
