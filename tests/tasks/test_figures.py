"""The picture of labels by client."""

import numpy as np
import pytest

from tasks import client_data
from tasks import figures
from tasks import partition
from tests.recording import specifications
from tff_adaptive import drawing


@pytest.fixture(name='drawn')
def drawn_fixture(monkeypatch):
  """The specifications of what is drawn."""
  found = []
  image = drawing.image

  def record(specification, form):
    found.append(specification)
    return image(specification, form)

  monkeypatch.setattr(drawing, 'image', record)
  return found


def texts(specification):
  return specifications.svg(specification).texts()


def test_every_label_of_every_client_is_drawn(tmp_path, drawn):
  labels = np.repeat(np.arange(3), 20)
  split = partition.lda(labels, alpha=0.5, sizes=[12] * 5, seed=0)
  path = tmp_path / 'labels.png'
  figures.label_distribution(split, labels, path, title='some task')
  assert path.read_bytes().startswith(b'\x89PNG')
  counts = np.zeros([5, 3], int)
  for row in specifications.tables(drawn[0])[0]:
    counts[row['client'], row['label']] += row['count']
  np.testing.assert_array_equal(counts, split.label_counts(labels))
  assert {'some task', 'examples', '5 clients', '0', '1', '2'} <= set(
    texts(drawn[0])
  )


def test_classes_have_their_words(tmp_path, drawn):
  """Those of the data, or those that are known of a task."""
  labels = np.repeat(np.arange(3), 20)
  split = partition.lda(labels, alpha=0.5, sizes=[12] * 5, seed=0)
  words = ('_setosa', '$"versi"\\$', 'x' * 40)
  own = client_data.ArrayClientData(dict(label=labels), split, classes=words)
  figures.draw_partition(own, tmp_path)
  known = client_data.ArrayClientData(dict(label=labels + 1), split)
  figures.draw_partition(known, tmp_path, task='ag_news')
  ellipsis = '\N{HORIZONTAL ELLIPSIS}'
  assert {*words[:2], 'x' * 23 + ellipsis} <= set(texts(drawn[0]))
  assert {'World', 'Sports', 'Business', 'Sci/Tech'} <= set(texts(drawn[1]))
  # Below a map, for more classes than there are colours.
  labels = np.repeat(np.arange(62), 2)
  split = partition.iid(124, sizes=[31] * 4)
  many = client_data.ArrayClientData(dict(label=labels), split)
  figures.draw_partition(many, tmp_path, task='emnist_character')
  figures.draw_partition(many, tmp_path, task='somebodys:own')
  named, numbered = [texts(specification) for specification in drawn[-2:]]
  assert named['9'][0] < named['A'][0] < named['z'][0]
  assert 'A' not in numbered and '0' in numbered


def test_how_many_labels_clients_have(tmp_path, drawn):
  """Of all clients, also those that the upper part has no room for."""
  indices = [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(130)]
  # 100 clients with one label each, 20 with two and 10 with three.
  labels = np.concatenate([[0] * 300, [1, 1, 4] * 20, [2, 3, 4] * 10])
  split = partition.Partition(
    tuple(map(str, range(130))), tuple(map(np.array, indices))
  )
  figures.label_distribution(split, labels, tmp_path / 'labels.png')
  upper, below = specifications.tables(drawn[0])
  assert len({row['client'] for row in upper}) == 100
  heights = {row['labels']: row['clients'] for row in below}
  assert heights == {1: 100, 2: 20, 3: 10}
  assert 'the first 100 clients' in texts(drawn[0])


def _keep(data, folder, title=''):
  figures.save_partition(data, folder)
  figures.draw_partition(data, folder, title=title)


def test_what_clients_have_is_kept_with_a_run(tmp_path):
  # More labels than there are colours.
  labels = np.repeat(np.arange(30), 4)
  split = partition.iid(120, sizes=[9] * 4)
  data = client_data.ArrayClientData(dict(label=labels), split)
  _keep(data, tmp_path, title='some task')
  back = partition.Partition.load(tmp_path / 'partition.npz')
  assert back.client_ids == split.client_ids
  np.testing.assert_array_equal(back.indices, split.indices)
  picture = (tmp_path / 'labels.png').read_bytes()
  assert picture.startswith(b'\x89PNG') and len(picture) > 5000


def test_without_labels_only_the_partition_is_kept(tmp_path):
  split = partition.iid(10, sizes=[5, 5])
  data = client_data.ArrayClientData(dict(text=np.arange(10)), split)
  _keep(data, tmp_path)
  assert [p.name for p in tmp_path.iterdir()] == ['partition.npz']
  assert figures.describe_partition(data) is None


def test_numbers_are_drawn_by_tenths(tmp_path, monkeypatch):
  drawn = {}
  monkeypatch.setattr(
    figures,
    'label_distribution',
    lambda split, labels, path, title, classes, counted: drawn.update(
      counts=split.label_counts(labels).tolist(),
      classes=classes,
      counted=counted,
    ),
  )
  # Standardized, as a table's are; the picture has the table's own unit.
  numbers = np.linspace(-5, 5, 100)
  split = partition.continuous(numbers, strictness=1.0, sizes=[50, 50])
  data = client_data.ArrayClientData(
    dict(label=(numbers - 2) / 3), split, label_unit=(2.0, 3.0)
  )
  figures.draw_partition(data, tmp_path)
  assert drawn['counts'] == [[10] * 5 + [0] * 5, [0] * 5 + [10] * 5]
  assert drawn['classes'][0] == '< -4'
  assert len(drawn['classes']) == 10 and drawn['counted'] == 'ranges'


def test_nothing_is_kept_of_a_data_sets_own_clients(tmp_path):
  split = partition.iid(10, sizes=[5, 5])
  own = client_data.ArrayClientData(dict(label=np.arange(10)), split)
  _keep(client_data.ListedClientData(own), tmp_path)
  assert not list(tmp_path.iterdir())
