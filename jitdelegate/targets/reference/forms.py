"""Numpy functions of the forms of `ir.forms`: their own results before the epilogue, one function per form.

Sums of floats are computed in float64. So are sums of products of integers, exactly, for factors have at most 16 bits;
then they wrap to the form's own type. Windows are computed tap by tap: a tap gives the pixel that each output pixel
reads for one element of the kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jitdelegate.ir import forms
from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.expr import evaluate
from jitdelegate.ops.resize import sample_places
from jitdelegate.targets.reference.index_forms import INDEX_FORMS

Array = np.ndarray
Shape = tuple[int, ...]


def view(form: forms.View, operands: Sequence[Any], shape: Shape) -> Array:
    data = np.ascontiguousarray(operands[0])
    if data.size == math.prod(shape):
        return data
    return data.view(np.float32 if data.dtype.kind == "c" else np.complex64)


def concat(form: forms.Concat, operands: Sequence[Any], shape: Shape) -> Array:
    return np.concatenate(operands, axis=form.axis)


def fourier(form: forms.Fourier, operands: Sequence[Any], shape: Shape) -> Array:
    spectrum = np.fft.rfft(exact(operands[0]), form.length)
    return np.stack([spectrum.real, spectrum.imag], axis=-1)


def softmax(form: forms.Softmax, operands: Sequence[Any], shape: Shape) -> Array:
    data = operands[0]
    powers = np.exp(form.beta * (data - data.max(-1, keepdims=True)).astype(np.float64))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def normalize(form: forms.Normalize, operands: Sequence[Any], shape: Shape) -> Array:
    data, *extra = operands
    statistics: list[Array] = []
    for statistic in form.statistics:
        values = np.broadcast_to(evaluate(statistic.value, [data, *statistics]), data.shape)
        if statistic.in_order:
            total = np.add.accumulate(values, -1)[..., -1]
        else:
            total = reduced(statistic.kind, exact(values), form.axes)
        statistics.append(np.expand_dims(total, form.axes).astype(statistic.dtype))
    return np.broadcast_to(evaluate(form.result, [data, *statistics, *extra]), shape)


def reduce(form: forms.Reduce, operands: Sequence[Any], shape: Shape) -> Array:
    data = operands[0]
    return reduced(form.kind, exact(data.astype(form.accumulator or data.dtype)), form.axes)


def reduced(kind: str, data: Array, axes: Shape) -> Array:
    """The axes combined, by halves."""
    combiner, count = COMBINERS[kind], math.prod(data.shape[axis] for axis in axes)
    parts = np.moveaxis(data, axes, range(len(axes)))
    parts = parts.reshape(count, *parts.shape[len(axes) :])
    if not count:
        return np.full(parts.shape[1:], combiner.identity_of(str(data.dtype)), data.dtype)
    while len(parts) > 1:
        half = len(parts) // 2
        joined = evaluate(combiner.step, [parts[:half], parts[half : 2 * half]])
        parts = np.concatenate([joined, parts[2 * half :]])
    return np.asarray(parts[0] / count if combiner.mean_of else parts[0])


def exact(data: Array) -> Array:
    """Floats as float64; integers as they are."""
    return data.astype(np.float64) if data.dtype.kind == "f" else data


def resize(form: forms.Resize, operands: Sequence[Any], shape: Shape) -> Array:
    data = operands[0]
    (top, bottom, dy), (left, right, dx) = (sample_places(form, data.shape[axis], shape[axis]) for axis in (1, 2))
    if form.kind == "nearest":
        return np.asarray(data[:, top][:, :, left])
    if data.dtype.kind != "f" and form.weights == "float32":
        return np.trunc(weighed(data, (top, bottom, dy), (left, right, dx)) + np.float32(0.5)).astype(data.dtype)
    whole = {"float32": 1.0, "fixed10": 1 << 10, "fixed11": 1 << 11}[form.weights]
    wide = data.astype(np.float64 if form.weights == "float32" else np.int64)
    dy, dx = dy.astype(wide.dtype)[:, None, None], dx.astype(wide.dtype)[:, None]
    rows = wide[:, top] * (whole - dy) + wide[:, bottom] * dy
    total = rows[:, :, left] * (whole - dx) + rows[:, :, right] * dx
    if form.weights == "fixed10":
        total = np.sign(total) * (np.abs(total) + (1 << 19) >> 20)
    if form.weights == "fixed11":
        total = total + (1 << 21) >> 22
    return np.asarray(total if form.weights == "float32" else total.astype(data.dtype))


def weighed(data: Array, rows: Sequence[Array], columns: Sequence[Array]) -> Array:
    """Bilinear samples in float32, with the operations in the order of TFLite's kernel."""
    (top, bottom, dy), (left, right, dx), one = rows, columns, np.float32(1)
    wide, dy, dx = data.astype(np.float32), dy[:, None, None], dx[:, None]
    total = wide[:, top][:, :, left] * (one - dy) * (one - dx)
    total = total + wide[:, bottom][:, :, left] * dy * (one - dx)
    total = total + wide[:, top][:, :, right] * (one - dy) * dx
    return np.asarray(total + wide[:, bottom][:, :, right] * dy * dx)


def matmul(form: forms.MatMul, operands: Sequence[Any], shape: Shape) -> Array:
    a, b = (
        x.transpose(order) if order else x for x, order in zip(operands, (form.a_order, form.b_order), strict=False)
    )
    a = a.swapaxes(-1, -2) if form.adj_x else a
    b = b.swapaxes(-1, -2) if form.adj_y else b
    product = biased(form, centred(form, a) @ b.astype(np.float64), None)
    return np.asarray(product.transpose(np.argsort(form.order)) if form.order else product)


def pool(form: forms.Pool, operands: Sequence[Any], shape: Shape) -> Array:
    data = operands[0]
    if form.kind == "max":  # fmax ignores NaN, as LiteRT does
        lowest = np.nan if data.dtype.kind == "f" else np.iinfo(data.dtype).min
        fill = lowest if form.halo_value is None else form.halo_value
        return functools.reduce(np.fmax, (seen for _, seen in taps(form, data, shape, fill)))
    inside = np.ones((1, *data.shape[1:3], 1))
    seen_by = taps(form, centred(form, data), shape, outside(form))
    total = biased(form, np.asarray(sum(seen for _, seen in seen_by)), None)
    count = sum(seen for _, seen in taps(form, inside, shape, form.halo_value is not None))
    if form.accumulator == "float32":
        return np.asarray(total / count)
    return np.asarray(np.trunc((total + np.copysign(count // 2, total)) / count)).astype(form.accumulator)


def depthwise(form: forms.Depthwise, operands: Sequence[Any], shape: Shape) -> Array:
    data, weights, bias = operands[:3]
    repeated = np.repeat(centred(form, data), form.multiplier, axis=3)
    seen_by = taps(form, repeated, shape, outside(form))
    return biased(form, np.asarray(sum(seen * weights[0, ky, kx] for (ky, kx), seen in seen_by)), bias)


def contract(form: forms.Contract, operands: Sequence[Any], shape: Shape) -> Array:
    data, weights, bias = operands[:3]
    data = data if data.ndim == 4 else data.reshape(1, 1, -1, data.shape[-1])
    weights = weights if weights.ndim == 4 else weights[:, None, None]
    image = shape if len(shape) == 4 else (1, 1, data.shape[2], len(weights))
    multiply = transposed if form.transposed else grouped
    return biased(form, multiply(form, centred(form, data), weights.astype(np.float64) - form.filter_zero, image), bias)


def centred(form: forms.Window | forms.MatMul, data: Array) -> Array:
    """The data minus its zero point, as float64."""
    return data.astype(np.float64) - form.input_zero


def outside(form: forms.Window) -> float:
    """The value of pixels outside the image, minus the zero point."""
    return 0 if form.halo_value is None else form.halo_value - form.input_zero


def biased(form: forms.Window | forms.MatMul, total: Array, bias: Array | None) -> Array:
    """total + bias; integers wrap to the type of the accumulator."""
    if form.accumulator == "float32":
        return total if bias is None else total + bias
    exact = total.astype(np.int64)
    return (exact if bias is None else exact + bias).astype(form.accumulator)


def grouped(form: forms.Contract, data: Array, weights: Array, image: Shape) -> Array:
    """The convolutions of all groups of channels, concatenated along the channels."""
    parts = zip(np.split(data, form.groups, axis=3), np.split(weights, form.groups), strict=True)
    sums = [sum(seen @ w[:, ky, kx].T for (ky, kx), seen in taps(form, d, image, outside(form))) for d, w in parts]
    return np.concatenate(sums, axis=3)


def taps(form: forms.Window, data: Array, image: Shape, fill: float = 0) -> Iterator[tuple[tuple[int, int], Array]]:
    """((ky, kx), [N, H, W, C]): the pixel of `data` that each pixel of an output `image` reads; `fill` outside."""
    for ky, kx in np.ndindex(*form.kernel):
        rows = np.arange(image[1]) * form.stride[0] - form.padding[0] + ky * form.dilation[0]
        columns = np.arange(image[2]) * form.stride[1] - form.padding[2] + kx * form.dilation[1]
        inside = within(rows, data.shape[1])[:, None] & within(columns, data.shape[2])
        seen = data.take(rows, 1, mode="clip").take(columns, 2, mode="clip")
        yield (ky, kx), np.where(inside[..., None], seen, fill)


def within(positions: Array, size: int) -> Array:
    return np.asarray((positions >= 0) & (positions < size))


def transposed(form: forms.Contract, data: Array, weights: Array, image: Shape) -> Array:
    """A transposed convolution: adds each data pixel times the filter to the output pixels under the filter."""
    out = np.zeros(image)
    for ky, kx in np.ndindex(*form.kernel):
        rows = np.arange(data.shape[1]) * form.stride[0] - form.padding[0] + ky
        columns = np.arange(data.shape[2]) * form.stride[1] - form.padding[2] + kx
        used, seen = within(rows, image[1]), within(columns, image[2])
        added = data[:, used][:, :, seen] @ weights[:, ky, kx].T
        out[:, rows[used][:, None], columns[seen]] += added
    return out


def recurrent(form: forms.Recurrent, operands: Sequence[Any], shape: Shape) -> Array:
    data, hidden, state, weights, more, projection, bias = operands
    constants = () if more is None else tuple(more)
    rows = data if form.time_major else data.swapaxes(0, 1)
    out = np.zeros(shape)
    for time in range(len(rows))[:: -1 if form.reverse else 1]:
        sums = rows[time].astype(np.float64) + hidden @ weights.T.astype(np.float64)
        gates = np.split(sums.astype(np.float32), form.gates, axis=1)
        state = evaluate(form.cell, [*gates, state, *constants])
        hidden = evaluate(form.output, [*gates, state, *constants])
        if projection is not None:
            total = hidden.astype(np.float64) @ projection.T + bias
            hidden = evaluate(form.limit, [total.astype(np.float32)])
        out[time, :, : hidden.shape[1]] = hidden
    out[-1, :, : state.shape[1]] = state
    return out


FORMS: Mapping[type[forms.Form], Callable[[Any, Sequence[Any], Shape], Array]] = {
    forms.Concat: concat,
    forms.Contract: contract,
    forms.Depthwise: depthwise,
    forms.Fourier: fourier,
    forms.MatMul: matmul,
    forms.Normalize: normalize,
    forms.Pool: pool,
    forms.Recurrent: recurrent,
    forms.Reduce: reduce,
    forms.Resize: resize,
    forms.Softmax: softmax,
    forms.View: view,
    **INDEX_FORMS,
}
"""Form -> function of (form, operands, shape of the output); returns the output's elements in order, in any shape."""
