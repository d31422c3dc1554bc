"""TFF imports on today's base in any order, quietly; says what it lacks."""

import importlib.util
import re

import pytest
import tff_today

from tests import programs

_ROOT = programs.ROOT
_TOUCH = """
for touch, needs in (
  (lambda: tff.jax.computation(lambda x: x), 'jax.lib.xla_client'),
  (lambda: tff.learning.programs.train_model_with_vizier(), 'google-vizier'),
  (lambda: tensorflow_privacy.DNNClassifier(), 'tensorflow-estimator'),
  (lambda: tensorflow_privacy.DNNClassifier.train, 'tensorflow-estimator'),
):
  try:
    touch()
  except ImportError as e:
    assert needs in str(e) and 'cannot be imported here' in str(e), e
  else:
    raise AssertionError(needs)
"""
# Whatever else TFF's own default context says when the interpreter ends.
_END = """
from tff_adaptive import runtime
runtime.set_in_process_context()
print('done')
"""


def run(code):
  """Runs code in a Python of its own, which is to write nothing but `done`."""
  environment = dict(PYTHONPATH=_ROOT, TF_CPP_MIN_LOG_LEVEL=3)
  done = programs.run('-c', code, timeout=240, **environment)
  assert (done.stdout, done.stderr) == ('done\n', '')


@pytest.mark.exhaustive
def test_tff_first():
  code = 'import tensorflow_federated as tff, tensorflow_privacy\n'
  run(code + _TOUCH + _END)


@pytest.mark.exhaustive
def test_tff_without_its_worker():
  """It is imported, computes here, and says what its own runtime lacks."""
  hidden = """
import os.path
there = os.path.isfile
os.path.isfile = lambda path: 'worker_binary' not in str(path) and there(path)
import tensorflow_federated as tff
from tff_adaptive import runtime

@tff.tensorflow.computation
def one():
  return 1

try:
  one()
except RuntimeError as e:
  assert 'context' in str(e), e
else:
  raise AssertionError('there was a context')
try:
  runtime.set_native_context()
except runtime.RuntimeFailure as e:
  assert 'make native' in str(e), e
else:
  raise AssertionError('there was a worker')
runtime.set_in_process_context()
assert one() == 1
print('done')
"""
  run(hidden)


@pytest.mark.exhaustive
def test_this_package_first_and_tensorflow_next():
  code = (
    'from tff_adaptive import algorithms, runtime\n'
    'import tensorflow as tf, tensorflow_federated as tff\n'
    'import tensorflow_privacy\n'
    "assert tf.keras.Model.__module__.startswith('tf_keras'), tf.keras.Model\n"
  )
  run(code + _TOUCH + _END)


@pytest.mark.parametrize('name', ['jax', 'vizier', 'tensorflow_estimator'])
def test_packages_themselves_are_not_replaced(name):
  spec = importlib.util.find_spec(name)
  assert spec is None or 'tff_today' not in str(spec.origin)


def test_the_lock_builds_it_with_its_own_setuptools():
  project = (_ROOT / 'tools' / 'tff_today' / 'pyproject.toml').read_text()
  locked = (_ROOT / 'requirements.txt').read_text()
  (pin,) = re.findall(r'requires = \["(setuptools==[\d.]+)"\]', project)
  assert f'\n{pin} ' in locked


def test_what_tensorflow_logs_is_held_back_by_severity():
  lines = [
    b'WARNING: All log messages before absl::InitializeLog() is called\n',
    b'I0000 00:00:1.2 34 port.cc:153] custom operations are on.\n',
    b'with a second line\n',
    b'E0000 00:00:1.2 34 cuda.cc:1] a driver is too old\n',
    b'which is said at length\n',
    b'Traceback (most recent call last):\n',
  ]
  above = [list(tff_today.above(lines, level)) for level in (1, 2, 3)]
  assert above == [lines[3:], lines[3:], []]


@pytest.mark.parametrize('level', [None, '0'])
def test_the_log_is_quiet_unless_asked(level):
  code = """
import tensorflow as tf
import tensorflow_federated as tff
from tff_adaptive import runtime
runtime.set_in_process_context()
assert tff.tensorflow.computation(lambda: tf.range(3))()[2] == 2
print('done')
"""
  environment = dict(PYTHONPATH=_ROOT, TF_CPP_MIN_LOG_LEVEL=level)
  done = programs.run('-c', code, timeout=240, **environment)
  assert done.stdout == 'done\n'
  assert ('\nI0000 ' in f'\n{done.stderr}') == (level == '0'), done.stderr


@pytest.mark.exhaustive
def test_what_is_seldom_used_is_imported_later():
  code = """
import sys
import tensorflow_federated as tff, tensorflow_privacy, dp_accounting
for name in ('scipy.stats', 'sklearn', 'keras.src',
             'tensorflow_probability.python'):
  assert name not in sys.modules, name
sigma = dp_accounting.get_sigma_gaussian(1.0, 1e-5)
assert abs(sigma - 3.7306) < 1e-4, sigma
import scipy.stats, tensorflow_probability, keras
assert dp_accounting.pld.PLDAccountant().get_epsilon(1e-5) == 0
assert abs(scipy.stats.norm.cdf(0) - 0.5) < 1e-12
assert tensorflow_probability.distributions.Normal(0., 1.).loc == 0
assert keras.__version__.startswith('3.')
data = tensorflow_privacy.synthetic_linearly_separable_data(10, 5, 2, 2)
assert data[0].points.shape == (10, 2)
"""
  run(code + _END)


# Each after `import tensorflow_federated` alone.
_FIRST = """
from scipy.stats import qmc; qmc.Halton(2)
import scipy.optimize._linprog; scipy.optimize.linprog([1])
import keras.layers; keras.layers.Dense
from tensorflow_probability.substrates import numpy as tfp; tfp.math
from dp_accounting.pld import pld_pmf; pld_pmf.SparsePLDPmf
from sklearn import datasets; datasets.load_iris()
"""


@pytest.mark.exhaustive
def test_parts_of_it_can_be_imported_first():
  code = f"""
import os, warnings
import tensorflow_federated
warnings.simplefilter('ignore')  # TensorFlow's threads compute nothing.
for line in {_FIRST.split(chr(10))[1:-1]}:
  child = os.fork()
  if not child:
    exec(line)
    os._exit(0)
  assert os.waitpid(child, 0)[1] == 0, line
"""
  run(code + _END)
