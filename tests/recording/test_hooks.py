"""What hooks are told, and that those from outside harm no run."""

import pytest

from tff_adaptive import errors
from tff_adaptive.lab.recording import hooks


class Collecting(hooks.Hook):
  def __init__(self):
    self.told = []

  def start(self, event):
    self.told.append(event)

  round = evaluation = end = start


EVENTS = {
  'start': hooks.Start(folder=None, total_rounds=2),
  'evaluation': hooks.Evaluation(round_number=0, values={'test/loss': 1.0}),
  'round': hooks.Round(row={'round': 1}),
  'end': hooks.End(status=hooks.FINISHED, round_number=2),
}


def tell_all(hook):
  for method, event in EVENTS.items():
    getattr(hook, method)(event)


def test_several_are_told_in_their_order():
  first, second = Collecting(), Collecting()
  tell_all(hooks.HookList([first, hooks.Hook(), second]))
  assert first.told == second.told == list(EVENTS.values())


@pytest.mark.parametrize('method', EVENTS)
def test_a_hook_that_fails_is_told_once_and_left_out(method):
  said = []

  class Failing(Collecting):
    name = 'somewhere'

  def fail(event):
    raise KeyError('no such thing')

  hook = Failing()
  setattr(hook, method, fail)
  guarded = hooks.Guarded(hook, said.append)
  tell_all(guarded)
  tell_all(guarded)
  assert len(said) == 1
  assert 'recorder somewhere is disabled' in said[0]
  assert "KeyError: 'no such thing'" in said[0]
  assert hook.told == list(EVENTS.values())[: list(EVENTS).index(method)]


def test_a_hook_may_give_a_run_up():
  hook = Collecting()

  def give_up(event):
    raise errors.RunError('Enough.')

  hook.round = give_up
  with pytest.raises(errors.RunError, match='Enough'):
    tell_all(hooks.Guarded(hook, print))


def test_all_are_told_of_the_end_even_if_one_fails():
  class Full(hooks.Hook):
    def end(self, event):
      raise errors.RunError('The disk is full.')

  later = Collecting()
  with pytest.raises(errors.RunError, match='disk is full'):
    hooks.HookList([Full(), later]).end(EVENTS['end'])
  assert later.told == [EVENTS['end']]


def test_some_of_the_methods_will_do():
  class Rounds:
    def round(self, event):
      numbers.append(event.number)

  numbers = []
  tell_all(hooks.Guarded(Rounds(), print))
  assert numbers == [1]


def test_groups():
  row = {'round': 1, 'train/loss': 2, 'train/a/b': 3, 'training': 4}
  assert hooks.group(row, 'train') == {'loss': 2, 'a/b': 3}
