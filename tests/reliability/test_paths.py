"""Folders whose names are not UTF-8, of data and of runs."""

import json
import os

import pytest
from PIL import Image

import main


@pytest.fixture(name='images')
def images_fixture(tmp_path):
  root = tmp_path / os.fsdecode(b'data\xff')
  for i in range(24):
    label = os.fsdecode((b'dark\xe9', b'light')[i % 2])
    path = root / f'client {i % 3}' / label / f'{i}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new('L', (4, 4), 200 * (i % 2)).save(path)
  return root


@pytest.mark.exhaustive
def test_runs_and_what_reads_them(images, tmp_path, capfd):
  runs = tmp_path / os.fsdecode(b'runs\xe9')

  def command(*words):
    assert main.main(words) == 0, capfd.readouterr().err

  def train(name, *more, rounds=1):
    words = ['--task=table', f'--table_path={images}', '--clients_per_round=2']
    words += [f'--total_rounds={rounds}', f'--root_output_dir={runs}']
    command(*words, f'--experiment_name={name}', *more)

  train('first')
  train('first', rounds=2)
  train('second', f'--initial_weights={runs / "first"}')
  command('compare', str(runs / 'first'), str(runs / 'second'))
  command('report', str(runs))
  target = str(runs / 'exported')
  assert main.main(['export', str(runs / 'first'), target]) == 2
  assert 'is not UTF-8' in capfd.readouterr().err
  command('export', str(runs / 'first'), str(tmp_path / 'exported'))
  described = json.loads((tmp_path / 'exported' / 'export.json').read_text())
  assert described['classes'] == ['dark\\xe9', 'light']
