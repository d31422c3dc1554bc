"""Users' tables, texts and folders of images, with any Keras model.

A row is an example: one column is its label, one may name its client, and the
others are features, or one is a text. A fraction of each client's examples is
held out for testing.
"""

from __future__ import annotations

import csv
import functools
import inspect
import pathlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Optional

import numpy as np

from tasks import partition
from tasks import registry
from tasks import shared
from tasks import user_tasks
from tasks.formats import data_files
from tasks.lazy import builders
from tasks.lazy import columns
from tasks.lazy import encodings
from tasks.lazy import tables
from tasks.partitioners import splits
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lazy import pandas
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

# Tokens of padding, of unknown words, and of at least one word.
_VocabularySize = Annotated[int, parameters.Range(low=3)]
# Options for partitions only.
_ONLY_DIVIDED = (
  'num_clients',
  'alpha',
  'partition',
  'sizes',
  'examples_per_client',
  'smallest_client',
)


class _Loaded(NamedTuple):
  """A table whose rows belong to clients."""

  schema: columns.Schema
  examples: tables.Examples
  labels: np.ndarray
  classes: tuple[str, ...]
  who: partition.Partition
  notes: list[str]


# What `Table.check_data` has read, for `Table.create`.
_READ: dict[Table, _Loaded] = {}


@registry.task(
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
    'decimal',
    'drop_unlabelled',
    'schema',
    'thousands',
    'time',
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
  `save_to_disk` wrote, or an .npz archive of arrays. Files or folders called
  train, test and validation are splits."""

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

  decimal: Optional[Literal['.', ',']] = None
  """Decimal mark of numbers; by default a point, or a comma if `thousands` is a
  point.
  """

  thousands: Optional[Literal['.', ',', ' ', "'", '_']] = None
  """Mark between thousands; by default there is none."""

  time: Optional[str] = None
  """Column of times or numbers: the last examples of each client are held out
  for testing, instead of random ones.
  """

  drop_unlabelled: bool = False
  """Whether to leave out rows without a label, which are an error otherwise.
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
    arrow = self.data == 'native' and (self.path or '').endswith(
      data_files.ARROW
    )
    missing = data_files.missing_arrow() if arrow else ''
    ignored = '{}={given} would be ignored: '
    texts = ('vocabulary', 'vocab_size', 'max_length')
    others = ('features', 'words', 'image_size')
    synthetic = self.data == 'synthetic'
    for names, applies, problem in (
      (('path',), missing, '{}={given}: {missing}.'),
      (
        ('thousands',),
        self.thousands == self.decimal,
        '{}={given} is also the mark of decimals, {decimal}.',
      ),
      (
        ('partition_by',),
        self.partition != 'continuous',
        ignored + 'it needs {partition}=continuous.',
      ),
      (texts, self.text is None, ignored + 'it needs {text}.'),
      (
        others,
        self.text is not None,
        ignored + '{text} is all that is learnt from.',
      ),
      (
        ('text', 'image_size'),
        synthetic,
        ignored + 'the synthetic table is numeric.',
      ),
    ):
      for name in names:
        if applies and (given := getattr(self, name)) is not None:
          raise parameters.ParameterError(
            name, problem, given=given, missing=missing
          )

  def check_data(self, files: Sequence[str]) -> int:
    _READ.clear()
    _READ[self] = self._load()
    return len(_READ[self].who.client_ids)

  def _load(self) -> _Loaded:
    """Reads the table and assigns its rows to clients."""
    schema = columns.read_schema(self.schema)
    synthetic = self.data == 'synthetic'
    examples = _made_up(self.seed) if synthetic else self._read(schema)
    known = {self.label, self.client, self.time, tables.DEFAULT_CLIENT}
    known |= {column.name for column in examples.columns}
    strange = sorted({*schema} - known)
    chosen = self.features is not None or self.text is not None
    if strange and not chosen and not synthetic:
      raise data_files.DataError(
        f'--table_schema: there is no column {strange[0]!r}; the features are '
        f'{columns.listed(c.name for c in examples.columns)}.'
      )
    labels, classes, notes = _labels(examples, self, schema.get(self.label))
    who, told = _clients(examples, labels, self.values)
    return _Loaded(
      schema, examples, labels, classes, who, [*examples.notes, *notes, *told]
    )

  def create(self) -> tff.simulation.baselines.BaselineTask:
    synthetic = self.data == 'synthetic'
    schema, examples, labels, classes, who, notes = (
      _READ.pop(self) if self in _READ else self._load()
    )
    train, test, split = _hold_out(examples, who, self)
    encoding: encodings.Encoding
    if self.text is None:
      encoding = encodings.fit(
        examples, train, standardize=self.standardize, schema=schema
      )
    else:
      encoding = encodings.fit_text(
        examples,
        train,
        vocabulary=self.vocabulary or 'fitted',
        size=self.vocab_size or 5000,
        max_length=self.max_length or 64,
      )
    inputs = encoding.encode(examples)
    shift, scale = 0.0, 1.0
    if self.target == 'number':
      labels, shift, scale = self._scaled(labels, train, schema)
      encoding.target = (shift, scale)
    validation = None
    if len(rows := np.flatnonzero(examples.split == 'validation')):
      validation = tf.data.Dataset.from_tensor_slices(
        dict(features=inputs[rows], label=labels[rows])
      )
      validation.is_given = True
    return builders.partitioned_task(
      notes=[*notes, *encoding.notes],
      classes=classes,
      label_unit=(shift, scale),
      fitted=() if synthetic else self._fitted(encoding, schema),
      train=dict(features=inputs[train], label=labels[train]),
      test=dict(features=inputs[test], label=labels[test]),
      split=split,
      options=self.values,
      batch_size=20,
      eval_batch_size=100,
      to_model=_to_model,
      may_fail=self.model is not None,
      build_model=_model_builder(
        self.model, inputs.shape[1:], classes, encoding
      ),
      validation_data=validation,
      **(
        dict(
          loss=builders.cross_entropy,
          metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
        )
        if self.target == 'class'
        else dict(
          loss=tf.keras.losses.MeanSquaredError,
          metrics=[functools.partial(builders.ScaledAbsoluteError, scale)],
        )
      ),
    )

  def _read(self, schema: columns.Schema) -> tables.Examples:
    """Reads the table."""
    features = _split_names(self.features)
    words = _split_names(self.words) or []
    aside = self.label, self.client or tables.DEFAULT_CLIENT, self.time
    words += [
      name
      for name, values in schema.items()
      if name not in (*aside, *words)
      and self.text is None
      and (features is None or name in features)
      and all(isinstance(value, str) for value in values)
    ]
    return tables.read(
      _path(self.path, self.cache_dir),
      tables.Names(
        self.label,
        self.client,
        features,
        words,
        self.text,
        self.time,
        self.decimal,
        self.thousands,
        self.image_size,
        self.drop_unlabelled,
        [
          name
          for name in (*words, self.label)
          if tables.any_is_empty(schema.get(name, ()))
        ],
      ),
    )

  def _scaled(
    self, labels: np.ndarray, train: np.ndarray, schema: columns.Schema
  ) -> tuple[np.ndarray, float, float]:
    """Scales numbers to predict; returns them, the offset and the divisor."""
    shift, scale = 0.0, 1.0
    if self.label in schema:
      low, high = columns.range_of(schema, self.label)
      shift, scale = (low + high) / 2, (high - low) / 2
    elif self.standardize:
      shift = float(labels[train].mean())
      scale = float(labels[train].std()) or 1.0
    return ((labels - shift) / scale).astype(np.float32), shift, scale

  def _fitted(
    self, encoding: encodings.Encoding, schema: columns.Schema
  ) -> list[str]:
    """Describes what was computed from examples without noise."""
    fitted = []
    if isinstance(encoding, encodings.TableEncoding):
      fitted = encoding.fitted(schema)
    elif self.vocabulary in (None, 'fitted'):
      fitted.append(
        f'the vocabulary of {self.text!r} (--table_vocabulary=hashed or a file '
        'of words)'
      )
    if self.label not in schema:
      if self.target == 'class':
        fitted.append(f'the classes of {self.label!r} (--table_schema)')
      elif self.standardize:
        fitted.append(
          f'mean and deviation of {self.label!r} (its range by --table_schema)'
        )
    return fitted


def _path(path: Optional[str], cache_dir: Optional[str]) -> pathlib.Path:
  """Returns the path of the table."""
  if path is None:
    raise parameters.ParameterError(
      'path',
      '{} must be given: a file (CSV, Parquet, Arrow or .npz), a folder of '
      'CSV, Parquet or Arrow files, or of folders of images, or a saved '
      'dataset.',
    )
  return pathlib.Path(cache_dir or '', path).expanduser()


def _split_names(text: Optional[str]) -> Optional[list[str]]:
  """Splits comma-separated names of columns."""
  if text is None:
    return None
  # As CSV files write names: in quotes if they have commas.
  try:
    parts = next(csv.reader([text], skipinitialspace=True), [])
  except csv.Error as e:
    raise data_files.DataError(f'{text!r} lists no columns: {e}.') from e
  names = dict.fromkeys(map(str.strip, parts))
  return [name for name in names if name]


def _made_up(seed: int) -> tables.Examples:
  """Generates 300 examples of 3 classes with 4 features and 12 clients."""
  rng = np.random.default_rng([seed, 0x7AB1E])
  labels = rng.permutation(np.arange(300) % 3)
  centres = rng.normal(0, 2, [3, 4])
  numbers = (centres[labels] + rng.normal(0, 1, [300, 4])).astype(np.float32)
  clients = rng.permutation([f'client_{i % 12:02}' for i in range(300)])
  return tables.Examples(
    columns=tuple(map(columns.Column, 'abcd')),
    numbers=numbers.astype(np.float64),
    words=pandas.DataFrame(),
    labels=pandas.Series(labels),
    clients=pandas.Series(clients, dtype=object),
    split=np.full(300, 'train'),
  )


def _labels(
  examples: tables.Examples, options: Table, given: Optional[Sequence[Any]]
) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
  """Returns targets, names of classes (empty for numbers), and notes."""
  where, cells = options.path or 'The table', examples.labels
  if options.target == 'number':
    values = _numbers(where, cells, examples.marks)
    told = 'The loss is of the scaled label; the error has its own unit.'
    return values[:, np.newaxis], (), [told] if options.standardize else []
  # Of words and numbers that are equal, one spelling, also in a schema.
  given_first = pandas.concat([pandas.Series(given or [], dtype=object), cells])
  words, notes = columns.names_of(given_first, 'labels', examples.marks)
  listed, words = words[: len(given or [])], words[len(given or []) :]
  if given is None:
    classes = sorted(set(words), key=_order)
    if columns.like_numbers(pandas.Series(classes)).all():
      _check_classes(where, classes, len(words))
    if any(_order(word)[0] for word in classes):
      classes.sort()
    if len(classes) < 2:
      raise data_files.DataError(
        f'{where} has the label {classes[0]!s} only; at least two classes are '
        'needed.'
      )
    if len(classes) > 1000 and len(classes) * 2 > len(words):
      raise data_files.DataError(
        f'{where} has {len(classes):,} different labels in {len(words):,} rows.'
      )
  else:
    classes = list(dict.fromkeys(listed))
    if unknown := sorted(set(words) - set(classes)):
      raise data_files.DataError(
        f'{where} has the label {unknown[0][:40]!r}, which --table_schema does '
        f'not list; it lists {", ".join(classes)}.'
      )
  counts = words.value_counts()
  shown = [f'{c[:40]!r} ({counts.get(c, 0):,} examples)' for c in classes[:10]]
  more = f' and {len(classes) - 10:,} more' if len(classes) > 10 else ''
  notes.append(f'{len(classes):,} classes: {", ".join(shown)}{more}.')
  places = {name: place for place, name in enumerate(classes)}
  return words.map(places).to_numpy(np.int32), tuple(classes), notes


def _order(word: str) -> tuple[int, float, str]:
  """Sorts numbers by value, so that 2 comes before 10, before words."""
  try:
    return 0, float(word), word
  except ValueError:
    return 1, 0.0, word


def _check_classes(where: str, classes: Sequence[str], rows: int) -> None:
  """Checks that numbers are classes rather than values to predict."""
  whole = all(_order(word)[1].is_integer() for word in classes)
  if len(classes) > 50 and (not whole or len(classes) * 2 > rows):
    raise data_files.DataError(
      f'{where} has {len(classes):,} different labels in {rows:,} rows, all of '
      'them numbers; to predict numbers, give --table_target=number.'
    )


def _numbers(where: str, cells: pandas.Series, marks: Any) -> np.ndarray:
  """Returns numbers to predict, float64 [rows]."""
  if pandas.api.types.is_numeric_dtype(cells):
    values = cells.to_numpy(np.float64)
  elif (found := columns.read_numbers(cells, marks)) is not None:
    values = found
  else:
    odd = columns.unreadable(cells, marks)
    raise data_files.DataError(
      f'{where} has labels that are not finite numbers, such as '
      f'{odd[:40]!r}; give their marks by --table_decimal and '
      '--table_thousands, or, for classes, --table_target=class.'
    )
  if not np.isfinite(values).all():
    raise data_files.DataError(f'{where} has labels that are not finite.')
  return values


def _clients(
  examples: tables.Examples, labels: np.ndarray, options: dict[str, Any]
) -> tuple[partition.Partition, list[str]]:
  """Partitions the rows of the split train; returns notes on client ids too."""
  num_clients, alpha = options['num_clients'], options['alpha']
  rows = np.flatnonzero(examples.split == 'train')
  labels = labels[rows]
  if examples.clients is not None:
    for name in _ONLY_DIVIDED:
      if options[name] not in (None, 'equal'):
        raise parameters.ParameterError(
          name,
          '{}={given} would be ignored: the table already assigns examples to '
          'clients.',
          given=options[name],
        )
    words, notes = columns.names_of(
      examples.clients.iloc[rows], 'clients', examples.marks
    )
    who = partition.grouped(
      partition.by_group(words.to_numpy().astype(str)), options['group_size']
    )
    return _of_rows(who, rows), notes
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
      column=tables.DEFAULT_CLIENT,
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
    values = _sorted_by(examples, rows, labels, options['partition_by'])
  who = splits.build(
    np.ravel(labels),
    {
      **options,
      'partition': rule,
      'alpha': 0.1 if alpha is None else alpha,
      'data': 'native',  # Synthetic data name their clients.
    },
    values=values,
  )
  return _of_rows(who, rows), []


def _of_rows(who: partition.Partition, rows: np.ndarray) -> partition.Partition:
  """Converts a partition of some rows to row numbers of the table."""
  return partition.Partition(
    who.client_ids, tuple(rows[indices] for indices in who.indices)
  )


def _sorted_by(
  examples: tables.Examples,
  rows: np.ndarray,
  labels: np.ndarray,
  name: Optional[str],
) -> np.ndarray:
  """Returns the numbers by which 'continuous' sorts examples."""
  if name is None:
    return np.ravel(labels)
  scalars = [c for c in examples.columns if c.kind == 'number']
  begins = np.cumsum([0, *(column.width for column in scalars)])
  numbers = {
    column.name: begin
    for column, begin in zip(scalars, begins)
    if column.width == 1
  }
  if name not in numbers:
    raise parameters.ParameterError(
      'partition_by',
      '{}={given} must be a numeric feature column, one of {known}.',
      given=name,
      known=', '.join(list(numbers)[:10]) or 'none',
    )
  values = examples.numbers[rows, numbers[name]]
  known = ~np.isnan(values)
  return np.where(known, values, values[known].mean())


def _hold_out(
  examples: tables.Examples, who: partition.Partition, options: Table
) -> tuple[np.ndarray, np.ndarray, partition.Partition]:
  """Returns test examples: those of a split, else each client's last or some.

  Returns:
    Indices of training and of test examples, and the partition of training
    examples. Every client keeps at least one.
  """
  rng = np.random.default_rng([options.seed, 0x7E57])
  train, test = [], [np.flatnonzero(examples.split == 'test')]
  share = 0.0 if len(test[0]) else options.test_share
  usual = parameters.parameters_of(Table)['test_share'].default
  if len(test[0]) and (options.time or options.test_share != usual):
    name = 'time' if options.time else 'test_share'
    raise parameters.ParameterError(
      name,
      '{}={given} would be ignored: there is a split test.',
      given=getattr(options, name),
    )
  for indices in who.indices:
    mixed = rng.permutation(indices)
    # Random rounding, so that the fraction also holds over many small clients.
    cut = min(int(len(mixed) * share + rng.random()), len(mixed) - 1)
    if not share:
      cut = 0
    elif examples.times is not None:
      times = examples.times.iloc[mixed].to_numpy()
      mixed = mixed[np.argsort(times, kind='stable')[::-1]]
    test.append(mixed[:cut])
    train.append(np.sort(mixed[cut:]))
  held_out = rng.permutation(np.concatenate(test))
  if not len(held_out):
    raise data_files.PartitionError(
      'No client has enough examples to hold one out for testing; '
      + (
        'merge clients by --table_group_size, such as 10.'
        if options.num_clients is None
        else 'give fewer clients, or a larger --table_test_share.'
      )
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
  encoding: encodings.Encoding,
) -> Callable[[], tf.keras.Model]:
  """Returns a function that builds the model; calls users' functions once."""
  outputs = len(classes) or 1

  def noted(model: tf.keras.Model) -> tf.keras.Model:
    model.class_names = list(classes)
    model.table_encoding = encoding
    return model

  sizes, begin = {}, []
  if isinstance(encoding, encodings.TextEncoding):
    sizes['vocab_size'] = encoding.size
    begin = _text_layers(encoding.size)
  elif encoding.columns[0].kind == 'image':
    begin = _image_layers()
  if place is None:
    return lambda: noted(_dense(input_shape, outputs, begin))
  function = user_tasks.load(place)
  known = dict(input_shape=input_shape, num_classes=outputs, **sizes)
  taken = inspect.signature(function).parameters
  given = {name: value for name, value in known.items() if name in taken}

  try:
    model = function(**given)
  except (Exception, SystemExit) as e:
    module = place.partition(':')[0]
    raise user_tasks.OwnCodeError(
      f'{place} fails: {user_tasks.failure(e, module)}.'
    ) from e
  _check_model(model, place, outputs, bool(classes))
  build = user_tasks.checked(lambda: function(**given), place, calls=1)
  return lambda: noted(build())


def _check_model(
  model: Any, place: str, outputs: int, has_classes: bool
) -> None:
  """Raises `OwnCodeError` for models that cannot be trained well."""
  # pylint: disable=g-import-not-at-top
  from tff_adaptive import models
  from tff_adaptive import tff_internals

  try:
    kind = models.kind_of(model)
  except TypeError as e:
    raise user_tasks.OwnCodeError(f'{place} fails: {errors.reason(e)}.') from e
  if kind is None:
    raise user_tasks.OwnCodeError(
      f'{place} must return a Keras model (tf.keras.Model, or keras.Model of '
      f'Keras 3), got {type(model).__name__}.'
    )
  shape: Any = 'no shape yet'
  if model.built:  # A subclass may not know it.
    shape = getattr(model, 'output_shape', 'no shape')
  if shape != (None, outputs):
    raise user_tasks.OwnCodeError(
      f'{place} must return a built model (its first layer states the input '
      f'shape) with the output shape {(None, outputs)}, got {shape}.'
    )
  last = model
  while getattr(last, 'layers', None):
    last = last.layers[-1]
  activation = getattr(last, 'activation', None)
  name = getattr(activation, '__name__', type(last).__name__.lower())
  if has_classes and name in ('softmax', 'sigmoid'):
    raise user_tasks.OwnCodeError(
      f'{place} returns a model that ends in {name}; remove it, as the loss '
      'expects logits.'
    )
  if any(
    layer.trainable and base.__name__ == 'BatchNormalization'
    for layer in tff_internals.layers_of(model)
    for base in type(layer).__mro__
  ):
    raise user_tasks.OwnCodeError(
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
