"""Users' tables, texts and folders of images, with any Keras model.

A row is an example: one column is its label, one may name its client, and the
others are features, or one is a text. A fraction of each client's examples is
held out for testing.
"""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Callable
from collections.abc import Sequence
from typing import Annotated
from typing import Any
from typing import ClassVar
from typing import Literal
from typing import Optional

import numpy as np

from tasks import catalogue
from tasks import own_code
from tasks import partition
from tasks import shared
from tasks.divisions import splits
from tasks.divisions import targets
from tasks.formats import arrow
from tasks.formats import columns
from tasks.formats import data_errors
from tasks.formats import schemas
from tasks.formats import tables
from tasks.lazy import assembly
from tasks.lazy import class_names
from tasks.lazy import table_encoding
from tasks.lazy import text_encoding
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

# Tokens of padding, of unknown words, and of at least one word.
_VocabularySize = Annotated[int, parameters.Range(low=3)]
# Partitions with a concentration, and options for partitions only.
_BY_ALPHA = ('lda', 'dirichlet', 'inner_dirichlet')
_ONLY_DIVIDED = (
  'num_clients',
  'alpha',
  'partition',
  'sizes',
  'examples_per_client',
  'smallest_client',
)


@catalogue.task(
  'table',
  summary='Learn from data of your own: tables, texts, images in folders.',
  model='1 hidden layer of 64, or your own (--model)',
  clients='a column names them, or each is a file',
  files=('what --table_path names',),
  flags=dict(model='model'),
  functions=('model',),
  model_from_data=True,
)
class Table(shared.Divided):
  """Features float32, labels int32 or one float32."""

  later: ClassVar[frozenset[str]] = shared.Divided.later | {
    'partition',
    'partition_by',
    'group_size',
    'text',
    'schema',
    'vocabulary',
    'vocab_size',
    'max_length',
    'image_size',
    'examples_per_client',
    'smallest_client',
    'classes_per_client',
  }

  path: Optional[str] = None
  """A CSV file whose first line names the columns, a Parquet or Arrow file, a
  folder of such files or of folders of images, a dataset that Hugging Face's
  `save_to_disk` wrote, or an .npz archive of arrays."""

  label: str = 'label'
  """Column or array with the labels."""

  client: Optional[str] = None
  """Column or array with the client of each example; by default `client` if it
  exists. In a folder without one, each file is a client.
  """

  features: Optional[str] = None
  """Columns or arrays with the features, comma-separated; by default all
  others. A column of words is one-hot encoded.
  """

  words: Optional[str] = None
  """Features, comma-separated, to treat as words although they look like
  numbers or dates.
  """

  text: Optional[str] = None
  """Column of text to learn from, instead of features."""

  schema: Optional[str] = None
  """JSON file that describes columns instead of computing it from examples:
  {"age": [0, 120], "city": ["Rome", "Oslo"], "label": ["no", "yes"]} gives the
  range of numbers, which becomes -1 to 1, the words of a column, and the
  classes of the label. Images are the column "image".
  """

  vocabulary: Optional[str] = None
  """With text, 'fitted' for the most frequent words of training texts, the
  default; 'hashed' for hashes of words; or a file with one word per line.
  """

  vocab_size: Optional[_VocabularySize] = None
  """With text, maximum number of tokens; by default 5000."""

  max_length: Optional[parameters.Count] = None
  """With text, number of words used of each text; by default 64."""

  image_size: Optional[parameters.Count] = None
  """Edge length in pixels to which images are resized. By default all images
  must have the same size.
  """

  target: Literal['class', 'number'] = 'class'
  """Kind of label: one of several classes (any words), or a number to
  predict.
  """

  num_clients: Optional[parameters.Count] = None  # type: ignore[assignment]
  """Number of clients over which to partition the examples, if neither a column
  nor files assign them.
  """

  partition: Optional[shared.Rule] = None  # type: ignore[assignment]
  """With num_clients, the partition of the examples, one of those in
  docs/tasks.md; by default 'lda' if alpha is given, else 'iid'.
  """

  partition_by: Optional[str] = None
  """Numeric column by which 'continuous' sorts; by default the label."""

  group_size: parameters.Count = 1
  """Number of named clients that are merged into one."""

  alpha: Optional[parameters.Positive] = None  # type: ignore[assignment]
  """With num_clients, concentration of a Dirichlet distribution over classes:
  small means few classes per client. By default 0.1.
  """

  test_share: parameters.Share = 0.2
  """Fraction of each client's examples held out for testing."""

  standardize: bool = True
  """Whether to standardize each feature to mean 0 and deviation 1 over all
  training examples. An empty cell counts as its column's mean.
  """

  model: Optional[str] = None
  """package.module:function of a function that returns a model of Keras 2 or 3;
  it is called with `input_shape`, `num_classes` and, for text, `vocab_size` if
  it has arguments of these names. By default a dense model with a hidden layer
  of 64, preceded by two convolutions for image files, and for text by the mean
  of embeddings of 32.
  """

  cache_dir: Optional[str] = None
  """Folder to which a relative path refers; by default the current one."""

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default 20."""

  seed: parameters.NonNegativeInt = 0
  """Seed for the held-out examples, the partition and the synthetic table."""

  def check(self) -> None:
    super().check()
    # Before TensorFlow is imported; of folders the reader says it.
    if self.path is not None and arrow.is_arrow(pathlib.Path(self.path), False):
      if self.data == 'native' and (missing := arrow.missing_reader()):
        raise parameters.ParameterError(
          'path', '{}={given}: {missing}.', given=self.path, missing=missing
        )
    if self.partition_by is not None and self.partition != 'continuous':
      raise parameters.ParameterError(
        'partition_by',
        '{}={given} would be ignored: it needs {partition}=continuous.',
        given=self.partition_by,
      )
    for name in ('vocabulary', 'vocab_size', 'max_length'):
      if self.text is None and getattr(self, name) is not None:
        raise parameters.ParameterError(
          name,
          '{}={given} would be ignored: it needs {text}.',
          given=getattr(self, name),
        )
    for name in ('features', 'words'):
      if self.text is not None and getattr(self, name) is not None:
        raise parameters.ParameterError(
          name,
          '{}={given} would be ignored: {text} is all that is learnt from.',
          given=getattr(self, name),
        )
    for name in ('text', 'image_size'):
      if self.data == 'synthetic' and getattr(self, name) is not None:
        raise parameters.ParameterError(
          name,
          '{}={given} would be ignored: the synthetic table is numeric.',
          given=getattr(self, name),
        )
    if self.alpha is not None and self.partition not in (None, *_BY_ALPHA):
      raise parameters.ParameterError(
        'alpha',
        '{}={given} would be ignored: {partition}={rule}.',
        given=self.alpha,
        rule=self.partition,
      )

  def create(self) -> tff.simulation.baselines.BaselineTask:
    options = self.values
    if self.data == 'synthetic':
      examples = _made_up(self.seed)
    else:
      examples = tables.read(
        _path(self.path, self.cache_dir),
        columns.Names(
          self.label,
          self.client,
          _split_names(self.features),
          _split_names(self.words) or (),
          self.text,
        ),
        image_size=self.image_size,
      )
    schema = schemas.read(self.schema)
    labels, classes = _labels(
      examples, self.target, self.path or 'The table', schema.get(self.label)
    )
    who = _clients(examples, labels, options)
    train, test, split = _hold_out(who, self.test_share, self.seed)
    described, features = schemas.with_words(
      examples.columns, examples.features, schema
    )
    encoding = self._encoding(described, features[train], schema)
    inputs = encoding.encode(features)
    return assembly.partitioned_task(
      notes=encoding.notes,
      fitted=() if self.data == 'synthetic' else self._fitted(encoding, schema),
      classes=classes,
      train=dict(features=inputs[train], label=labels[train]),
      test=dict(features=inputs[test], label=labels[test]),
      split=split,
      options=options,
      batch_size=20,
      eval_batch_size=100,
      to_model=_to_model,
      may_fail=self.model is not None,
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

  def _fitted(
    self,
    encoding: table_encoding.Encoding | text_encoding.TextEncoding,
    schema: schemas.Schema,
  ) -> list[str]:
    """Describes what was computed from examples without noise."""
    fitted = []
    if isinstance(encoding, table_encoding.Encoding):
      fitted = encoding.fitted(schema, standardize=self.standardize)
    elif self.vocabulary in (None, 'fitted'):
      fitted.append(
        f'the vocabulary of {self.text!r} (--table_vocabulary=hashed or a file '
        'of words)'
      )
    if self.target == 'class' and self.label not in schema:
      fitted.append(f'the classes of {self.label!r} (--table_schema)')
    return fitted

  def _encoding(
    self,
    described: tuple[columns.Column, ...],
    training: np.ndarray,
    schema: schemas.Schema,
  ) -> table_encoding.Encoding | text_encoding.TextEncoding:
    """Fits the encoding of columns on training examples."""
    if self.text is None:
      return table_encoding.fit(
        described, training, standardize=self.standardize, schema=schema
      )
    return text_encoding.fit(
      described[0],
      training,
      vocabulary=self.vocabulary or 'fitted',
      size=self.vocab_size or 5000,
      max_length=self.max_length or 64,
    )


def _path(path: Optional[str], cache_dir: Optional[str]) -> pathlib.Path:
  """Returns the path of the table."""
  if path is None:
    raise parameters.ParameterError(
      'path',
      '{} must be given: a file (CSV, Parquet, Arrow or .npz), a folder of '
      'such files or of folders of images, or a saved dataset.',
    )
  return pathlib.Path(cache_dir or '', path).expanduser()


def _split_names(text: Optional[str]) -> Optional[list[str]]:
  """Splits comma-separated names of columns."""
  if text is None:
    return None
  return [name for name in map(str.strip, text.split(',')) if name]


def _made_up(seed: int) -> columns.Examples:
  """Generates 300 examples of 3 classes with 4 features and 12 clients."""
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
  examples: columns.Examples,
  target: str,
  where: str,
  given: Optional[Sequence[Any]],
) -> tuple[np.ndarray, tuple[str, ...]]:
  """Returns targets, and names of classes (empty for numbers)."""
  if target == 'number':
    for text in examples.labels:
      if isinstance(text, str) and columns.number(text) is None:
        raise data_errors.DataError(
          f'{where} has labels that are not finite numbers, such as '
          f'{text[:40]!r}; for classes, give --table_target=class.'
        )
    numbers = examples.labels.astype(np.float32)
    if not np.isfinite(numbers).all():
      raise data_errors.DataError(f'{where} has labels that are not finite.')
    return numbers[:, np.newaxis], ()
  if given is not None:
    known = {str(name): place for place, name in enumerate(given)}
    words = list(map(str, examples.labels))
    for word in words:
      if word not in known:
        raise data_errors.DataError(
          f'{where} has the label {word[:40]!r}, which --table_schema does not '
          f'list; it lists {", ".join(known)}.'
        )
    return np.array([known[word] for word in words], np.int32), tuple(known)
  classes, labels = np.unique(examples.labels, return_inverse=True)
  try:
    # Sorts numeric labels by value: 2 comes before 10.
    order = np.argsort(classes.astype(np.float64), kind='stable')
    classes, labels = classes[order], np.argsort(order)[labels]
  except ValueError:
    pass  # Words are sorted alphabetically.
  if len(classes) < 2:
    raise data_errors.DataError(
      f'{where} has the label {classes[0]!s} only; at least two classes are '
      'needed.'
    )
  if len(classes) > 1000 and len(classes) * 2 > len(labels):
    raise data_errors.DataError(
      f'{where} has {len(classes):,} different labels in {len(labels):,} rows; '
      'to predict numbers, give --table_target=number.'
    )
  return labels.astype(np.int32), tuple(map(str, classes))


def _clients(
  examples: columns.Examples, labels: np.ndarray, options: dict[str, Any]
) -> partition.Partition:
  """Partitions the examples over clients."""
  num_clients, alpha = options['num_clients'], options['alpha']
  if examples.clients is not None:
    for name in _ONLY_DIVIDED:
      if options[name] not in (None, 'equal'):
        raise parameters.ParameterError(
          name,
          '{}={given} would be ignored: the table already assigns examples to '
          'clients.',
          given=options[name],
        )
    return targets.grouped(
      partition.by_group(examples.clients), options['group_size']
    )
  if options['group_size'] > 1:
    raise parameters.ParameterError(
      'group_size',
      '{}={given} would be ignored: neither a column nor a file names clients.',
      given=options['group_size'],
    )
  if num_clients is None:
    raise parameters.ParameterError(
      'num_clients',
      'The table has no column {column!r} that names the client; give the '
      'column by {client}, or give {} to partition the examples.',
      column=columns.DEFAULT_CLIENT,
    )
  rule = options['partition'] or ('iid' if alpha is None else 'lda')
  if options['target'] != 'class' and rule not in ('iid', 'continuous'):
    name = 'alpha' if options['partition'] is None else 'partition'
    raise parameters.ParameterError(
      name,
      '{}={given} would be ignored: there are no classes with '
      "{target}=number; use 'continuous' for {partition}.",
      given=options[name],
    )
  values = None
  if rule == 'continuous':
    values = _sorted_by(examples, labels, options['partition_by'])
  return splits.build(
    np.ravel(labels),
    {
      **options,
      'partition': rule,
      'alpha': 0.1 if alpha is None else alpha,
      'data': 'native',  # Synthetic data name their clients.
    },
    values=values,
  )


def _sorted_by(
  examples: columns.Examples, labels: np.ndarray, name: Optional[str]
) -> np.ndarray:
  """Returns the numbers by which 'continuous' sorts examples."""
  if name is None:
    return np.ravel(labels)
  numbers = {
    column.name: place
    for place, column in enumerate(examples.columns)
    if examples.features.ndim == 2
    and not column.words
    and len(examples.columns) == examples.features.shape[1]
  }
  if name not in numbers:
    raise parameters.ParameterError(
      'partition_by',
      '{}={given} must be a numeric feature column, one of {known}.',
      given=name,
      known=', '.join(list(numbers)[:10]) or 'none',
    )
  values = examples.features[:, numbers[name]]
  known = ~np.isnan(values)
  return np.where(known, values, values[known].mean())


def _hold_out(
  who: partition.Partition, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray, partition.Partition]:
  """Draws each client's test examples.

  Returns:
    Indices of training and of test examples, and the partition of training
    examples. Every client keeps at least one.
  """
  rng = np.random.default_rng([seed, 0x7E57])
  train, test = [], []
  for indices in who.indices:
    mixed = rng.permutation(indices)
    # Random rounding, so that the fraction also holds over many small clients.
    cut = min(int(len(mixed) * share + rng.random()), len(mixed) - 1)
    test.append(mixed[:cut])
    train.append(np.sort(mixed[cut:]))
  held_out = rng.permutation(np.concatenate(test))
  if not len(held_out):
    raise data_errors.PartitionError(
      'No client has enough examples to hold one out for testing; give more '
      'examples, or a larger --table_test_share.'
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
  encoding: table_encoding.Encoding | text_encoding.TextEncoding,
) -> Callable[[], tf.keras.Model]:
  """Returns a function that builds the model; calls users' functions once."""
  outputs = len(classes) or 1

  def noted(model: tf.keras.Model) -> tf.keras.Model:
    return table_encoding.note(class_names.note(model, classes), encoding)

  sizes, begin = {}, []
  if isinstance(encoding, text_encoding.TextEncoding):
    sizes['vocab_size'] = encoding.size
    begin = _text_layers(encoding.size)
  elif len(encoding.columns) == 1 and encoding.columns[0].image:
    begin = _image_layers()
  if place is None:
    return lambda: noted(_dense(input_shape, outputs, begin))
  function = own_code.load(place)
  known = dict(input_shape=input_shape, num_classes=outputs, **sizes)
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
  """Raises `OwnCodeError` for models that cannot be trained well."""
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
      f'{place} must return a built model (its first layer states the input '
      f'shape) with the output shape {(None, outputs)}, got {shape}.'
    )
  activation = getattr(model.layers[-1], 'activation', None)
  name = getattr(activation, '__name__', '')
  if name in ('softmax', 'sigmoid'):
    raise own_code.OwnCodeError(
      f'{place} returns a model that ends in {name}; remove it, as the loss '
      'expects logits.'
    )
  if any(
    base.__name__ == 'BatchNormalization'
    for layer in model.layers
    for base in type(layer).__mro__
  ):
    raise own_code.OwnCodeError(
      f'{place} returns a model with batch normalisation, whose moving '
      'averages are not aggregated; use GroupNormalization.'
    )


def _text_layers(vocab_size: int) -> list[Callable[[], tf.keras.layers.Layer]]:
  """Returns builders of layers that map tokens to a vector."""
  layers = tf.keras.layers
  return [
    lambda: layers.Embedding(vocab_size, 32, mask_zero=True),
    layers.GlobalAveragePooling1D,
  ]


def _image_layers() -> list[Callable[[], tf.keras.layers.Layer]]:
  """Returns builders of convolutional layers for small images."""
  layers = tf.keras.layers
  return [
    lambda: layers.Conv2D(16, 3, activation='relu', padding='same'),
    lambda: layers.MaxPool2D(padding='same'),
    lambda: layers.Conv2D(32, 3, activation='relu', padding='same'),
    lambda: layers.MaxPool2D(padding='same'),
  ]


def _dense(
  input_shape: tuple[int, ...],
  outputs: int,
  begin: Sequence[Callable[[], tf.keras.layers.Layer]],
) -> tf.keras.Model:
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer(input_shape),
      *(build() for build in begin),
      layers.Flatten(),
      layers.Dense(64, activation='relu'),
      layers.Dense(outputs),
    ]
  )
