"""A shim that runs TFF 0.87.0 on the Python and TensorFlow of today.

TFF is pure Python and one program, but its imports are of 2023. Once `install`
has run (`tff_today.pth` calls it when Python starts, so that it does not matter
which package is imported first), five things are different:

1. TFF and tensorflow-privacy import `jax`, `vizier` and `tensorflow_estimator`
   for a handful of functions that nothing else in them uses, in versions that
   the registry has lost or that today's Python cannot install. Where those
   imports fail, that function is replaced by an object that says what is
   missing. The packages themselves are not replaced: `import jax` gives the
   real jax or `ModuleNotFoundError`, so no other library mistakes a stand-in
   for it.
2. TensorFlow is told to use Keras 2 (`TF_USE_LEGACY_KERAS=1`, unless the
   variable is set already), which TFF is written for.
3. TensorFlow logs warnings and errors alone (`TF_CPP_MIN_LOG_LEVEL=1`, unless
   the variable is set already: of `I0000` lines there are dozens), and the
   variable holds while TensorFlow is imported, too. TensorFlow 2.21 writes some
   lines before it has read it.
4. What TFF's import pulls in and hardly anybody calls (`LATER`) is loaded when
   somebody first looks into it. Whoever imports it before TFF, or after, gets
   it as ever.

5. TFF's import makes its native runtime the default one. Where the program of
   that runtime is missing (`tools/portable_tff.py`), TFF is imported without a
   default: a computation then asks for a context to be set.

It costs one entry in `sys.meta_path`.
"""

import functools
import importlib.abc
import importlib.machinery
import os
import re
import sys
import tempfile
import threading
import types

_ESTIMATOR = 'tensorflow-estimator and a TensorFlow before 2.16'
# Module -> what others import from it, what that needs, its public name.
STANDINS = {
  'tensorflow_federated.python.core.environments.jax_frontend'
  '.jax_computation': (
    'jax_computation',
    'a jax that still has jax.lib.xla_client, 0.4.30 for one',
    'tff.jax.computation',
  ),
  'tensorflow_federated.python.learning.programs.vizier_program_logic': (
    'train_model_with_vizier',
    'google-vizier 0.1.11',
    'tff.learning.programs.train_model_with_vizier',
  ),
  'tensorflow_privacy.privacy.estimators.dnn': (
    'DNNClassifier',
    _ESTIMATOR,
    'tensorflow_privacy.DNNClassifier',
  ),
  'tensorflow_privacy.privacy.estimators.v1.dnn': (
    'DNNClassifier',
    _ESTIMATOR,
    'tensorflow_privacy.v1.DNNClassifier',
  ),
}
# Where TFF's default context is set.
_NATIVE = 'tensorflow_federated.python.core.backends.native.execution_contexts'
# Imported by TFF, or by what it imports, and used by few of their functions;
# with the functions that importers take out of it.
LATER = {
  'dp_accounting.gaussian_mechanism': (
    'get_epsilon_gaussian',
    'get_sigma_gaussian',
  ),
  'dp_accounting.pld': (),
  'dp_accounting.rdp': (),
  'keras': (),
  'scipy.optimize': (),
  'scipy.signal': (),
  'scipy.stats': (),
  'tensorflow_privacy.privacy.logistic_regression.datasets': (
    'linearly_separable_labeled_examples',
    'synthetic_linearly_separable_data',
  ),
  'tensorflow_privacy.privacy.logistic_regression.multinomial_logistic': (
    'logistic_dpsgd',
    'logistic_objective_perturbation',
  ),
  'tensorflow_privacy.privacy.logistic_regression.single_layer_softmax': (
    'single_layer_softmax_classifier',
  ),
  'tensorflow_probability': (),
}
# A line of TensorFlow's log: severity and date, or the head before the first.
_LOGGED = re.compile(
  rb'^([IWEF])\d{4} |^WARNING: All log messages before absl::InitializeLog'
)
_SEVERITIES = {b'I': 0, b'W': 1, b'E': 2, b'F': 3, None: 0}


class _Missing:
  """Raises `ImportError`, with the reason, when it is called or looked into."""

  def __init__(self, name, needs, cause):
    self.__dict__.update(_name=name, _needs=needs, _cause=cause)

  def _refuse(self):
    raise ImportError(
      f'{self._name} needs {self._needs}, which cannot be imported here '
      f'({self._cause}). The rest of TFF works without it.'
    ) from self._cause

  def __call__(self, *args, **kwargs):
    self._refuse()

  def __getattr__(self, name):
    if name.startswith('__'):  # What inspection asks of any object.
      raise AttributeError(name)
    self._refuse()

  def __repr__(self):
    return f'<{self._name}, which needs {self._needs}>'


class _Loader(importlib.abc.Loader):
  """A module's own loader, with something around its execution."""

  def __init__(self, real):
    self._real = real

  def create_module(self, spec):
    return self._real.create_module(spec)

  def __getattr__(self, name):  # get_source and the like.
    return getattr(self._real, name)


class _Later(types.ModuleType):
  """A module that is executed when one of its names is first looked into."""

  def __getattr__(self, name):
    if name == '__path__':  # Asked of every module; packages have it.
      raise AttributeError(name)
    if name in LATER[self.__name__] and '__later__' in self.__dict__:
      return lambda *args, **kwargs: _get(self, name)(*args, **kwargs)
    return _get(self, name)

  def load(self):
    """Executes the module, once."""
    with self.__lock__:  # Of this thread only: its code may ask for names, too.
      real = self.__dict__.pop('__later__', None)
      if real is not None:
        try:
          real.exec_module(self)
        except BaseException:
          self.__later__ = real
          raise
        self.__class__ = types.ModuleType


def _get(module, name):
  _Later.load(module)
  return types.ModuleType.__getattribute__(module, name)


class _LaterLoader(_Loader):
  """A loader that makes a `_Later` of a module."""

  def exec_module(self, module):
    module.__later__ = self._real
    module.__lock__ = threading.RLock()
    module.__class__ = _Later


class _LoadedLoader(importlib.abc.Loader):
  """Hands out a module that is loaded already."""

  def __init__(self, module):
    self._module, self._spec = module, module.__spec__

  def create_module(self, spec):
    return self._module

  def exec_module(self, module):
    module.__spec__ = self._spec  # The import system has put its own.


def _loaded_with_parent(name):
  """Loads the package that a module is in, if that was to be loaded later.

  Returns:
    A spec of the module, if the package has imported it; else `None`.
  """
  parent = sys.modules.get(name.rpartition('.')[0])
  if not isinstance(parent, _Later) or _FederatedLoader.importing:
    return None
  parent.load()
  if name not in sys.modules:
    return None
  return importlib.machinery.ModuleSpec(name, _LoadedLoader(sys.modules[name]))


class _FederatedLoader(_Loader):
  """Imports TFF, and only what it needs of `LATER`."""

  importing = False

  def exec_module(self, module):
    _FederatedLoader.importing = True
    try:
      self._real.exec_module(module)
    finally:
      _FederatedLoader.importing = False


class _StandinLoader(_Loader):
  """A loader that leaves a stand-in where the real module's imports fail."""

  def exec_module(self, module):
    attribute, needs, name = STANDINS[module.__name__]
    try:
      self._real.exec_module(module)
    except (ImportError, AttributeError) as e:
      setattr(module, attribute, _Missing(name, needs, e))


class _NativeLoader(_Loader):
  """A loader that lets TFF be imported without the native runtime's program."""

  def exec_module(self, module):
    self._real.exec_module(module)
    set_default = module.set_sync_local_cpp_execution_context

    @functools.wraps(set_default)
    def set_if_there(*args, **kwargs):
      try:
        set_default(*args, **kwargs)
      except RuntimeError as e:
        if not (_FederatedLoader.importing and 'worker binary' in str(e)):
          raise

    module.set_sync_local_cpp_execution_context = set_if_there


class _QuietLoader(_Loader):
  """A loader that holds back logs below TF_CPP_MIN_LOG_LEVEL."""

  def exec_module(self, module):
    level = os.environ.get('TF_CPP_MIN_LOG_LEVEL', '')
    try:
      stderr = os.dup(2) if level in ('1', '2', '3') else None
    except OSError:  # Closed: nobody reads it.
      stderr = None
    if stderr is None:
      self._real.exec_module(module)
      return
    with tempfile.TemporaryFile() as held:
      os.dup2(held.fileno(), 2)
      try:
        self._real.exec_module(module)
      finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        held.seek(0)
        for line in above(held, int(level)):
          os.write(2, line)


def above(lines, level):
  """Yields the lines of entries at or above a level, and what is no log."""
  shown = True
  for line in lines:
    match = _LOGGED.match(line)
    if match:
      shown = _SEVERITIES[match.group(1)] >= level
    if shown:
      yield line


class _Finder(importlib.abc.MetaPathFinder):
  """A finder of the modules that are loaded in another way."""

  def find_spec(self, fullname, path=None, target=None):
    if fullname == 'tensorflow':
      os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
      os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
      wrap = _QuietLoader
    elif fullname in STANDINS:
      wrap = _StandinLoader
    elif fullname == _NATIVE:
      wrap = _NativeLoader
    elif fullname == 'tensorflow_federated':
      wrap = _FederatedLoader
    elif fullname in LATER and _FederatedLoader.importing:
      wrap = _LaterLoader
    else:
      return _loaded_with_parent(fullname)
    spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
    if spec is not None and spec.loader is not None:
      spec.loader = wrap(spec.loader)
    return spec


def install() -> None:
  """Puts the finder first in `sys.meta_path`, once."""
  if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())
