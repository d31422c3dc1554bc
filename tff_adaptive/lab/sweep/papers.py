"""The hyperparameter grids of papers, as data in `paper_grids/PAPER.json`.

A file holds, by task, the flags that all methods share and by method its
blocks: flags that are fixed, and axes. Methods under `alone` are no part of the
task's grid: reddi2021's SCAFFOLD appears in Figures 1 and 4, not in Table 1.

reddi2021: Appendix D.2 of Reddi et al., with settings of the released code.
kim2024: Section 4 of Kim et al., rates of the baseline clients; the grid on
  MNIST tunes on MNIST itself. The paper leaves epsilon open; its code is
  PyTorch's, with these defaults.
mukherjee2023: Appendix F.4 of Mukherjee et al.
fedada2: Appendices H.1 (tags), H.2 (two steps), I.1 (every pair of Adam and
  AdaGrad) and I.2 (delays of zero, one and three local epochs after the first)
  of Lee et al.
"""

import json
import pathlib
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.lab.sweep.grids import Block

_FOLDER = pathlib.Path(__file__).with_name('paper_grids')


def built_in() -> dict[str, list[Block]]:
  """Returns the papers' grids by name, PAPER/TASK or PAPER/TASK/METHOD."""
  grids: dict[str, list[Block]] = {}
  for path in sorted(_FOLDER.glob('*.json')):
    for task, found in json.loads(path.read_text('utf-8')).items():
      name = f'{path.stem}/{task}'
      grids[name] = []
      for method, rows in found['methods'].items():
        blocks = [
          Block({**found['shared'], **row['flags']}, row['axes'])
          for row in rows
        ]
        grids[f'{name}/{method}'] = blocks
        if method not in found.get('alone', ()):
          grids[name] += blocks
  return grids


def load(name: str, algorithm: Optional[str] = None) -> list[Block]:
  """Returns the blocks of a paper's grid.

  Args:
    name: One of `built_in()`.
    algorithm: The method whose blocks to return; by default all.

  Raises:
    SettingsError: If the grid is unknown or has no block of the method.
  """
  known = built_in()
  if name not in known:
    papers = ', '.join(n for n in known if n.count('/') == 1)
    raise errors.SettingsError(
      f'--grid must be one of {papers}, or one of these with /METHOD, got '
      f'{name!r}.'
    )
  blocks = known[name]
  if algorithm is not None:
    blocks = [b for b in blocks if b.fixed['algorithm'] == algorithm]
    if not blocks:
      raise errors.SettingsError(
        f'--grid={name} has no points of --algorithm={algorithm}.'
      )
  return blocks
