"""Refusals: kernels mark a run at which LiteRT stops in the session's status word. Other runs pay for a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import IndexedForm
from jitdelegate.runtime.status import FOUND_BITS, LARGEST_FOUND
from jitdelegate.targets.cuda.code.device_code import I64, Code, Value
from jitdelegate.targets.cuda.code.element import Element, load, resized
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import StatusPointer
from jitdelegate.targets.cuda.code.writer import Writer

KINDS: tuple[Kind, ...] = ("pointer", "int32")
"""The further parameters of a kernel that may refuse: the status word and the number of its refusal."""


def refusal_arguments(writer: Writer, node: Node, form: IndexedForm) -> list[Any]:
    """The further arguments of a node that refuses indices outside; none where they are no error."""
    return [StatusPointer(), writer.refusals.number(node, form.refusal)] if form.refusal else []


def refuse(code: Code, refusal: Sequence[Value], refused: Value) -> None:
    """Sets the status word, unless an operator before has.

    Args:
        refusal: the values of the further parameters.
        refused: what the run is refused for, an integer.
    """
    status, number = refusal
    with code.when(code.load(status, 0, I64)[0].equals(0)):
        wide = extended(code, refused)
        wide = code.minimum(code.maximum(wide, -LARGEST_FOUND), LARGEST_FOUND)
        code.store([(extended(code, number) << FOUND_BITS) | (wide & ((1 << FOUND_BITS) - 1))], status, 0)


def extended(code: Code, value: Value) -> Value:
    """A signed integer as one of 64 bits."""
    return value if value.value.type == I64 else Value(code, code.builder.sext(value.value, I64))


def first_outside(code: Code, element: Element, places: Value, first: Value, limits: Sequence[Value]) -> Value:
    """Of the indices from `first` on, the first one that is not within its limit."""
    outside = Value(code, I64(0))
    for axis, size in reversed(list(enumerate(limits))):
        index = load(code, element, places, first + axis)[0]
        is_inside = code.within(index, resized(code, size, index.value.type))
        outside = code.select(is_inside, outside, extended(code, index))
    return outside
