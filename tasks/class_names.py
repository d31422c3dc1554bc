"""Names of classes by label, for tasks where they are known.

They are known for published data sets, and for models to which a task has
attached them. The export of a model uses them.
"""

import string
from collections.abc import Sequence
from typing import Any

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

_NAMES: dict[str, tuple[str, ...]] = {
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
_FIRST = {'emnist_character': len(_DIGITS)}


def note(keras_model: Any, names: Sequence[str]) -> Any:
  """Attaches names of classes to a Keras model.

  Args:
    keras_model: The model, whose attribute `class_names` is set.
    names: Names by label; empty for regression models.

  Returns:
    The model.
  """
  keras_model.class_names = list(names)
  return keras_model


def of(task: str, count: int, keras_model: Any = None) -> tuple[str, ...]:
  """Returns a task's names of classes by label; empty if unknown.

  Args:
    task: The task's name.
    count: Number of classes of its model.
    keras_model: The model, whose attribute `class_names` takes precedence.
  """
  names = tuple(getattr(keras_model, 'class_names', ())) or _NAMES.get(task, ())
  if count in (len(names), _FIRST.get(task)):
    return names[:count]
  return ()
