"""The documentation says what the code does."""

import contextlib
import importlib.util
import json
import os
import pathlib
import pydoc
import re
import runpy
import shlex
import shutil
import sys

import pytest

import tasks
from tests import programs
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive.lab.commands import command_line
from tff_adaptive.lab.flags import parsing as flags

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_DOCS = _ROOT / 'docs'
_PAGES = sorted(_DOCS.rglob('*.md'))
_OTHERS = [_ROOT / 'README.md', _ROOT / 'CONTRIBUTING.md']
_NAVIGATION = (_ROOT / 'mkdocs.yml').read_text(encoding='utf-8')
_FENCE = re.compile(
  r'^```(\w+)?(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL
)


def blocks(page):
  """The code of a page: language, title, text."""
  return _FENCE.findall((_DOCS / page).read_text(encoding='utf-8'))


def test_what_the_api_page_names_exists():
  text = (_DOCS / 'api.md').read_text(encoding='utf-8')
  for name, rest in re.findall(r'^::: (\S+)\n((?: .*\n)*)', text, re.M):
    place = pydoc.locate(name)
    assert place is not None, name
    members = rest.partition('members:')[2]
    for member in re.findall(r'\w+', members):
      assert hasattr(place, member) or place.__name__ == member, (name, member)


@pytest.mark.parametrize(
  'page',
  [*_PAGES, *_OTHERS, *sorted(_ROOT.glob('results/*/README.md'))],
  ids=lambda p: p.relative_to(_ROOT).as_posix(),
)
def test_rows_of_tables_are_on_one_line(page):
  """A row that goes on in the next line is rendered as two."""
  text = _FENCE.sub('', page.read_text(encoding='utf-8'))
  for table in re.findall(r'(?:^\|.*\n)+(?:^[^|\s].*)?', text, re.M):
    rows = table.splitlines()
    columns = {len(re.findall(r'(?<!\\)\|', row)) for row in rows}
    assert all(row.endswith('|') for row in rows), rows
    assert len(columns) == 1, rows


@pytest.fixture(name='parser', scope='module')
def parser_fixture():
  return flags.Flags()


def test_generated_parts_are_what_the_code_says():
  file = _ROOT / 'tools' / 'make_docs.py'
  spec = importlib.util.spec_from_file_location('make_docs', file)
  make_docs = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(make_docs)
  stale = make_docs.stale(write=False)
  assert not stale, 'run python tools/make_docs.py'
  # What is generated is seen to differ when it does.
  page = (_DOCS / 'algorithms' / 'fedadam.md').read_text(encoding='utf-8')
  wrong = page.replace('from 1e-06', 'from 1e-05').replace('`0.99`', '`0.9`')
  assert wrong != page and make_docs.generate(wrong) == page


def test_every_method_and_optimizer_has_its_place():
  for name in algorithms.names():
    text = (_DOCS / 'algorithms' / f'{name}.md').read_text(encoding='utf-8')
    assert f'<!-- generate rule {name} -->' in text
    assert f'<!-- generate flags {name} -->' in text
    headings = re.findall('^## (.*)', text, re.MULTILINE)
    assert headings == [
      *('Idea', 'Rule', 'Flags', 'Where it departs', 'When to use it'),
    ]
  text = (_DOCS / 'algorithms' / 'optimizers.md').read_text(encoding='utf-8')
  assert re.findall(r'`--(\w+)_optimizer=(\w+)`$', text, re.MULTILINE) == [
    (side, name)
    for side in ('client', 'server')
    for name in getattr(optimizers, f'{side}_names')()
  ]
  text = (_DOCS / 'tasks.md').read_text(encoding='utf-8')
  assert all(f'| `{name}` |' in text for name in tasks.names())


def test_every_page_is_in_the_navigation():
  named = set(re.findall(r': ([\w/]+\.md)$', _NAVIGATION, re.MULTILINE))
  top = {'CHANGELOG.md', 'CONTRIBUTING.md'}
  assert named - top == {p.relative_to(_DOCS).as_posix() for p in _PAGES}


@pytest.mark.parametrize(
  'page', [*_PAGES, *_OTHERS], ids=lambda p: p.relative_to(_ROOT).as_posix()
)
def test_links_lead_somewhere(page):
  text = _FENCE.sub('', page.read_text(encoding='utf-8'))
  for link in re.findall(r'\]\((?![a-z]+:)([^)\s]+)', text):
    target, _, anchor = link.partition('#')
    file = page if not target else (page.parent / target).resolve()
    assert file.exists(), link
    if anchor:
      headings = re.findall(
        r'^#+ (.*)', file.read_text(encoding='utf-8'), re.MULTILINE
      )
      anchors = {
        re.sub(r'[^\w\- ]', '', h.lower()).strip().replace(' ', '-')
        for h in headings
      }
      assert anchor in anchors, link


def test_flags_and_files_that_are_named_exist(parser):
  known = {*parser.values, 'flagfile', 'help', 'helpfull'}
  for module in command_line.MAINS.values():
    known |= {*module.build_options().values}
  # Of pip, TensorBoard, benchmarks and Ray.
  known |= {'no', 'ignore', 'logdir', 'alpha', 'rounds', 'clients'}
  known |= {'pfl_python', 'population'}
  known |= {'address', 'contenders', 'disable', 'head', 'models', 'port'}
  # By the guides that add them.
  made = 'clusters|sign_momentum|adabelief|anchor|push|pull|sensors'
  for page in [*_PAGES, *_OTHERS]:
    text = re.sub('<!--.*?-->', '', page.read_text(encoding='utf-8'))
    for flag in re.findall(r'(?<![\w-])--([a-z]\w+)', text):
      assert flag in known or re.search(made, flag), (page.name, flag)
    for file in re.findall(
      r'(?<![\w/.-])((?:tasks|tests|tff_adaptive|docs|examples|benchmarks|'
      r'tools|results|runtime|flags|training|recording|report|sweep|commands)/[\w./-]*\w)',
      text.replace('\\_', '_'),
    ):
      places = (_ROOT / file, _ROOT / 'tff_adaptive' / file)
      assert any(p.exists() for p in places) or re.search(made, file), (
        page.name,
        file,
      )


def commands():
  """The program's command lines in all pages."""
  for page in _PAGES:
    text = page.read_text(encoding='utf-8').replace('\\\n', ' ')
    for line in re.findall(
      r'^ *(?:python main\.py|tff-adaptive)((?: .*)?)$', text, re.MULTILINE
    ):
      yield pytest.param(
        line.split('#')[0].split(),
        id=f'{page.relative_to(_DOCS)}:{line.strip()[:40]}',
      )


@pytest.mark.parametrize('words', list(commands()))
def test_commands_are_understood(words, parser, tmp_path, monkeypatch):
  made = 'sign_momentum|=adabelief|=clusters|=anchored|=pushed|=my_'
  if re.search(made, ' '.join(words)):
    pytest.skip('what it names is made, and this run, by another test')
  monkeypatch.chdir(tmp_path)
  for name in re.findall(r'[\w.]+\.(?:pem|key)\b', ' '.join(words)):
    kind = 'PRIVATE KEY' if name.endswith('.key') else 'CERTIFICATE'
    (tmp_path / name).write_text(f'-----BEGIN {kind}-----\n')
  command = 'train'
  if words and not words[0].startswith('-'):
    command, *words = words
  words = [w for w in words if w != '--help']
  if command in command_line.MAINS:
    options = command_line.MAINS[command].build_options()
    if command in ('sweep', 'costs'):
      _, words = options.split(words)
    else:
      options.read(words)
      return
  elif command == 'list':
    assert not words
  else:
    assert command == 'train'
  parser.parse(words)


def test_the_guide_in_python(in_process_context, tmp_path, monkeypatch):
  del in_process_context
  monkeypatch.chdir(tmp_path)
  names = {}
  for language, _, text in blocks('getting_started.md'):
    if language == 'python':
      text = text.replace('runtime.set_in_process_context()\n', '')
      exec(compile(text, 'getting_started.md', 'exec'), names)  # pylint: disable=exec-used
  assert len(names['result'].rows) == 6
  assert int(names['state'].distributor['client_states']['clients']) == 4
  assert isinstance(
    names['process'], names['tff'].learning.templates.LearningProcess
  )


@pytest.mark.exhaustive
def test_the_snippet_about_models(in_process_context, capsys):
  pytest.importorskip('keras')
  text = next(b[2] for b in blocks('models.md') if b[0] == 'python')
  exec(compile(text, 'models.md', 'exec'), {})
  assert "('accuracy'," in capsys.readouterr().out


@pytest.mark.exhaustive
def test_the_snippets_about_hooks(in_process_context, capsys):
  del in_process_context
  texts = [b[2] for b in blocks('runs.md') if b[0] == 'python']
  assert len(texts) == 2
  for text in texts:
    exec(compile(text, 'runs.md', 'exec'), {})  # pylint: disable=exec-used
  assert 'finished after round 3' in capsys.readouterr().out


# Where the pages' files go in the project itself; elsewhere they are in folders
# of the reader's own.
_IN_THE_PROJECT = {
  'my_rules/sign_momentum.py': 'tff_adaptive/optimizers/clients',
  'my_rules/adabelief.py': 'tff_adaptive/optimizers/servers',
  'my_methods/anchored.py': 'tff_adaptive/algorithms/client_drift',
  'my_methods/pushed.py': 'tff_adaptive/algorithms/client_drift',
  'my_tasks/clusters.py': 'tasks/problems',
}


def apply(page, folder):
  """Writes the files that a page shows."""
  for _, title, text in blocks(page):
    if title:
      file = folder / title
      assert not file.exists(), title
      file.parent.mkdir(parents=True, exist_ok=True)
      file.write_text(text, encoding='utf-8')


def run(folder, *arguments, log='log', **environment):
  """Runs main.py of a folder; returns what it says."""
  environment = {'PYTHONPATH': None, **environment}
  return programs.logged(folder / log, *arguments, **environment)


@pytest.mark.exhaustive
def test_an_optimizer_and_a_task_are_added_as_the_guides_say(tmp_path):
  for folder in ('tff_adaptive', 'tasks'):
    shutil.copytree(_ROOT / folder, tmp_path / folder)
  shutil.copy(_ROOT / 'main.py', tmp_path)
  for page in ('add_an_optimizer.md', 'add_a_task.md', 'add_a_method.md'):
    apply(page, tmp_path)
  # One file each, which nothing names.
  for file, place in _IN_THE_PROJECT.items():
    shutil.move(tmp_path / file, tmp_path / place)
  text = run(
    tmp_path,
    'main.py',
    '--task=clusters',
    '--clusters_skew=0.1',
    '--client_optimizer=sign_momentum',
    '--client_momentum=0.5',
    '--client_learning_rate=0.05',
    '--server_optimizer=sgd',
    '--total_rounds=8',
    '--experiment_name=run',
  )
  accuracy = float(re.search(r'^test +8 +(\S+)', text, re.MULTILINE).group(1))
  assert accuracy > 0.5, text
  listed = run(tmp_path, 'main.py', 'list')
  assert re.search(
    r'^  fedadabelief  .*adabelief on the server', listed, re.MULTILINE
  )


@pytest.mark.exhaustive
def test_own_data_from_csv_files_to_curves(tmp_path, monkeypatch, capsys):
  """Everything that the page says, in its order, in this process."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', list(sys.path))
  apply('own_data.md', tmp_path)
  runpy.run_path('make_hospitals.py')
  assert len(list((tmp_path / 'hospitals').iterdir())) == 8
  lines = [
    line
    for language, _, text in blocks('own_data.md')
    if not language
    for line in text.splitlines()
  ]
  assert len(lines) == 8
  for line in lines:
    program, main, *arguments = shlex.split(line)
    assert (program, main) == ('python', 'main.py')
    assert command_line.main(arguments) == 0, line
  said = capsys.readouterr().out
  first = re.search(r'^test +40 +(\S+)', said, re.MULTILINE)
  assert float(first.group(1)) > 0.85, said
  assert 'How many sensors. Default: 12.' in said
  for name in ('first', 'deep', 'auc', 'sensors'):
    assert (tmp_path / 'runs' / name / 'curves.png').is_file()
  exported = json.loads((tmp_path / 'hospital_model/export.json').read_text())
  assert exported['classes'] == ['benign', 'malignant']
  runpy.run_path('use.py')
  guess, truth = capsys.readouterr().out.split()
  assert {guess, truth} <= {*exported['classes']}
  report = (tmp_path / 'runs/compared/report.html').read_text()
  assert all(name in report for name in ('FedAvg', 'FedAdam'))


@pytest.fixture(name='outside', scope='module')
def outside_fixture(tmp_path_factory):
  """A folder with what the guides put into folders of the reader's own."""
  folder = tmp_path_factory.mktemp('outside')
  for page in ('add_an_optimizer.md', 'add_a_task.md', 'add_a_method.md'):
    apply(page, folder)
  for own in ('my_rules', 'my_methods', 'my_tasks'):
    assert (folder / own / '__init__.py').is_file()
  return folder


@pytest.mark.parametrize(
  'arguments, rule',
  [
    pytest.param(
      [
        '--data=synthetic',
        '--client_optimizer=sign_momentum',
        '--client_momentum=0.5',
        '--server_optimizer=adabelief',
        '--beta_1=0.8',
      ],
      'learning_rate m / (sqrt(s) + epsilon)',
      marks=pytest.mark.exhaustive,
    ),
    (
      ['--task=clusters', '--algorithm=anchored', '--anchor_strength=0.5'],
      'client minimises F + 0.5 / 2 |x - x_i|^2',
    ),
    pytest.param(
      ['--data=synthetic', '--algorithm=pushed', '--push_strength=0.2'],
      '<-mu m, x>',
      marks=pytest.mark.exhaustive,
    ),
  ],
)
def test_the_guides_work_outside_of_the_project(outside, arguments, rule):
  """An optimizer on each side; methods whose clients or server keep something,
  and a task."""
  name = ''.join(letter for letter in rule[:6] if letter.isalnum())
  text = run(
    outside,
    str(_ROOT / 'main.py'),
    *arguments,
    '--total_rounds=2',
    '--rounds_per_checkpoint=1',
    f'--experiment_name={name}',
    log=f'{name}.log',
    PYTHONPATH='.',
    TFF_ADAPTIVE_EXTENSIONS='my_rules,my_methods, my_tasks',
  )
  assert rule in text
  assert 'round 2/2' in text
  rows = (outside / 'runs' / name / 'metrics.csv').read_text().splitlines()
  assert len(rows) == 4  # The heading and rounds 0 to 2.


_PARSE = """
import json, sys
from tff_adaptive.lab.flags import parsing
for words in json.loads(sys.argv[1]):
  parsing.Flags().parse(words)
print('parsed')
"""


def test_the_guides_commands_are_understood_as_they_are_written(outside):
  lines = [
    line
    for page in ('add_an_optimizer.md', 'add_a_method.md', 'add_a_task.md')
    for language, _, text in blocks(page)
    if not language
    for line in text.splitlines()
    if line.startswith('python main.py ')
  ]
  assert len(lines) == 5
  words = json.dumps([shlex.split(line)[2:] for line in lines])
  text = run(
    outside,
    *('-c', _PARSE, words),
    PYTHONPATH=os.pathsep.join(['.', str(_ROOT)]),
    TFF_ADAPTIVE_EXTENSIONS='my_rules,my_methods,my_tasks',
  )
  assert text == 'parsed\n'


def test_a_package_names_extensions_by_an_entry_point(outside, tmp_path):
  info = tmp_path / 'mine-1.0.dist-info'
  info.mkdir()
  (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: mine\n')
  (info / 'entry_points.txt').write_text(
    '[tff_adaptive.extensions]\nmine = my_rules\n'
  )
  path = os.pathsep.join([str(outside), str(tmp_path)])
  listed = run(tmp_path, str(_ROOT / 'main.py'), 'list', PYTHONPATH=path)
  assert re.search(r'^  sign_momentum  ', listed, re.MULTILINE)
  assert 'anchored' not in listed


def test_an_extension_that_cannot_be_imported(tmp_path):
  (tmp_path / 'broken.py').write_text('1 / 0\n')
  for name, part in (('broken', 'division by zero'), ('nowhere', 'nowhere')):
    environment = {'PYTHONPATH': tmp_path, 'TFF_ADAPTIVE_EXTENSIONS': name}
    done = programs.run(programs.MAIN, 'list', code=2, **environment)
    assert f"TFF_ADAPTIVE_EXTENSIONS names '{name}'" in done.stderr
    assert part in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.exhaustive
def test_the_site_builds_without_a_warning(tmp_path):
  pytest.importorskip('mkdocs', reason='make docs installs it')
  words = ('-m', 'mkdocs', 'build', '--strict', '-d', tmp_path)
  programs.run(*words, cwd=_ROOT)
  pages = list(tmp_path.rglob('*.html'))
  assert len(pages) > len(_PAGES)
  # Nothing on it is loaded from elsewhere.
  loaded = re.compile(
    r'<(?:script|img|link rel="stylesheet")[^>]*"(https?:|//)'
  )
  for page in pages:
    with contextlib.suppress(UnicodeDecodeError):
      assert not loaded.search(page.read_text(encoding='utf-8')), page
