"""Imports go one way through the rooms of the project, and in no circle."""

import ast
import collections
import pathlib

import pytest

import tasks
from tests import programs

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# What each may import besides itself; single files of tff_adaptive by name.
_BASE = {
  *('adapters', 'cohorts', 'drawing', 'errors', 'extensions', 'lazy'),
  *('masking', 'models', 'parameters', 'slots', 'structures', 'tff_internals'),
  'vectorizing',
}
_MAY_USE = {
  'adapters': {'models', 'structures', 'tff_internals'},
  'cohorts': set(),
  'drawing': {'lazy'},
  'errors': set(),
  'extensions': {'errors'},
  'lazy': set(),
  'masking': {'structures', 'tff_internals'},
  'models': {'masking', 'structures', 'tff_internals'},
  'parameters': set(),
  'slots': set(),
  'structures': set(),
  'tff_internals': {'errors'},
  'vectorizing': set(),
  # What declares and vectorizes the forms of client computations, and knows no
  # more of them.
  'runtime': {'cohorts', 'vectorizing'},
  'optimizers': _BASE,
  'privacy': _BASE,
  'processes': _BASE | {'optimizers', 'privacy'},
  'algorithms': _BASE | {'optimizers', 'privacy', 'processes'},
  'tasks': _BASE,
}
# The library, which knows neither of the runtime nor of the laboratory; and
# `tasks`, which knows of no method.
_LIBRARY = {'algorithms', 'optimizers', 'privacy', 'processes'}
# The laboratory stands on both.
_BELOW_LAB = _BASE | _LIBRARY | {'tasks', 'runtime'}
_MAY_USE['lab'] = set()
_MAY_USE['lab.recording'] = _BELOW_LAB
_MAY_USE['lab.flags'] = _BELOW_LAB | {'lab.recording'}
_MAY_USE['lab.report'] = _BELOW_LAB | {'lab.recording'}
_MAY_USE['lab.training'] = _BELOW_LAB | {'lab.flags', 'lab.recording'}
_MAY_USE['lab.sweep'] = _MAY_USE['lab.training'] | {
  'lab.report',
  'lab.training',
}
_MAY_USE['lab.board'] = _MAY_USE['lab.sweep'] | {'lab.sweep'}
_MAY_USE['lab.commands'] = _MAY_USE['lab.board'] | {'lab.board'}
# What users import stands for rooms of the laboratory.
_MAY_USE['training'] = {'lab.training'}
_MAY_USE['recording'] = {'lab.recording'}
# A room is no folder to scroll through.
_MOST_FILES = 18
# The rooms of tasks/, which know nothing of what stands around them.
_ROOMS_OF_TASKS = {
  # On what partitions are: tasks/partition.py.
  'tasks.partitioners': {'tasks', 'tasks.partitioners', 'tasks.formats'},
  'tasks.formats': {'tasks.formats'},
  'tasks.models': {'tasks.formats', 'tasks.models'},
}

_MODULES = {
  '.'.join(path.relative_to(_ROOT).with_suffix('').parts).removesuffix(
    '.__init__'
  ): path
  for folder in ('tff_adaptive', 'tasks')
  for path in (_ROOT / folder).rglob('*.py')
}


def room(module):
  first, *rest = module.split('.')
  if first != 'tff_adaptive':
    return first
  return '.'.join(rest[: 2 if rest[:1] == ['lab'] else 1])


def imports_of(module):
  """The project's modules that a module imports, anywhere in it."""
  found = set()
  for node in ast.walk(ast.parse(_MODULES[module].read_text())):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        full = f'{node.module}.{alias.name}'
        found.add(full if full in _MODULES else node.module)
  return {m for m in found if m in _MODULES and m != module}


@pytest.mark.parametrize('module', sorted(_MODULES))
def test_imports_go_one_way(module):
  here = room(module)
  if here:  # Not the package itself, which imports its parts when asked.
    used = {room(m) for m in imports_of(module)} - {here, ''}
    assert used <= _MAY_USE[here], module


@pytest.mark.parametrize('floor', ['library', 'runtime'])
def test_no_floor_knows_the_one_above(floor):
  rooms = {'library': _LIBRARY, 'runtime': {'runtime'}}[floor]
  others = {'library': {'runtime'}, 'runtime': _LIBRARY}[floor]
  for module in _MODULES:
    if room(module) in rooms:
      used = {room(m) for m in imports_of(module)}
      assert not {r for r in used if r.startswith('lab')}, module
      assert not used & others, module


def test_rooms_are_small_enough_to_see_at_once():
  rooms = collections.Counter(path.parent for path in _MODULES.values())
  crowded = {str(p): n for p, n in rooms.items() if n > _MOST_FILES}
  assert not crowded


@pytest.mark.parametrize('inner', sorted(_ROOMS_OF_TASKS))
def test_models_and_formats_know_no_task(inner):
  modules = [m for m in _MODULES if m.startswith(f'{inner}.')]
  assert modules
  for module in modules:
    used = {m.rpartition('.')[0] or m for m in imports_of(module)}
    assert used <= _ROOMS_OF_TASKS[inner], module


# Code that is to run without some modules.
_LIGHT = {
  'runtime': (
    'import tff_adaptive.runtime',
    {'tensorflow', 'tensorflow_federated', 'numpy', 'grpc', 'psutil'}
    | {f'tff_adaptive.{m}' for m in ('parameters', 'algorithms', 'training')}
    | {'tff_adaptive.optimizers'},
  ),
  'scores': ('from tff_adaptive.lab.board import scoring', {'tensorflow'}),
  'lists': (
    'import tasks\n'
    'from tff_adaptive import algorithms, optimizers\n'
    'for name in tasks.names(): tasks.parameters_of(name)\n'
    'for name in algorithms.names(): algorithms.parameters_of(name)\n'
    'optimizers.parameters_of("client", "delta_sgd")\n'
    'algorithms.check("fedadam", client_learning_rate=0.1)',
    {'tensorflow'},
  ),
  'tasks': (
    'import tasks\n'
    'for name in tasks.names(): tasks.info(name), tasks.parameters_of(name)\n'
    f'assert len(tasks.names()) == {len(tasks.names())}',
    {'tensorflow', 'tensorflow_federated', 'sklearn'},
  ),
  'private checks': (
    'from tff_adaptive import algorithms\n'
    'algorithms.check("fedavg", dp_clip_norm=1.0, dp_clients_per_round=2)',
    {'tensorflow', 'dp_accounting'},
  ),
  'budgets': (
    'from tff_adaptive import privacy\n'
    'privacy.Budget(clients=9, clients_per_round=3, delta=.1, rounds=2)'
    '.epsilon(1.0, 2)',
    {'tensorflow'},
  ),
}


@pytest.mark.parametrize('name', _LIGHT)
def test_light_code_imports_nothing_heavy(name):
  code, heavy = _LIGHT[name]
  found = f'found = {heavy} & set(sys.modules)\nassert not found, found'
  code = f'import sys\n{code}\n{found}'
  assert not programs.run('-c', code, cwd=_ROOT, timeout=60).stdout


def test_no_module_imports_itself_in_a_circle():
  done, open_ = set(), []

  def visit(module):
    assert module not in open_, ' -> '.join([*open_, module])
    if module not in done:
      open_.append(module)
      for other in sorted(imports_of(module)):
        visit(other)
      done.add(open_.pop())

  for module in sorted(_MODULES):
    visit(module)
