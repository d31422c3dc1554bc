"""Which nodes a result needs."""

import tensorflow as tf

from tff_adaptive.runtime.engine import nodes

_SPEC = tf.TensorSpec([], tf.float32)


def _node(*inputs, outputs=1):
  return nodes.Node(
    nodes.SERVER,
    list(inputs),
    [_SPEC] * outputs,
    lambda tensors, wanted: [sum(tensors) + 1 for _ in wanted],
    'a node',
  )


def test_only_what_is_wanted_is_needed():
  first, unused = _node(outputs=2), _node()
  second = _node(first.leaves[1])
  dead_end = _node(unused.leaves[0], second.leaves[0])
  order = [first, unused, second, dead_end]
  needed = nodes.needed_leaves(order, second.leaves)
  assert needed == {second.leaves[0], first.leaves[1]}
  assert nodes.needed_leaves(order, []) == set()
  # Other dependencies than inputs, as aggregations have.
  needed = nodes.needed_leaves(
    order,
    second.leaves,
    lambda node: unused.leaves if node is second else node.inputs,
  )
  assert needed == {second.leaves[0], unused.leaves[0]}


def test_leaves_from_outside_are_listed_once_and_in_order():
  a, b, c = _node(), _node(), _node()
  inner = _node(b.leaves[0], a.leaves[0], b.leaves[0])
  outer = _node(inner.leaves[0], a.leaves[0])
  outside = nodes.read_from_outside([inner, outer], [*outer.leaves, *c.leaves])
  assert outside == [b.leaves[0], a.leaves[0], c.leaves[0]]


def test_nodes_that_nothing_needs_are_not_built():
  first = _node()
  second = _node(*first.leaves)

  def fail(tensors, wanted):
    raise AssertionError('not needed')

  unused = nodes.Node(nodes.SERVER, [], [_SPEC], fail, 'unused')
  built = nodes.build_nodes([first, unused, second], {}, second.leaves)
  assert built == [2]
