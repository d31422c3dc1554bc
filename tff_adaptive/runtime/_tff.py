"""Every name this package takes from TFF beyond its public API.

TFF moves its modules between releases. Whatever is not reachable from
`tensorflow_federated` itself is imported here and nowhere else, so that an
upgrade is a change to one file; `tests/runtime/test_tff_names.py` checks that
each name is there.
"""

import os

import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2
from tensorflow_federated.proto.v0 import executor_pb2_grpc
from tensorflow_federated.python.common_libs import async_utils
from tensorflow_federated.python.common_libs import structure
from tensorflow_federated.python.core.backends.native import compiler as native_compiler
from tensorflow_federated.python.core.backends.native import mergeable_comp_compiler
from tensorflow_federated.python.core.environments.tensorflow_frontend import tensorflow_computation
from tensorflow_federated.python.core.impl.executors import executors_errors

__all__ = [
    'AsyncThreadRunner',
    'RetryableGRPCError',
    'Struct',
    'compile_to_mergeable',
    'compile_to_native',
    'executor_pb2',
    'executor_pb2_grpc',
    'structure',
    'transform_args',
    'transform_result',
    'worker_binary_path',
]

AsyncThreadRunner = async_utils.AsyncThreadRunner
RetryableGRPCError = executors_errors.RetryableGRPCError
Struct = structure.Struct
compile_to_mergeable = mergeable_comp_compiler.compile_to_mergeable_comp_form
compile_to_native = native_compiler.desugar_and_transform_to_native
transform_args = tensorflow_computation.transform_args
transform_result = tensorflow_computation.transform_result


def worker_binary_path() -> str:
  """Where the installed TFF keeps its C++ worker.

  Raises:
    FileNotFoundError: If this installation has none.
  """
  path = os.path.join(os.path.dirname(tff.__file__), 'data', 'worker_binary')
  if not os.path.isfile(path):
    # The package's root differs from the Python root in some builds of TFF.
    path = os.path.join(
        os.path.dirname(executor_pb2.__file__), '..', '..', 'data',
        'worker_binary',
    )
  path = os.path.normpath(path)
  if not os.path.isfile(path):
    raise FileNotFoundError(
        f"TFF's worker was expected at {path}: this installation of"
        ' tensorflow-federated has none; use the in-process runtime or install'
        ' the Linux x86-64 wheel.'
    )
  return path
