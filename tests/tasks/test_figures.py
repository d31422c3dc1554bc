"""The picture of labels by client."""

import numpy as np
import pytest

from tasks import figures
from tasks import partition


def test_every_label_of_every_client_is_drawn(tmp_path, monkeypatch):
  from matplotlib import axes

  drawn = []
  original = axes.Axes.barh

  def barh(self, y, width, left, **options):
    drawn.append((np.array(width), np.array(left)))
    return original(self, y, width, left=left, **options)

  monkeypatch.setattr(axes.Axes, 'barh', barh)
  labels = np.repeat(np.arange(3), 20)
  split = partition.lda(labels, alpha=0.5, sizes=[12] * 5, seed=0)
  path = tmp_path / 'labels.png'
  figures.label_distribution(split, labels, path, title='some task')
  assert path.read_bytes().startswith(b'\x89PNG')
  widths = np.stack([width for width, _ in drawn], axis=1)
  np.testing.assert_array_equal(widths, split.label_counts(labels))
  ends = drawn[-1][0] + drawn[-1][1]
  assert ends.tolist() == [12] * 5


def test_a_task_is_drawn_from_the_command_line(tmp_path):
  path = tmp_path / 'digits.png'
  assert figures.main(['digits', str(path), '--alpha=0.1']) == 0
  assert path.stat().st_size > 5000


@pytest.mark.parametrize(
  'words, message',
  [
    (['digits'], 'python -m tasks.figures TASK PICTURE'),
    (['digitz', 'x.png'], "got 'digitz'"),
    (['digits', 'x.png', '--alhpa=1'], 'no option --alhpa'),
    (['digits', 'x.png', '--alpha=0'], '--alpha must be'),
    (
      ['shakespeare_character', 'x.png', '--data=synthetic'],
      'nothing to draw',
    ),
  ],
)
def test_what_cannot_be_drawn(words, message, capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert figures.main(words) == 2
  captured = capsys.readouterr().err
  assert message in captured and captured.count('\n') == 1
  assert not list(tmp_path.iterdir())
