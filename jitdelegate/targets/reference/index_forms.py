"""Numpy functions of the forms of `ir.index_forms`, one function per form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jitdelegate.errors import RefusedValueError
from jitdelegate.ir import index_forms as forms
from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.expr import evaluate
from jitdelegate.ir.forms import Form

Array = np.ndarray
Shape = tuple[int, ...]


def gather(form: forms.Gather, operands: Sequence[Any], shape: Shape) -> Array:
    data, positions = operands
    axis, batch, last = form.axis, form.batch, form.axis + positions.shape[-1]
    between = positions.shape[batch:-1]
    out = np.zeros((*data.shape[:axis], *between, *data.shape[last:]), data.dtype)
    rows = (slice(None),) * (axis - batch)
    for b in np.ndindex(*data.shape[:batch]):
        for i in np.ndindex(*between):
            position = tuple(positions[b + i].tolist())
            if is_within(position, data.shape[axis:last]):
                out[(*b, *rows, *i)] = data[(*b, *rows, *position)]
            else:
                refuse(form, position, data.shape[axis:last])
    return out


def refuse(form: forms.IndexedForm, position: tuple[int, ...], sizes: Shape) -> None:
    """
    Raises:
        RefusedValueError: an index outside is an error of the form.
    """
    if form.refusal:
        outside = next(p for p, size in zip(position, sizes, strict=True) if not 0 <= p < size)
        raise RefusedValueError(form.refusal.replace("{}", str(outside)))


def is_within(position: tuple[int, ...], sizes: Shape) -> bool:
    return all(0 <= p < size for p, size in zip(position, sizes, strict=True))


def scatter(form: forms.Scatter, operands: Sequence[Any], shape: Shape) -> Array:
    updates, positions = operands
    out = np.full(shape, form.initial, updates.dtype)
    for i in np.ndindex(*positions.shape[:-1]):
        position = tuple(positions[i].tolist())
        if is_within(position, shape[: len(position)]):
            out[position] = evaluate(COMBINERS[form.kind].step, [out[position], updates[i]])
        elif not (form.skips_negative and min(position) < 0):
            refuse(form, position, shape[: len(position)])
    return out


def update(form: forms.Update, operands: Sequence[Any], shape: Shape) -> Array:
    data, update, start = operands
    out = np.array(data)
    starts, parts = np.reshape(start, (-1, len(shape))), np.reshape(update, (-1, *update.shape[np.ndim(start) - 1 :]))
    rooms = np.subtract(shape, parts.shape[1:])
    for begin, window in zip(starts, parts, strict=True):
        if form.clamps:
            begin = np.clip(begin, 0, rooms)
        if (begin >= 0).all() and (begin <= rooms).all():
            out[tuple(slice(first, first + size) for first, size in zip(begin, window.shape, strict=True))] = window
    return out


def scan(form: forms.Scan, operands: Sequence[Any], shape: Shape) -> Array:
    data = np.flip(operands[0], form.axis) if form.reverse else operands[0]
    sums = np.cumsum(data, form.axis, dtype=np.float64 if data.dtype.kind == "f" else data.dtype)
    sums = sums - data if form.exclusive else sums
    return (np.flip(sums, form.axis) if form.reverse else sums).astype(data.dtype)


def arg_reduce(form: forms.ArgReduce, operands: Sequence[Any], shape: Shape) -> Array:
    rows = np.moveaxis(operands[0], form.axis, -1)
    if rows.dtype.kind == "f":
        best = np.inf if form.kind == "max" else -np.inf
        instead = np.where(np.arange(rows.shape[-1]) == 0, best, -best)
        rows = np.where(np.isnan(rows), instead, rows)
    return np.asarray((np.argmax if form.kind == "max" else np.argmin)(rows, axis=-1))


def top_k(form: forms.TopK, operands: Sequence[Any], shape: Shape) -> Array:
    data = operands[0].astype(np.float64)
    above_infinity = np.isnan(data) & ~np.signbit(data)
    return np.lexsort((-data, ~above_infinity), axis=-1)[..., : shape[-1]]


def suppress(form: forms.Suppress, operands: Sequence[Any], shape: Shape) -> Array:
    boxes, scores = operands
    return np.stack([kept(form, boxes, row, shape[-1]) for row in scores])


def kept(form: forms.Suppress, boxes: Array, scores: Array, most: int) -> Array:
    """[most]: indices of the boxes of one class that are kept, then -1s."""
    order = [n for n in np.argsort(-scores, kind="stable") if scores[n] >= np.float32(form.score_threshold)]
    indices: list[int] = []
    for n in order:
        if len(indices) < most and not any(
            overlap(boxes[:, n], boxes[:, k]) > np.float32(form.overlap) for k in indices
        ):
            indices.append(n)
    return np.array(indices + [-1] * (most - len(indices)))


def overlap(a: Array, b: Array) -> np.float32:
    """Intersection of two boxes over their union; 0 if a box has no area."""
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    if min(areas) <= 0:
        return np.float32(0)
    height = max(min(a[2], b[2]) - max(a[0], b[0]), np.float32(0))
    width = max(min(a[3], b[3]) - max(a[1], b[1]), np.float32(0))
    return np.float32(height * width / (areas[0] + areas[1] - height * width))


INDEX_FORMS: Mapping[type[Form], Callable[[Any, Sequence[Any], Shape], Array]] = {
    forms.ArgReduce: arg_reduce,
    forms.Gather: gather,
    forms.Scan: scan,
    forms.Scatter: scatter,
    forms.Suppress: suppress,
    forms.TopK: top_k,
    forms.Update: update,
}
"""Form -> function of (form, operands, shape of the output)."""
