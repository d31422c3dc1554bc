"""Graphs as messages."""

import tensorflow as tf

from tff_adaptive.runtime.graphs import defs


def test_needed_nodes_are_reached_by_value_and_by_control():
  with tf.Graph().as_default() as graph:
    a = tf.constant(1.0, name='a')
    b = tf.constant(2.0, name='b')
    waited_for = tf.constant(3.0, name='waited_for')
    with tf.control_dependencies([waited_for]):
      tf.add(a, b, name='sum')
    tf.add(b, b, name='unrelated')
  graph_def = graph.as_graph_def()
  assert defs.needed_nodes(graph_def, ['sum']) == {
    'sum',
    'a',
    'b',
    'waited_for',
  }
  assert defs.needed_nodes(graph_def, ['unrelated', 'a']) == {
    'unrelated',
    'a',
    'b',
  }
  assert defs.needed_nodes(graph_def, []) == set()


def test_names_of_nodes_and_tensors():
  assert defs.node_name('^init') == defs.node_name('init:2') == 'init'
  assert defs.tensor_name('x') == 'x:0'
  assert defs.tensor_name('x:1') == 'x:1'
