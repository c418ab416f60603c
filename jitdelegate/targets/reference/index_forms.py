"""What the forms of `ir.index_forms` compute, in plain numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitdelegate.ir.index_forms import ArgReduce, Gather, IndexForm, Scan, Scatter, Suppress, TopK

Shape = tuple[int, ...]


def index_result(form: IndexForm, operands: Sequence[np.ndarray], shape: Shape) -> np.ndarray:
    """The form's result for an output of `shape`."""
    data = operands[0]
    if isinstance(form, Gather):
        return gather(form, data, operands[1])
    if isinstance(form, Scatter):
        return scatter(form, data, operands[1], shape)
    if isinstance(form, Scan):
        return scan(form, data)
    if isinstance(form, ArgReduce):
        return arg_reduce(form, data)
    if isinstance(form, TopK):
        return top(data, shape[-1])
    assert isinstance(form, Suppress)
    return np.stack([suppress(form, data, scores, shape[-1]) for scores in operands[1]])


def gather(form: Gather, data: np.ndarray, places: np.ndarray) -> np.ndarray:
    indexed = places.shape[-1]
    sizes, inner = data.shape[form.axis : form.axis + indexed], data.shape[form.axis + indexed :]
    lead, outer = data.shape[: form.batch], data.shape[form.batch : form.axis]
    between = places.shape[form.batch : -1]
    out = np.zeros((*lead, *outer, *between, *inner), data.dtype)
    for b in np.ndindex(*lead):
        for i in np.ndindex(*between):
            place = tuple(int(p) for p in places[b + i])
            if all(0 <= p < size for p, size in zip(place, sizes, strict=True)):
                rows = (slice(None),) * len(outer)
                out[(*b, *rows, *i)] = data[(*b, *rows, *place)]
    return out


COMBINE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def scatter(form: Scatter, updates: np.ndarray, places: np.ndarray, shape: Shape) -> np.ndarray:
    out = np.full(shape, form.initial, updates.dtype)
    for i in np.ndindex(*places.shape[:-1]):
        place = tuple(int(p) for p in places[i])
        if all(0 <= p < size for p, size in zip(place, shape, strict=False)):
            out[place] = COMBINE[form.kind](out[place], updates[i])
    return out


def scan(form: Scan, data: np.ndarray) -> np.ndarray:
    data = np.flip(data, form.axis) if form.reverse else data
    sums = np.cumsum(data, form.axis, dtype=np.float64 if data.dtype.kind == "f" else data.dtype)
    sums = sums - data if form.exclusive else sums
    return (np.flip(sums, form.axis) if form.reverse else sums).astype(data.dtype)


def arg_reduce(form: ArgReduce, data: np.ndarray) -> np.ndarray:
    rows = np.moveaxis(data, form.axis, -1)
    found = np.zeros(rows.shape[:-1], np.int64)
    for index in np.ndindex(*found.shape):
        row = rows[index]
        for place in range(1, len(row)):
            best = row[found[index]]
            if row[place] > best if form.kind == "max" else row[place] < best:
                found[index] = place
    return found


def top(data: np.ndarray, k: int) -> np.ndarray:
    smallest_first = data.astype(np.float64 if data.dtype.kind == "f" else np.int64)
    return np.argsort(-smallest_first, axis=-1, kind="stable")[..., :k]


def suppress(form: Suppress, boxes: np.ndarray, scores: np.ndarray, most: int) -> np.ndarray:
    order = [n for n in np.argsort(-scores, kind="stable") if scores[n] >= np.float32(form.score_threshold)]
    kept: list[int] = []
    for n in order:
        if len(kept) < most and not any(overlap(boxes[:, n], boxes[:, k]) > np.float32(form.overlap) for k in kept):
            kept.append(n)
    return np.array(kept + [-1] * (most - len(kept)))


def overlap(a: np.ndarray, b: np.ndarray) -> np.float32:
    """Intersection of two boxes over their union; 0 where one has no area."""
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    if min(areas) <= 0:
        return np.float32(0)
    height = max(min(a[2], b[2]) - max(a[0], b[0]), np.float32(0))
    width = max(min(a[3], b[3]) - max(a[1], b[1]), np.float32(0))
    return height * width / (areas[0] + areas[1] - height * width)
