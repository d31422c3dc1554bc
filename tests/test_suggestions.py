"""Misspelt names are answered by similar ones, from Python too."""

import pytest

import tasks
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import training


@pytest.mark.parametrize(
  'call, hint',
  [
    (
      lambda: algorithms.build('fedadm', None),
      r"got 'fedadm' \(did you mean fedadam",
    ),
    (
      lambda: algorithms.check('fedadam', server_learning_rat=1),
      r'does not use it \(did you mean `server_learning_rate`',
    ),
    (
      lambda: algorithms.check('fedavg', client_optimizer='addam'),
      r"got 'addam' \(did you mean adam",
    ),
    (
      lambda: optimizers.server('yoggi', learning_rate=1),
      r"got 'yoggi' \(did you mean yogi\?\)",
    ),
    (
      lambda: optimizers.server('adam', learning_rat=1),
      r"'learning_rat' \(did you mean learning_rate",
    ),
    (lambda: tasks.create('digit'), r"got 'digit' \(did you mean digits\?\)\."),
    (
      lambda: tasks.create('digits', alpa=1),
      r'no option `alpa` \(did you mean alpha\?\); it accepts',
    ),
    (
      lambda: training.settings(task='digit'),
      r"got 'digit' \(did you mean digits\?\)\.",
    ),
    (
      lambda: training.settings(algorithm='fedavg', client_optimizer='sdg'),
      r"got 'sdg' \(did you mean sgd or dog\?\)\.",
    ),
  ],
)
def test_misspelt_names_are_answered_by_similar_ones(call, hint):
  with pytest.raises(ValueError, match=hint):
    call()


def test_names_like_no_other_have_no_suggestion():
  with pytest.raises(ValueError) as error:
    algorithms.check('xyz')
  assert str(error.value).endswith("got 'xyz'.")
