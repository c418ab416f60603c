"""Operators that are never compiled, but whose output's shape is known."""

from __future__ import annotations

from jitdelegate.ops.call import Call

KEEPS_SHAPE = frozenset({"BUCKETIZE", "COMPLEX_ABS", "FAKE_QUANT", "IMAG", "REAL"})
"""Operators whose output has the shape of the input."""


def keeps_shape(call: Call) -> bool:
    """Whether the node's one output has the shape of its first input."""
    node = call.node
    return node.op in KEEPS_SHAPE and not node.custom and call.given(0) and len(node.outputs) == 1
