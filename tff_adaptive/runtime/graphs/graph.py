"""A TFF computation's TensorFlow graph, rewritten to run in this process.

TFF's own runtime runs each graph in a session of its own, so that names of
functions, variables and tables cannot clash. Here all graphs share one process
and a graph runs for several clients at once, hence:

* Functions: names in a graph's library are global in the process, so they get a
  digest of the graph as suffix.
* Variables, tables: concurrent clients would share those with a `shared_name`,
  so they become anonymous ones, which each execution creates anew.
* Initialization: there is no session to run `initialize_op` in first, so
  readers of variables and tables get a control edge from it.
* Input: ops that iterate over datasets are placed on the CPU.
* `dataset.reduce`: its kernel instantiates its function in each call (30 to 40
  ms); an equivalent loop over an iterator does not.
* Stand-ins: creating an iterator costs more than a small client's training, and
  each of its batches wakes another thread. For a dataset that yields the same
  batches each time (the engine decides) the graph has another form: tensors
  whose rows are the batches replace the dataset, and a variable with the
  remaining rows replaces the iterator. Both have the same TensorFlow types, so
  only ops that make and advance iterators change.
"""

import functools
import hashlib
from collections.abc import Sequence

import tensorflow as tf

from tff_adaptive import cohorts
from tff_adaptive.runtime.graphs import defs
from tff_adaptive.runtime.graphs import reductions
from tff_adaptive.runtime.graphs import rewriting
from tff_adaptive.runtime.graphs import stand_ins


class Graph:
  """The graph of one `tff.tensorflow.computation`.

  Attributes:
    graph_def: The rewritten graph.
    parameters: Names of the tensors to feed, in the order of the argument.
    results: Names of the tensors to fetch, in the order of the result.
    ordered: Whether clients must run one by one, in their order, because a
      kernel keeps a queue or a seeded random state between calls.
    cohort_form: The same computation for several clients at once, if there is
      one.
  """

  def __init__(
    self,
    graph_def: defs.GraphDef,
    initialize_op: str,
    session_token: str,
    parameters: Sequence[str],
    results: Sequence[str],
  ):
    """Rewrites a graph.

    Args:
      graph_def: The graph as TFF serialized it; changed in place.
      initialize_op: Name of the op that initializes variables and tables, or
        ''.
      session_token: Name of the placeholder of the session token, or ''.
      parameters: Names of the argument's tensors, in order.
      results: Names of the result's tensors, in order.

    Raises:
      UnsupportedComputationError: If concurrent clients would share state.
    """
    self.parameters = [defs.tensor_name(name) for name in parameters]
    self.results = [defs.tensor_name(name) for name in results]
    rewriting.check_stateful_ops(graph_def)
    digest = hashlib.sha256(
      graph_def.SerializeToString(deterministic=True)
    ).hexdigest()[:16]
    rewriting.rename_functions(graph_def, f'_{digest}')
    rewriting.make_anonymous(graph_def)
    rewriting.drop_control_edges_from(graph_def, self.parameters)
    rewriting.set_session_token(graph_def, session_token)
    rewriting.keep_input_with_host(graph_def)
    self._reductions = reductions.replace(graph_def)
    if initialize_op:
      rewriting.order_after_initialization(graph_def, initialize_op)
    self.graph_def = graph_def
    self.cohort_form: cohorts.CohortForm | None = None
    self.ordered = rewriting.keeps_state(graph_def)
    # A method's cache would be a cycle of references, which outlives graphs.
    self._prune = functools.cache(
      functools.partial(_pruned, graph_def, self.results)
    )

  def call(
    self,
    arguments: Sequence[tf.Tensor],
    wanted: Sequence[int],
    replaced: Sequence[int] = (),
  ) -> list[tf.Tensor]:
    """Adds this graph to the current TensorFlow graph.

    Args:
      arguments: One tensor per entry of `parameters`.
      wanted: Indices into `results`; ops that only others need are pruned.
      replaced: Indices of `arguments` that are stand-ins for datasets;
        `replaceable` must hold for each.

    Returns:
      The tensors of the `wanted` results.
    """
    names = [self.results[i] for i in wanted]
    pruned = self._prune(tuple(wanted))
    if replaced:
      parameters = [self.parameters[i] for i in replaced]
      pruned = stand_ins.substitute(pruned, parameters, self._reductions)
    rewriting.rename_frames(pruned)
    nodes = {node.name for node in pruned.node}
    feeds = {
      name: value
      for name, value in zip(self.parameters, arguments)
      if defs.node_name(name) in nodes
    }
    # A result may be an argument itself.
    found = dict(zip(self.parameters, arguments))
    fetches = [name for name in names if name not in found]
    if fetches:
      fetched = tf.graph_util.import_graph_def(
        pruned, input_map=feeds, return_elements=fetches, name='graph'
      )
      found.update(zip(fetches, fetched))
    return [found[name] for name in names]

  @functools.cached_property
  def has_nested_loops(self) -> bool:
    """Whether clients' loops have one of their own, or cuDNN's in its place.

    Recurrent models have either; neither can be vectorized well.
    """
    frames = rewriting.frames_of(self.graph_def)
    return any(
      node.op.startswith('CudnnRNN')
      or (
        node.op == 'Enter'
        and any(defs.node_name(x) in frames for x in node.input)
      )
      for node in self.graph_def.node
    )

  def reduction(self, index: int) -> tuple[str, int, int] | None:
    """Recognizes a result that is a sum or a maximum of two parameters.

    Returns:
      The op, 'AddV2' or 'Maximum', and the indices of both parameters; `None`
      for any other result.
    """
    nodes = {node.name: node for node in self.graph_def.node}
    node = nodes[defs.node_name(self.results[index])]
    while node.op == 'Identity':
      node = nodes[defs.node_name(node.input[0])]
    if node.op not in ('AddV2', 'Maximum'):
      return None
    sides = [defs.tensor_name(name) for name in node.input]
    if not set(sides) <= set(self.parameters):
      return None
    left, right = (self.parameters.index(side) for side in sides)
    return node.op, left, right

  def replaceable(self, index: int) -> bool:
    """Returns whether a stand-in may be passed for a dataset parameter.

    True if the graph only iterates over the dataset.
    """
    return (
      stand_ins.iterations(
        self.graph_def, self.parameters[index], self._reductions
      )
      is not None
    )


def _pruned(
  graph_def: defs.GraphDef, results: Sequence[str], wanted: tuple[int, ...]
) -> defs.GraphDef:
  """Returns a copy of the subgraph that some results need."""
  needed = defs.needed_nodes(
    graph_def, (defs.node_name(results[i]) for i in wanted)
  )
  pruned = defs.GraphDef(versions=graph_def.versions)
  pruned.library.CopyFrom(graph_def.library)
  pruned.node.extend(n for n in graph_def.node if n.name in needed)
  return pruned
