"""Operators that only move elements: reshapes, paddings, transposes, concatenations and blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, overload

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const
from jitdelegate.ir.forms import Concat, IndexMap, View
from jitdelegate.ir.quantized import quantize
from jitdelegate.ops.call import OPTION, Call, Shape, given, parameters, scale, with_axis, zero
from jitdelegate.ops.case import Case, ints
from jitdelegate.ops.pointwise import mapped
from jitdelegate.ops.quantization import per_tensor_problems, same_scale_problems
from jitdelegate.ops.registry import ANY, MAX_PARTS, MAX_RANK, QUANTIZED, Lowering, Op, moved, op, view


def permuted(order: Shape) -> IndexMap:
    """Reads a value whose axis order[a] is axis a of the output."""
    return IndexMap.along(*map(order.index, range(len(order))))


@overload
def reordered(source: np.ndarray, shape: Shape, order: Shape, dtype: str) -> np.ndarray: ...
@overload
def reordered(source: int | Lowering, shape: Shape, order: Shape, dtype: str) -> Lowering: ...
def reordered(source: int | Lowering | np.ndarray, shape: Shape, order: Shape, dtype: str) -> Lowering | np.ndarray:
    """The elements of a value, viewed as `shape`, with the axes permuted; a View where no element moves. Those of an
    array are permuted at once."""
    if isinstance(source, np.ndarray):
        return np.ascontiguousarray(source.reshape(shape).transpose(order))
    result, long = tuple(shape[axis] for axis in order), [axis for axis in order if shape[axis] != 1]
    if long == sorted(long):
        return view(source, result, dtype)
    return moved(view(source, shape, dtype), permuted(order), result, dtype)


def axis_problems(call: Call, axis: int, rank: int) -> Iterator[str]:
    """A reason to refuse, where `axis` is not one of `rank` axes, counted from either end."""
    if not -rank <= axis < rank:
        yield f"{call.node.op}: axis {axis} is out of range for rank {rank}."


def one_axis(call: Call, operand: int, of: int = 0) -> int:
    """The axis of operand `of` that a constant operand of one element names, counted from the front."""
    return call.integers(operand)[0] % len(call.shape(of))


def one_axis_problems(call: Call, operand: int, of: int = 0, added: int = 0) -> Iterator[str]:
    """Reasons to refuse, where a constant operand does not name one axis of operand `of` with `added` further axes."""
    axes = call.integers(operand)
    if len(axes) != 1:
        yield f"{call.node.op}: the axis has {len(axes)} elements, expected 1."
    yield from axis_problems(call, axes[0], len(call.shape(of)) + added)


class Relabel(Op):
    """The same elements in the same order under another shape."""

    types = (*ANY, "complex64")
    quantized = QUANTIZED
    takes_empty = True

    def lowering(self, call: Call) -> Lowering:
        return Lowering(View(), (call.index(0),))


@op("RESHAPE")
class Reshape(Relabel):
    """The shape is the second operand or the option `new_shape`; one -1 in it stands for the remaining elements."""

    most = 2
    parameters = (1,)
    cases = (
        Case(((2, 3, 4), ints(4, 6))),
        Case(((1, 4, 4, 8), ints(1, -1)), {"new_shape": (1, -1)}),
        Case(((2, 6),), {"new_shape": (3, 4)}),
        Case(((1, 1, 1, 7), ints(7))),
        Case(((1, 1), np.zeros(0, np.int32))),
        Case(((2, 6), np.array([3, 4])), {"new_shape": (4, -1)}),
        Case(((2, 1, 3, 2, 1, 2), ints(2, 3, 1, 2, 1, 1, 2))),
        Case(((1,),), {"new_shape": (0,)}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        asked, size = self._asked(call), prod(call.shape(0))
        if len(asked) > MAX_RANK:
            yield f"RESHAPE to {len(asked)} axes, at most {MAX_RANK} are supported."
        known = prod(extent for extent in asked if extent != -1)
        fits = known > 0 and size % known == 0 if -1 in asked else known == size
        if asked.count(-1) > 1 or min(asked, default=0) < -1 or not fits:
            yield f"RESHAPE: {list(call.shape(0))} does not reshape to {list(asked)}."

    @staticmethod
    def _asked(call: Call) -> Shape:
        """As in LiteRT, which reads vectors of int32 only; old converters write a scalar's shape as [0]."""
        is_vector = call.given(1) and call.tensor(1).dtype == "int32" and len(call.shape(1)) == 1
        asked = call.integers(1) if is_vector else tuple(call.option("new_shape", None) or ())
        return () if asked == (0,) and not is_vector else asked

    def shape(self, call: Call) -> Shape:
        asked, size = self._asked(call), prod(call.shape(0))
        known = prod(extent for extent in asked if extent != -1)
        return tuple(size // known if extent == -1 else extent for extent in asked)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, *asked = given(arrays)
        is_vector = bool(asked) and asked[0].dtype == np.int32
        shape = tuple(asked[0].flat) if is_vector else tuple(attrs["new_shape"])
        return [data.reshape(() if shape == (0,) else shape)]


@op("SQUEEZE")
class Squeeze(Relabel):
    """Drops the axes in `squeeze_dims`, or all axes of size 1 if there are none in it."""

    cases = (
        Case(((1, 3, 1, 5),), {"squeeze_dims": ()}),
        Case(((1, 3, 1, 5),), {"squeeze_dims": (2,)}),
        Case(((1, 3, 1, 5),), {"squeeze_dims": (-2, 0)}),
        Case(((1, 3, 1, 5),), {"squeeze_dims": (0, -4)}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        shape = call.shape(0)
        for axis in self._dims(call.node.attrs):
            yield from axis_problems(call, axis, len(shape))
            if shape[axis] != 1:
                yield f"SQUEEZE: axis {axis} of {list(shape)} has not size 1."

    @staticmethod
    def _dims(attrs: Mapping[str, Any]) -> Shape:
        dims: Shape = tuple(attrs.get("squeeze_dims", None) or ())
        return dims

    def shape(self, call: Call) -> Shape:
        shape, dims = call.shape(0), self._dims(call.node.attrs)
        dropped = {axis % len(shape) for axis in dims} or {a for a, size in enumerate(shape) if size == 1}
        return tuple(size for axis, size in enumerate(shape) if axis not in dropped)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        return [np.squeeze(data, axis=tuple({axis % data.ndim for axis in self._dims(attrs)}) or None)]


@op("EXPAND_DIMS")
class ExpandDims(Relabel):
    """Adds an axis of size 1 before the axis that the second operand names."""

    least = most = 2
    parameters = (1,)
    cases = (Case(((3, 4), ints(0))), Case(((3, 4), ints(-1))), Case(((3, 4), np.array(1, np.int32))))

    def problems(self, call: Call) -> Iterator[str]:
        yield from one_axis_problems(call, 1, added=1)

    def shape(self, call: Call) -> Shape:
        shape, axis = call.shape(0), call.integers(1)[0] % (len(call.shape(0)) + 1)
        return (*shape[:axis], 1, *shape[axis:])

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, axis = given(arrays)
        return [np.expand_dims(data, int(axis.flat[0]))]


@op("TRANSPOSE")
class Transpose(Op):
    """Output axis a is axis `permutation[a]` of the data."""

    types = ANY
    quantized = QUANTIZED
    least = most = 2
    parameters = (1,)
    cases = (
        Case(((2, 3, 4), ints(2, 0, 1))),
        Case(((1, 5, 6, 17), ints(0, 3, 1, 2))),
        Case(((3, 4), ints(-1, 0))),
        Case(((2, 3, 4), ints(0, 1, 2))),
        Case(((2, 1, 3, 2, 2), ints(4, 2, 1, 3, 0))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        rank, order = len(call.shape(0)), call.integers(1)
        if len(order) != rank or any(not -rank <= axis < rank for axis in order) or len(set(self._order(call))) != rank:
            yield f"TRANSPOSE: {list(order)} is no permutation of {rank} axes."

    @staticmethod
    def _order(call: Call) -> Shape:
        return tuple(axis % len(call.shape(0)) for axis in call.integers(1))

    def shape(self, call: Call) -> Shape:
        return tuple(call.shape(0)[axis] for axis in self._order(call))

    def lowering(self, call: Call) -> Lowering:
        return moved(call.index(0), permuted(self._order(call)))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, order = given(arrays)
        return [np.transpose(data, tuple(order.flat))]


@op("CONCATENATION")
class Concatenation(Op):
    """All operands one after another along the option `axis`."""

    types = ANY
    quantized = QUANTIZED
    most = MAX_PARTS
    takes_empty = skips_empty = True
    cases = (
        Case(((1, 4, 5, 6), (1, 4, 5, 17)), {"axis": 3}),
        Case(((1, 4, 5, 6), (1, 2, 5, 6), (1, 1, 5, 6)), {"axis": -3}),
        Case(((2, 3),), {"axis": 0}),
        Case(((5,), (3,)), {"axis": 0, OPTION: "NONE"}),
        Case(((2, 3), (2, 0), (2, 2)), {"axis": 1}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        if not all(map(call.given, range(call.count))):
            yield "CONCATENATION: an input is not given."
        shapes, axis = [call.shape(k) for k in range(call.count)], int(call.option("axis", 0))
        yield from axis_problems(call, axis, len(shapes[0]))
        for shape in shapes[1:]:
            if len(shape) != len(shapes[0]) or self._others(call, shape) != self._others(call, shapes[0]):
                yield f"CONCATENATION: shapes {list(shapes[0])} and {list(shape)} differ beside axis {axis}."

    def quantized_problems(self, call: Call) -> Iterator[str]:
        is_rescaled = call.output.dtype == "uint8"
        yield from (per_tensor_problems if is_rescaled else same_scale_problems)(call, *call.operands, call.output)

    def quantized_lowering(self, call: Call) -> Lowering:
        """Parts of uint8 with parameters of their own are rescaled: rounded half away from zero in float32."""
        return self._concatenated(call, lambda k: self._rescaled(call, k))

    @staticmethod
    def _rescaled(call: Call, operand: int) -> int | Lowering:
        data, output = call.tensor(operand), call.output
        if parameters(data) == parameters(output):
            return call.index(operand)
        factor = scale(data) * (np.float32(1) / scale(output))
        real = Cast(Arg(0), "float32") * Const(float(factor)) + Const(float(np.float32(-zero(data)) * factor))
        return mapped(
            quantize(real, "uint8", zero(output), rounding="away"),
            (call.index(operand), data.shape),
            shape=data.shape,
            dtype="uint8",
        )

    @staticmethod
    def _others(call: Call, shape: Shape) -> Shape:
        return with_axis(shape, call.option("axis", 0) % len(shape))

    def shape(self, call: Call) -> Shape:
        shape, axis = list(call.shape(0)), call.option("axis", 0)
        shape[axis] = sum(call.shape(k)[axis] for k in range(call.count))
        return tuple(shape)

    def lowering(self, call: Call) -> Lowering:
        return self._concatenated(call, call.index)

    @staticmethod
    def _concatenated(call: Call, part: Callable[[int], int | Lowering]) -> Lowering:
        parts = tuple(part(k) for k in range(call.count) if call.tensor(k).size)
        return Lowering(Concat(axis=call.option("axis", 0) % len(call.shape(0))), parts)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        return [np.concatenate(given(arrays), axis=attrs.get("axis", 0))]


@op("PACK")
class Pack(Op):
    """All operands, which have the same shape, along a new axis: the option `axis`."""

    types = ANY
    quantized = QUANTIZED
    most = MAX_PARTS
    takes_empty = True
    cases = (
        Case(((3, 4), (3, 4)), {"axis": 0, "values_count": 2}),
        Case(((3, 4), (3, 4), (3, 4)), {"axis": -1, "values_count": 3}),
        Case(((2, 3, 4), (2, 3, 4)), {"axis": 1, "values_count": 2}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        if not all(map(call.given, range(call.count))):
            yield "PACK: an input is not given."
        if call.option("values_count", call.count) != call.count:
            yield f"PACK: values_count is {call.option('values_count', 0)} for {call.count} inputs."
        shapes = {call.shape(k) for k in range(call.count)}
        if len(shapes) > 1:
            yield f"PACK: the inputs' shapes differ: {' and '.join(str(list(shape)) for shape in sorted(shapes))}."
        yield from axis_problems(call, int(call.option("axis", 0)), len(call.shape(0)) + 1)

    @staticmethod
    def _split(call: Call) -> tuple[int, Shape, Shape]:
        """(axis, sizes before it, sizes after it)."""
        shape = call.shape(0)
        axis = call.option("axis", 0) % (len(shape) + 1)
        return axis, shape[:axis], shape[axis:]

    def shape(self, call: Call) -> Shape:
        _, before, after = self._split(call)
        return (*before, call.count, *after)

    def lowering(self, call: Call) -> Lowering:
        axis, before, after = self._split(call)
        dtype, apart = call.output.dtype, (*before, 1, *after)
        return Lowering(Concat(axis=axis), tuple(view(index, apart, dtype) for index in call.node.inputs))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        return [np.stack(given(arrays), axis=attrs.get("axis", 0))]


class Blocks(Op):
    """Moves blocks of `block_size` x `block_size` pixels into channels, or back."""

    types = ANY
    quantized = QUANTIZED

    def problems(self, call: Call) -> Iterator[str]:
        block, shape = int(call.option("block_size", 0)), call.shape(0)
        if block < 1 or len(shape) != 4 or not self._divides(shape, block):
            yield f"{self.name}: block_size {block} does not fit the input's shape {list(shape)}."

    def _divides(self, shape: Shape, block: int) -> bool:
        raise NotImplementedError

    def _apart(self, shape: Shape, block: int) -> tuple[Shape, Shape]:
        """(the data's shape with the axes of every block separated, the permutation to the output's order)."""
        raise NotImplementedError

    def lowering(self, call: Call) -> Lowering:
        apart, order = self._apart(call.shape(0), call.option("block_size", 0))
        return reordered(call.index(0), apart, order, call.output.dtype)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        apart, order = self._apart(data.shape, attrs["block_size"])
        return [data.reshape(apart).transpose(order).reshape(self._shape_of(data.shape, attrs["block_size"]))]

    def shape(self, call: Call) -> Shape:
        return self._shape_of(call.shape(0), call.option("block_size", 0))

    def _shape_of(self, shape: Shape, block: int) -> Shape:
        raise NotImplementedError


@op("DEPTH_TO_SPACE")
class DepthToSpace(Blocks):
    """[N, H, W, C] to [N, H * block, W * block, C / block / block]."""

    cases = (Case(((1, 3, 4, 8),), {"block_size": 2}), Case(((2, 2, 2, 18),), {"block_size": 3}))

    def _divides(self, shape: Shape, block: int) -> bool:
        return shape[3] % (block * block) == 0

    def _apart(self, shape: Shape, block: int) -> tuple[Shape, Shape]:
        batch, height, width, depth = shape
        return (batch, height, width, block, block, depth // block // block), (0, 1, 3, 2, 4, 5)

    def _shape_of(self, shape: Shape, block: int) -> Shape:
        batch, height, width, depth = shape
        return batch, height * block, width * block, depth // block // block


@op("SPACE_TO_DEPTH")
class SpaceToDepth(Blocks):
    """[N, H, W, C] to [N, H / block, W / block, C * block * block]."""

    cases = (Case(((1, 4, 6, 2),), {"block_size": 2}), Case(((2, 3, 3, 3),), {"block_size": 3}))

    def _divides(self, shape: Shape, block: int) -> bool:
        return shape[1] % block == 0 and shape[2] % block == 0

    def _apart(self, shape: Shape, block: int) -> tuple[Shape, Shape]:
        batch, height, width, depth = shape
        return (batch, height // block, block, width // block, block, depth), (0, 1, 3, 2, 4, 5)

    def _shape_of(self, shape: Shape, block: int) -> Shape:
        batch, height, width, depth = shape
        return batch, height // block, width // block, depth * block * block
