"""Rewrites of a graph, each a pure function Graph -> Graph in its own file, and the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitdelegate.ir.graph import Graph
from jitdelegate.ir.verify import verify, verify_ports
from jitdelegate.passes.copy_images import copy_images
from jitdelegate.passes.copy_outputs import copy_outputs
from jitdelegate.passes.decode_custom_options import decode_custom_options
from jitdelegate.passes.fuse_activation import fuse_activation
from jitdelegate.passes.fuse_dilation import fuse_dilation
from jitdelegate.passes.fuse_elementwise import fuse_elementwise
from jitdelegate.passes.fuse_pad import fuse_pad
from jitdelegate.passes.fuse_scale import fuse_scale
from jitdelegate.passes.infer_shapes import infer_shapes
from jitdelegate.passes.lower import lower
from jitdelegate.passes.remove_dead import remove_dead
from jitdelegate.passes.remove_identity import remove_identity

Pass = Callable[[Graph], Graph]
Trace = Callable[[str, Graph], None]

INFER: tuple[Pass, ...] = (
    decode_custom_options,  # from here on custom operators are like all others
    infer_shapes,  # before anything asks for a shape, or what is a constant
)
"""What finds out all that is known when the model is compiled."""

FOLD: tuple[Pass, ...] = (
    *INFER,
    remove_dead,  # what SHAPE alone read, and what nobody reads
)
"""What makes a graph ready for `support.unsupported`: shapes are true, fp16 weights and shape arithmetic are gone."""

REWRITE: tuple[Pass, ...] = (
    fuse_dilation,  # before fuse_scale: what follows BATCH_TO_SPACE_ND then follows the convolution
    fuse_pad,  # before fuse_scale: only then does PAD stand right before the convolution
    fuse_scale,  # before fuse_activation: a scale cannot pass an activation
    fuse_activation,
    lower,  # from here on nodes have forms; operators' names and options no longer matter
    remove_identity,  # before fuse_elementwise: a reshape to the same shape would part producer and reader
    fuse_elementwise,
    remove_dead,  # again: views whose readers now read through to the source
    copy_images,  # after fuse_elementwise, which would read through the copies
    copy_outputs,  # last: its copies compute nothing, so that others would remove them
)
"""What makes a folded graph, every operator of which is supported, ready for a target."""

PIPELINE: tuple[Pass, ...] = (*FOLD, *REWRITE)
"""Every pass in the order they run, each once but for remove_dead."""


def _ignore(stage: str, graph: Graph) -> None:
    """No trace."""


def run(graph: Graph, trace: Trace = _ignore, passes: Sequence[Pass] = PIPELINE) -> Graph:
    """The graph after all passes, verified after each.

    Args:
        graph: every node of it, once folded, has passed its operator's check, where PIPELINE is run to its end.
        trace: called with each stage's name and graph.
    """
    for each in passes:
        before, graph = graph, each(graph)
        verify(graph, each.__name__)
        verify_ports(before, graph, each.__name__)
        trace(each.__name__, graph)
    return graph
