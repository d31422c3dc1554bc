"""Names, hyperparameters and errors of `algorithms`."""

import dataclasses
import pickle

import pytest
import tensorflow_federated as tff

from tasks import registry as tasks_registry
from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import extensions
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive import processes
from tff_adaptive.algorithms import building
from tff_adaptive.algorithms import description
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.flags import parsing
from tff_adaptive.optimizers import rule
from tff_adaptive.processes import exchange

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


def test_a_class_that_is_defined_once_more_replaces_its_entry():
  """In a notebook, or in a module whose first import failed."""
  table = extensions.Table([])

  def define():
    class Mine(algorithms.Options):
      pass

    return methods.Method('mine', Mine)

  class Other(algorithms.Options):
    pass

  table.add('mine', define())
  table.add('mine', again := define())
  assert table['mine'] is again
  with pytest.raises(ValueError, match='mine are taken'):
    table.add('mine', methods.Method('mine', Other))


@pytest.fixture(name='added')
def added_fixture(monkeypatch):
  """Adds a method, or an optimizer, until the test has ended."""

  def add(table, name, row):
    dict(table)  # The package's own come first.
    monkeypatch.setitem(table._rows, name, row)

  return add


class _Steps(rule.Rule):
  patience: parameters.Count = 7


def test_a_server_optimizer_takes_no_methods_place(added):
  entry = optimizers.entry_of('server', 'yogi')
  added(optimizers.TABLES['server'], 'adamw', entry)
  with pytest.raises(parameters.ParameterError, match='the method fedadamw'):
    algorithms.names()
  with pytest.raises(errors.SettingsError, match='the method fedadamw'):
    parsing.Flags()


def test_a_method_may_be_that_of_its_server_optimizer(added):
  entry = optimizers.entry_of('server', 'yogi')
  added(optimizers.TABLES['server'], 'slow', entry)
  options = type('Slow', (algorithms.Options,), {'additions': lambda *_: {}})
  row = methods.Method('fedslow', options, server='slow', fixes=('server',))
  added(methods._TABLE, 'fedslow', row)
  assert methods.find('fedslow') is row
  assert methods.of_server('slow', asked=[]) is row


def test_rules_of_one_name_share_no_graph(added):
  entry = optimizers.entry_of('client', 'sgd')
  found = set()
  for _ in range(2):
    own = type(
      'Own', (entry.description,), {'__doc__': entry.description.__doc__}
    )
    row = dataclasses.replace(entry, description=own)
    added(optimizers.TABLES['client'], 'own', row)
    resolved = algorithms.resolve('fedavg', client_optimizer='own')
    found |= {resolved.structure, resolved.structure}
  assert len(found) == 2


@pytest.mark.parametrize(
  'row, told',
  [
    (dict(fixes=('sever',)), "'sever' is no side"),
    (dict(fixes='server'), 'tuples of names'),
    (dict(accepts={'clinet': ['sgd']}), "'clinet' is no side"),
    (dict(accepts={'server': 'yogi'}), "lists of optimizers, got 'yogi'"),
  ],
)
def test_misspelt_declarations_are_refused(row, told):
  with pytest.raises(ValueError, match=told):
    algorithms.method('mine', **row)(type('Mine', (algorithms.Options,), {}))


def test_classes_of_another_kind_are_refused():
  class Plain:
    pass

  for add, base in (
    (algorithms.method('plain'), 'algorithms.Options'),
    (optimizers.client_optimizer('plain'), 'rule.Rule'),
    (
      tasks_registry.task('plain', summary='', model='', clients=''),
      'tasks.Op',
    ),
  ):
    for made in (Plain, 3):
      with pytest.raises(TypeError, match=f'plain must derive from {base}'):
        add(made)


@pytest.mark.parametrize(
  'row, told',
  [
    (dict(server='adamm'), "server optimizer 'adamm', which there is not"),
    (dict(defaults={'client_rate': 5.0}), "a default of 'client_rate'"),
  ],
)
def test_declarations_of_what_there_is_not_are_named(added, row, told):
  options = type('Mine', (algorithms.Options,), {})
  added(methods._TABLE, 'mine', methods.Method('mine', options, **row))
  with pytest.raises(parameters.ParameterError, match=told):
    algorithms.check('mine')


def test_a_rule_may_not_take_a_flag_of_all_runs(added):
  entry = optimizers.entry_of('client', 'sgd')
  row = dataclasses.replace(entry, description=_Steps)
  added(optimizers.TABLES['client'], 'patient', row)
  with pytest.raises(errors.SettingsError, match="'patience', which is a flag"):
    flag_table.FlagTable()


@pytest.mark.parametrize('given', [5, int, tff.learning.optimizers.Optimizer])
def test_what_is_no_optimizer_is_refused(given):
  for side in optimizers.SIDES:
    with pytest.raises(parameters.ParameterError, match='must be an optimizer'):
      algorithms.check('fedprox', **{f'{side}_optimizer': given})


class _Hook(processes.Exchange):
  pass


@pytest.mark.parametrize(
  'hooks, told',
  [
    (dict(step=lambda *_: None), '`step` needs `sees_update = True`'),
    (dict(next_client_state=lambda *_: None), 'needs `initialize_client`'),
    (dict(full_gradient_pass='Before'), "not 'Before'"),
  ],
)
def test_hooks_that_nothing_would_call_are_refused(hooks, told):
  exchange = type('Mine', (_Hook,), hooks)()
  with pytest.raises(TypeError, match=f'Mine: .*{told}'):
    processes.build_client_work(
      linear.model_fn, optimizers.client('sgd'), exchange=exchange
    )


def test_what_needs_the_server_state_is_no_client_work_alone():
  joint = building.build_components(algorithms.resolve('direct_joint'))
  with pytest.raises(TypeError, match='does not reach the server state'):
    processes.build_client_work(
      linear.model_fn, joint.client_optimizer, exchange=joint.exchange
    )


def test_rules_of_ones_own_do_not_inherit_what_is_in_the_state():
  class Mine(type(optimizers.client('adam'))):
    pass

  assert Mine.__mro__[1].in_state and not Mine.in_state


def test_a_correction_needs_a_context_for_each_weight():
  with pytest.raises(ValueError, match='needs an exchange whose `context`'):
    processes.build_client_work(
      linear.model_fn,
      optimizers.client('sgd'),
      objective=processes.Correction('c'),
    )


def test_weights_that_a_rule_leaves_out_are_named():
  class Short(tff.learning.optimizers.Optimizer):
    def initialize(self, specs):
      return ()

    def next(self, state, weights, gradients):
      return state, weights[:-1]

  with pytest.raises(ValueError, match='trainable weights, and a rule'):
    processes.build_client_work(linear.model_fn, Short())


def test_private_clients_send_nothing_else_even_if_not_declared(added):
  class Told(processes.Exchange):
    def report(self, client):
      return exchange.report(weighted=client.update)

  def additions(own, chosen):
    del own, chosen
    return {'exchange': Told()}

  options = type('Telling', (algorithms.Options,), {'additions': additions})
  added(methods._TABLE, 'telling', methods.Method('telling', options))
  private = dict(dp_clip_norm=1.0, dp_noise_multiplier=1.0)
  configuration = algorithms.resolve(
    'telling', dp_clients_per_round=3, **private
  )
  with pytest.raises(parameters.ParameterError, match='send more than their'):
    building.build_components(configuration)
  building.build_components(algorithms.resolve('telling'))
