"""The registry of tasks' descriptions, and names of classes.

Each task registers itself. Importing this module does not import TensorFlow.
"""

import dataclasses
import importlib.metadata
import string
from collections.abc import Callable, Mapping
from typing import Any, Optional, TypeVar

from tasks import shared
from tff_adaptive import errors
from tff_adaptive import extensions

# Group of entry points that name functions which return tasks.
GROUP = 'tff_adaptive.tasks'


@dataclasses.dataclass(frozen=True)
class Published:
  """Settings of the paper that introduced a task.

  Attributes:
    source: Reference of the paper.
    rounds: Number of rounds.
    clients_per_round: Number of clients in a round.
    batch_size: Number of examples in a batch; the task's default.
    epochs: Number of passes over a client's data in a round.
  """

  source: str
  rounds: int
  clients_per_round: int
  batch_size: int
  epochs: int = 1


@dataclasses.dataclass(frozen=True)
class TaskInfo:
  """The description of a task.

  Attributes:
    name: Name in `tasks.create`.
    summary: One-line summary.
    model: The model and its number of trainable weights at the defaults.
    clients: Origin and number of clients.
    files: Files of `data='native'`, relative to `cache_dir`; ' or ' is between
      those of which one is enough.
    published: The paper's settings; None if it states none.
    num_clients: Number of clients; None if it depends on data or options.
    small_options: Options that make the task cheap for smoke tests, together
      with `data='synthetic'`.
    test_is_problem: Whether the test data define the whole problem to solve, so
      that no validation data can be set apart.
    options: Class of its options, whose `create` creates the task; None for a
      user's function.
    place: A user's function, 'package.module:function', or ''.
    flags: Names of flags by option, where they are not the task's name followed
      by the option's.
    functions: Options that name a user's function.
    model_from_data: Whether the model's shape depends on the data, so that
      synthetic data cannot be used to build it.
  """

  name: str
  summary: str
  model: str
  clients: str
  files: tuple[str, ...] = ()
  published: Optional[Published] = None
  num_clients: Optional[int] = None
  small_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  test_is_problem: bool = False
  options: Optional[type[shared.Options]] = None
  place: str = ''
  flags: Mapping[str, str] = dataclasses.field(default_factory=dict)
  functions: tuple[str, ...] = ()
  model_from_data: bool = False

  @property
  def own(self) -> bool:
    """Whether a user's function creates the task."""
    return bool(self.place)


def short(name: str) -> str:
  """Returns a task's short name, the prefix of its flags and folders.

  For 'package.module:function' that is the function, or the module if the
  function is called `create`.
  """
  module, colon, function = name.partition(':')
  if colon and function == 'create':
    return module.rpartition('.')[2]
  return function if colon else name


def idx_files(folder: str) -> tuple[str, ...]:
  """Returns paths of the four IDX files of MNIST and similar data sets."""
  return tuple(
    f'{folder}/{part}-{kind}-ubyte'
    for part in ('train', 't10k')
    for kind in ('images-idx3', 'labels-idx1')
  )


def own(name: str, place: str) -> TaskInfo:
  """Builds the description of a user's function without importing it."""
  return TaskInfo(
    name=name,
    summary='',
    model='',
    clients='',
    place=place,
    model_from_data=True,
  )


def _add_entry_points(table: Any) -> None:
  """Adds the tasks of other packages' entry points.

  Raises:
    SettingsError: If one cannot be added.
  """
  added: dict[str, str] = {}
  for entry in importlib.metadata.entry_points(group=GROUP):
    if added.get(entry.name) == entry.value:  # A package found twice.
      continue
    added[entry.name] = entry.value
    try:
      table.add(entry.name, own(entry.name, entry.value))
    except ValueError as e:
      raise errors.SettingsError(
        f'The entry point {entry.name} of the group {GROUP}: {e}'
      ) from e


TASKS: extensions.Table[TaskInfo] = extensions.Table(
  ['tasks.images', 'tasks.text', 'tasks.problems'], _add_entry_points
)
_Class = TypeVar('_Class', bound=type[shared.Options])


def task(name: str, **described: Any) -> Callable[[_Class], _Class]:
  """Decorates a subclass of `shared.Options` to register it as a task.

  Args:
    name: The task's name.
    **described: Further attributes of `TaskInfo`.

  Raises:
    ValueError: If the name is taken.
  """

  def add(options: _Class) -> _Class:
    if not (isinstance(options, type) and issubclass(options, shared.Options)):
      raise TypeError(
        f'The task {name} must derive from tasks.Options, got {options!r}.'
      )
    TASKS.add(name, TaskInfo(name=name, options=options, **described))
    return options

  return add


_DIGITS = tuple(string.digits)
_LETTERS = tuple(string.ascii_uppercase + string.ascii_lowercase)

_CIFAR_10 = 'airplane automobile bird cat deer dog frog horse ship truck'
_CIFAR_100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy
bridge bus butterfly camel can castle caterpillar cattle chair chimpanzee clock
cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange
orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper
snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

_CLASSES: dict[str, tuple[str, ...]] = {
  'digits': _DIGITS,
  'mnist_character': _DIGITS,
  'mnist_logistic': _DIGITS,
  'mnist_lenet': _DIGITS,
  'emnist_character': _DIGITS + _LETTERS,
  'fmnist': (
    'T-shirt/top',
    'Trouser',
    'Pullover',
    'Dress',
    'Coat',
    'Sandal',
    'Shirt',
    'Sneaker',
    'Bag',
    'Ankle boot',
  ),
  'cifar10_image': tuple(_CIFAR_10.split()),
  'cifar100_image': tuple(_CIFAR_100.split()),
  'ag_news': ('World', 'Sports', 'Business', 'Sci/Tech'),
  'dbpedia': (
    'Company',
    'EducationalInstitution',
    'Artist',
    'Athlete',
    'OfficeHolder',
    'MeanOfTransportation',
    'Building',
    'NaturalPlace',
    'Village',
    'Animal',
    'Plant',
    'Album',
    'Film',
    'WrittenWork',
  ),
}
# Tasks that may use the first classes only, and the number of these.
_FIRST_CLASSES = {'emnist_character': len(_DIGITS)}


def classes_of(
  task: str, count: int, keras_model: Any = None
) -> tuple[str, ...]:
  """Returns a task's names of classes by label; empty if unknown.

  Args:
    task: The task's name.
    count: Number of classes of its model.
    keras_model: The model, whose attribute `class_names` takes precedence.
  """
  names = tuple(getattr(keras_model, 'class_names', ())) or _CLASSES.get(
    task, ()
  )
  if count in (len(names), _FIRST_CLASSES.get(task)):
    return names[:count]
  return ()
