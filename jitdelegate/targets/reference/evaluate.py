"""A slow interpreter of lowered graphs in numpy: what every target has to compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitdelegate.ir.expr import evaluate
from jitdelegate.ir.forms import (
    Access,
    Concat,
    Contract,
    Depthwise,
    Form,
    Map,
    MatMul,
    Pool,
    Recurrent,
    Reduce,
    Resize,
    Softmax,
    View,
    Window,
)
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ir.index_forms import IndexForm
from jitdelegate.ops.resize import bilinear_places, nearest_places
from jitdelegate.targets.reference.index_forms import index_result

Shape = tuple[int, ...]
REDUCTIONS = {"mean": np.mean, "sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}


def run_graph(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a graph whose nodes all carry a form."""
    values = {i: tensor.data for i, tensor in enumerate(graph.tensors) if tensor.data is not None}
    values |= dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        (output,) = node.outputs
        operands = [None if i == ABSENT else values[i] for i in node.inputs]
        tensor = graph.tensors[output]
        values[output] = run_node(node, operands, tensor.shape).astype(tensor.dtype)
    return [values[i] for i in graph.outputs]


def run_node(node: Node, operands: Sequence[np.ndarray | None], shape: Shape) -> np.ndarray:
    """The form's own result through its epilogue, as an array of `shape`."""
    form = node.form
    assert form is not None
    own = [] if isinstance(form, Map) else [result(form, operands, shape).reshape(shape)]
    own = [np.asarray(each, np.float32 if each.dtype == np.float64 else each.dtype) for each in own]
    extra = [read(x, access, shape) for x, access in zip(operands[form.core :], form.operands, strict=False)]
    with np.errstate(all="ignore"):
        return np.broadcast_to(evaluate(form.epilogue, own + extra), shape)


def read(operand: np.ndarray, access: Access, shape: Shape) -> np.ndarray:
    """The operand's value for every output index."""
    grid = np.indices(shape)
    index, inside = [], np.ones(shape, bool)
    for dim, start, step, size in zip(access.dims, access.starts, access.steps, operand.shape, strict=True):
        place = np.full(shape, start) if dim < 0 else start + step * grid[dim]
        inside &= (place >= 0) & (place < size)
        index.append(np.clip(place, 0, size - 1))
    assert access.fill is not None or inside.all(), f"{access} leaves {operand.shape}"
    return np.where(inside, operand[tuple(index)], np.asarray(access.fill or 0).astype(operand.dtype))


def result(form: Form, operands: Sequence[np.ndarray | None], shape: Shape) -> np.ndarray:
    """The form's own result, in any shape with the output's elements in order."""
    data = operands[0]
    if isinstance(form, View):
        return data
    if isinstance(form, IndexForm):
        return index_result(form, operands, shape)
    if isinstance(form, Concat):
        return np.concatenate(operands, axis=form.axis)
    if isinstance(form, Softmax):
        powers = np.exp(form.beta * (data - data.max(-1, keepdims=True)).astype(np.float64))
        return powers / powers.sum(-1, keepdims=True)
    if isinstance(form, Reduce):
        exact = data.astype(np.float64) if data.dtype.kind == "f" else data
        return REDUCTIONS[form.kind](exact, axis=form.axes)
    if isinstance(form, Resize):
        return resize(form, data, shape)
    if isinstance(form, MatMul):
        return matmul(form, data, operands[1])
    if isinstance(form, Recurrent):
        return recurrent(form, *operands)
    if isinstance(form, Pool):
        return pool(form, data, shape)
    if isinstance(form, Depthwise):
        return depthwise(form, data, operands[1], operands[2], shape)
    assert isinstance(form, Contract)
    return contract(form, data, operands[1], operands[2], shape)


def resize(form: Resize, data: np.ndarray, shape: Shape) -> np.ndarray:
    for axis in (1, 2):
        places = data.shape[axis], shape[axis], form.align_corners, form.half_pixel_centers
        if form.kind == "nearest":
            data = np.take(data, nearest_places(*places), axis)
        else:
            lower, upper, part = bilinear_places(*places)
            part = part.reshape((-1, 1, 1) if axis == 1 else (-1, 1)).astype(np.float64)
            data = np.take(data, lower, axis) * (1 - part) + np.take(data, upper, axis) * part
    return data


def matmul(form: MatMul, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a = a.swapaxes(-1, -2) if form.adj_x else a
    b = b.swapaxes(-1, -2) if form.adj_y else b
    return a.astype(np.float64) @ b


def recurrent(
    form: Recurrent,
    data: np.ndarray,
    hidden: np.ndarray,
    state: np.ndarray,
    weights: np.ndarray,
    more: Any,
    projection: Any,
    bias: Any,
) -> np.ndarray:
    constants = () if more is None else tuple(more)
    rows = data if form.time_major else data.swapaxes(0, 1)
    outputs, units = hidden.shape[1], state.shape[1]
    out = np.zeros((len(rows) + 1, len(state), max(outputs, units)))
    for time in range(len(rows))[:: -1 if form.reverse else 1]:
        gates = np.split(rows[time].astype(np.float64) + hidden @ weights.T.astype(np.float64), form.gates, axis=1)
        state = evaluate(form.cell, [*(gate.astype(np.float32) for gate in gates), state, *constants])
        hidden = evaluate(form.output, [*(gate.astype(np.float32) for gate in gates), state, *constants])
        if projection is not None:
            total = (hidden.astype(np.float64) @ projection.T + bias).astype(np.float32)
            hidden = evaluate(form.limit, [total])
        out[time, :, :outputs] = hidden
    out[-1, :, :units] = state
    return out


def seen(form: Window, data: np.ndarray, y: int, x: int) -> tuple[list[int], list[int]]:
    """The rows and the columns of the image under the window of output pixel (y, x); some may lie outside."""
    rows = [y * form.stride[0] - form.padding[0] + k * form.dilation[0] for k in range(form.kernel[0])]
    columns = [x * form.stride[1] - form.padding[2] + k * form.dilation[1] for k in range(form.kernel[1])]
    return rows, columns


def patch(form: Window, data: np.ndarray, y: int, x: int, fill: float) -> np.ndarray:
    """What the window of output pixel (y, x) sees: [N, kh, kw, C], `fill` outside the image."""
    rows, columns = seen(form, data, y, x)
    out = np.full((len(data), len(rows), len(columns), data.shape[3]), float(fill))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            if 0 <= row < data.shape[1] and 0 <= column < data.shape[2]:
                out[:, i, j] = data[:, row, column]
    return out


def pool(form: Pool, data: np.ndarray, shape: Shape) -> np.ndarray:
    reduce = np.nanmean if form.kind == "mean" else np.nanmax
    out = np.empty(shape)
    for y, x in np.ndindex(*shape[1:3]):
        out[:, y, x] = reduce(patch(form, data, y, x, np.nan), axis=(1, 2))
    return out


def depthwise(
    form: Depthwise, data: np.ndarray, weights: np.ndarray, bias: np.ndarray | None, shape: Shape
) -> np.ndarray:
    out = np.empty(shape)
    repeated = np.repeat(data, form.multiplier, axis=3)
    for y, x in np.ndindex(*shape[1:3]):
        out[:, y, x] = (patch(form, repeated, y, x, 0) * weights.astype(np.float64)).sum(axis=(1, 2))
    return out if bias is None else out + bias


def contract(
    form: Contract, data: np.ndarray, weights: np.ndarray, bias: np.ndarray | None, shape: Shape
) -> np.ndarray:
    if data.ndim != 4:
        data = data.reshape(1, 1, -1, data.shape[-1])
    if weights.ndim == 2:
        weights = weights[:, None, None]
    channels = len(weights)
    image = shape if len(shape) == 4 else (1, 1, data.shape[2], channels)
    out = np.zeros(image)
    if form.transposed:
        scatter(form, data, weights, out)
    else:
        each, depth = channels // form.groups, weights.shape[3]
        for y, x in np.ndindex(*image[1:3]):
            under = patch(form, data, y, x, 0)
            for g in range(form.groups):
                part = under[..., g * depth : (g + 1) * depth], weights[g * each : (g + 1) * each].astype(np.float64)
                out[:, y, x, g * each : (g + 1) * each] = np.einsum("nhwc,ohwc->no", *part)
    return out if bias is None else out + bias


def scatter(form: Contract, data: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    """Adds every data pixel's multiple of the filter to `out`."""
    for y, x in np.ndindex(*data.shape[1:3]):
        for ky, kx in np.ndindex(*form.kernel):
            row = y * form.stride[0] - form.padding[0] + ky
            column = x * form.stride[1] - form.padding[2] + kx
            if 0 <= row < out.shape[1] and 0 <= column < out.shape[2]:
                out[:, row, column] += data[:, y, x].astype(np.float64) @ weights[:, ky, kx].T
