"""The names of tasks' classes, by label, where they are known.

They are known for published data sets, and for models on which a task has noted
them. The export of a model reads them here.
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
# Tasks that can do with the first classes alone.
_FIRST = {'emnist_character': len(_DIGITS)}


def note(keras_model: Any, names: Sequence[str]) -> Any:
  """Notes the names of its classes on a Keras model.

  Args:
    keras_model: The model. What is noted goes with it wherever its task goes.
    names: The classes in the order of their labels; none of them for a model
      of numbers.

  Returns:
    The model.
  """
  keras_model.class_names = list(names)
  return keras_model


def of(task: str, count: int, keras_model: Any = None) -> tuple[str, ...]:
  """Lists a task's classes by label; none where they are not known.

  Args:
    task: The task's name.
    count: How many classes its model tells apart.
    keras_model: The model, whose `class_names` come first if it has any.
  """
  names = tuple(getattr(keras_model, 'class_names', ())) or _NAMES.get(task, ())
  if count in (len(names), _FIRST.get(task)):
    return names[:count]
  return ()
