"""Kernel forms: the few shapes of computation that a target implements once each.

A lowered node carries one form. Its inputs are the form's own operands first (`core` of them; data, weights, bias for
a Contract) and then the extra operands of the epilogue. Sizes are logical (TFLite's NHWC); how a tensor lies in memory
is the target's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jitdelegate.ir.expr import RESULT, Expr


@dataclass(frozen=True, slots=True)
class Access:
    """Which element of an operand is read for output index i: operand index[a] = starts[a] + steps[a] * i[dims[a]].

    One entry per operand axis; dims[a] == -1 reads starts[a] for every i (broadcast, or an axis of size 1). With
    `fill` set, an index outside the operand reads that value instead; without it every index lies inside.
    """

    dims: tuple[int, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]
    fill: float | None = None

    @staticmethod
    def broadcast(operand: tuple[int, ...], output: tuple[int, ...]) -> Access:
        """numpy's broadcasting of an operand of shape `operand` to shape `output`."""
        shift = len(output) - len(operand)
        dims = tuple(-1 if size == 1 and output[shift + a] != 1 else shift + a for a, size in enumerate(operand))
        return Access(dims, (0,) * len(operand), (1,) * len(operand))

    @staticmethod
    def along(*dims: int, starts: tuple[int, ...] = (), fill: float | None = None) -> Access:
        """Axis a of the operand, from starts[a] on, along axis dims[a] of the output; without `starts`, from 0 on.

        So `along(0, 1)` reads a matrix as it is, `along(1)` a vector for each row, and `along()` a scalar.
        """
        return Access(dims, starts or (0,) * len(dims), (1,) * len(dims), fill)

    def is_identity(self) -> bool:
        """True where the operand is read at the output's own index."""
        rank = len(self.dims)
        return self.dims == tuple(range(rank)) and not any(self.starts) and set(self.steps) <= {1}

    def runs_along(self, output: tuple[int, ...]) -> bool:
        """True where a kernel that makes the output pixel by pixel can follow the operand with fixed strides.

        The operand is read at the output's own index, or is repeated along an axis; nothing is shifted, padded or
        transposed. Outputs that are no images are one row of pixels, so their leading axes go together.
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
    """What every form has: an epilogue over Arg(0) = the form's own result and Arg(1 + k) = extra operand k.

    Extra operand k is input number `core + k` of the node, read through `operands[k]`. Operands of a form that
    computes something itself run along its output (`Access.runs_along`); a Map's and a Concat's may be anything.
    """

    core: ClassVar[int] = 1
    epilogue: Expr = RESULT
    operands: tuple[Access, ...] = ()


@dataclass(frozen=True, slots=True)
class Map(Form):
    """out[i] = epilogue(Arg(0) = operand 0 at i, Arg(1) = operand 1 at i, ...): elementwise work and data movement.

    A Map has no own result: Arg(k) is input k, read through `operands[k]`.
    """

    core: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Window(Form):
    """A window that slides over H and W of an NHWC operand: kernel, stride and dilation as (h, w), padding as
    (top, bottom, left, right) rows and columns that are not there."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Contract(Window):
    """Implicit GEMM; inputs (data, weights f32[O, kh, kw, I], bias f32[O] or ABSENT, extra operands ...).

    out[n,y,x,o] = epilogue(bias[o] + sum over ky, kx, c of
        data[n, y*sy - top + ky*dy, x*sx - left + kx*dx, g*I + c] * weights[o,ky,kx,c]), g = o // (O / groups)
    Data of another rank than 4 is the image [1, 1, product of the leading sizes, last size], weights [O, I] have a
    1x1 kernel: FULLY_CONNECTED. `transposed`: data pixel (y, x) adds data[n,y,x,c] * weights[o,ky,kx,c] to output
    (y*sy - top + ky, x*sx - left + kx): TRANSPOSE_CONV.
    """

    core: ClassVar[int] = 3
    groups: int = 1
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class MatMul(Form):
    """Products of runtime matrices, one for each index of the leading axes; inputs (a, b, extra operands ...).

    out[..., m, n] = epilogue(sum over k of a[..., m, k] * b[..., k, n]), of the shape that numpy's matmul gives: both
    operands have two axes at least, and the leading ones broadcast. `adj_x`, `adj_y`: a lies as [..., k, m], b as
    [..., n, k].
    """

    core: ClassVar[int] = 2
    adj_x: bool = False
    adj_y: bool = False


@dataclass(frozen=True, slots=True)
class Depthwise(Window):
    """One filter per channel; inputs (data, weights f32[1, kh, kw, O], bias f32[O] or ABSENT, extra operands ...).

    out[n,y,x,o] = epilogue(bias[o] + sum over ky, kx of
        data[n, y*sy - top + ky*dy, x*sx - left + kx*dx, o // multiplier] * weights[0,ky,kx,o]), O = C * multiplier
    """

    core: ClassVar[int] = 3
    multiplier: int = 1


@dataclass(frozen=True, slots=True)
class Pool(Window):
    """Average or maximum over the part of the window that lies inside the image, per channel. kind: "mean" or "max"."""

    kind: str = "max"


@dataclass(frozen=True, slots=True)
class Reduce(Form):
    """`kind` ("mean", "sum", "max", "min", "prod") over `axes` of the operand; the output keeps the other elements in
    order, whether or not its shape keeps the reduced axes with size 1."""

    kind: str = "sum"
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Softmax(Form):
    """exp(beta * (x - max)) / sum of the same, over the last axis."""

    beta: float = 1.0


@dataclass(frozen=True, slots=True)
class Resize(Form):
    """Sampling of H and W of an NHWC operand, "bilinear" or "nearest" (`kind`), with TFLite's options."""

    kind: str = "bilinear"
    align_corners: bool = False
    half_pixel_centers: bool = False


@dataclass(frozen=True, slots=True)
class Concat(Form):
    """All inputs one after another along `axis`; no extra operands."""

    core: ClassVar[int] = 0
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Recurrent(Form):
    """A cell of U units and P outputs that runs over the steps of a sequence; inputs (data, hidden, state, weights,
    more, projection, bias).

    data f32[T, N, gates * U], or f32[N, T, gates * U] without `time_major`, is what each step adds to the gates;
    hidden f32[N, P]; state f32[N, U]; weights f32[gates * U, P]; more f32[count, U] or ABSENT; projection f32[P, U] and
    its bias f32[P] or both ABSENT, and then P = U. The step of time t, from 0 up, or down to 0 where `reverse`:
        gate[g] = data[t, n, g * U + u] + sum over p of weights[g * U + u, p] * hidden[n, p]
        state = cell(Arg(0 ... gates - 1) = the gates, Arg(gates) = state, Arg(gates + 1 + k) = more[k])
        hidden = output(the same, of which Arg(gates) is the new state)
        hidden = limit(Arg(0) = bias[p] + sum over u of projection[p, u] * hidden[n, u]), where there is a projection
    out f32[T + 1, N, max(U, P)]: hidden of every time, then the state after the last step; what is left of a row is
    anything. There is no epilogue.
    """

    core: ClassVar[int] = 7
    gates: int = 1
    cell: Expr = RESULT
    output: Expr = RESULT
    limit: Expr = RESULT
    time_major: bool = True
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class View(Form):
    """The operand's elements in the same row-major order under another shape; no kernel, no extra operands."""
