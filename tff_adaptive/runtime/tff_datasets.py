"""Datasets, with names of TFF and TensorFlow beyond their public API.

`tff_names.py` has the other such names.
"""

import functools
import itertools
from collections.abc import MutableMapping, Sequence
from typing import Any, TypeAlias

import cachetools
import tensorflow as tf
import tensorflow_federated as tff
import tree
from tensorflow.python.framework import op_def_registry
from tensorflow_federated.python.core.impl.types import computation_types
from tensorflow_federated.python.core.impl.types import type_conversions
from tensorflow_federated.python.core.impl.utils import tensorflow_utils

from tff_adaptive.runtime import tff_names
from tff_adaptive.runtime.graphs import defs

# Nested containers of specs and of tensors, as in `tf.data`.
ElementSpec: TypeAlias = Any
Element: TypeAlias = Any


def dataset_from_elements(
  elements: list[object], element_type: tff.Type
) -> tf.data.Dataset:
  """Builds a dataset from a list of elements."""
  return tensorflow_utils.make_data_set_from_elements(
    None, elements, element_type
  )


def conform_dataset(
  dataset: tf.data.Dataset, element_type: tff.Type
) -> tf.data.Dataset:
  """Reorders a dataset's components to the order that graphs expect.

  Components of a dataset's variant tensor have no names, and their order
  follows from the elements' Python containers; a graph traced with other
  containers would confuse them.

  Raises:
    TypeError: If the elements are not assignable to `element_type`.
  """
  # Dtypes, shapes, containers and the order of their fields.
  key = (repr(dataset.element_spec), id(element_type))
  if key not in _conforms:
    got = computation_types.tensorflow_to_type(dataset.element_spec)
    if not element_type.is_assignable_from(got):
      raise TypeError(
        f'Expected a dataset with elements of type {element_type}, got {got}.'
      )
    same = _components(dataset.element_spec) == _components(
      _element_spec(element_type)
    )
    # Keeps the type alive, so that its id is not reused.
    _conforms[key] = (same, element_type)
  if _conforms[key][0]:
    return dataset

  def conform(*element: Element) -> Element:
    # tf.data unpacks plain tuples to positional arguments.
    whole = element
    if type(dataset.element_spec) is not tuple:  # pylint: disable=unidiomatic-typecheck
      (whole,) = element
    return _conform_element(whole, element_type)

  return dataset.map(conform)


def _components(spec: ElementSpec) -> list[tuple[object, ...]]:
  """Returns the fields, dtypes and ranks of components, in their order."""
  return [
    (path, leaf.dtype, leaf.shape.rank)
    for path, leaf in tree.flatten_with_path(spec)
  ]


def _conform_element(element: Element, type_spec: tff.Type) -> Element:
  if not isinstance(type_spec, tff.StructType):
    return element
  got = tff_names.structure.from_container(element)
  parts = [
    (name, _conform_element(got[index], part))
    for index, (name, part) in enumerate(tff_names.struct_items(type_spec))
  ]
  return type_conversions.type_to_py_container(
    tff_names.structure.Struct(parts), type_spec
  )


# Whether datasets can be used as they are, by spec and id of the element type.
_conforms: MutableMapping[tuple[str, int], tuple[bool, tff.Type]] = (
  cachetools.LRUCache(1024)
)


@functools.lru_cache(maxsize=1024)
def _element_spec(element_type: tff.Type) -> ElementSpec:
  """Returns the element spec that graphs expect, with its Python containers."""
  return type_conversions.type_to_py_container(
    type_conversions.type_to_tf_structure(element_type), element_type
  )


def dataset_from_variant(
  variant: tf.Tensor, element_type: tff.Type
) -> tf.data.Dataset:
  """Builds a dataset with a TFF element type from a variant tensor."""
  return tensorflow_utils.coerce_dataset_elements_to_tff_type_spec(
    tf.data.experimental.from_variant(variant, _element_spec(element_type)),
    element_type,
  )


def _component_specs(element_type: tff.Type) -> list[tf.TensorSpec]:
  return tf.nest.flatten(_element_spec(element_type))


def component_order(element_type: tff.Type) -> list[int]:
  """Returns each tf.data component's index in TFF's order.

  tf.data orders components as `tf.nest` does, so mappings by sorted keys; TFF
  orders them as in its type.
  """
  counter = itertools.count()

  def number(type_spec: tff.Type) -> tff_names.Struct | int:
    if isinstance(type_spec, tff.StructType):
      return tff_names.structure.Struct(
        [(name, number(t)) for name, t in tff_names.struct_items(type_spec)]
      )
    return next(counter)

  return tf.nest.flatten(
    type_conversions.type_to_py_container(number(element_type), element_type)
  )


def from_components(
  components: Sequence[tf.Tensor], element_type: tff.Type
) -> list[tf.Tensor]:
  """Reorders tf.data components to TFF's order."""
  ordered: list[tf.Tensor] = [None] * len(components)
  for component, index in zip(components, component_order(element_type)):
    ordered[index] = component
  return ordered


def flat_dataset(variant: tf.Tensor, element_type: tff.Type) -> tf.data.Dataset:
  """Builds a dataset of flat tuples of components from a variant tensor."""
  return tf.data.experimental.from_variant(
    variant, tuple(_component_specs(element_type))
  )


def flat_tensors(
  elements: Sequence[object], element_type: tff.Type
) -> list[list[tf.Tensor]] | None:
  """Flattens elements to dataset components.

  Args:
    elements: Structures of eager tensors.
    element_type: Their type.

  Returns:
    Each element's components, in the order that graphs expect; `None` if an
    element has another type or contains anything but tensors.
  """
  specs = _component_specs(element_type)
  result = []
  for element in elements:
    flat = tf.nest.flatten(element)
    if len(flat) != len(specs) or not all(
      isinstance(t, tf.Tensor) and spec.is_compatible_with(t)
      for t, spec in zip(flat, specs)
    ):
      return None
    result.append(flat)
  return result if _is_structured(elements[0], element_type) else None


def no_rows(element_type: tff.Type) -> list[tf.Tensor] | None:
  """Returns the components of no rows; `None` if their shapes are unknown."""
  specs = _component_specs(element_type)
  if not all(s.shape.rank and s.shape[1:].is_fully_defined() for s in specs):
    return None
  return [tf.zeros([0, *s.shape[1:]], s.dtype) for s in specs]


def flat_rows(rows: object, element_type: tff.Type) -> list[tf.Tensor] | None:
  """Flattens tensors whose rows are those of several elements.

  Args:
    rows: A structure of eager tensors [rows, ...].
    element_type: Type of an element, a batch of rows.

  Returns:
    The tensors in the order that graphs expect; `None` unless the element type
    allows any number of such rows.
  """
  specs = _component_specs(element_type)
  flat = tf.nest.flatten(rows)
  fits = len(flat) == len(specs) and all(
    isinstance(t, tf.Tensor)
    and spec.dtype == t.dtype
    and spec.shape.rank
    and spec.shape[0] is None
    and spec.shape[1:].is_compatible_with(t.shape[1:])
    for t, spec in zip(flat, specs)
  )
  return flat if fits and _is_structured(rows, element_type) else None


def _is_structured(element: object, element_type: tff.Type) -> bool:
  """Returns whether an element has the type's nested structure."""
  try:
    tf.nest.assert_same_structure(
      _element_spec(element_type), element, check_types=False
    )
  except (TypeError, ValueError):
    return False
  return True


# Dataset ops that call Python functions of their process.
_OF_THIS_PROCESS = frozenset(
  {'EagerPyFunc', 'GeneratorDataset', 'PyFunc', 'PyFuncStateless'}
)


def graph_of(dataset: tf.data.Dataset) -> bytes | None:
  """Serializes a dataset; returns `None` if it depends on this process."""
  graph = _serialized(tf.data.experimental.to_variant(dataset), _IGNORE_STATE)
  if graph is None or not _OF_THIS_PROCESS.isdisjoint(
    node.op for node in defs.all_nodes(graph)
  ):
    return None
  return graph.SerializeToString()


def dataset_from_graph(graph: bytes, element_type: tff.Type) -> tf.data.Dataset:
  """Builds the dataset that `graph_of` serialized."""
  return dataset_from_variant(
    tf.raw_ops.DatasetFromGraph(graph_def=graph), element_type
  )


_IGNORE_STATE = 1
_NO_STATE = 2


def _serialized(
  variant: tf.Tensor, policy: int
) -> tf.compat.v1.GraphDef | None:
  """Serializes a dataset; returns `None` if its external state forbids it."""
  try:
    return tf.compat.v1.GraphDef.FromString(
      tf.raw_ops.DatasetToGraphV2(
        input_dataset=variant,
        external_state_policy=policy,
        strip_device_assignment=True,
      ).numpy()
    )
  except tf.errors.OpError:
    return None


# Dataset ops whose elements are a function of their inputs.
_DETERMINISTIC = frozenset(
  {
    'BatchDataset',
    'BatchDatasetV2',
    'ConcatenateDataset',
    'FilterDataset',
    'FlatMapDataset',
    'MapAndBatchDataset',
    'MapDataset',
    'OptionsDataset',
    'PaddedBatchDataset',
    'PaddedBatchDatasetV2',
    'ParallelBatchDataset',
    'ParallelMapDatasetV2',
    'PrefetchDataset',
    'RangeDataset',
    'RepeatDataset',
    'SkipDataset',
    'TakeDataset',
    'TensorDataset',
    'TensorSliceDataset',
    'UnbatchDataset',
    'ZipDataset',
  }
)


def yields_the_same_each_time(variant: tf.Tensor) -> bool:
  """Returns whether a dataset is finite, stateless and deterministic.

  Args:
    variant: The dataset's variant tensor.
  """
  cardinality = int(tf.raw_ops.DatasetCardinality(input_dataset=variant))
  if cardinality == tf.data.INFINITE_CARDINALITY:
    return False
  graph = _serialized(variant, _NO_STATE)
  if graph is None:
    return False  # It depends on external state.
  functions = {f.signature.name for f in graph.library.function}
  return all(
    node.op in _DETERMINISTIC or node.op in functions or _is_stateless(node.op)
    for node in defs.all_nodes(graph)
  )


def _is_stateless(op: str) -> bool:
  """Returns whether an op is stateless and no dataset op."""
  if op in ('_Arg', '_Retval', 'StatefulPartitionedCall'):
    # The ops of a called function are checked in the library.
    return True
  definition = op_def_registry.get(op)
  return (
    definition is not None
    and not definition.is_stateful
    and not op.endswith('Dataset')
  )


def serialize_options(options: tf.data.Options) -> bytes:
  """Serializes tf.data options for `apply_options`."""
  return options._to_proto().SerializeToString()


def apply_options(dataset: tf.data.Dataset, serialized: bytes) -> tf.Tensor:
  """Returns the variant tensor of `dataset` with further options.

  `dataset.with_options` does the same, but takes half a millisecond.
  """
  specs = tf.nest.flatten(dataset.element_spec)
  return tf.raw_ops.OptionsDataset(
    input_dataset=tf.data.experimental.to_variant(dataset),
    serialized_options=serialized,
    output_types=[spec.dtype for spec in specs],
    output_shapes=[spec.shape for spec in specs],
  )
