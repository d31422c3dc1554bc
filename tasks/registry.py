"""What tasks there are, told without importing TensorFlow.

Whoever adds a task writes `tasks/<name>.py` with a `create` function and its
test, and describes it here.
"""

from collections.abc import Mapping
import dataclasses
import types
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Published:
  """Settings of the paper that introduced a task.

  Attributes:
    source: The paper.
    rounds: Number of rounds.
    clients_per_round: Clients in a round.
    batch_size: Examples in a batch; the task's default.
    epochs: Passes over a client's data in a round.
  """

  source: str
  rounds: int
  clients_per_round: int
  batch_size: int
  epochs: int = 1


@dataclasses.dataclass(frozen=True)
class TaskInfo:
  """A task, in words.

  Attributes:
    name: As `tasks.create` takes it.
    summary: One line.
    model: The model, with its number of trainable weights at the defaults.
    clients: Where clients come from and how many there are.
    files: Files that `data='native'` reads, relative to `cache_dir`.
    published: The paper's settings; None where there is no paper.
  """

  name: str
  summary: str
  model: str
  clients: str
  files: tuple[str, ...] = ()
  published: Optional[Published] = None


_AFO = 'Reddi et al., arXiv 2003.00295'
_DELTA_SGD = 'Kim et al., arXiv 2306.11201'
_FEDSPS = 'Mukherjee et al., arXiv 2307.06306'
_FEDADA2 = 'Lee et al., arXiv 2410.18117'

_TASKS = (
    TaskInfo(
        name='digits',
        summary='Handwritten digits of scikit-learn, 8 x 8, by label skew.',
        model='CNN, 2 convolutions and 2 dense layers, 13,706 weights',
        clients='20 (--digits_num_clients), Dirichlet label skew',
    ),
    TaskInfo(
        name='emnist_character',
        summary='Recognise handwritten characters, one client per writer.',
        model='CNN with dropout, 1,206,590 weights (62 classes)',
        clients='3,400 writers, 671,585 training examples',
        files=('emnist_all.sqlite',),
        published=Published(_AFO, 1500, 10, 20),
    ),
    TaskInfo(
        name='emnist_autoencoder',
        summary='Compress handwritten characters to 30 numbers and back.',
        model='8 dense layers, 2,837,314 weights',
        clients='3,400 writers, 671,585 training examples',
        files=('emnist_all.sqlite',),
        published=Published(_AFO, 3000, 10, 20),
    ),
    TaskInfo(
        name='shakespeare_character',
        summary='Predict the next character of a role in Shakespeare.',
        model='2 LSTM layers, 820,522 weights',
        clients='715 roles, 16,068 speeches',
        files=('shakespeare.sqlite',),
        published=Published(_AFO, 1500, 10, 4),
    ),
    TaskInfo(
        name='stackoverflow_word',
        summary='Predict the next word of a sentence on Stack Overflow.',
        model='LSTM, 4,050,748 weights',
        clients='342,477 users, 135,818,730 sentences',
        files=('stackoverflow.sqlite', 'stackoverflow.word_count'),
        published=Published(_AFO, 1500, 50, 16),
    ),
    TaskInfo(
        name='stackoverflow_tag',
        summary='Predict the tags of a post on Stack Overflow.',
        model='logistic regression, 5,000,500 weights',
        clients='342,477 users, 135,818,730 sentences',
        files=(
            'stackoverflow.sqlite',
            'stackoverflow.word_count',
            'stackoverflow.tag_count',
        ),
        published=Published(_AFO, 1500, 10, 100),
    ),
    TaskInfo(
        name='cifar10_image',
        summary='Classify the images of CIFAR-10, split by label skew.',
        model='ResNet-18 with group normalisation, 11,181,642 weights',
        clients='500 of 100 images (--cifar10_image_num_clients)',
        files=('cifar10/train.jpegs', 'cifar10/test.jpegs'),
        published=Published(_AFO, 4000, 10, 20),
    ),
    TaskInfo(
        name='cifar100_image',
        summary='Classify the images of CIFAR-100, split by Pachinko allocation.',
        model='ResNet-18 with group normalisation, 11,227,812 weights',
        clients='500 of 100 images',
        files=('cifar100.sqlite',),
        published=Published(_AFO, 4000, 10, 20),
    ),
    TaskInfo(
        name='mnist_character',
        summary='Recognise the digits of MNIST, by label skew or by writer.',
        model='CNN with dropout, 21,840 weights',
        clients='100 of 500 digits (--mnist_character_num_clients), or 539 writers',
        files=(
            'mnist/train-images-idx3-ubyte',
            'mnist/train-labels-idx1-ubyte',
            'mnist/t10k-images-idx3-ubyte',
            'mnist/t10k-labels-idx1-ubyte',
        ),
        published=Published(_DELTA_SGD, 500, 10, 64),
    ),
    TaskInfo(
        name='fmnist',
        summary='Classify the clothes of Fashion-MNIST, split by label skew.',
        model='CNN with dropout, 21,840 weights',
        clients='100 of 500 images (--fmnist_num_clients)',
        files=(
            'fashion_mnist/train-images-idx3-ubyte',
            'fashion_mnist/train-labels-idx1-ubyte',
            'fashion_mnist/t10k-images-idx3-ubyte',
            'fashion_mnist/t10k-labels-idx1-ubyte',
        ),
        published=Published(_DELTA_SGD, 1000, 10, 64),
    ),
    TaskInfo(
        name='mnist_logistic',
        summary='Logistic regression on MNIST, a convex problem.',
        model='logistic regression, 7,850 weights',
        clients='10 of 6,000 digits (--mnist_logistic_num_clients)',
        files=(
            'mnist/train-images-idx3-ubyte',
            'mnist/train-labels-idx1-ubyte',
            'mnist/t10k-images-idx3-ubyte',
            'mnist/t10k-labels-idx1-ubyte',
        ),
        published=Published(_FEDSPS, 500, 10, 20),
    ),
    TaskInfo(
        name='mnist_lenet',
        summary='LeNet on MNIST, two labels a client.',
        model='LeNet-5, 61,706 weights',
        clients='100 with two labels each (--mnist_lenet_num_clients)',
        files=(
            'mnist/train-images-idx3-ubyte',
            'mnist/train-labels-idx1-ubyte',
            'mnist/t10k-images-idx3-ubyte',
            'mnist/t10k-labels-idx1-ubyte',
        ),
        published=Published(_FEDSPS, 500, 10, 20),
    ),
    TaskInfo(
        name='libsvm_logistic',
        summary='Logistic regression on a9a, w8a, ijcnn1, mushrooms, phishing.',
        model='logistic regression, 301 weights for w8a',
        clients='100 of equal size (--libsvm_logistic_num_clients)',
        files=('libsvm/w8a',),
        published=Published(_FEDSPS, 500, 10, 20),
    ),
    TaskInfo(
        name='quadratic',
        summary='Two parabolas of one weight, the second a times as steep.',
        model='1 weight',
        clients='2',
        published=None,
    ),
)

TASKS: Mapping[str, TaskInfo] = types.MappingProxyType(
    {task.name: task for task in _TASKS}
)
