"""Rewrites of a graph, each a pure function Graph -> Graph in its own file, and the order in which they run.

- here: `PIPELINE`, with reasons for the order; `run` verifies the graph after each pass, and skips a pass that fails.
  `works_on.py`: the kinds of nodes and values that a pass works on; it is called only for graphs that have them.
- `specialize_subgraph.py` runs before: it fixes the subgraph, shapes and values, with `inline_subgraphs.py`,
  `functional_state.py` and `resize_inputs.py`.
- `support.py`, `delegation.py`, `partition.py`, `cost.py`, `operator_rates.py`: which operators are compiled, and why
  the others are not.
- `shape_inputs.py`, `likely_shapes.py`, `running_subgraphs.py`: facts about a model for specializations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitdelegate.errors import CompileError
from jitdelegate.ir.faults import Faults
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.verify import verify, verify_ports
from jitdelegate.passes.compute_wide import compute_wide
from jitdelegate.passes.copy_images import copy_images
from jitdelegate.passes.copy_outputs import copy_outputs
from jitdelegate.passes.decode_custom_options import decode_custom_options
from jitdelegate.passes.flatten_concats import flatten_concats
from jitdelegate.passes.float_view import float_view
from jitdelegate.passes.fold_transposes import fold_transposes
from jitdelegate.passes.fuse_activation import fuse_activation
from jitdelegate.passes.fuse_dilation import fuse_dilation
from jitdelegate.passes.fuse_elementwise import fuse_elementwise
from jitdelegate.passes.fuse_normalization import fuse_normalization
from jitdelegate.passes.fuse_pad import fuse_pad
from jitdelegate.passes.fuse_scale import fuse_scale
from jitdelegate.passes.gather_rows import gather_rows
from jitdelegate.passes.infer_shapes import infer_shapes
from jitdelegate.passes.join_reductions import join_reductions
from jitdelegate.passes.lower import lower
from jitdelegate.passes.nest_concats import nest_concats
from jitdelegate.passes.push_reshapes import push_reshapes
from jitdelegate.passes.push_scales import push_scales
from jitdelegate.passes.push_transposes import push_transposes
from jitdelegate.passes.read_weights import read_weights
from jitdelegate.passes.remove_dead import remove_dead
from jitdelegate.passes.remove_identity import remove_identity
from jitdelegate.passes.turn_products import turn_products
from jitdelegate.passes.widen_weights import widen_weights
from jitdelegate.passes.works_on import applies

Pass = Callable[[Graph], Graph]
Trace = Callable[[str, Graph], None]

INFER: tuple[Pass, ...] = (
    decode_custom_options,  # custom operators are like all others from here on
    infer_shapes,  # before any pass asks for a shape or a constant
)
"""Passes that infer everything known at compile time."""

FOLD: tuple[Pass, ...] = (
    *INFER,
    read_weights,  # before any question about weights
    remove_dead,  # nodes that only SHAPE read, and nodes that nothing reads
)
"""Passes before `support.unsupported`. After them, shapes are true; fp16 weights and shape arithmetic are folded."""

REWRITE: tuple[Pass, ...] = (
    compute_wide,  # first: the operators that it leaves are like all others
    float_view,  # before other rewrites, for what it makes of quantized operators
    widen_weights,  # for the same reason
    fuse_dilation,  # before fuse_scale: a MUL after BATCH_TO_SPACE_ND then follows the convolution
    fuse_pad,  # before fuse_scale: only then does PAD stand right before the convolution
    fuse_scale,  # before fuse_activation: a scale cannot pass an activation
    fuse_activation,
    lower,  # nodes have forms from here on; names and options of operators no longer matter
    push_transposes,  # before push_reshapes: transposes that cancel out leave reshapes
    remove_dead,  # what `lower` made of outputs that nothing reads
    turn_products,  # after push_transposes: where transposes remain round products over heads
    remove_identity,  # before fuse_elementwise: what reads two equal reshapes has one operand then
    fuse_normalization,  # after push_transposes, which brings its nodes to one order; before any of them is fused
    join_reductions,  # after fuse_normalization, for whose rows it would be too late; before fuse_elementwise
    remove_dead,  # views that nothing reads any more would separate producers and readers
    fuse_elementwise,  # before push_reshapes: a reshape whose only reader is one node may move behind it
    push_reshapes,  # before fuse_elementwise: what follows a producer has its shape then
    remove_identity,  # before fuse_elementwise: a reshape to the same shape would separate producer and reader
    remove_dead,  # so do views
    fuse_elementwise,  # again: with what the reshapes separated
    push_scales,  # after fuse_elementwise: a factor in a producer's epilogue takes no time
    fold_transposes,  # after fuse_elementwise: a product that writes transposed takes no further operands
    remove_dead,  # again: views and transposes whose readers now read through to the source
    flatten_concats,  # before gather_rows, for what it leaves
    gather_rows,  # after fold_transposes: what no product reads transposed
    nest_concats,  # after the passes that find equal tensors and move what is between them
    copy_images,  # after fuse_elementwise, which would read through the copies
    copy_outputs,  # last: other passes would remove its copies, which compute nothing
)
"""Passes that lower a folded graph, whose operators are all supported, for a target."""

PIPELINE: tuple[Pass, ...] = (*FOLD, *REWRITE)
"""All passes in order, each entered only for graphs with what it works on (`works_on.py`). Each runs once, except
remove_identity, remove_dead and fuse_elementwise."""

OPTIONAL = frozenset(
    each.__name__ for each in PIPELINE if each not in (infer_shapes, compute_wide, lower, copy_outputs)
)
"""The names of passes that programs are right without: these make them faster, or compile more operators."""


def _ignore(stage: str, graph: Graph) -> None:
    """No trace."""


def run(graph: Graph, trace: Trace = _ignore, passes: Sequence[Pass] = PIPELINE, faults: Faults | None = None) -> Graph:
    """The graph after all passes that work on what it has, verified after each, but for what a pass left as it was.

    Args:
        graph: before the passes of REWRITE, every node must have passed its operator's check.
        trace: called with each pass's name and graph.
        faults: notes an OPTIONAL pass that fails: the graph stays as it was. None raises its error.
    """
    verified: Graph | None = None
    for each in passes:
        if not applies(each, graph):
            continue
        try:
            after = each(graph)
            verify(after, each.__name__, verified)
            verify_ports(graph, after, each.__name__)
        except CompileError:
            raise
        except Exception as error:
            if faults is None or each.__name__ not in OPTIONAL:
                raise
            faults.skip(f"the pass {each.__name__}", error)
            continue
        trace(each.__name__, after)
        graph = verified = after
    return graph
