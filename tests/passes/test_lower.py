"""How operators of several kernels become nodes."""

from __future__ import annotations

from jitdelegate.ir.verify import verify
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.ops.registry import MAX_PARTS
from jitdelegate.passes.lower import lower


def test_a_chain_of_kernels_may_be_as_long_as_an_operator_has_parts() -> None:
    lowered = lower(Case(((3,),) * MAX_PARTS).graph(OPS["ADD_N"]))
    verify(lowered, "lower")
    assert len(lowered.nodes) == MAX_PARTS - 1
