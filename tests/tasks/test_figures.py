"""Pictures and statistics of labels by client."""

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
  assert {'some task', 'label', '5 clients', '0', '1', '2'} <= set(
    texts(drawn[0])
  )


def test_classes_have_their_words(tmp_path, drawn):
  """Those of the data, or those that are known of a task."""
  labels = np.repeat(np.arange(4), 15)
  split = partition.iid(60, sizes=[12] * 5)
  words = ('_setosa', '$"versi"\\$', 'two  words', 'x')
  own = client_data.ArrayClientData(dict(label=labels), split, classes=words)
  figures.draw_partition(own, tmp_path)
  known = client_data.ArrayClientData(dict(label=labels), split)
  figures.draw_partition(known, tmp_path, task='ag_news')
  figures.draw_partition(known, tmp_path, task='somebodys:own')
  assert {'_setosa', '$"versi"\\$', 'two words', 'x'} <= set(texts(drawn[0]))
  assert {'World', 'Sports', 'Business', 'Sci/Tech'} <= set(texts(drawn[1]))
  assert {'0', '1', '2', '3'} <= set(texts(drawn[2]))


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


def test_nothing_is_kept_of_a_data_sets_own_clients(tmp_path):
  split = partition.iid(10, sizes=[5, 5])
  own = client_data.ArrayClientData(dict(label=np.arange(10)), split)
  _keep(client_data.ListedClientData(own), tmp_path)
  assert not list(tmp_path.iterdir())


def _described(split, labels):
  data = client_data.ArrayClientData(dict(label=labels), split)
  return figures.describe_partition(data)


def test_clients_are_compared_with_the_pool_and_with_each_other():
  labels = np.array([0] * 10 + [1] * 10)
  split = partition.Partition(
    ('a', 'b', 'c'), (np.arange(10), np.arange(10, 15), np.arange(15, 20))
  )
  told = _described(split, labels)
  assert told['clients'] == 3
  assert told['examples'] == {'smallest': 5, 'mean': 6.67, 'largest': 10}
  # The entropy of the mean of (1, 0) and (1/2, 1/2), less their mean entropy.
  divergence = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)) - 0.5
  # Of three pairs two are of clients without a common label.
  assert told['label_distances'] == {
    'to_pool': pytest.approx(divergence**0.5, abs=1e-6),
    'between_clients': pytest.approx(2 / 3, abs=1e-6),
  }
  one = partition.Partition(('a',), (np.arange(20),))
  assert _described(one, labels)['label_distances'] == {
    'to_pool': 0.0,
    'between_clients': 0.0,
  }
  # Of many clients pairs are a sample.
  many = partition.iid(5000, sizes=[5] * 1000)
  assert _described(many, np.arange(5000) % 10)['clients'] == 1000
  assert _described(split, np.linspace(0, 1, 20)) is None
