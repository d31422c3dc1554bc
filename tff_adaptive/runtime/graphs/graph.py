"""One TensorFlow graph of a TFF computation, made fit to run in this process.

TFF's own runtime runs each graph in a session of its own, where names of
functions, variables and tables cannot meet. Here all graphs live in one
process and one graph runs for several clients at once, hence:

* Functions: names in a graph's library are global in the process, so each
  library is renamed by a digest of its graph.
* Variables, tables: a `shared_name` would make concurrent clients share them,
  so each becomes the anonymous kind, which is new in each execution.
* Initialization: there is no session to run `initialize_op` in first, so
  whatever reads a variable or table waits for it by a control edge.
* Input: what iterates over datasets stays on the CPU.
* `dataset.reduce`: its kernel instantiates its function anew in each call
  (30 to 40 ms); the equal loop over an iterator does not.
* Stand-ins: making an iterator costs more than a small client's training, and
  each batch from it wakes another thread. For a dataset that yields the same
  batches each time (the engine decides) the graph has other forms, in which a
  list of batches, or tensors whose rows are the batches, stand for the dataset,
  and a variable that holds the rest of them for the iterator. All are of the
  same TensorFlow types, so only the ops that make and advance iterators change.
"""

import hashlib
from collections.abc import Sequence

import tensorflow as tf

from tff_adaptive.runtime.graphs import defs
from tff_adaptive.runtime.graphs import forms
from tff_adaptive.runtime.graphs import reductions
from tff_adaptive.runtime.graphs import rewriting
from tff_adaptive.runtime.graphs import stand_ins


class Graph:
  """The graph of one `tff.tensorflow.computation`.

  Attributes:
    graph_def: The rewritten graph.
    parameters: Names of the tensors to feed, in the order of the argument.
    results: Names of the tensors to fetch, in the order of the result.
    ordered: Whether calls must happen one after another, in the clients' order:
      some kernel keeps a queue, or a seeded random state, between calls.
  """

  def __init__(
    self,
    graph_def: defs.GraphDef,
    initialize_op: str,
    session_token: str,
    parameters: Sequence[str],
    results: Sequence[str],
  ):
    """Rewrites `graph_def`, which becomes this object's own.

    Args:
      graph_def: The graph as TFF serialized it.
      initialize_op: Name of the op that initializes variables and tables, or
        empty.
      session_token: Name of the placeholder for a session's token, or empty.
      parameters: Names of the argument's tensors, in order.
      results: Names of the result's tensors, in order.

    Raises:
      UnsupportedComputationError: If the graph has state that concurrent
        clients would share.
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
    self.ordered = rewriting.keeps_state(graph_def)
    self._pruned: dict[tuple[int, ...], defs.GraphDef] = {}

  def call(
    self,
    arguments: Sequence[tf.Tensor],
    wanted: Sequence[int],
    replaced: Sequence[int] = (),
    form: forms.Form = forms.Form.DATASET,
  ) -> list[tf.Tensor]:
    """Adds this graph to the graph under construction.

    Args:
      arguments: One tensor per entry of `parameters`.
      wanted: Indices into `results`; whatever only others need is left out.
      replaced: Indices of the `arguments` that are not datasets but what stands
        for them; `replaceable` must hold for each.
      form: What that is.

    Returns:
      The tensors of the `wanted` results.
    """
    names = [self.results[i] for i in wanted]
    pruned = self._prune(tuple(wanted))
    if replaced:
      parameters = [self.parameters[i] for i in replaced]
      pruned = stand_ins.substitute(pruned, parameters, self._reductions, form)
    rewriting.rename_frames(pruned)
    nodes = {node.name for node in pruned.node}
    feeds = {
      name: value
      for name, value in zip(self.parameters, arguments)
      if defs.node_name(name) in nodes
    }
    # A result may be an argument passed on.
    found = dict(zip(self.parameters, arguments))
    fetches = [name for name in names if name not in found]
    if fetches:
      fetched = tf.graph_util.import_graph_def(
        pruned, input_map=feeds, return_elements=fetches, name='graph'
      )
      found.update(zip(fetches, fetched))
    return [found[name] for name in names]

  def replaceable(self, index: int) -> bool:
    """Returns whether batches may stand for a dataset parameter.

    It may if the graph does nothing with the dataset but iterate over it.
    """
    return (
      stand_ins.iterations(
        self.graph_def, self.parameters[index], self._reductions
      )
      is not None
    )

  def _prune(self, wanted: tuple[int, ...]) -> defs.GraphDef:
    """Copies the part of the graph that some results need."""
    if wanted not in self._pruned:
      needed = defs.needed_nodes(
        self.graph_def, (defs.node_name(self.results[i]) for i in wanted)
      )
      pruned = defs.GraphDef(versions=self.graph_def.versions)
      pruned.library.CopyFrom(self.graph_def.library)
      pruned.node.extend(n for n in self.graph_def.node if n.name in needed)
      self._pruned[wanted] = pruned
    return self._pruned[wanted]
