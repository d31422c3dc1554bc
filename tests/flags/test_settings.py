"""What makes two runs the same experiment."""

import pathlib

import pytest

from tff_adaptive import errors
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.flags import settings


def parse(*arguments):
  return flags.Flags().parse(arguments).settings


@pytest.mark.parametrize(
  'argument',
  [
    *('--total_rounds=7', '--seed=1', '--digits_alpha=0.5'),
    *('--client_epochs_per_round=2', '--client_batch_size=3'),
    *('--server_learning_rate=0.5', '--server_optimizer=yogi'),
    *('--client_optimizer=polyak', '--client_weighting=uniform'),
    *('--rounds_per_eval=3', '--num_validation_examples=7'),
    *('--clients_per_round=3', '--client_datasets_random_seed=2'),
    *('--data=synthetic', '--max_elements_per_client=5', '--runtime=native'),
    *('--gamma=1', '--client_steps_per_round=2', '--client_dropout=0.1'),
    *('--ema_decay=0', '--validation_split=test'),
    '--validation_sample=resampled',
  ],
)
def test_what_changes_results_changes_the_experiment(argument):
  assert parse(argument).identity != parse().identity
  assert parse(argument).name != parse().name


@pytest.mark.parametrize(
  'argument',
  [
    *('--cache_mib=5', '--max_concurrent_clients=3', '--root_output_dir=x'),
    *('--dry_run', '--client_state_mib=3', '--max_rejected_clients=2'),
    *('--patience=3', '--target_metric=accuracy:0.9', '--trackers=mlflow:runs'),
  ],
)
def test_what_changes_no_result_does_not(argument):
  assert parse(argument).identity == parse().identity
  assert parse(argument).name == parse().name


def test_place_of_the_data_is_no_part_of_the_experiment():
  one = parse('--task=emnist_character', '--cache_dir=a')
  two = parse('--task=emnist_character', '--cache_dir=b')
  assert one.identity == two.identity
  assert one.task_options['cache_dir'] == 'a'


def test_a_default_that_is_written_out_is_no_change():
  assert parse('--total_rounds=200', '--client_optimizer=delta_sgd').name == (
    parse().name
  )


def test_difference_is_shown():
  before, now = parse().identity, parse('--seed=4', '--total_rounds=9').identity
  with pytest.raises(errors.SettingsError) as error:
    settings.check_same(before, now, pathlib.Path('folder'))
  message = str(error.value)
  assert '--seed was 0, now 4' in message
  assert '--total_rounds was 200, now 9' in message
  assert '--task' not in message
  settings.check_same(before, before, pathlib.Path('folder'))
  unset = {**before, 'alpha': None}
  for one, other in ((unset, before), (before, unset)):
    settings.check_same(one, other, pathlib.Path('folder'))


def test_flags_that_only_one_of_two_runs_has():
  before = parse('--server_optimizer=sgd').identity
  now = parse('--server_optimizer=adam').identity
  with pytest.raises(errors.SettingsError, match='--beta_1 was not set, now'):
    settings.check_same(before, now, pathlib.Path('folder'))


def test_folder():
  assert parse('--root_output_dir=a', '--experiment_name=b').folder == (
    pathlib.Path('a/b')
  )
