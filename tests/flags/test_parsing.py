"""Every flag, what it comes to, and every complaint about one."""

import pytest

import tasks
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import optimizers
from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.runtime.cluster import requirements


@pytest.fixture(name='parse', scope='module')
def parse_fixture():
  table = flags.Flags()

  def parse(*arguments):
    return table.parse(arguments).settings

  return parse


def complaint(parse, *arguments):
  with pytest.raises(errors.SettingsError) as error:
    parse(*arguments)
  message = str(error.value)
  assert '\n' not in message
  assert message.endswith('.')
  return message


def test_nothing_said(parse):
  settings = parse()
  assert settings.task == 'digits'
  assert settings.client_optimizer == 'delta_sgd'
  assert settings.algorithm == 'fedadam'
  assert settings.server_optimizer == 'adam'
  assert settings.clients_per_round == 10


def test_cohort_of_a_task_with_fewer_clients(parse):
  assert parse('--task=quadratic').clients_per_round == 2
  assert (
    parse('--task=quadratic', '--clients_per_round=1').clients_per_round == 1
  )


@pytest.mark.parametrize(
  'arguments, expected',
  [
    (['--server_optimizer=yogi'], ('fedyogi', 'delta_sgd', 'yogi')),
    (['--client_optimizer=sgd'], ('fedadam', 'sgd', 'adam')),
    (
      ['--client_optimizer=sgd', '--server_optimizer=sgd'],
      ('fedavg', 'sgd', 'sgd'),
    ),
    (
      ['--server_optimizer=sgd', '--proximal_strength=0.1'],
      ('fedprox', 'delta_sgd', 'sgd'),
    ),
    (
      ['--server_optimizer=sgd', '--momentum=0.5'],
      ('fedavgm', 'delta_sgd', 'sgd'),
    ),
    (['--algorithm=fedadam'], ('fedadam', 'sgd', 'adam')),
    (['--algorithm=delta_sgd'], ('delta_sgd', 'delta_sgd', 'sgd')),
    (
      ['--algorithm=delta_sgd', '--server_optimizer=ams'],
      ('delta_sgd', 'delta_sgd', 'ams'),
    ),
    (
      ['--algorithm=fedprox', '--client_optimizer=adam'],
      ('fedprox', 'adam', 'sgd'),
    ),
  ],
)
def test_optimizers_and_algorithm(parse, arguments, expected):
  settings = parse(*arguments)
  assert expected == (
    settings.algorithm,
    settings.client_optimizer,
    settings.server_optimizer,
  )


@pytest.mark.parametrize('algorithm', algorithms.names())
def test_every_algorithm_resolves(parse, algorithm):
  settings = parse(f'--algorithm={algorithm}')
  assert settings.configuration.method.name == algorithm
  algorithms.check(
    algorithm,
    client_optimizer=settings.client_optimizer,
    server_optimizer=settings.server_optimizer,
    **settings.hyperparameters,
  )


@pytest.mark.parametrize('task', tasks.names())
def test_every_task_resolves(parse, task):
  settings = parse(f'--task={task}')
  later = tasks.info(task).options.later
  assert set(settings.task_options) == set(tasks.parameters_of(task)) - later


@pytest.mark.parametrize('side', ['client', 'server'])
def test_every_optimizer_argument_has_its_flag(parse, side):
  for name in getattr(optimizers, f'{side}_names')():
    for argument, parameter in optimizers.parameters_of(side, name).items():
      if argument == 'learning_rate' or parameter.default is None:
        continue
      settings = parse(
        f'--{side}_optimizer={name}',
        f'--{optimizers.public_name(side, argument, name)}={parameter.default}',
        *(['--momentum=0.0'] if side == 'client' else []),
        *(['--server_optimizer=sgd'] if side == 'client' else []),
      )
      public = optimizers.public_name(side, argument, name)
      assert settings.hyperparameters[public] == parameter.default


def test_values_arrive_where_they_belong(parse):
  settings = parse(
    '--algorithm=fedyogi',
    '--client_learning_rate=0.25',
    '--server_learning_rate=2',
    '--server_adaptivity=1e-4',
    '--beta_1=0.5',
    '--client_momentum=0.75',
    '--proximal_strength=0.125',
    '--client_weighting=uniform',
    '--client_epochs_per_round=3',
    '--client_batch_size=7',
    '--max_elements_per_client=11',
    '--digits_alpha=2',
    '--seed=5',
    '--bias_correction',
    '--num_validation_examples=-1',
  )
  assert settings.hyperparameters['client_learning_rate'] == 0.25
  assert settings.hyperparameters['server_learning_rate'] == 2.0
  assert settings.hyperparameters['server_adaptivity'] == 1e-4
  assert settings.hyperparameters['beta_1'] == 0.5
  assert settings.hyperparameters['client_momentum'] == 0.75
  assert settings.hyperparameters['proximal_strength'] == 0.125
  assert settings.hyperparameters['client_weighting'] == 'uniform'
  assert settings.hyperparameters['bias_correction'] is True
  assert settings.hyperparameters['server_lr_schedule'] == 'constant'
  assert settings.task_options['epochs'] == 3
  assert settings.task_options['batch_size'] == 7
  assert settings.task_options['max_elements'] == 11
  assert settings.task_options['alpha'] == 2.0
  assert settings.task_options['cache_dir'] is None
  assert settings.seed == 5
  assert settings.num_validation_examples is None


def test_parsing_twice_starts_afresh(parse):
  parse('--total_rounds=3', '--server_optimizer=yogi')
  assert parse().total_rounds == 200
  assert parse().server_optimizer == 'adam'


def test_step_decay_counts_in_the_whole_run(parse):
  settings = parse(
    '--client_optimizer=sgd',
    '--client_lr_schedule=step_decay',
    '--total_rounds=40',
  )
  assert settings.hyperparameters['client_lr_decay_steps'] == 40


def test_delays_in_epochs_count_those_of_the_round(parse):
  delayed = ['--algorithm=fedada2', '--delay_unit=epochs']
  settings = parse(*delayed, '--client_epochs_per_round=3')
  assert settings.hyperparameters['local_epochs'] == 3
  assert 'got' in complaint(parse, '--algorithm=fedada2', '--local_epochs=2')
  assert '--client_epochs_per_round is 1' in complaint(
    parse, *delayed, '--local_epochs=3'
  )


def test_mixed_epochs_are_those_of_the_round(parse):
  mixed = ['--algorithm=fedada2_blended', '--epochs_mix=1=0.5,5=0.5']
  parse(*mixed, '--client_epochs_per_round=5')
  assert (
    '5 passes over the client data, but --client_epochs_per_round is 1'
    in complaint(parse, *mixed)
  )
  # The default too, by which clients would train once.
  alone = ['--algorithm=fedada2_blended', '--client_epochs_per_round=5']
  assert '1 passes over' in complaint(parse, *alone)
  limited = ['--client_epochs_per_round=5', '--max_elements_per_client=9']
  assert 'cut short' in complaint(parse, *mixed, *limited)


def test_whole_numbers_keep_their_digits(parse):
  assert parse(f'--seed={2**60 + 1}').seed == 2**60 + 1
  assert parse('--total_rounds=1e3').total_rounds == 1000
  assert complaint(parse, '--total_rounds=0').endswith(', got 0.')
  assert complaint(parse, '--total_rounds=2.5').endswith(', got 2.5.')


@pytest.mark.ray
def test_runtime_options(parse):
  cluster = parse('--runtime=ray', '--ray_address=[::1]:23')
  assert cluster.runtime_options == {'address': '[::1]:23'}
  assert parse('--runtime=ray').runtime_options == {}
  bounded = parse('--max_concurrent_clients=3')
  assert bounded.runtime_options == {'max_concurrent_clients': 3}
  spread = parse('--devices=GPU:0,GPU:1')
  assert spread.runtime_options == {'devices': ['GPU:0', 'GPU:1']}
  strict = parse('--runtime=ray', '--worker_retries=0', '--cpus_per_actor=2')
  assert strict.runtime_options == {'retries': 0, 'cpus_per_actor': 2}
  assert parse().runtime_options == {}
  assert parse().runtime == 'in_process'


def test_without_ray_a_sentence_says_what_to_install(parse, monkeypatch):
  monkeypatch.setattr(requirements.importlib.util, 'find_spec', lambda _: None)
  told = complaint(parse, '--runtime=ray')
  assert 'Ray is not installed: make ray' in told
  assert 'requirements-ray.txt' in told and len(told.splitlines()) == 1


def test_flag_file(parse, tmp_path):
  path = tmp_path / 'a.flags'
  path.write_text('--total_rounds=3\n# a remark\n--server_optimizer=yogi\n')
  settings = parse(f'--flagfile={path}', '--seed=2')
  assert (settings.total_rounds, settings.seed) == (3, 2)
  assert settings.algorithm == 'fedyogi'


@pytest.mark.parametrize(
  'arguments, parts',
  [
    (['--task=mnist'], ['--task', 'mnist', 'digits', 'emnist_character']),
    (['--algorithm=adam'], ['--algorithm', "'adam'", 'fedadam']),
    (['--client_optimizer=yogi'], ['--client_optimizer', 'yogi', 'polyak']),
    (['--server_optimizer=polyak'], ['--server_optimizer', 'ams']),
    (['--runtime=gpu'], ['--runtime', 'gpu', 'native']),
    (['--data=real'], ['--data', 'real', 'native', 'synthetic']),
    (['--total_rounds=0'], ['--total_rounds', 'at least 1', '0']),
    (['--total_rounds=2.5'], ['--total_rounds', 'whole number', '2.5']),
    (['--total_rounds=ten'], ['--total_rounds', 'ten']),
    (['--total_rounds='], ['--total_rounds', "''"]),
    (['--total_rounds'], ['total_rounds']),
    (['--clients_per_round=-3'], ['--clients_per_round', '-3']),
    (['--client_epochs_per_round=0'], ['--client_epochs_per_round', '0']),
    (['--client_batch_size=0'], ['--client_batch_size', '0']),
    (['--max_elements_per_client=0'], ['--max_elements_per_client']),
    (['--rounds_per_eval=0'], ['--rounds_per_eval', 'at least 1']),
    (['--rounds_per_checkpoint=0'], ['--rounds_per_checkpoint']),
    (['--num_validation_examples=0'], ['--num_validation_examples', '-1']),
    (['--num_validation_examples=-2'], ['--num_validation_examples']),
    (['--seed=-1'], ['--seed', 'at least 0']),
    (
      ['--client_datasets_random_seed=4294967296'],
      ['--client_datasets_random_seed', 'at most'],
    ),
    (
      ['--client_optimizer=sgd', '--client_learning_rate=0'],
      ['--client_learning_rate', 'above 0', '0'],
    ),
    (
      ['--client_optimizer=sgd', '--client_learning_rate=-0.1'],
      ['--client_learning_rate', '-0.1'],
    ),
    (
      ['--client_optimizer=sgd', '--client_learning_rate=nan'],
      ['--client_learning_rate', 'nan'],
    ),
    (
      ['--client_optimizer=sgd', '--client_learning_rate=inf'],
      ['--client_learning_rate', 'inf'],
    ),
    (['--server_learning_rate=0'], ['--server_learning_rate', 'above 0']),
    (['--beta_1=1'], ['--beta_1', 'below 1', '1']),
    (['--server_adaptivity=0'], ['--server_adaptivity', 'above 0']),
    (['--variant=paper2'], ['--variant', 'paper2', 'reference']),
    (['--bias_correction=2'], ['--bias_correction', 'True or False', '2']),
    (['--gamma=0'], ['--gamma']),
    (['--proximal_strength=-1'], ['--proximal_strength', 'at least 0']),
    (['--client_weighting=votes'], ['--client_weighting', 'uniform']),
    (['--digits_alpha=0'], ['--digits_alpha', 'above 0']),
    (['--experiment_name=../up'], ['--experiment_name', '../up']),
    (['--experiment_name=.'], ['--experiment_name']),
    (['--experiment_name='], ['--experiment_name']),
    (['--root_output_dir='], ['--root_output_dir']),
    (['--no_such_flag=1'], ['--no_such_flag', '--help']),
    (['--total_round=1'], ['--total_round;', '--total_rounds']),
    (['--flagfile=/no/such/file'], ['Unable to open', '/no/such/file']),
    (['--nodry_run=3'], ['--nodry_run=3 does not take an argument.']),
    (['--runtime=ray', '--ray_address=a'], ['--ray_address', "got 'a'"]),
    (['--runtime=ray', '--ray_address=a:0'], ['--ray_address', 'host:port']),
    (['--ray_address=a:1'], ['--ray_address=a:1', 'ignored']),
    (['--worker_retries=2'], ['--worker_retries=2', 'ignored']),
    (
      ['--runtime=ray', '--devices=GPU:0'],
      ['--devices=GPU:0', 'ignored', 'ray'],
    ),
    (['extra'], ["'extra'", '--name=value']),
    (['--dry_run=maybe'], ['--dry_run', 'maybe']),
    # Flags that nothing would look at.
    (['--client_momentum=0.5'], ['ignored', 'delta_sgd']),
    (
      ['--client_learning_rate=0.5'],
      ['ignored', 'delta_sgd does not use it, but --client_optimizer=sgd does'],
    ),
    (['--client_lr_schedule=exp_decay'], ['ignored', 'delta_sgd']),
    (['--algorithm=fedavg', '--momentum=0.5'], ['ignored', 'fedavg']),
    (
      ['--algorithm=fedavg', '--proximal_strength=0.1'],
      ['--proximal_strength=0.1', 'FedProx', '--algorithm=fedprox'],
    ),
    (['--gamma=1', '--client_optimizer=sgd'], ['--gamma=1', 'ignored']),
    (['--emnist_character_only_digits'], ['ignored', '--task=digits']),
    (['--cache_dir=x'], ['--cache_dir=x', 'ignored']),
    (
      ['--task=emnist_character', '--data=synthetic', '--cache_dir=x'],
      ['--cache_dir=x', 'ignored', 'synthetic'],
    ),
    (
      ['--client_optimizer=sgd', '--client_lr_decay_rate=0.5'],
      ['--client_lr_decay_rate', 'ignored'],
    ),
    (
      ['--client_optimizer=sgd', '--client_lr_schedule=exp_decay'],
      ['--client_lr_decay_steps', 'needs'],
    ),
    (
      [
        '--client_optimizer=sgd',
        '--client_lr_schedule=exp_decay',
        '--client_lr_decay_steps=5',
      ],
      ['--client_lr_decay_rate', 'needs'],
    ),
    (
      ['--algorithm=fedadam', '--server_optimizer=yogi'],
      ['fedadam', '--server_optimizer', 'yogi'],
    ),
    (
      ['--algorithm=delta_sgd', '--client_optimizer=sgd'],
      ['delta_sgd', '--client_optimizer', 'sgd'],
    ),
  ],
)
def test_complaints(parse, arguments, parts):
  message = complaint(parse, *arguments)
  for part in parts:
    assert part in message, message


def test_help_names_general_flags_and_is_short():
  table = flags.Flags()
  text = table.help()
  for name in ('task', 'algorithm', 'total_rounds', 'cache_dir', 'dry_run'):
    assert f'--{name}' in text
  assert len(text.splitlines()) < 100
  assert 'Default: 0.' in text


def test_full_help_names_every_flag():
  table = flags.Flags()
  text = table.help(full=True)
  for name in table.values:
    assert f'--{name}' in text


def test_full_help_has_the_text_of_each_method():
  text = flags.Flags().help(full=True)
  start = text.index('\n  --alpha\n')
  entry = text[start : text.index('\n  --', start + 1)]
  assert (
    "fedcm: Weight of a client's own gradient; 1 is federated averaging.\n"
    '      Default: 0.1.'
  ) in entry
  assert 'fedadamw: Weight of the last global' in entry
  decay = text[text.index('\n  --beta_2\n') :]
  assert decay.splitlines()[2].startswith('      local_amsgrad: Decay of v per')
  assert 'server adam, server ams, server yogi: Decay of v per round.' in decay
  strength = text[text.rindex('\n  --proximal_strength\n') :]
  assert strength.splitlines()[2].startswith('      the other methods: mu of')
  # What all mean alike is said once, and before that in the short help.
  assert text.count("Client weighting: by 'examples' processed") == 2


@pytest.mark.parametrize(
  'flag, meant',
  [
    ('lr', '--client_learning_rate or --server_learning_rate'),
    ('client_lr', '--client_learning_rate'),
    ('server-lr', '--server_learning_rate'),
    ('epochs', '--client_epochs_per_round'),
    ('batch', '--client_batch_size'),
    ('batch-size', '--client_batch_size'),
    ('rounds', '--total_rounds'),
    ('num_clients', '--clients_per_round'),
    ('dataset', '--task'),
    ('method', '--algorithm'),
    ('client_polyak_gamma_b', '--gamma_b'),
    ('server_adam_epsilon', '--server_adaptivity'),
  ],
)
def test_names_of_other_programs_suggest_the_flag(parse, flag, meant):
  message = complaint(parse, f'--{flag}=1')
  assert message == f'There is no flag --{flag}; use {meant}.'


def test_aliases_are_no_flags_and_name_flags():
  known = flag_table.FlagTable().flags
  for flag, others in flag_table.ALIASES.items():
    assert flag in known
    assert not set(others.split()) & set(known)
