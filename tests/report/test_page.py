"""The report: what it says, how it looks, and what it refuses."""

import csv
import html.parser
import json
import os
import re
import shutil

import numpy as np
import pytest
import vl_convert
from PIL import Image

import main
from tests import made_up
from tests.recording import specifications
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lab.report import page as report
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import scores

_STEPS = 20
_DELTA_SGD = '\N{GREEK CAPITAL LETTER DELTA}-SGD'


_SEEDS = {'fedavg': 5, 'fedadam': 2}


def fill(root):
  """Three methods over rates and seeds; the best rates are 0.1 and 1."""
  for method, seeds in _SEEDS.items():
    for client in (0.01, 0.1, 1.0):
      for server in (0.1, 1.0):
        for tau in (1e-3, 1e-1) if method == 'fedadam' else (None,):
          for seed in range(seeds):
            flags = dict(
              algorithm=method,
              client_learning_rate=client,
              server_learning_rate=server,
              seed=seed,
              total_rounds=_STEPS,
            )
            if tau:
              flags['server_adaptivity'] = tau
            name = '-'.join(map(str, flags.values()))
            made_up.run(root, name, *(f'--{k}={v}' for k, v in flags.items()))
  made_up.run(root, 'own', '--algorithm=delta_sgd', f'--total_rounds={_STEPS}')
  return root


@pytest.fixture(name='page', scope='module')
def page_fixture(tmp_path_factory):
  """The report of the runs of `fill`: its path and its text."""
  root = fill(tmp_path_factory.mktemp('runs'))
  path, complaints = report.write(root)
  assert not complaints
  return path, path.read_text(encoding='utf-8')


class _Reader(html.parser.HTMLParser):
  """Collects tags, attributes and cells; the page must be well formed."""

  _VOID = ('meta', 'img', 'br', 'path', 'circle', 'polygon')

  def __init__(self):
    super().__init__()
    self.open, self.attributes, self.headings, self.rows = [], [], [], []
    self.bold = []

  def handle_starttag(self, tag, attrs):
    self.attributes += [(tag, k, v) for k, v in attrs]
    if tag == 'tr':
      self.rows.append([])
    if tag in ('td', 'th'):
      self.rows[-1].append('')
      self.bold.append(('class', 'best') in attrs)
    if tag in ('h1', 'h2', 'h3'):
      self.headings.append('')
    if tag not in self._VOID:
      self.open.append(tag)

  def handle_startendtag(self, tag, attrs):
    self.attributes += [(tag, k, v) for k, v in attrs]

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    if self.open and self.open[-1] in ('h1', 'h2', 'h3'):
      self.headings[-1] += data
    if {'td', 'th'} & set(self.open):
      self.rows[-1][-1] += data


def read(text):
  reader = _Reader()
  reader.feed(text)
  reader.close()
  assert not reader.open
  return reader


def figures_of(text):
  """Specifications of figures by name, as the page has them."""
  (data,) = re.findall(
    r'<script type="application/json" id="figures">(.*?)</script>', text
  )
  return json.loads(data)['figures']


def test_page_has_its_sections_and_loads_nothing(page):
  path, text = page
  reader = read(text)
  for heading in (
    *('digits', 'Results', 'Curves', 'Quality against time and traffic'),
    *('Tuning', 'Client step sizes', 'How to read this page'),
  ):
    assert heading in reader.headings
  assert not [v for t, k, v in reader.attributes if k in ('src', 'href')]
  (policy,) = re.findall(r'http-equiv="Content-Security-Policy" .*?>', text)
  assert "default-src 'none'" in policy and 'unsafe-eval' not in policy
  (scripts,) = re.findall(r'script-src ([^;]*);', policy)
  assert re.fullmatch("'sha256-[^']*' 'sha256-[^']*'", scripts)
  assert text.count(vl_convert.javascript_bundle()) == 1
  described = figures_of(text)
  places = [v for _, k, v in reader.attributes if k == 'data-figure']
  assert sorted(described) == sorted(places)
  captions = [v for _, k, v in reader.attributes if k == 'aria-label']
  assert len(captions) == len(places) and all(captions)
  for name in (
    *('training_loss', 'validation', 'time', 'bytes', 'heat_map_fedadam'),
    *('adaptivity', 'sorted_sweeps', 'step_size_between_clients'),
  ):
    assert specifications.points(described[name])
    pixels = np.asarray(Image.open(path.parent / 'figures' / f'{name}.png'))
    assert pixels.std() > 5, name
    svg = (path.parent / 'figures' / f'{name}.svg').read_bytes()
    assert b'<svg' in svg[:2000]


def test_results_are_first_and_flags_are_in_a_fold(page):
  text = page[1]
  # A script of Vega's has words like these too.
  body = text[text.index('<body>') : text.index('<script type=')]
  order = [
    body.index(part)
    for part in (
      '<h3>Results</h3>',
      'Behind the best',
      '<details><summary>Settings</summary>',
      '--client_learning_rate=0.1',
      '</details>',
      '<h3>Curves</h3>',
    )
  ]
  assert order == sorted(order)
  assert '_learning_rate=' not in body[: order[2]] + body[order[4] :]
  assert 'too few seeds to tell' in body[order[1] : order[2]]


def test_table_has_the_best_configuration_in_bold(page):
  reader = read(page[1])
  # Tables of quality, of costs, and of settings.
  quality, costs = {}, {}
  for row in filter(None, reader.rows):
    known = costs if row[0] in quality else quality
    known.setdefault(row[0], row)
  heading = quality['Method']
  assert heading[:3] == ['Method', 'Behind the best', 'Training loss']
  assert costs['Method'][:3] == ['Method', 'Settings tried', 'Seeds']
  settings = [row for row in reader.rows if row and row[0] == 'FedAdam'][2]
  assert 'client learning rate 0.1, server learning rate 1' in settings[1]
  assert '--client_learning_rate=0.1 --server_learning_rate=1.0' in settings[2]
  names = ('FedAvg', 'FedAdam', _DELTA_SGD)
  losses = {name: float(quality[name][2].split()[0]) for name in names}
  assert costs['FedAvg'][1:3] == ['6', '5']
  assert re.fullmatch(r'0\.\d+ \[0\.\d+, 0\.\d+\]', quality['FedAvg'][2])
  # Of two seeds an interval says nothing, of one there is none.
  assert re.fullmatch(r'0\.\d+ \(0\.\d+ to 0\.\d+\)', quality['FedAdam'][2])
  assert re.fullmatch(r'0\.\d+', quality[_DELTA_SGD][2])
  # A column has as many decimals everywhere, and shares are in percent.
  for place, words in enumerate(heading[2:], start=2):
    shown = ' '.join(quality[n][place] for n in names)
    numbers = re.findall(r'[\d,.]+\d', shown)
    assert len({len(n.partition('.')[2]) for n in numbers}) == 1, words
    assert ('accuracy (%)' in words) == ('accuracy' in words.split(' to ')[0])
  assert 'Validation accuracy (%)' in heading
  assert [w for w in costs['Method'] if w.startswith('Rounds to')]
  cells = [c for row in reader.rows for c in row]
  bold = [c for c, b in zip(cells, reader.bold, strict=True) if b]
  best = min(losses, key=losses.get)
  assert quality[best][2] in bold
  assert not {quality[n][2] for n in losses if n != best} & set(bold)


def test_tables_and_figures_for_papers(page):
  folder = page[0].parent
  with open(folder / 'tables' / 'results.csv', encoding='utf-8') as file:
    rows = {row['Method']: row for row in csv.DictReader(file)}
  assert rows['FedAvg']['Settings tried'] == '6'
  runs, _ = results.find(folder)
  chosen = [
    r.measures()['test/metric']
    for r in runs
    if r.settings['algorithm'] == 'fedavg'
    and r.settings['client_learning_rate'] == 0.1
    and r.settings['server_learning_rate'] == 1.0
  ]
  low, high = scores.confidence(chosen, (0, 1))
  cells = [
    float(rows['FedAvg'][f'Test accuracy (%){end}'])
    for end in ('', ', low', ', high', ', runs')
  ]
  expected = [100 * sum(chosen) / 5, 100 * low, 100 * high, 5]
  assert cells == pytest.approx(expected, rel=1e-4)
  latex = (folder / 'tables' / 'results.tex').read_text(encoding='utf-8')
  head, *body = latex[latex.index('Method') : latex.index('\\bottom')].split(
    '\\\\'
  )
  assert 'Test accuracy (\\%)' in head and latex.count('rule\n') == 3
  assert {line.count('&') for line in body[:-1]} == {head.count('&')}
  assert '\\textbf{' in latex and '$\\Delta$-SGD' in latex
  markdown = (folder / 'tables' / 'results.md').read_text(encoding='utf-8')
  assert len({line.count('|') for line in markdown.splitlines()}) == 1
  assert '**' in markdown and f'| {_DELTA_SGD} |' in markdown
  for ending, begin in (('pdf', b'%PDF'), ('svg', b'<svg'), ('png', b'\x89P')):
    drawn = (folder / 'figures' / f'validation.{ending}').read_bytes()
    assert drawn.startswith(begin)
    assert b'CreationDate' not in drawn


@pytest.mark.exhaustive
def test_same_runs_same_page(page, tmp_path):
  path, text = page
  again, _ = report.write(path.parent, output=tmp_path)
  assert again.read_text(encoding='utf-8') == text


def test_everything_is_escaped(tmp_path):
  root = tmp_path / '<b>&"runs"'
  made_up.run(root, '<script>alert(1)<', '--total_rounds=2')
  hurt = made_up.run(root, '<i>half', '--total_rounds=4')
  lines = (hurt / 'metrics.csv').read_text().splitlines()
  (hurt / 'metrics.csv').write_text('\n'.join(lines[:-1]) + '\n')
  path, _ = report.write(root)
  text = path.read_text(encoding='utf-8')
  read(text)
  # Vega has tags in strings of its own.
  text = text.replace(vl_convert.javascript_bundle(), '')
  assert '<i>' not in text and '<b>' not in text and text.count('<script') == 3
  assert '&lt;b&gt;&amp;&#34;runs&#34;' in text
  assert '&lt;i&gt;half' in text and 'after round 3' in text


def test_names_that_are_no_text_are_shown_escaped(tmp_path):
  root = tmp_path / os.fsdecode(b'r\xff')
  made_up.run(root, os.fsdecode(b'a\xfe'), '--total_rounds=2')
  path, _ = report.write(root)
  assert 'Results in r\\udcff' in path.read_text(encoding='utf-8')


@pytest.mark.exhaustive
def test_single_clients_have_a_table_and_figures(tmp_path):
  column = f'per_client/{made_up.METRIC}'
  for seed in range(2):
    folder = made_up.run(
      tmp_path,
      f'run{seed}',
      '--algorithm=fedavg',
      '--total_rounds=4',
      f'--seed={seed}',
    )
    lines = (folder / 'metrics.csv').read_text().splitlines()
    over = {
      'mean': 0.6,
      'std': 0.2,
      'p10': 0.3,
      'p50': 0.6,
      'worst_decile': 0.2,
    }
    lines[0] += ''.join(f',{column}/{s}' for s in over)
    lines[1:-1] = [line + ',' * len(over) for line in lines[1:-1]]
    lines[-1] += ''.join(f',{v + 0.1 * seed:.1f}' for v in over.values())
    (folder / 'metrics.csv').write_text('\n'.join(lines) + '\n')
    (folder / 'clients.csv').write_text(
      f'client,num_examples,{column},per_client_tuned/{made_up.METRIC}\n'
      '"<b>,1",10,0.9,0.95\nb,20,0.2,0.8\n'
    )
  path, complaints = report.write(tmp_path)
  assert not complaints
  text = path.read_text(encoding='utf-8')
  reader = read(text)
  assert 'Quality on single clients' in reader.headings
  (row,) = [r for r in reader.rows if r and len(r) == 7 and r[0] == 'FedAvg']
  assert row[1:] == [
    '65.00 (60.00 to 70.00)',
    '25.00 (20.00 to 30.00)',
    '35.00 (30.00 to 40.00)',
    '65.00 (60.00 to 70.00)',
    '\N{EN DASH}',
    '25.00 (20.00 to 30.00)',
  ]
  described = figures_of(text)
  for name, heights in (
    ('per_client', [20, 90]),
    ('per_client_tuned', [80, 95]),
  ):
    shown = specifications.points(described[name])
    # The mean of both seeds.
    assert [(row['x'], row['y']) for row in shown] == [
      (0.5, heights[0]),
      (1.0, heights[1]),
    ]
    assert (tmp_path / 'figures' / f'{name}.png').exists()
  assert not any(name.startswith('column_per_client') for name in described)
  (tmp_path / 'run1' / 'clients.csv').write_text('client,per_client/x\na,y\n')
  _, (complaint,) = report.write(tmp_path)
  assert 'clients.csv' in complaint


@pytest.mark.exhaustive
def test_gap_to_centralized(tmp_path):
  for seed in (0, 1):
    folder = made_up.run(
      tmp_path, f'c{seed}', '--total_rounds=4', f'--seed={seed}'
    )
    hparams = folder / 'hparams.json'
    text = hparams.read_text()
    text = re.sub(r'"algorithm": "\w+"', '"algorithm": "centralized"', text)
    hparams.write_text(text)
    made_up.run(
      tmp_path,
      f'f{seed}',
      '--algorithm=fedavg',
      '--total_rounds=4',
      f'--seed={seed}',
    )
  path, _ = report.write(tmp_path)
  rows = read(path.read_text(encoding='utf-8')).rows
  place = rows[0].index('Gap to centralized (%)')
  runs, _ = results.find(tmp_path)
  means = {}
  for name in ('c', 'f'):
    values = [
      r.measures()['validation/metric'] for r in runs if r.name[0] == name
    ]
    means[name] = sum(values) / 2
  gaps = {row[0].split()[0]: float(row[place]) for row in rows[1:3]}
  gap = 100 * (means['c'] - means['f'])
  assert gaps['FedAvg'] == pytest.approx(gap, abs=1e-2)


def test_pictures_and_tables_of_an_earlier_report_go(tmp_path):
  made_up.run(tmp_path, 'one', '--total_rounds=2')
  report.write(tmp_path)
  (tmp_path / 'tables' / '2024_results.csv').write_text('')
  other = made_up.run(tmp_path, 'other', '--task=quadratic', '--total_rounds=2')
  report.write(tmp_path)
  tables = {path.stem for path in (tmp_path / 'tables').iterdir()}
  assert tables == {'1_results', '2_results', '2024_results'}
  shutil.rmtree(other)
  report.write(tmp_path)
  tables = {path.stem for path in (tmp_path / 'tables').iterdir()}
  assert tables == {'results', '2024_results'}
  figures = [path.name for path in (tmp_path / 'figures').iterdir()]
  assert figures and not any(name[0].isdigit() for name in figures)


def test_methods_look_different_and_always_the_same():
  names = [*algorithms.names(), 'centralized']
  # As far as nine colours and four dashes go.
  pairs = {(styles.colour(n), styles.dash(n)) for n in names}
  assert len(pairs) == min(len(names), 36)
  five = ('fedavg', 'fedavgm', 'fedadagrad', 'fedadam', 'fedyogi')
  assert len({styles.colour(n) for n in five}) == 5
  mixed = 'fedadam + delta_sgd'
  assert styles.colour(mixed) == styles.colour('fedadam')
  assert styles.dash(mixed) != styles.dash('fedadam')


@pytest.mark.parametrize(
  'arguments, part',
  [
    ([], 'takes one folder'),
    (['nowhere'], 'is no folder'),
    (['.'], 'no run in'),
    (['a', 'b'], 'takes one folder'),
    (['.', '--select=best'], '--select'),
    (['.', '--outptu=x'], '--output'),
  ],
)
def test_complaints(tmp_path, monkeypatch, capsys, arguments, part):
  monkeypatch.chdir(tmp_path)
  assert main.main(['report', *arguments]) == 2
  captured = capsys.readouterr()
  assert part in captured.err and len(captured.err.splitlines()) == 1
  assert not list(tmp_path.iterdir())


def test_what_is_not_written_is_not_named(tmp_path, capsys):
  run = made_up.run(tmp_path, 'run', '--total_rounds=2')
  metrics = run / 'metrics.csv'
  metrics.write_text('\n'.join(metrics.read_text().splitlines()[:-1]) + '\n')
  assert main.main(['report', str(tmp_path)]) == 0
  said = capsys.readouterr().out
  assert said == f'report   {tmp_path / "report.html"}\n'


@pytest.mark.exhaustive
def test_one_damaged_run_does_not_spoil_the_report(tmp_path, capsys):
  made_up.run(tmp_path, 'good', '--total_rounds=2')
  bad = made_up.run(tmp_path, 'bad', '--total_rounds=2')
  (bad / 'hparams.json').write_text('{')
  assert main.main(['report', str(tmp_path)]) == 0
  captured = capsys.readouterr()
  assert 'Left out' in captured.err and 'bad' in captured.err
  text = (tmp_path / 'report.html').read_text(encoding='utf-8')
  assert 'Left out' in text
  (tmp_path / 'good' / 'hparams.json').write_text('{')
  with pytest.raises(errors.SettingsError, match='cannot be read'):
    report.write(tmp_path)


@pytest.mark.exhaustive
def test_runs_that_diverged_are_named(tmp_path):
  made_up.run(tmp_path, 'fine', '--algorithm=fedavg', '--total_rounds=4')
  made_up.run(
    tmp_path,
    'wild',
    '--algorithm=fedavg',
    '--client_learning_rate=1000',
    '--total_rounds=4',
  )
  path, _ = report.write(tmp_path)
  text = path.read_text(encoding='utf-8')
  assert 'Runs that did not learn, or unlearned' in text
  assert 'wild: The validation loss is' in text
  assert 'fine: ' not in text
  (tmp_path / 'wild' / 'metrics.csv').unlink()
  path, _ = report.write(tmp_path)
  assert 'did not learn' not in path.read_text(encoding='utf-8')
