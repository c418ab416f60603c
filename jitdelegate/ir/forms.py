"""Kernel forms: the few shapes of computation that each target implements once.

A lowered node carries one form. Its inputs are the form's own operands first (`core` of them; data, weights, bias for a
Contract) and then the extra operands of the epilogue. Sizes are logical (TFLite's NHWC); the target decides how a
tensor lies in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jitdelegate.ir.expr import RESULT, Arg, Expr, arity, result_type, substitute

Shape = tuple[int, ...]
Halo = tuple[int, int, int, int]
"""Rows and columns around an image: (top, bottom, left, right)."""
NO_HALO: Halo = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class IndexMap:
    """Which element of an operand is read for output index i: operand index[a] = starts[a] + steps[a] * i[dims[a]].

    One entry per operand axis; dims[a] == -1 reads starts[a] for every i (broadcast, or an axis of size 1). With `fill`
    set, an index outside the operand reads that value instead; without `fill`, every index lies inside.
    """

    dims: tuple[int, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]
    fill: float | None = None

    @staticmethod
    def broadcast(operand: tuple[int, ...], output: tuple[int, ...]) -> IndexMap:
        """numpy's broadcasting of an operand of shape `operand` to shape `output`."""
        shift = len(output) - len(operand)
        dims = tuple(-1 if size == 1 and output[shift + a] != 1 else shift + a for a, size in enumerate(operand))
        return IndexMap(dims, (0,) * len(operand), (1,) * len(operand))

    @staticmethod
    def along(*dims: int, starts: tuple[int, ...] = (), fill: float | None = None) -> IndexMap:
        """Axis a of the operand, from starts[a] on, along axis dims[a] of the output; without `starts`, from 0 on.

        So `along(0, 1)` reads a matrix as it is, `along(1)` a vector for each row, and `along()` a scalar.
        """
        return IndexMap(dims, starts or (0,) * len(dims), (1,) * len(dims), fill)

    def is_identity(self) -> bool:
        """True where the operand is read at the output's own index."""
        rank = len(self.dims)
        return self.dims == tuple(range(rank)) and not any(self.starts) and set(self.steps) <= {1}

    def keeps_channels(self, operand: Shape, output: Shape, lanes: int) -> bool:
        """True where blocks of `lanes` channels of an image are read as blocks of the output, or are broadcast."""
        if len(output) != 4 or len(operand) > 4:
            return False
        if not operand:
            return True
        if 3 in self.dims[:-1] or self.starts[-1] % lanes:
            return False
        if self.dims[-1] == -1:
            return True
        padded = self.fill is not None and operand[-1] != output[-1]
        return self.dims[-1] == 3 and self.steps[-1] == 1 and not padded

    def runs_along(self, output: tuple[int, ...]) -> bool:
        """True where a kernel that makes the output pixel by pixel can follow the operand with fixed strides.

        The operand is read at the output's own index, or is repeated along an axis; nothing is shifted, padded or
        transposed. An output that is not an image is one row of pixels, so its leading axes are merged.
        """
        shift = len(output) - len(self.dims)
        aligned = all(dim in (-1, shift + a) for a, dim in enumerate(self.dims))
        if not aligned or self.fill is not None or any(self.starts) or any(step != 1 for step in self.steps):
            return False
        leading = self.dims[:-1]
        if len(output) == 4:
            return shift != 1 or leading[0] == -1
        return all(dim == -1 for dim in leading) or (shift == 0 and -1 not in leading)


@dataclass(frozen=True, slots=True)
class Form:
    """The base of all forms: an epilogue over Arg(0) = the form's own result and Arg(1 + k) = extra operand k.

    Extra operand k is input number `core + k` of the node, read through `operands[k]`. Extra operands of a form that
    computes a result itself run along its output (`IndexMap.runs_along`); a Map's and a Concat's may be read through
    any index map.

    The class variables and methods say what passes and targets have to know about a form; none of them lists forms.

    Attributes:
        core: inputs that are the form's own operands.
        takes_epilogue: whether the form applies an epilogue; else it stays RESULT, without extra operands.
        has_result: whether the form computes a result itself, which the epilogue reads as Arg(0).
        visits_once: whether the form reads at most one element of each operand for every element that it writes.
        exact_loads: whether kernels load nothing beyond the last element of an operand.
        is_row_major: whether the form's own operands and its results are row-major only, never in blocks of channels.
        blocks_extra: whether extra operands may lie in blocks even then.
        gains_from_blocks: whether blocks of channels make it faster, so much that copying images to blocks pays.
    """

    core: ClassVar[int] = 1
    takes_epilogue: ClassVar[bool] = True
    has_result: ClassVar[bool] = True
    visits_once: ClassVar[bool] = False
    exact_loads: ClassVar[bool] = False
    is_row_major: ClassVar[bool] = False
    blocks_extra: ClassVar[bool] = False
    gains_from_blocks: ClassVar[bool] = False
    epilogue: Expr = RESULT
    operands: tuple[IndexMap, ...] = ()

    @property
    def moves_only(self) -> bool:
        """Whether its results are unchanged elements of its operands."""
        return False

    @property
    def types_epilogue(self) -> bool:
        """Whether the epilogue may have operands and results of other types than float32."""
        return False

    @property
    def stays_float32(self) -> bool:
        """Whether results may be too large for the narrower floats that a target stores instead."""
        return False

    @property
    def own_extras(self) -> int:
        """How many of the first extra operands the form's own result depends on."""
        return 0

    def is_own(self, operand: int) -> bool:
        """Whether a node's operand of this number is the form's own. All those of a form without own ones count."""
        return operand < self.core or not self.core

    def own_type(self, source: str) -> str:
        """The type of the form's own result, for a first operand of type `source`."""
        return source

    def loads_exactly(self, operand: Shape) -> bool:
        """As `exact_loads` says, for an operand of this shape."""
        return self.exact_loads

    def reads_images(self, operand: Shape, result: Shape) -> bool:
        """Whether results are computed from the pixels around them."""
        return False

    def keeps_blocks(self, operands: Sequence[Shape], result: Shape, lanes: int) -> bool:
        """Whether blocks of `lanes` channels of its operands make blocks of its result, so that all may be blocked.

        Args:
            operands: one shape per input of the node; any shape for absent inputs.
        """
        return not self.is_row_major

    def halo(self, operand: Shape, result: Shape) -> Halo:
        """Rows and columns that the form reads beyond each border of its first operand."""
        return NO_HALO


@dataclass(frozen=True, slots=True)
class Map(Form):
    """out[i] = epilogue(Arg(0) = operand 0 at i, Arg(1) = operand 1 at i, ...): elementwise work and data movement.

    A Map has no own result: Arg(k) is input k, read through `operands[k]`.
    """

    core: ClassVar[int] = 0
    has_result: ClassVar[bool] = False
    visits_once: ClassVar[bool] = True
    exact_loads: ClassVar[bool] = True

    @property
    def moves_only(self) -> bool:
        return self.epilogue == Arg(0)

    def keeps_blocks(self, operands: Sequence[Shape], result: Shape, lanes: int) -> bool:
        return all(
            index_map.keeps_channels(operand, result, lanes)
            for index_map, operand in zip(self.operands, operands, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Window(Form):
    """A window that slides over H and W of an NHWC operand.

    Attributes:
        kernel, stride, dilation: (h, w).
        padding: (top, bottom, left, right) rows and columns outside the image.
        halo_value: the value of these rows and columns, as it is stored; None where the window leaves them out.
        input_zero: the zero point of the data, subtracted from every element that is read.
        accumulator: the type of products and sums, of the bias and of the result that the epilogue reads: "float32", or
            where data and weights are integers the accumulator of the data's `ElementType`, "int32" for int8.
    """

    gains_from_blocks: ClassVar[bool] = True
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    halo_value: float | None = 0.0
    input_zero: int = 0
    accumulator: str = "float32"

    @property
    def types_epilogue(self) -> bool:
        return True

    def own_type(self, source: str) -> str:
        return self.accumulator

    def reads_images(self, operand: Shape, result: Shape) -> bool:
        return True

    def halo(self, operand: Shape, result: Shape) -> Halo:
        if len(operand) != 4:
            return NO_HALO
        top, bottom = self._halo_along(0, operand[1], result[1])
        left, right = self._halo_along(1, operand[2], result[2])
        return top, bottom, left, right

    def _halo_along(self, axis: int, source: int, target: int) -> tuple[int, int]:
        """The halo before and after an axis of `source` pixels; `axis` is 0 for H and 1 for W."""
        padding = self.padding[2 * axis]
        last = (target - 1) * self.stride[axis] - padding + (self.kernel[axis] - 1) * self.dilation[axis]
        return max(0, padding), max(0, last - (source - 1))


@dataclass(frozen=True, slots=True)
class Contract(Window):
    """Implicit GEMM; inputs (data, weights f32[O, kh, kw, I], bias f32[O] or ABSENT, extra operands ...).

    out[n,y,x,o] = epilogue(bias[o] + sum over ky, kx, c of
        data[n, y*sy - top + ky*dy, x*sx - left + kx*dx, g*I + c] * weights[o,ky,kx,c]), g = o // (O / groups)
    `input_zero` is subtracted from the data, `filter_zero` from integer weights. Weights of float32 data are float32;
    targets may store those that were quantized (`Tensor.grid`), or that are all float16, as narrow as they were.
    Data of another rank than 4 is read as the image [1, 1, product of the leading sizes, last size]; weights [O, I]
    have a 1x1 kernel: FULLY_CONNECTED. If `transposed`, data pixel (y, x) adds data[n,y,x,c] * weights[o,ky,kx,c] to
    output (y*sy - top + ky, x*sx - left + kx): TRANSPOSE_CONV.
    """

    core: ClassVar[int] = 3
    exact_loads: ClassVar[bool] = True
    groups: int = 1
    transposed: bool = False
    filter_zero: int = 0

    def loads_exactly(self, operand: Shape) -> bool:
        """Sums of integers load several channels at once."""
        at_once = {"int32": 4, "int64": 8}.get(self.accumulator, 1)
        return (operand or (1,))[-1] // self.groups % at_once == 0

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel of the result comes from the same pixel of the data."""
        whole = self.groups == 1 and not self.transposed and not any(self.padding)
        return whole and self.kernel == (1, 1) and self.stride == (1, 1)

    def keeps_blocks(self, operands: Sequence[Shape], result: Shape, lanes: int) -> bool:
        if self.groups == 1:
            return True
        outputs, *_, inputs = operands[1]
        return inputs % lanes == 0 and outputs // self.groups % lanes == 0  # no group begins in the middle of a block

    def _halo_along(self, axis: int, source: int, target: int) -> tuple[int, int]:
        """If transposed, output o reads sources (o + padding - k) / stride, for each tap k where that is whole."""
        if not self.transposed:
            return Window._halo_along(self, axis, source, target)
        stride, padding = self.stride[axis], self.padding[2 * axis]
        lowest, highest = (padding - self.kernel[axis] + 1) // stride, (target - 1 + padding) // stride
        return max(0, -lowest), max(0, highest - (source - 1))


@dataclass(frozen=True, slots=True)
class MatMul(Form):
    """Products of runtime matrices, one for each index of the leading axes; inputs (a, b, extra operands ...).

    out[..., m, n] = epilogue(sum over k of a[..., m, k] * b[..., k, n]), in the shape that numpy's matmul gives: both
    operands have at least two axes, and the leading axes broadcast. With `adj_x`, a is stored as [..., k, m]; with
    `adj_y`, b is stored as [..., n, k].

    Attributes:
        a_order, b_order: for each axis of an operand as above, the axis of the tensor that it is; () if they are the
            same. The last axes are. So [rows, heads, k] may be read as [heads, rows, k].
        order: the same for out. There are no extra operands then.
        whole: whether the operands are whole numbers of at most eight bits, whose sums a float32 holds: every target
            then gives the exact sums, also from narrower floats.
        accumulator: "float32", or "int32" where a and b are int8 or uint8: the type of the sums.
        input_zero: the zero point of an integer a, subtracted from every element that is read.
    """

    core: ClassVar[int] = 2
    blocks_extra: ClassVar[bool] = True
    exact_loads: ClassVar[bool] = True
    is_row_major: ClassVar[bool] = True
    adj_x: bool = False
    adj_y: bool = False
    a_order: tuple[int, ...] = ()
    b_order: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    whole: bool = False
    accumulator: str = "float32"
    input_zero: int = 0

    @property
    def types_epilogue(self) -> bool:
        return self.accumulator != "float32"

    def loads_exactly(self, operand: Shape) -> bool:
        """Sums of integers load several elements of a row at once."""
        return self.accumulator == "float32" or operand[-1] % 4 == 0

    @property
    def turns_left(self) -> bool:
        """Whether a may be stored transposed: kernels of integers read several elements of a row at once."""
        return self.accumulator == "float32"

    @property
    def stays_float32(self) -> bool:
        return self.whole

    def own_type(self, source: str) -> str:
        return self.accumulator


@dataclass(frozen=True, slots=True)
class Depthwise(Window):
    """One filter per channel; inputs (data, weights f32[1, kh, kw, O], bias f32[O] or ABSENT, extra operands ...).

    out[n,y,x,o] = epilogue(bias[o] + sum over ky, kx of
        data[n, y*sy - top + ky*dy, x*sx - left + kx*dx, o // multiplier] * weights[0,ky,kx,o]), O = C * multiplier
    `input_zero` is subtracted from the data; integer weights have no zero point.
    """

    core: ClassVar[int] = 3
    multiplier: int = 1

    def keeps_blocks(self, operands: Sequence[Shape], result: Shape, lanes: int) -> bool:
        return self.multiplier == 1


@dataclass(frozen=True, slots=True)
class Pool(Window):
    """Average or maximum over the window, per channel; if `halo_value` is None, over its part inside the image.

    An average of integers is their sum, an int32 that wraps, over their number, rounded half away from zero. A maximum
    has the type of the data, whatever `accumulator` says.

    kind: "mean" or "max".
    """

    exact_loads: ClassVar[bool] = True
    gains_from_blocks: ClassVar[bool] = False
    halo_value: float | None = None
    kind: str = "max"

    def own_type(self, source: str) -> str:
        return source if self.kind == "max" else self.accumulator

    def halo(self, operand: Shape, result: Shape) -> Halo:
        return NO_HALO if self.halo_value is None else Window.halo(self, operand, result)


@dataclass(frozen=True, slots=True)
class Reduce(Form):
    """`kind`, of `ir.combiners`, over `axes` of the operand; the results keep their order, whether or
    not the output's shape keeps the reduced axes with size 1.

    accumulator: the type of the result and of what is added up to it, "" for the type of the operand. A "sum" of int8,
    uint8 or int16 may be an int32 or an int64.
    """

    exact_loads: ClassVar[bool] = True
    kind: str = "sum"
    axes: tuple[int, ...] = ()
    accumulator: str = ""

    def own_type(self, source: str) -> str:
        return self.accumulator or source

    def reads_images(self, operand: Shape, result: Shape) -> bool:
        """Whether it is a pool over the whole image: a reduction over H and W of an image whose result is an image."""
        return self.axes == (1, 2) and len(operand) == len(result) == 4 and self.kind in ("mean", "max")

    def keeps_blocks(self, operands: Sequence[Shape], result: Shape, lanes: int) -> bool:
        return self.reads_images(operands[0], result)


@dataclass(frozen=True, slots=True)
class Statistic:
    """A number for every row of a Normalize: the reduction by `kind`, as in Reduce, of `value` over the row.

    Attributes:
        value: over Arg(0) = an element of the row, and Arg(1 + k) = statistic k of the row, one of those before this
            one.
        dtype: the type of the value and of the number, "float32" or "int32"; integers wrap.
        in_order: whether a sum adds the elements of a row one by one, from the first on. The row lies along the last
            axis then, and this is the last statistic.
    """

    kind: str
    value: Expr
    dtype: str = "float32"
    in_order: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}.{self.kind}{'_in_order' * self.in_order}({self.value})"


@dataclass(frozen=True, slots=True)
class Normalize(Form):
    """Elements and statistics of the rows that they belong to: layer, RMS, group and instance normalisation, and
    softmax over other axes than the last one. A row are the elements that differ in their indices on `axes` only.

    The own result, of the operand's shape, is `result` over Arg(0) = the element, Arg(1 + k) = statistic k of its row,
    and then the extra operands. Elements are float32, whatever narrower floats they are stored in, or integers.
    """

    exact_loads: ClassVar[bool] = True
    axes: tuple[int, ...] = ()
    statistics: tuple[Statistic, ...] = ()
    result: Expr = RESULT

    def keeps_blocks(self, operands: Sequence[Shape], result: Shape, lanes: int) -> bool:
        return len(result) == 4 and 3 not in self.axes and 0 not in self.axes

    @property
    def types_epilogue(self) -> bool:
        return True

    def own_type(self, source: str) -> str:
        own = (source, *(statistic.dtype for statistic in self.statistics), *("float32",) * self.own_extras)
        return result_type(self.result, own) or "float32"

    @property
    def own_extras(self) -> int:
        return max(0, arity(self.result) - 1 - len(self.statistics))

    @property
    def in_order(self) -> bool:
        """Whether a statistic is."""
        return any(statistic.in_order for statistic in self.statistics)

    @property
    def whole(self) -> Expr:
        """What is stored: the epilogue of the own result, over the same Args as `result`."""
        extra = (Arg(1 + len(self.statistics) + k) for k in range(len(self.operands)))
        return substitute(self.epilogue, (self.result, *extra))


@dataclass(frozen=True, slots=True)
class Softmax(Form):
    """exp(beta * (x - max)) / sum of the same, over the last axis."""

    takes_epilogue: ClassVar[bool] = False
    exact_loads: ClassVar[bool] = True
    is_row_major: ClassVar[bool] = True
    beta: float = 1.0


@dataclass(frozen=True, slots=True)
class Fourier(Form):
    """The Fourier transform of real rows of `length` elements, a power of two from 8 on: f32[..., length // 2 + 1, 2].

    out[..., k, 0] and out[..., k, 1] are the real and the imaginary part of the sum over n < length of
    data[..., n] * exp(-2j * pi * k * n / length). Rows of another size are cut off or continued with zeros.
    """

    takes_epilogue: ClassVar[bool] = False
    exact_loads: ClassVar[bool] = True
    is_row_major: ClassVar[bool] = True
    length: int = 8

    @property
    def stays_float32(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Resize(Form):
    """Sampling of H and W of an NHWC operand, "bilinear" or "nearest" (`kind`), with TFLite's options.

    weights: how bilinear samples weigh their pixels, and how integers are rounded. "float32" rounds integers, which are
        not negative, halves up; "fixed10" are whole 1024ths, halves away from zero; "fixed11" are whole 2048ths of
        8-bit integers, halves up.
    """

    exact_loads: ClassVar[bool] = True
    kind: str = "bilinear"
    align_corners: bool = False
    half_pixel_centers: bool = False
    weights: str = "float32"

    def reads_images(self, operand: Shape, result: Shape) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Concat(Form):
    """All inputs one after another along `axis`; no extra operands."""

    core: ClassVar[int] = 0
    takes_epilogue: ClassVar[bool] = False
    exact_loads: ClassVar[bool] = True
    axis: int = 0

    @property
    def moves_only(self) -> bool:
        return True

    def keeps_blocks(self, operands: Sequence[Shape], result: Shape, lanes: int) -> bool:
        """Along channels, all parts except the last must be whole blocks."""
        whole = self.axis != 3 or all(shape[3] % lanes == 0 for shape in operands[:-1])
        return len(result) == 4 and whole


@dataclass(frozen=True, slots=True)
class Recurrent(Form):
    """A cell of U units and P outputs that runs over the steps of a sequence; inputs (data, hidden, state, weights,
    more, projection, bias).

    data f32[T, N, gates * U], or f32[N, T, gates * U] without `time_major`, is what each step adds to the gates;
    hidden f32[N, P]; state f32[N, U]; weights f32[gates * U, P]; more f32[count, U] or ABSENT; projection f32[P, U] and
    its bias f32[P] or both ABSENT, in which case P = U. The step of time t, from 0 up, or down to 0 if `reverse`:
        gate[g] = data[t, n, g * U + u] + sum over p of weights[g * U + u, p] * hidden[n, p]
        state = cell(Arg(0 ... gates - 1) = the gates, Arg(gates) = state, Arg(gates + 1 + k) = more[k])
        hidden = output(the same, but Arg(gates) = the new state)
        hidden = limit(Arg(0) = bias[p] + sum over u of projection[p, u] * hidden[n, u]), where there is a projection
    out f32[T + 1, N, max(U, P)]: hidden of every time, then the state after the last step; the rest of a row is
    undefined. There is no epilogue.
    """

    core: ClassVar[int] = 7
    takes_epilogue: ClassVar[bool] = False
    gates: int = 1
    cell: Expr = RESULT
    output: Expr = RESULT
    limit: Expr = RESULT
    time_major: bool = True
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class View(Form):
    """The operand's elements in the same row-major order under another shape; no kernel, no extra operands.

    complex64[...] and float32[..., 2] are Views of each other.
    """

    takes_epilogue: ClassVar[bool] = False
    is_row_major: ClassVar[bool] = True

    @property
    def moves_only(self) -> bool:
        return True
