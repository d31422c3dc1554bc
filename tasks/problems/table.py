"""Users' own tables: CSV files or a NumPy archive, and any Keras model.

A row is an example: one column is its label, one may name its client, the
others are features. A share of each client's examples is held out for testing.
"""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Callable
from typing import Any
from typing import Literal
from typing import Optional

import numpy as np

from tasks import catalogue
from tasks import own_code
from tasks import partition
from tasks import shared
from tasks.formats import columns
from tasks.formats import data_errors
from tasks.lazy import assembly
from tasks.lazy import class_names
from tasks.lazy import table_encoding
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff


@catalogue.task(
  'table',
  summary='Learn from a table of your own: CSV files, or an .npz archive.',
  model='1 hidden layer of 64, or your own (--model)',
  clients='a column names them, or each is a file',
  files=('what --table_path names',),
  flags=dict(model='model'),
  functions=('model',),
  model_from_data=True,
)
class Table(shared.Options):
  """Features float32, labels int32 or one float32."""

  path: Optional[str] = None
  """A CSV file whose first line names the columns, a folder of such files, or
  an .npz archive of arrays."""

  label: str = 'label'
  """Column or array with the labels."""

  client: Optional[str] = None
  """Column or array that names an example's client; `client` where there is
  one, unless given. In a folder without one, each file is a client."""

  features: Optional[str] = None
  """Columns or arrays with the features, with commas between; all others unless
  given. A column of words is an input for each word."""

  words: Optional[str] = None
  """Those of the features, with commas between, that are words although they
  look like numbers or dates."""

  target: Literal['class', 'number'] = 'class'
  """What a label is: one of several classes, any words, or a number to
  predict."""

  num_clients: Optional[parameters.Count] = None
  """Deals the examples out to so many clients, if no column and no file says
  whose they are."""

  alpha: Optional[parameters.Positive] = None
  """With num_clients, concentration of a Dirichlet distribution over classes:
  small means few classes a client. At random unless given."""

  test_share: parameters.Share = 0.2
  """Share of each client's examples that is held out for testing."""

  standardize: bool = True
  """Whether each feature is shifted and scaled to mean 0 and deviation 1 over
  all training examples. An empty cell counts as its column's mean."""

  model: Optional[str] = None
  """package.module:function of a function that returns a model of Keras 2 or 3;
  it is given `input_shape` and `num_classes` if it has arguments of these
  names. A dense model with a hidden layer of 64 unless given."""

  cache_dir: Optional[str] = None
  """Folder from which a relative path starts; the current one unless given."""

  batch_size: Optional[parameters.Count] = None
  """Examples in a batch; 20 unless given."""

  seed: parameters.NonNegativeInt = 0
  """Of what is held out, the dealing out, and the made-up table."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    options = self.values
    if self.data == 'synthetic':
      examples = _made_up(self.seed)
    else:
      examples = columns.read(
        _path(self.path, self.cache_dir),
        columns.Names(
          self.label,
          self.client,
          _split_names(self.features),
          _split_names(self.words) or (),
        ),
      )
    labels, classes = _labels(examples, self.target, self.path or 'The table')
    who = _clients(examples, labels, options)
    train, test, split = _hold_out(who, self.test_share, self.seed)
    encoding = table_encoding.fit(
      examples.columns, examples.features[train], standardize=self.standardize
    )
    inputs = encoding.encode(examples.features)
    return assembly.partitioned_task(
      notes=encoding.notes,
      classes=classes,
      train=dict(features=inputs[train], label=labels[train]),
      test=dict(features=inputs[test], label=labels[test]),
      split=split,
      options=options,
      batch_size=20,
      eval_batch_size=100,
      to_model=_to_model,
      build_model=_model_builder(
        self.model, inputs.shape[1:], classes, encoding
      ),
      **(
        dict(
          loss=assembly.cross_entropy,
          metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
        )
        if self.target == 'class'
        else dict(
          loss=tf.keras.losses.MeanSquaredError,
          metrics=[tf.keras.metrics.MeanAbsoluteError],
        )
      ),
    )


def _path(path: Optional[str], cache_dir: Optional[str]) -> pathlib.Path:
  """Finds the table."""
  if path is None:
    raise parameters.ParameterError(
      'path',
      '{} must be given: a CSV file, a folder of CSV files or an .npz archive.',
    )
  return pathlib.Path(cache_dir or '', path).expanduser()


def _split_names(text: Optional[str]) -> Optional[list[str]]:
  """Takes the names of columns apart."""
  if text is None:
    return None
  return [name for name in map(str.strip, text.split(',')) if name]


def _made_up(seed: int) -> columns.Examples:
  """Makes 300 examples of 3 classes in 4 features, of 12 clients."""
  rng = np.random.default_rng([seed, 0x7AB1E])
  labels = rng.permutation(np.arange(300) % 3)
  centres = rng.normal(0, 2, [3, 4])
  return columns.Examples(
    (centres[labels] + rng.normal(0, 1, [300, 4])).astype(np.float32),
    labels,
    rng.permutation([f'client_{i % 12:02}' for i in range(300)]),
    tuple(map(columns.Column, 'abcd')),
  )


def _labels(
  examples: columns.Examples, target: str, where: str
) -> tuple[np.ndarray, tuple[str, ...]]:
  """Returns what the model learns, and the classes' words; none of numbers."""
  if target == 'number':
    for text in examples.labels:
      if isinstance(text, str) and columns.number(text) is None:
        raise data_errors.DataError(
          f'{where} has labels that are no finite numbers, such as '
          f'{text[:40]!r}; a class is meant by --table_target=class.'
        )
    numbers = examples.labels.astype(np.float32)
    if not np.isfinite(numbers).all():
      raise data_errors.DataError(f'{where} has labels that are not finite.')
    return numbers[:, np.newaxis], ()
  classes, labels = np.unique(examples.labels, return_inverse=True)
  try:
    # 2 comes before 10, in whatever order the words are.
    order = np.argsort(classes.astype(np.float64), kind='stable')
    classes, labels = classes[order], np.argsort(order)[labels]
  except ValueError:
    pass  # Words, which have the order of the alphabet.
  if len(classes) < 2:
    raise data_errors.DataError(
      f'{where} has the label {classes[0]!s} only; two or more classes were '
      'expected.'
    )
  if len(classes) > 1000 and len(classes) * 2 > len(labels):
    raise data_errors.DataError(
      f'{where} has {len(classes):,} different labels in {len(labels):,} rows; '
      'if they are numbers to predict, give --table_target=number.'
    )
  return labels.astype(np.int32), tuple(map(str, classes))


def _clients(
  examples: columns.Examples, labels: np.ndarray, options: dict[str, Any]
) -> partition.Partition:
  """Divides the examples over clients."""
  num_clients, alpha = options['num_clients'], options['alpha']
  if examples.clients is not None:
    for name in ('num_clients', 'alpha'):
      if options[name] is not None:
        raise parameters.ParameterError(
          name,
          '{}={given} would be ignored: the table says whose examples are '
          'whose.',
          given=options[name],
        )
    return partition.by_group(examples.clients)
  if num_clients is None:
    raise parameters.ParameterError(
      'num_clients',
      'The table has no column {column!r} that names the client; say which '
      'column does by {client}, or give {} to deal the examples out.',
      column=columns.DEFAULT_CLIENT,
    )
  sizes = partition.equal_sizes(len(labels), num_clients)
  if alpha is None:
    return partition.iid(len(labels), sizes=sizes, seed=options['seed'])
  if options['target'] != 'class':
    raise parameters.ParameterError(
      'alpha',
      '{}={given} would be ignored: there are no classes with {target}=number.',
      given=alpha,
    )
  return partition.lda(labels, alpha=alpha, sizes=sizes, seed=options['seed'])


def _hold_out(
  who: partition.Partition, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray, partition.Partition]:
  """Draws each client's examples for testing.

  Returns:
    The places of the training and of the test examples, and whose training
    examples are whose. Every client keeps at least one.
  """
  rng = np.random.default_rng([seed, 0x7E57])
  train, test = [], []
  for indices in who.indices:
    mixed = rng.permutation(indices)
    # Of many small clients together it is the share as well.
    cut = min(int(len(mixed) * share + rng.random()), len(mixed) - 1)
    test.append(mixed[:cut])
    train.append(np.sort(mixed[cut:]))
  held_out = rng.permutation(np.concatenate(test))
  if not len(held_out):
    raise data_errors.PartitionError(
      'No client has enough examples for one to be held out for testing; give '
      'more of them, or a greater --table_test_share.'
    )
  sizes = np.cumsum([len(indices) for indices in train])
  places = np.split(np.arange(sizes[-1]), sizes[:-1])
  return (
    np.concatenate(train),
    held_out,
    partition.Partition(who.client_ids, tuple(places)),
  )


def _to_model(batch: Any) -> Any:
  return batch['features'], batch['label']


def _model_builder(
  place: Optional[str],
  input_shape: tuple[int, ...],
  classes: tuple[str, ...],
  encoding: table_encoding.Encoding,
) -> Callable[[], tf.keras.Model]:
  """Returns what builds the model, having tried it."""
  outputs = len(classes) or 1

  def noted(model: tf.keras.Model) -> tf.keras.Model:
    return table_encoding.note(class_names.note(model, classes), encoding)

  if place is None:
    return lambda: noted(_dense(input_shape, outputs))
  function = own_code.load(place)
  known = dict(input_shape=input_shape, num_classes=outputs)
  taken = inspect.signature(function).parameters
  given = {name: value for name, value in known.items() if name in taken}

  try:
    model = function(**given)
  except (Exception, SystemExit) as e:
    module = place.partition(':')[0]
    raise own_code.OwnCodeError(
      f'{place} fails: {own_code.failure(e, module)}.'
    ) from e
  _check_model(model, place, outputs)
  build = own_code.checked(lambda: function(**given), place, calls=1)
  return lambda: noted(build())


def _check_model(model: Any, place: str, outputs: int) -> None:
  """Refuses what could not be trained, or only badly."""
  from tff_adaptive import models  # pylint: disable=g-import-not-at-top

  try:
    kind = models.kind_of(model)
  except TypeError as e:
    raise own_code.OwnCodeError(f'{place} fails: {errors.reason(e)}.') from e
  if kind is None:
    raise own_code.OwnCodeError(
      f'{place} must return a Keras model (tf.keras.Model, or keras.Model of '
      f'Keras 3), got {type(model).__name__}.'
    )
  if not model.built or model.output_shape != (None, outputs):
    shape = model.output_shape if model.built else 'no shape yet'
    raise own_code.OwnCodeError(
      f'{place} must return a model that puts out {(None, outputs)} and is '
      f'built (its first layer says its input), got {shape}.'
    )
  activation = getattr(model.layers[-1], 'activation', None)
  name = getattr(activation, '__name__', '')
  if name in ('softmax', 'sigmoid'):
    raise own_code.OwnCodeError(
      f'{place} returns a model that ends in {name}; leave it out, the loss '
      'takes logits.'
    )
  if any(
    base.__name__ == 'BatchNormalization'
    for layer in model.layers
    for base in type(layer).__mro__
  ):
    raise own_code.OwnCodeError(
      f'{place} returns a model with batch normalisation, whose averages no '
      'server aggregates; take GroupNormalization.'
    )


def _dense(input_shape: tuple[int, ...], outputs: int) -> tf.keras.Model:
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer(input_shape),
      layers.Flatten(),
      layers.Dense(64, activation='relu'),
      layers.Dense(outputs),
    ]
  )
