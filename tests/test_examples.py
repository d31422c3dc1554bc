"""The examples run, and what they promise comes true."""

import asyncio
import csv
import json
import pathlib

import pytest
import tensorflow_federated as tff

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_EXAMPLES = _ROOT / 'examples'


def test_every_example_is_tested():
  tested = {
    'import_into_pipeline.py',
    'own_model_and_data.py',
    'program.py',
    'tour.ipynb',
  }
  assert {p.name for p in _EXAMPLES.iterdir() if p.is_file()} == tested


@pytest.mark.slow
def test_import_into_pipeline(tmp_path, monkeypatch, in_process_context):
  from examples import import_into_pipeline  # pylint: disable=g-import-not-at-top

  monkeypatch.setattr(
    import_into_pipeline.runtime,
    'set_in_process_context',
    lambda: in_process_context,
  )
  # TFF asks the thread for its event loop, which other tests take away.
  loop = asyncio.new_event_loop()
  asyncio.set_event_loop(loop)
  for rounds in (2, 5):
    import_into_pipeline.main(
      [f'--rounds={rounds}', f'--output_dir={tmp_path}']
    )
  loop.close()
  with open(tmp_path / 'metrics.csv', encoding='utf-8') as file:
    rows = list(csv.DictReader(file))
  assert [row['round'] for row in rows] == ['0', '1', '2', '3', '4', '5']
  evaluated = [
    float(row['evaluation/loss']) for row in rows if row['evaluation/loss']
  ]
  assert len(evaluated) == 2 and evaluated[1] < evaluated[0]


def test_own_model_and_data(monkeypatch, in_process_context):
  from examples import own_model_and_data  # pylint: disable=g-import-not-at-top

  monkeypatch.setattr(
    own_model_and_data.runtime,
    'set_in_process_context',
    lambda: in_process_context,
  )
  # A sine has variance 0.5; what is learned in ten rounds is most of it.
  assert own_model_and_data.main(['--rounds=10']) < 0.25


@pytest.mark.exhaustive
def test_program(tmp_path):
  from examples import program  # pylint: disable=g-import-not-at-top

  before = tff.framework.get_context_stack().current
  try:
    for rounds in (3, 10):  # The second run goes on from the first one's state.
      program.main([f'--rounds={rounds}', f'--output_dir={tmp_path}'])
      tff.framework.get_context_stack().current.close()
  finally:
    tff.framework.set_default_context(before)

  def losses(name, column):
    with open(tmp_path / name, encoding='utf-8') as file:
      return {
        int(row['round']): float(row[column]) for row in csv.DictReader(file)
      }

  training = losses('training.csv', 'model_metrics/loss')
  assert list(training) == list(range(1, 11))
  assert training[10] < 0.2 * training[1]
  evaluation = losses('evaluation.csv', 'model_metrics/loss')
  assert list(evaluation) == [3, 5, 10]
  assert evaluation[10] < 0.2 * evaluation[3]
  assert (tmp_path / 'models' / 'release_training_checkpoint_round_10').is_dir()


@pytest.mark.exhaustive
def test_notebook(in_process_context):
  cells = json.loads((_EXAMPLES / 'tour.ipynb').read_text())['cells']
  sources = [''.join(c['source']) for c in cells if c['cell_type'] == 'code']
  assert not any(c['outputs'] for c in cells if c['cell_type'] == 'code')
  names = {}

  async def run():  # In a running event loop, as notebooks are.
    for source in sources:
      source = source.replace('ROUNDS = 15', 'ROUNDS = 4')
      source = source.replace(
        'runtime.set_in_process_context()', 'in_process_context'
      )
      names['in_process_context'] = in_process_context
      exec(compile(source, 'tour.ipynb', 'exec'), names)  # pylint: disable=exec-used

  asyncio.run(run())
  assert [len(values) for values in names['losses'].values()] == [4, 4, 4]
  final = {label: values[-1] for label, values in names['losses'].items()}
  assert final['FedAvg, SGD at 0.1'] < final['FedAvg, SGD at 0.01']
