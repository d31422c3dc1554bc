"""Code of a user's that ends Python: a run or a sweep says so and fails."""

import os
import sys

import pytest

import main
from tests import own_tasks
from tff_adaptive import errors
from tff_adaptive import training
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.training.loop import loop

_PLACES = {
  'import': ('SITES = 4', 'import sys\nsys.exit(0)'),
  'task': ('  rng = np.random', '  exit()\n  rng = np.random'),
  'model': (
    '    return tff.learning',
    '    raise SystemExit(0)\n    return tff.learning',
  ),
}
_SMALL = ('--total_rounds=2', '--rounds_per_eval=1', '--clients_per_round=2')


@pytest.fixture(name='place', params=list(_PLACES))
def place_fixture(request, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
  name = f'own_exit_{request.param}'
  place = own_tasks.write(tmp_path, name)
  file = tmp_path / f'{name}.py'
  before, after = _PLACES[request.param]
  text = file.read_text()
  assert before in text
  file.write_text(text.replace(before, after))
  yield place
  sys.modules.pop(name, None)


def test_a_run(place, capsys):
  code = main.main([f'--task={place}', *_SMALL])
  said = capsys.readouterr().err.splitlines()[-1]
  assert code in (1, 2) and 'SystemExit' in said and 'own_exit_' in said


def test_a_sweep(place, capsys):
  arguments = [f'--task={place}', *_SMALL, '--axis=seed=0,1', '--workers=0']
  code = main.main(['sweep', *arguments, '--experiment_name=all'])
  captured = capsys.readouterr()
  if place.startswith('own_exit_import'):  # Its flags are not known then.
    assert code == 2 and 'SystemExit' in captured.err
    return
  assert code == 1, captured
  assert captured.out.count('SystemExit') >= 2


@pytest.mark.exhaustive
def test_a_recorder_is_left_out(tmp_path, capsys):
  class Recorder(hooks.Hook):
    def round(self, event):
      sys.exit(0)

  settings = training.settings(
    task='quadratic', total_rounds=2, root_output_dir=str(tmp_path)
  )
  result = training.run(settings, hooks=[Recorder()])
  assert int(result.rows[-1]['round']) == 2
  assert 'is disabled and the run continues' in capsys.readouterr().out


def test_rounds_before_are_kept(tmp_path, monkeypatch):
  settings = training.settings(
    task='quadratic', total_rounds=4, root_output_dir=str(tmp_path)
  )
  train = loop.Training._train

  def exits(self, number, clock):
    if number == 3:
      os.sys.exit()
    return train(self, number, clock)

  monkeypatch.setattr(loop.Training, '_train', exits)
  with pytest.raises(errors.RunError, match='asked Python to exit'):
    training.run(settings, say=lambda _: None)
  monkeypatch.undo()
  assert training.run(settings, say=lambda _: None).resumed_from == 2
