"""Names, hyperparameters and errors of `algorithms`."""

import pickle

import pytest
import tensorflow_federated as tff

from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import extensions
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import building
from tff_adaptive.algorithms import description
from tff_adaptive.algorithms import methods

pytestmark = pytest.mark.usefixtures('in_process_context')


def test_methods_are_listed_family_by_family():
  rows = [row for row in methods.table().values() if row.has_clients]
  families = [row.family for row in rows]
  assert list(dict.fromkeys(families)) == [
    f for f in methods.FAMILIES.values() if f in families
  ]
  assert families == sorted(families, key=[*methods.FAMILIES.values()].index)
  looks = [row.look for row in methods.table().values()]
  assert len({*looks}) == len(looks)


@pytest.mark.parametrize('name', algorithms.names())
def test_every_hyperparameter_has_help_and_a_default_that_it_accepts(name):
  for public, parameter in algorithms.parameters_of(name).items():
    assert parameter.name == public
    assert parameter.help, public
    parameter.check(parameter.default)


@pytest.mark.parametrize('name', algorithms.names())
def test_every_method_says_what_it_does(name):
  text = algorithms.describe(name)
  assert text.startswith(f'algorithm {name}: ')
  assert 'client optimizer' in text and 'x = x' in text.replace('x_k', 'x')


@pytest.mark.parametrize(
  'name,settings,words',
  [
    ('fedadamx', {}, 'must be one of fedavg, fedavgm'),
    (
      'fedadam',
      {'gamma': 1.0},
      'the client optimizer sgd does not use it, but `client_optimizer`=delta',
    ),
    ('fedavg', {'momentum': 0.9}, '`momentum`=0.9 would be ignored'),
    ('delta_sgd', {'client_learning_rate': 1.0}, 'does not use'),
    ('fedadam', {'server_learning_rate': 0.0}, 'above 0, got 0'),
    ('fedadam', {'server_learning_rate': -1}, 'above 0, got -1'),
    ('fedadam', {'server_optimizer': 'yogi'}, 'its own server optimizer'),
    ('delta_sgd', {'client_optimizer': 'sgd'}, 'its own client optimizer'),
    ('fedprox', {'client_optimizer': 'adamz'}, 'must be one of adagrad'),
    ('fedprox', {'proximal_strength': -0.1}, 'at least 0'),
    ('fedavg', {'client_weighting': 'votes'}, "'uniform', 'tokens'"),
    (
      'fedavg',
      {'client_lr_schedule': 'exp_decay'},
      'needs `client_lr_decay_steps` and `client_lr_decay_rate`',
    ),
    (
      'fedavg',
      {'server_lr_decay_steps': 3},
      '`server_lr_decay_steps` would be ignored',
    ),
    (
      'delta_sgd',
      {'client_lr_schedule': 'exp_decay'},
      '`client_lr_schedule`=exp_decay would be ignored',
    ),
    ('delta_sgd', {'client_warmup_steps': 3}, 'does not use'),
    ('fedada2', {'delay': 0}, 'whole number at least 1, got 0'),
    ('scaffold', {'client_momentum': 0.9}, 'does not use'),
    ('direct_joint', {'client_initial_accumulator': 1.0}, 'does not use'),
    ('mime', {'client_optimizer': 'adam', 'delay': 2}, 'does not use'),
    (
      'mimelite',
      {'client_optimizer': 'adam', 'local_epochs': 2},
      'does not use',
    ),
    ('fedada2', {'delay_unit': 'epochs'}, "got 'epochs' and None"),
    ('fedada2', {'local_epochs': 2}, "got 'steps' and 2"),
    ('fedsps', {'smoothing': 'bound', 'gamma_b': 0.5}, 'would be ignored'),
  ],
)
def test_errors_say_what_is_accepted(name, settings, words):
  for call in (
    lambda: algorithms.check(name, **settings),
    lambda: algorithms.build(name, linear.model_fn, **settings),
  ):
    with pytest.raises(parameters.ParameterError) as error:
      call()
    assert words in str(error.value)


def test_models_of_other_kinds_are_refused():
  with pytest.raises(TypeError, match='no-argument function'):
    algorithms.build('fedavg', 'model')
  with pytest.raises(TypeError, match='pass the function'):
    algorithms.build('fedavg', linear.model_fn())
  with pytest.raises(TypeError, match='VariableModel'):
    algorithms.build('fedavg', lambda: 3)


def test_optimizer_objects_and_tff_weighting_are_accepted():
  process = algorithms.build(
    'fedprox',
    linear.model_fn,
    client_optimizer=optimizers.client('delta_sgd'),
    server_optimizer=tff.learning.optimizers.build_adam(0.1),
    client_weighting=tff.learning.ClientWeighting.UNIFORM,
  )
  assert isinstance(process, tff.learning.templates.LearningProcess)
  assert not algorithms.is_stateful(process)
  with pytest.raises(
    parameters.ParameterError, match=r'`beta_1`=0\.5 would be ignored'
  ):
    algorithms.check(
      'fedprox',
      server_optimizer=tff.learning.optimizers.build_adam(0.1),
      beta_1=0.5,
    )


def test_describe_shows_what_was_resolved():
  text = algorithms.describe(
    'fedadam',
    variant='reference',
    proximal_strength=0.25,
    client_lr_schedule='inv_sqrt_decay',
    client_lr_decay_steps=10,
    client_lr_decay_rate=0.5,
  )
  assert 'sqrt(1 - beta_2^t) / (1 - beta_1^t)' in text
  assert '0.25 / 2 |x - x_t|^2' in text
  assert 'inv_sqrt_decay' in text
  assert 'counts with weight the examples' in text
  text = algorithms.describe('direct_joint', client_optimizer='adam')
  assert "from the server's v" in text and '1 - beta_2^u' not in text
  assert 'v / (1 - beta_2^u)' in algorithms.describe(
    'joint_zero_init', client_optimizer='adam'
  )
  for name in ('mime', 'mimelite'):
    text = algorithms.describe(name)
    assert 'm = momentum m + g' in text
    assert ('mean gradient at x_t' in text) == (name == 'mime')
  text = algorithms.describe('fedsps_normalized')
  assert 'counts with weight 1 / nu' in text


def test_training_on_pooled_data_is_a_method_without_clients():
  assert 'centralized' not in algorithms.names()
  configuration = algorithms.resolve('centralized', server_optimizer='yogi')
  assert not configuration.method.has_clients
  assert (
    not configuration.private
    and configuration.values['server_learning_rate'] == 0.01
  )
  configuration = algorithms.resolve('centralized')
  assert configuration.values['server_learning_rate'] == 0.1
  with pytest.raises(
    parameters.ParameterError, match='not a federated process'
  ):
    algorithms.build('centralized', linear.model_fn)


def test_names_of_two_sides_that_clash_are_an_error(monkeypatch):
  monkeypatch.setitem(optimizers._PUBLIC, 'client', {})
  with pytest.raises(LookupError, match="two hyperparameters 'momentum'"):
    algorithms.parameters_of('fedprox')


@pytest.mark.parametrize('name', [*algorithms.names(), 'centralized'])
def test_plans_travel_between_processes(name):
  configuration = algorithms.resolve(name)
  again = pickle.loads(pickle.dumps(configuration))
  assert again == configuration
  assert description.describe(building.build_components(again)) == (
    description.describe(building.build_components(configuration))
  )


def test_a_server_optimizer_without_a_method_makes_one(monkeypatch):
  table = extensions.Table([])
  for name, row in methods._TABLE.items():
    if name != 'fedyogi':
      table.add(name, row)
  monkeypatch.setattr(methods, '_TABLE', table)
  assert 'fedyogi' in algorithms.names()
  assert algorithms.summary('fedyogi') == 'yogi on the server.'
  assert methods.of_server('yogi', asked=[]).name == 'fedyogi'


def test_tables_take_a_name_once():
  table = extensions.Table([])
  table.add('sgd', 1)
  table.add('lion', 2)
  assert dict(table) == {'sgd': 1, 'lion': 2} and len(table) == 2
  for name in ('sgd', 'lion', 'two words', 'a-b', ''):
    with pytest.raises(ValueError, match='sgd, lion are taken'):
      table.add(name, 3)
