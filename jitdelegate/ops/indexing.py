"""Operators that read elements at runtime indices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.dequantize import unpacked
from jitdelegate.ir.expr import Arg, Cast, Expr, binary, select
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ir.graph import Tensor
from jitdelegate.ir.index_forms import Gather as GatherForm
from jitdelegate.ir.index_forms import Update
from jitdelegate.ops.call import INTEGERS, Call, Shape, given
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.ops.pointwise import X, Y, mapped
from jitdelegate.ops.registry import ANY, HYBRID, MAX_PARTS, QUANTIZED, Lowering, Op, cast, op, view
from jitdelegate.ops.shape import axis_problems

MAX_INDICES = 1 << 22
"""Most indices that are computed one by one from constants of the program."""


def index_problems(call: Call, count: int) -> Iterator[str]:
    """A reason to refuse, where a table of `count` indices would be too large."""
    if count > MAX_INDICES:
        yield f"{call.node.op}: {count} runtime indices are more than {MAX_INDICES}."


def indices_of(call: Call, operand: int, shape: Shape) -> Lowering | np.ndarray:
    """An integer operand under another shape, as the indices of a Gather."""
    known, dtype = call.constant(operand), call.tensor(operand).dtype
    if known is not None:
        return known.reshape(shape).astype(np.int64 if dtype == "int64" else np.int32)
    if dtype in INTEGERS:
        return view(call.index(operand), shape, dtype)
    return view(cast(call.index(operand), call.shape(operand), "int32"), shape, "int32")


def outside_problems(call: Call, operand: int, sizes: Shape) -> Iterator[str]:
    """A reason to refuse, where constant indices lie outside `sizes`; each row has one index per size."""
    known = call.constant(operand)
    if known is not None:
        chosen = known.reshape(-1, len(sizes))
        if ((chosen < 0) | (chosen >= np.array(sizes))).any():
            yield f"{call.node.op}: the indices from {chosen.min()} to {chosen.max()} leave the sizes {list(sizes)}."


def outside(words: str, sizes: Shape) -> str:
    """The refusal of an index outside `sizes`: LiteRT's words, then what was found and expected."""
    expected = f"from 0 to {sizes[0] - 1}" if len(sizes) == 1 else f"within the sizes {list(sizes)}"
    return f"{words}: found {{}}, expected an index {expected}"


class Lookup(Op):
    """At an index outside the data, negative ones included, the run ends in LiteRT's error. Constant indices are
    checked while compiling."""

    least = most = 2
    types = ANY
    quantized = QUANTIZED
    kinds: ClassVar = {1: (*INTEGERS, "int16")}
    indices: ClassVar[int] = 1
    """The operand that holds the indices."""
    words: ClassVar[str] = ""
    """What LiteRT says of an index outside."""

    def problems(self, call: Call) -> Iterator[str]:
        yield from self.misfits(call)
        yield from outside_problems(call, self.indices, self.looked_up(call))

    def misfits(self, call: Call) -> Iterator[str]:
        """Reasons why options and shapes do not fit together."""
        yield from ()

    def looked_up(self, call: Call) -> Shape:
        """The sizes of the data's axes that are indexed."""
        raise NotImplementedError

    def refusal(self, call: Call) -> str:
        """`IndexedForm.refusal` of the node's indices; constants lie inside."""
        return "" if call.constant(self.indices) is not None else outside(self.words, self.looked_up(call))


@op("GATHER")
class Gather(Lookup):
    """Slices of the data along the option `axis` at the indices in the second operand.

    The first `batch_dims` axes of both operands are paired.
    """

    takes_empty = True
    words = "gather index out of bounds"
    cases = (
        Case(((5, 7), ints(4, 0, 2)), {"axis": 0}),
        Case(((5, 7, 3), ints((4,))), {"axis": 1}),
        Case(((5, 7), Fed((2, 3), "int32")), {"axis": -1}, low=0, high=7),
        Case(((5, 17), Fed((6,), "int64")), {"axis": 0}, low=0, high=5),
        Case(((2, 3, 4, 18), Fed((2, 5), "int32")), {"axis": 2, "batch_dims": 1}, low=0, high=4),
        Case(((2, 9, 3), Fed((2, 4), "int32")), {"axis": -2, "batch_dims": -1}, low=0, high=9),
        Case(((9,), Fed((), "int32")), {"axis": 0}, low=0, high=9),
        Case((Fed((4, 3), "int64"), Fed((2, 2), "int32")), {"axis": 1}, low=0, high=3),
        Case((Fed((4, 3), "bool"), Fed((5,), "int32")), {"axis": 0}, low=0, high=4),
        Case(((4, 3), Fed((2, 2), "int16")), {"axis": 0}, low=0, high=4),
    )

    def misfits(self, call: Call) -> Iterator[str]:
        data, indices = call.shape(0), call.shape(1)
        yield from axis_problems(call, int(call.option("axis", 0)), len(data))
        axis, batch = self._axes(call.node.attrs, data, indices)
        if not 0 <= batch <= min(axis, len(indices)) or data[:batch] != indices[:batch]:
            shapes = f"{list(data)} and {list(indices)}"
            yield f"GATHER with batch_dims {call.option('batch_dims', 0)} along axis {axis} of shapes {shapes}."

    def foldable(self, call: Call) -> bool:
        """The number of paired indices is limited, because the reference goes through them one by one."""
        batch = self._axes(call.node.attrs, call.shape(0), call.shape(1))[1]
        return super().foldable(call) and prod(call.shape(0)[:batch]) <= MAX_PARTS

    @staticmethod
    def _axes(attrs: Mapping[str, Any], data: Shape, indices: Shape) -> tuple[int, int]:
        """(axis, batch dimensions), counted from the front."""
        axis, batch = int(attrs.get("axis", 0)), int(attrs.get("batch_dims", 0))
        return axis % len(data), batch + len(indices) if batch < 0 else batch

    def looked_up(self, call: Call) -> Shape:
        return (call.shape(0)[self._axes(call.node.attrs, call.shape(0), call.shape(1))[0]],)

    def shape(self, call: Call) -> Shape:
        data, indices = call.shape(0), call.shape(1)
        axis, batch = self._axes(call.node.attrs, data, indices)
        return data[:axis] + indices[batch:] + data[axis + 1 :]

    def lowering(self, call: Call) -> Lowering:
        indices = call.shape(1)
        axis, batch = self._axes(call.node.attrs, call.shape(0), indices)
        known, after = call.constant(1), len(call.shape(0)) - axis - 1
        if known is not None and known.size == 1 and not call.tensor(0).is_constant:
            first = axis + len(indices) - batch
            dims, starts = (*range(axis), -1, *range(first, first + after)), (*(0,) * axis, known.item(), *(0,) * after)
            return Lowering(Map(operands=(IndexMap.along(*dims, starts=starts),)), (call.index(0),))
        form = GatherForm(axis=axis, batch=batch, refusal=self.refusal(call))
        return Lowering(form, (call.index(0), indices_of(call, 1, (*indices, 1))))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, indices = given(arrays)
        axis, batch = self._axes(attrs, data.shape, indices.shape)
        outer = data.shape[:batch]
        pairs = [np.asarray(np.take(data[index], indices[index], axis - batch)) for index in np.ndindex(*outer)]
        return [np.stack(pairs).reshape((*outer, *pairs[0].shape))]


@op("GATHER_ND")
class GatherNd(Lookup):
    """Slices of the data at the indices in the second operand; each row there has one index per leading axis."""

    words = "gather_nd index out of bounds"
    cases = (
        Case(((3, 4, 5), Fed((6, 2), "int32")), low=0, high=3),
        Case(((3, 4, 5), Fed((2, 2, 3), "int64")), low=0, high=3),
        Case(((3, 20), Fed((1,), "int32")), low=0, high=3),
        Case(((3, 4), ints((0, 3), (2, 1)))),
        Case((Fed((3, 4), "int32"), Fed((5, 1), "int32")), low=0, high=3),
        Case(((3, 4), Fed((5, 2), "int16")), low=0, high=3),
    )

    def misfits(self, call: Call) -> Iterator[str]:
        data, indices = call.shape(0), call.shape(1)
        if not indices or not 1 <= indices[-1] <= len(data):
            yield f"GATHER_ND: indices of shape {list(indices)} do not fit the shape {list(data)}."

    def looked_up(self, call: Call) -> Shape:
        return call.shape(0)[: call.shape(1)[-1]]

    def shape(self, call: Call) -> Shape:
        return call.shape(1)[:-1] + call.shape(0)[call.shape(1)[-1] :]

    def lowering(self, call: Call) -> Lowering:
        form = GatherForm(refusal=self.refusal(call))
        return Lowering(form, (call.index(0), indices_of(call, 1, call.shape(1))))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, indices = given(arrays)
        return [data[tuple(np.moveaxis(indices, -1, 0))]]


@op("EMBEDDING_LOOKUP")
class EmbeddingLookup(Lookup):
    """Rows of the second operand at the indices in the first. Quantized rows become float32 after they are found."""

    kinds: ClassVar = {0: ("int32",)}
    weights: ClassVar[tuple[int, ...]] = (1,)
    hybrid: ClassVar[tuple[str, ...]] = HYBRID
    indices = 0
    cases = (
        Case((Fed((4,), "int32"), (6, 17)), low=0, high=6),
        Case((ints(5, 0), (6, 2, 3))),
    )

    def misfits(self, call: Call) -> Iterator[str]:
        ids, rows = call.shape(0), call.shape(1)
        if len(ids) != 1 or len(rows) < 2:
            yield f"EMBEDDING_LOOKUP of {list(ids)} in {list(rows)}, expected rank 1 in rank 2 or more."

    def looked_up(self, call: Call) -> Shape:
        return call.shape(1)[:1]

    def shape(self, call: Call) -> Shape:
        return call.shape(0) + call.shape(1)[1:]

    def lowering(self, call: Call) -> Lowering:
        form = GatherForm(refusal=self.refusal(call))
        return Lowering(form, (call.index(1), indices_of(call, 0, (*call.shape(0), 1))))

    def refusal(self, call: Call) -> str:
        if call.constant(self.indices) is not None:
            return ""
        return f"Embedding Lookup: index out of bounds. Got {{}}, and bounds are [0, {call.shape(1)[0] - 1}]"

    def widens(self, call: Call) -> bool:
        quant, shape = call.tensor(1).quant, call.shape(1)
        is_plain = quant is not None and not any(quant.zero_points) and (len(quant.scales) == 1 or quant.axis == 0)
        return not is_plain or len(shape) != 2 or shape[1] % 2 > 0

    def hybrid_lowering(self, call: Call) -> Lowering:
        """Each row has one scale, or one for each of its equal parts."""
        table, (rows, depth), (count,) = call.tensor(1), call.shape(1), call.shape(0)
        assert table.quant is not None and table.data is not None
        indices = indices_of(call, 0, (count, 1))
        scales = np.array(table.quant.scales, np.float32).reshape(-1, 1)
        scales = np.repeat(scales, rows, axis=0) if len(scales) == 1 else scales.reshape(rows, -1)
        parts = scales.shape[1]
        if table.dtype == "int4" and not table.is_matrix:
            numbers = self._whole(table, indices, (count, depth))
        else:  # a target reads the rows of a matrix where a product has them
            source = unpacked(table) if table.dtype == "int4" else call.index(1)
            numbers = Lowering(GatherForm(), (source, indices), (count, depth), "int8")
        checked = GatherForm(refusal=self.refusal(call))
        chosen = Lowering(checked, (scales, indices), (count, parts), "float32")
        shape, own = (count, parts, depth // parts), (count, parts, 1)
        numbers, factors = view(numbers, shape, numbers.dtype or ""), view(chosen, own)
        return mapped(Cast(X, "float32") * Y, (numbers, shape), (factors, own), shape=shape)

    @staticmethod
    def _whole(table: Tensor, indices: Lowering | np.ndarray, shape: Shape) -> Lowering:
        """Rows of an int4 table as int32: of a byte, the lower half comes first."""
        (count, depth), (rows, _) = shape, table.shape
        assert table.data is not None
        pairs, own = (count, depth // 2, 2), (count, depth // 2, 1)
        packed = table.data.view(np.int8).reshape(rows, depth // 2)
        rows_of_bytes = view(Lowering(GatherForm(), (packed, indices), own[:2], "int8"), own, "int8")
        both, half = Cast(X, "int32"), np.array([0, 1], np.int32)
        lower = binary("xor", binary("and", both, 15), 8) - 8
        chosen = select(binary("eq", Y, 0), lower, binary("shift_right", both, 4))
        return view(
            mapped(chosen, (rows_of_bytes, own), (half, half.shape), shape=pairs, dtype="int32"), shape, "int32"
        )

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        ids, rows = given(arrays)
        return [rows[ids]]


@op("REVERSE_SEQUENCE")
class ReverseSequence(Op):
    """Reverses the first elements along `seq_dim`; the second operand holds their number for each index along
    `batch_dim`. At a number beyond the axis the run ends in LiteRT's error, which LiteRT itself raises for the first
    number alone: for others it goes on beyond the axis."""

    folds = 1 << 16
    least = most = 2
    types = ANY
    quantized = QUANTIZED
    kinds: ClassVar = {1: INTEGERS}
    cases = (
        Case(((3, 7, 5), Fed((3,), "int32")), {"seq_dim": 1, "batch_dim": 0}, low=1, high=7),
        Case(((7, 3, 5), Fed((3,), "int64")), {"seq_dim": 0, "batch_dim": 1}, low=1, high=7),
        Case(((2, 6, 4, 3), ints(6, 1, 3)), {"seq_dim": 1, "batch_dim": 3}),
        Case((Fed((2, 9), "int32"), ints(4, 9)), {"seq_dim": 1, "batch_dim": 0}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        shape, (along, batch) = call.shape(0), self._axes(call.node.attrs)
        for axis in (along, batch):
            if not 0 <= axis < len(shape):
                yield f"REVERSE_SEQUENCE: axis {axis} is out of range for rank {len(shape)}."
        if along == batch or call.shape(1) != (shape[batch],):
            yield f"REVERSE_SEQUENCE along axis {along} with {list(call.shape(1))} lengths for axis {batch}."
        lengths = call.constant(1)
        if lengths is not None and not (0 <= lengths.min() <= lengths.max() <= shape[along]):
            yield f"REVERSE_SEQUENCE: lengths from {lengths.min()} to {lengths.max()} of {shape[along]} elements."
        yield from index_problems(call, prod(shape[min(along, batch) : max(along, batch) + 1]))

    @staticmethod
    def _axes(attrs: Mapping[str, Any]) -> tuple[int, int]:
        return int(attrs.get("seq_dim", 0)), int(attrs.get("batch_dim", 0))

    def lowering(self, call: Call) -> Lowering:
        """One Gather over the axes from the first to the last of `seq_dim` and `batch_dim`, taken together."""
        shape, axes = call.shape(0), self._axes(call.node.attrs)
        first, last = min(axes), max(axes) + 1
        window = shape[first:last]
        apart = (prod(shape[:first]), prod(window), prod(shape[last:]))
        indices = view(self._indices(call, window, first), (apart[1], 1), call.tensor(1).dtype)
        data = view(call.index(0), apart, call.output.dtype)
        most = shape[axes[0]]
        words = f"seq_lengths[i] <= SizeOfDimension(input, seq_dim) was not true: a length is more than {most}"
        refusal = words if call.constant(1) is None else ""
        return Lowering(GatherForm(axis=1, refusal=refusal), (data, indices), apart)

    def _indices(self, call: Call, window: Shape, first: int) -> Lowering:
        """For each element of the window, the index of the element that is read; -1 where the length is too large."""
        along, batch = (axis - first for axis in self._axes(call.node.attrs))
        dtype, size, stride = call.tensor(1).dtype, window[along], prod(window[along + 1 :])
        own = np.arange(prod(window), dtype=dtype).reshape(window)
        step = np.arange(size, dtype=dtype)
        length = Arg(0)
        mirrored = Arg(1) + (length - 1 - Arg(2) - Arg(2)) * stride
        source = select(binary("lt", Arg(2), length), mirrored, Arg(1))
        form = Map(
            select(binary("gt", length, size), -1, source),
            (IndexMap.along(batch), IndexMap.broadcast(window, window), IndexMap.along(along)),
        )
        return Lowering(form, (call.index(1), own, step), window, dtype)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, lengths = given(arrays)
        along, batch = self._axes(attrs)
        rows = np.moveaxis(data, (batch, along), (0, 1)).copy()
        for row, length in zip(rows, lengths, strict=True):
            row[:length] = row[:length][::-1].copy()
        return [np.moveaxis(rows, (0, 1), (batch, along))]


def cut_out(call: Call, sizes: Shape) -> Lowering:
    """The box of operand 0 that has these sizes and starts at the runtime index in operand 1. It has to lie inside:
    along axes of which it is all, it starts at 0."""
    data, dtype = call.shape(0), call.tensor(1).dtype
    count = leading(data, sizes)
    own = numbered(sizes[:count], dtype)
    whole = range(count, len(data))
    index: Expr = Arg(0) + Arg(1)
    for number, _ in enumerate(whole):
        index = select(binary("eq", Arg(2 + number), 0), index, -1)
    starts = (IndexMap.along(-1, starts=(axis,)) for axis in whole)
    form = Map(index, (IndexMap.broadcast(own.shape, own.shape), IndexMap.along(1), *starts))
    indices = Lowering(form, (own, *([call.index(1)] * (1 + len(whole)))), own.shape, dtype)
    inner = prod(data[count:])
    source = view(call.index(0), (*data[:count], inner), call.output.dtype)
    box = GatherForm(refusal=outside("Invalid begin and size", data[:count]))
    return Lowering(box, (source, indices), (len(own), inner))


def leading(whole: Shape, part: Shape) -> int:
    """The number of axes up to the last one along which the part is smaller than the whole; at least 1."""
    return max((axis + 1 for axis, (a, b) in enumerate(zip(whole, part, strict=True)) if a != b), default=1)


def numbered(shape: Shape, dtype: str) -> np.ndarray:
    """The index of every element, in order: [elements, axes]."""
    return np.moveaxis(np.indices(shape, dtype), 0, -1).reshape(-1, len(shape))


@op("DYNAMIC_UPDATE_SLICE")
class DynamicUpdateSlice(Op):
    """The first operand, overwritten by the second from the index in the third on, moved so that it fits."""

    least = most = 3
    types = ANY
    quantized = QUANTIZED
    kinds: ClassVar = {2: INTEGERS}
    window_start = 2
    cases = (
        Case(((4, 5, 6), (2, 5, 6), Fed((3,), "int32")), low=-3, high=7),
        Case(((1, 9, 4), (1, 3, 4), Fed((3,), "int64")), low=-3, high=7, seed=1),
        Case(((3, 8), (2, 3), Fed((2,), "int32")), low=0, high=4),
        Case(((3, 8), (3, 8), Fed((2,), "int32")), low=0, high=4),
        Case((Fed((7,), "int32"), Fed((2,), "int32"), ints(6))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        data, update = call.shape(0), call.shape(1)
        if len(data) != len(update) or any(a < b for a, b in zip(data, update, strict=True)):
            yield f"DYNAMIC_UPDATE_SLICE: an update of {list(update)} does not fit into {list(data)}."
        if not data or call.shape(2) != (len(data),):
            yield f"DYNAMIC_UPDATE_SLICE: start_indices has shape {list(call.shape(2))}, expected [{len(data)}]."

    def lowering(self, call: Call) -> Lowering:
        return Lowering(Update(), (call.index(0), call.index(1), call.index(2)))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, update, start_indices = given(arrays)
        start = np.clip(start_indices, 0, np.subtract(data.shape, update.shape))
        out = data.copy()
        out[tuple(slice(a, a + size) for a, size in zip(start, update.shape, strict=True))] = update
        return [out]
