"""Functions that people name, and their arguments."""

import inspect
import os
import sys

import pytest

import tasks
from tasks import user_tasks
from tff_adaptive.lab.commands import command_line


@pytest.fixture(name='module')
def module_fixture(tmp_path, monkeypatch, request):
  """Writes modules into the current folder; each test's have its own name."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', list(sys.path))
  number = abs(hash(request.node.name))

  def write(text, name='own'):
    full = f'{name}_{number}'
    (tmp_path / f'{full}.py').write_text(inspect.cleandoc(text) + '\n')
    return full

  return write


def complaint(place):
  with pytest.raises(tasks.OwnCodeError) as error:
    user_tasks.look_up(place)
  assert str(error.value).endswith(('.', '.)')) and '\n' not in str(error.value)
  return str(error.value)


def test_arguments_are_read_off_the_signature(module):
  name = module(
    '''
    import typing as t
    from tff_adaptive.parameters import Count

    def make(
      first=3, second=0.5, third=None, fourth=True,
      *args, sixth: 't.Optional[int]' = None, kind: t.Literal['x', 'y'] = 'y',
      many: Count = 2, either: int | float = 1, unclear: object = 2.5,
      listed=(1, 2), bare, **rest
    ):
      """Makes what is needed. And more.

      Args:
        many: How many
          there are.
      """
    '''
  )
  found = user_tasks.look_up(f'{name}:make')
  assert found.summary == 'Makes what is needed. And more'
  told = {
    p.name: (p.kind, p.default, p.optional) for p in found.parameters.values()
  }
  required = inspect.Parameter.empty
  assert told == {
    'first': (int, 3, False),
    'second': (float, 0.5, False),
    'third': (str, None, True),
    'fourth': (bool, True, False),
    'sixth': (int, None, True),
    'kind': (str, 'y', False),
    'many': (int, 2, False),
    'either': (float, 1, False),
    'unclear': (float, 2.5, False),
    'bare': (str, required, False),
  }
  assert found.parameters['kind'].choices == ('x', 'y')
  assert found.parameters['many'].help == 'How many there are.'
  assert '1' in found.parameters['many'].accepted  # At least one.


def test_functions_from_elsewhere_and_computed_defaults(module):
  other = module('def made(*, size=3): return size', name='other')
  name = module(
    f"""
    import functools
    from {other} import made as borrowed

    SIZE = 7

    def computed(size=SIZE, *, share: "float" = 0.5):
      pass

    fixed = functools.partial(computed, size=2)
    """
  )
  for function, size in (('borrowed', 3), ('computed', 7), ('fixed', 2)):
    place = f'{name}:{function}'
    assert user_tasks.look_up(place).parameters['size'].default == size
  share = user_tasks.look_up(f'{name}:computed').parameters['share']
  assert (share.kind, share.default) == (float, 0.5)


def test_complaints(module):
  name = module(
    """
    value = 3

    class Kind:
      pass

    def path_of(where: bytes):
      pass

    def first_only(where, /):
      pass
    """
  )
  broken = module('def make(:\n', name='broken')
  # Its error names a module that there is.
  typo = module(
    'import numpy\nnumpy.arange_(3)\nfrom numpy import x_', name='typo'
  )
  for place, part in (
    ('nowhere_at_all:make', 'there is no module nowhere_at_all'),
    ('nowhere_at_all.inner:make', 'no module nowhere_at_all.inner'),
    (f'{name}.inner:make', f'no module {name}.inner'),
    (f'{name}:make', f'{name}.py defines no function make'),
    (f'{name}:value', 'is not a function but int'),
    (f'{name}:Kind', 'is not a function but a class'),
    (f'{name}:path_of', 'the argument `where` of'),
    (f'{name}:first_only', 'the argument `where` of'),
    (f'{broken}:make', f'{broken} cannot be imported: SyntaxError: '),
    (f'{typo}:make', f'{typo} cannot be imported: AttributeError: '),
    ('a:b:c', "'a:b:c' does not name a function"),
    (':make', "':make' does not name a function"),
    ('a-b:make', 'PACKAGE.MODULE:FUNCTION'),
    ('tasks.images.digits:wrong', 'rename your own module'),
  ):
    assert part in complaint(place)


def test_what_fails_on_import_is_told_with_its_line(module):
  name = module(
    """
    SIZE = 1

    def wrong():
      return {}['key']

    def make(size=SIZE):
      return size

    wrong()
    """
  )
  message = complaint(f'{name}:make')
  assert f'{name} cannot be imported: KeyError: ' in message
  assert message.endswith('.py).') and '(line 4 of ' in message


def test_a_task_that_leaves_the_current_folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
  (tmp_path / 'own_moves.py').write_text(
    'import os\ndef moves():\n  os.chdir("/")\n  return 3\n'
  )
  with pytest.raises(tasks.OwnCodeError, match='changes the current folder'):
    tasks.create('own_moves:moves')
  assert os.getcwd() == str(tmp_path)


_THIRD_CALL = """
import collections
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

calls = []

def points():
  site = collections.OrderedDict(
    x=np.zeros([4, 3], np.float32), y=np.zeros([4], np.int32)
  )
  data = tff.simulation.datasets.TestClientData({'a': site, 'b': site})
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train_data=data,
    test_data=data,
    train_preprocess_fn=lambda dataset: dataset.batch(2),
    eval_preprocess_fn=lambda dataset: dataset.batch(2),
  )

  def model_fn():
    calls.append(model_fn)
    if len(calls) > 2:
      raise ValueError('the name is taken')
    return tff.learning.models.from_keras_model(
      KERAS.Sequential([KERAS.layers.Dense(2, input_shape=(3,))]),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=datasets.element_type_structure,
    )

  return tff.simulation.baselines.BaselineTask(datasets, model_fn)
"""


def test_a_model_fn_that_fails_at_its_third_call(module, capsys):
  name = module(_THIRD_CALL.replace('KERAS', 'tf.keras'), 'own_third')
  told = [f'--task={name}:points', '--clients_per_round=2']
  assert command_line.main([*told, '--algorithm=fedavg']) == 1
  message = capsys.readouterr().err.splitlines()[-1]
  assert message.startswith(
    f'The model function of {name}:points fails at call 3: ValueError: the '
    'name is taken (line 23 of '
  )
  assert message.endswith('must build a new model each time.')


def test_a_keras_3_model_of_a_task(module):
  keras = pytest.importorskip('keras')
  if keras.__version__.startswith('2.'):
    pytest.skip('`import keras` gives Keras 2 here')
  name = module(_THIRD_CALL.replace('KERAS', "__import__('keras')"), 'own_k3')
  with pytest.raises(tasks.OwnCodeError, match='use tff_adaptive'):
    tasks.create(f'{name}:points')


def test_an_id_that_tensorflow_cannot_hold(module):
  text = _THIRD_CALL.replace('KERAS', 'tf.keras').replace("'b':", "'b\\udce9':")
  with pytest.raises(tasks.OwnCodeError, match='is not UTF-8'):
    tasks.create(f'{module(text, "own_ids")}:points')


def test_ids_are_strings(module):
  text = _THIRD_CALL.replace('KERAS', 'tf.keras')
  for number, name in enumerate('ab'):
    text = text.replace(f"'{name}':", f'{number}:')
  with pytest.raises(tasks.OwnCodeError, match='must be strings, got'):
    tasks.create(f'{module(text, "own_numbers")}:points')
