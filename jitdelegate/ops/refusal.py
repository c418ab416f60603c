"""Runs that are refused for the values of an operand, where LiteRT's kernels end in an error."""

from __future__ import annotations

from math import prod

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, select
from jitdelegate.ir.forms import IndexMap, Map, Reduce
from jitdelegate.ir.index_forms import Gather
from jitdelegate.ops.call import Call
from jitdelegate.ops.pointwise import mapped
from jitdelegate.ops.registry import Lowering, view


def refused_where(condition: Expr, call: Call, operand: int, words: str) -> Lowering:
    """A scalar int32, 0; no run has it in which the condition on X holds for an element of an operand.

    Such an element gives the index -1, at which a Gather refuses the run with these words.
    """
    shape = call.shape(operand)
    index = mapped(-Cast(condition, "int32"), (call.index(operand), shape), shape=shape, dtype="int32")
    if prod(shape) != 1:
        index = Lowering(Reduce(kind="min", axes=tuple(range(len(shape)))), (index,), (), "int32")
    zero = Lowering(Gather(refusal=words), (np.zeros(1, np.int32), view(index, (1, 1), "int32")), (1,), "int32")
    return view(zero, (), "int32")


def checked(result: Lowering, check: Lowering) -> Lowering:
    """The result of a Map, which reads the scalar `check`: 0 instead of any element where that is negative."""
    form = result.form
    assert isinstance(form, Map)
    is_allowed = binary("ge", Arg(len(form.operands)), 0)
    chosen = select(is_allowed, form.epilogue, Const(0))
    return Lowering(
        Map(chosen, (*form.operands, IndexMap.along())), (*result.inputs, check), result.shape, result.dtype
    )
