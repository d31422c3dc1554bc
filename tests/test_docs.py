"""The documentation says what the code does."""

import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import tasks
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive.commands import command_line
from tff_adaptive.flags import parsing as flags

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
      'Idea',
      'Rule',
      'Flags',
      'Where it departs',
      'When to use it',
    ]
  text = (_DOCS / 'algorithms' / 'optimizers.md').read_text(encoding='utf-8')
  described = re.findall(r'generate optimizer (\w+) (\w+)', text)
  assert described == [
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
  'page',
  [*_PAGES, *_OTHERS],
  ids=lambda p: p.relative_to(_ROOT).as_posix(),
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
    known |= module.build_options().names
  # Of pip, TensorBoard, tasks.figures and benchmarks.
  known |= {'no', 'ignore', 'logdir', 'alpha', 'rounds'}
  made = 'clusters|sign_momentum'  # By the guides that add them.
  for page in [*_PAGES, *_OTHERS]:
    text = page.read_text(encoding='utf-8')
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
  if '--client_optimizer=sign_momentum' in words or '--task=clusters' in words:
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


def test_the_guide_for_stateful_methods(in_process_context):
  del in_process_context
  (text,) = (b[2] for b in blocks('getting_started.md') if b[0] == 'python')
  names = {}
  text = text.replace('runtime.set_in_process_context()\n', '')
  exec(compile(text, 'getting_started.md', 'exec'), names)  # pylint: disable=exec-used
  assert sorted(names['kept']) == [0, 1, 2, 3]
  assert all(bool(state['seen']) for state in names['kept'].values())


def apply(page, tree):
  """Does to a copy of the project what a page tells to do."""
  for _, title, text in blocks(page):
    path, _, table = title.partition(', in ')
    if not title:
      continue
    file = tree / path
    if not table:
      assert not file.exists(), path
      file.write_text(text, encoding='utf-8')
      continue
    code = file.read_text(encoding='utf-8')
    opening = re.search(rf'^{table}\b.*[\[({{]\n', code, re.MULTILINE)
    assert opening, f'{path} has no table {table}'
    entry = f'{text.strip().rstrip(",")},\n'
    file.write_text(
      code[: opening.end()] + entry + code[opening.end() :], encoding='utf-8'
    )


def test_an_optimizer_and_a_task_are_added_as_the_guides_say(tmp_path):
  for folder in ('tff_adaptive', 'tasks'):
    shutil.copytree(_ROOT / folder, tmp_path / folder)
  shutil.copy(_ROOT / 'main.py', tmp_path)
  apply('add_an_optimizer.md', tmp_path)
  apply('add_a_task.md', tmp_path)
  log = tmp_path / 'log'
  with open(log, 'w', encoding='utf-8') as file:
    code = subprocess.run(
      [
        sys.executable,
        'main.py',
        '--task=clusters',
        '--clusters_skew=0.1',
        '--client_optimizer=sign_momentum',
        '--client_sign_momentum_momentum=0.5',
        '--client_learning_rate=0.05',
        '--server_optimizer=sgd',
        '--total_rounds=8',
        '--experiment_name=run',
      ],
      cwd=tmp_path,
      env={k: v for k, v in os.environ.items() if k != 'PYTHONPATH'},
      stdout=file,
      stderr=subprocess.STDOUT,
      timeout=300,
      check=False,
    ).returncode
  text = log.read_text(encoding='utf-8')
  assert code == 0, text
  accuracy = float(re.search(r'^test +8 +(\S+)', text, re.MULTILINE).group(1))
  assert accuracy > 0.5, text


def test_the_site_builds_without_a_warning(tmp_path):
  pytest.importorskip('mkdocs', reason='make docs installs it')
  done = subprocess.run(
    [sys.executable, '-m', 'mkdocs', 'build', '--strict', '-d', str(tmp_path)],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  pages = list(tmp_path.rglob('*.html'))
  assert len(pages) > len(_PAGES)
  # Nothing on it is loaded from elsewhere.
  loaded = re.compile(
    r'<(?:script|img|link rel="stylesheet")[^>]*"(https?:|//)'
  )
  for page in pages:
    with contextlib.suppress(UnicodeDecodeError):
      assert not loaded.search(page.read_text(encoding='utf-8')), page
