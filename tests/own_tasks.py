"""Tasks that somebody wrote outside of the project, as text of a module."""

HOSPITAL = '''
"""Made-up hospitals."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

SITES = 4


def hospital(
  sites: int = SITES_,
  skew=0.5,
  *,
  hard: bool = False,
  model: 'Literal["small", "large"]' = 'small',
  batch_size=8,
  **_,
):
  """Points of hospitals, of two classes.

  Args:
    sites: Number of hospitals.
    skew: How much they differ.
  """
  rng = np.random.default_rng(0)

  def data(site):
    x = rng.normal(site * skew, 1, [16, 3]).astype(np.float32)
    return collections.OrderedDict(x=x, y=(x.sum(1) > 0).astype(np.int32))

  def points():
    return tff.simulation.datasets.TestClientData(
      {f'site_{i}': data(i) for i in range(sites)}
    )

  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train_data=points(),
    test_data=points(),
    train_preprocess_fn=lambda dataset: dataset.shuffle(16).batch(batch_size),
    eval_preprocess_fn=lambda dataset: dataset.batch(16),
  )

  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))]),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=datasets.element_type_structure,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )

  return tff.simulation.baselines.BaselineTask(datasets, model_fn)
'''


# What modules of small tasks begin with.
_FRAME = '''
import collections
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def task_of(train, test, model_fn_of, train_batch=10, test_batch=10):
  """A task of clients' examples; `model_fn_of` is given the batches' type."""
  clients = tff.simulation.datasets.TestClientData
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train_data=clients(train),
    test_data=clients(test),
    train_preprocess_fn=lambda dataset: dataset.batch(train_batch),
    eval_preprocess_fn=lambda dataset: dataset.batch(test_batch),
  )
  model_fn = model_fn_of(datasets.element_type_structure)
  return tff.simulation.baselines.BaselineTask(datasets, model_fn)
'''


def add(folder, monkeypatch, name, text):
  """Makes a module of `task_of` and this text that tests can import."""
  (folder / f'{name}.py').write_text(_FRAME + text)
  monkeypatch.syspath_prepend(str(folder))


def write(folder, name, *, computed_default=False):
  """Writes a module with the function `hospital`; returns its place."""
  text = HOSPITAL.replace('SITES_', 'SITES' if computed_default else '4')
  (folder / f'{name}.py').write_text(text)
  return f'{name}:hospital'
