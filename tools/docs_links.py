"""A hook of MkDocs: pages link to files of the repository as GitHub shows them.

docs/ is the root of the site. A link that leads out of it, such as
`../results/main_job/README.md`, would be broken there: the file that it names
becomes part of the site, at the same place below the root, and the link leads
to that. So every link is right in a checkout and on the site.

KaTeX, which typesets formulas in the browser, comes from a Python package.
"""

import importlib.metadata
import pathlib
import posixpath
import re
from collections.abc import Iterator

from mkdocs.structure.files import File

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_DOCS = 'docs/'
# Markdown's links and pictures; not those to other sites or within the page.
_LINK = re.compile(r'(\]\()(?![a-z]+:|#)([^)#\s]+)')
# Pages of the navigation that stand at the top of the repository.
_TOP = ('CHANGELOG.md', 'CONTRIBUTING.md')
_KATEX = 'katex.min.js'


def _in_repository(page: str) -> str:
  """Returns where a page of the site is in the repository."""
  return page if (_ROOT / page).is_file() else _DOCS + page


def _targets(page: str, text: str) -> Iterator[str]:
  """Yields the repository's files outside docs/ that a page links to."""
  folder = posixpath.dirname(_in_repository(page))
  for _, link in _LINK.findall(text):
    target = posixpath.normpath(posixpath.join(folder, link))
    if not target.startswith((_DOCS, '..')) and (_ROOT / target).is_file():
      yield target


def on_files(files, config):
  """Adds the files that pages link to, and those that these link to."""
  waiting = list(_TOP)
  for file in files.documentation_pages():
    waiting += _targets(file.src_uri, file.content_string)
  while waiting:
    target = waiting.pop()
    if files.get_file_from_path(target) is None:
      files.append(
        File.generated(config, target, abs_src_path=str(_ROOT / target))
      )
      if target.endswith('.md'):
        text = (_ROOT / target).read_text(encoding='utf-8')
        waiting += _targets(target, text)
  package = importlib.metadata.distribution('sphinxcontrib-katex')
  path = package.locate_file(f'sphinxcontrib/{_KATEX}')
  files.append(File.generated(config, f'assets/{_KATEX}', abs_src_path=path))
  return files


def on_page_markdown(markdown, page, config, files):
  """Lets links be relative to where their page is on the site."""
  del config, files
  here = page.file.src_uri
  folder = posixpath.dirname(_in_repository(here))

  def moved(match: re.Match[str]) -> str:
    start, link = match.groups()
    target = posixpath.normpath(posixpath.join(folder, link))
    on_site = target.removeprefix(_DOCS)
    return start + posixpath.relpath(on_site, posixpath.dirname(here) or '.')

  return _LINK.sub(moved, markdown)
