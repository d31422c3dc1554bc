"""Runs whose results are made up: folders without any training."""

import math

from tests import runs
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks as hooks_lib
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording import tables
from tff_adaptive.lab.sweep import worker
from tff_adaptive.lab.training import experiment as train
from tff_adaptive.lab.training.loop import stopping

METRIC = 'sparse_categorical_accuracy'


def rows_of(settings, *, first=0):
  """Rows in which the loss falls the faster, the nearer a rate is to 0.1."""
  rate = settings.hyperparameters.get('client_learning_rate') or 0.1
  server = settings.hyperparameters.get('server_learning_rate') or 1.0
  distance = abs(math.log10(rate) + 1) + 0.3 * abs(math.log10(server))
  distance += 0.01 * settings.seed + 0.05 * len(settings.algorithm)
  for number in range(first, settings.total_rounds + 1):
    share = number / settings.total_rounds
    loss = 2.3 * math.exp(-2 * share / (1 + distance)) + 0.1 * distance
    if rate >= 1e3 and number:
      loss = 1e5 * number
    row = {'round': number}
    if number:
      row |= {
        'train/loss': loss,
        f'train/{METRIC}': max(0.0, 1 - loss / 2.5),
        'train/num_examples': 20,
        'step_size/mean': 0.2 + 0.1 * share,
        'step_size/min': 0.1,
        'step_size/max': 0.5 + share,
        'step_size/between_clients': 0.05,
        'step_size/within_clients': 0.1,
        'step_size/at_bound': 0.5,
        'seconds': 0.25,
        'bytes_down': 1000,
        'bytes_up': 500,
      }
      if settings.client_seconds_per_example is not None:
        row['virtual/seconds'] = number * settings.client_seconds_per_example
    if number % settings.rounds_per_eval == 0 or share == 1:
      row['validation/loss'] = loss + 0.05
      row[f'validation/{METRIC}'] = max(0.0, 0.98 - loss / 2.5)
    if share == 1:
      row['test/loss'] = loss + 0.06
      row[f'test/{METRIC}'] = max(0.0, 0.97 - loss / 2.5)
    yield row


def write(settings, hooks=(), stop_at=None):
  """A run's folder with made-up rows; goes on where there are some."""
  folder = files.RunFolder(settings.folder)
  with folder:
    told = metric_names.merge_directions(settings.metric_direction)
    if folder.read_hparams() is None or told:
      words = metric_names.as_words(told)
      folder.write_hparams(
        {'settings': settings.identity, 'metric_directions': words}
      )
    metrics = tables.RowFile(folder.metrics)
    metrics.drop_after(settings.total_rounds)  # And an unfinished line.
    for row in rows_of(settings, first=len(metrics.rows)):
      if stop_at is not None and row['round'] == stop_at:
        raise stopping.Stopped(15)
      metrics.append(row)
      for hook in hooks:
        hook.round(hooks_lib.Round(row=row))
  return settings.folder


def run(root, name, *arguments):
  """The same from flags of the command line."""
  words = ['--rounds_per_eval=2', *arguments]
  return write(runs.settings_of(root, *words, name=name))


def replace_training(monkeypatch, run):
  """Lets `run` stand for `train.run` in sweeps of this process."""
  monkeypatch.setattr(train, 'run', run)
  monkeypatch.setattr(worker, 'clean_up', lambda: None)
