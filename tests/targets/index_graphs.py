"""Graphs of one node of `ir.index_forms`, for both targets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitdelegate.ir.forms import Form
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ir.index_forms import ArgReduce, Gather, Scan, Scatter, Suppress, TopK, Update

Shape = tuple[int, ...]
Example = tuple[Form, list[np.ndarray], Shape, str]
"""A form, its operands' values, the output's shape and type."""


def graph_of(form: Form, feeds: Sequence[np.ndarray], shape: Shape, dtype: str) -> Graph:
    """The node whose operands are inputs of the graph and whose result is its output."""
    tensors = [Tensor(f"operand{k}", feed.shape, str(feed.dtype)) for k, feed in enumerate(feeds)]
    inputs, output = tuple(range(len(feeds))), len(feeds)
    node = Node("OP", inputs, (output,), form=form)
    return Graph((*tensors, Tensor("result", shape, dtype)), (node,), inputs, (output,))


def numbers(shape: Shape, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Random numbers of any type, few enough different ones that some are equal."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


def gathered(
    data: Shape, places: Shape, axis: int = 0, batch: int = 0, dtype: str = "float32", index: str = "int32"
) -> Example:
    """A Gather; about one place in ten lies outside."""
    depth = places[-1]
    random = np.random.default_rng(1)
    chosen = np.stack([random.integers(-1, size + 1, places[:-1]) for size in data[axis : axis + depth]], axis=-1)
    shape = data[:axis] + places[batch:-1] + data[axis + depth :]
    return Gather(axis=axis, batch=batch), [numbers(data, dtype), chosen.astype(index)], shape, dtype


def scattered(
    places: Shape, out: Shape, kind: str = "sum", initial: float = 0, dtype: str = "float32", index: str = "int32"
) -> Example:
    """A Scatter; some places lie outside, and some are the same."""
    random = np.random.default_rng(3)
    chosen = np.stack([random.integers(-1, size + 1, places[:-1]) for size in out[: places[-1]]], axis=-1)
    updates = numbers(places[:-1] + out[places[-1] :], dtype)
    return Scatter(kind=kind, initial=initial), [updates, chosen.astype(index)], out, dtype


def updated(data: Shape, window: Shape, start: Sequence[int], dtype: str = "float32", index: str = "int32") -> Example:
    """An Update; places that leave no room for the window are moved."""
    update = numbers(window, dtype, seed=1)
    return Update(), [numbers(data, dtype), update, np.array(start, index)], data, dtype


def scanned(
    shape: Shape, axis: int, dtype: str = "float32", *, exclusive: bool = False, reverse: bool = False
) -> Example:
    """A Scan."""
    return Scan(axis=axis, exclusive=exclusive, reverse=reverse), [numbers(shape, dtype)], shape, dtype


def best(shape: Shape, axis: int, kind: str = "max", dtype: str = "float32", index: str = "int32") -> Example:
    """An ArgReduce."""
    return ArgReduce(kind=kind, axis=axis), [numbers(shape, dtype)], shape[:axis] + shape[axis + 1 :], index


def largest(shape: Shape, count: int, dtype: str = "float32") -> Example:
    """A TopK."""
    return TopK(), [numbers(shape, dtype)], (*shape[:-1], count), "int32"


def suppressed(boxes: int, classes: int, count: int, threshold: float = 0.3, overlap: float = 0.4) -> Example:
    """A Suppress of boxes that overlap often, some without an area, with scores that are equal now and then."""
    random = np.random.default_rng(2)
    corner, size = random.uniform(0, 2, (2, boxes)), random.uniform(0, 1, (2, boxes))
    size[:, ::7] = 0
    scores = random.integers(0, 50, (classes, boxes)) / np.float32(50)
    feeds = [np.concatenate([corner, corner + size]).astype(np.float32), scores.astype(np.float32)]
    return Suppress(score_threshold=threshold, overlap=overlap), feeds, (classes, count), "int32"


EXAMPLES: dict[str, Example] = {
    "rows": gathered((7, 33), (5, 1)),
    "rows by int64": gathered((7, 40), (3, 4, 1), index="int64"),
    "one row": gathered((3, 16), (1,)),
    "elements": gathered((4, 9), (6, 1), axis=1),
    "elements one by one": gathered((2, 9), (2, 5, 1), axis=1, batch=1),
    "middle axis": gathered((3, 4, 5), (2, 3, 1), axis=1),
    "batches": gathered((2, 3, 4, 5), (2, 7, 1), axis=2, batch=1),
    "two axes": gathered((3, 4, 5), (6, 2)),
    "all axes": gathered((3, 4, 5), (2, 2, 3)),
    "batched axes": gathered((2, 3, 4, 17), (2, 5, 2), axis=1, batch=1),
    "images": gathered((3, 2, 5, 9), (4, 1)),
    "int64 data": gathered((5, 19), (6, 1), dtype="int64"),
    "bools": gathered((5, 70), (6, 1), dtype="bool"),
    "int8 data": gathered((5, 3), (9, 1), dtype="int8"),
    "int16 data": gathered((5, 37), (9, 1), dtype="int16"),
    "scattered rows": scattered((9, 1), (5, 37)),
    "scattered elements": scattered((40, 1), (7,)),
    "scattered over two axes": scattered((3, 8, 2), (2, 3, 5), index="int64"),
    "scattered images": scattered((4, 1), (3, 2, 3, 18)),
    "scattered products": scattered((9, 1), (5, 6), "prod", 1),
    "scattered maxima": scattered((9, 1), (5, 6), "max", -(2**31), "int32"),
    "scattered minima": scattered((9, 1), (5, 6), "min", 3e38),
    "scattered int64": scattered((9, 1), (5, 6), dtype="int64"),
    "updated row": updated((1, 40, 2, 19), (1, 1, 2, 19), (0, 17, 0, 0)),
    "updated rows of heads": updated((2, 3, 40, 17), (2, 3, 5, 17), (0, 0, 31, 0)),
    "updated box": updated((3, 7, 37), (2, 3, 5), (1, 2, 19), index="int64"),
    "updated before the start": updated((4, 9, 6), (1, 4, 6), (-(2**31), -1, 5)),
    "updated after the end": updated((4, 9, 6), (1, 4, 6), (2**62, 7, -(2**63)), index="int64"),
    "updated whole": updated((5, 33), (5, 33), (2, -3)),
    "updated int8": updated((1, 50, 3), (1, 7, 3), (0, 45, 0), "int8"),
    "updated bools": updated((70, 3), (5, 3), (64, 0), "bool"),
    "updated int64": updated((9, 5), (2, 4), (3, 1), "int64"),
    "updated int16": updated((9, 50), (9, 3), (0, 11), "int16"),
    "updated element": updated((300,), (1,), (299,)),
    "sums of rows": scanned((5, 33), 1),
    "sums of columns": scanned((5, 37), 0),
    "exclusive": scanned((4, 6, 18), 1, exclusive=True),
    "reverse": scanned((4, 6, 18), 1, reverse=True),
    "both": scanned((9, 7), 1, exclusive=True, reverse=True),
    "image sums": scanned((2, 3, 5, 20), 2),
    "int32 sums": scanned((5, 33), 0, "int32"),
    "int64 sums": scanned((3, 17, 2), 1, "int64", exclusive=True),
    "one sum": scanned((1,), 0),
    "largest of rows": best((9, 5), 1),
    "largest of long rows": best((3, 103), 1),
    "largest of three": best((9, 3), 1),
    "smallest of int32 rows": best((9, 21), 1, "min", dtype="int32"),
    "largest of very long rows": best((2, 1500), 1),
    "smallest of very long rows": best((1, 1024), 1, "min", dtype="int32"),
    "smallest of rows": best((4, 48), 1, "min"),
    "largest of columns": best((7, 37), 0),
    "smallest of middles": best((3, 5, 4, 18), 1, "min", index="int64"),
    "largest int32": best((6, 50), 1, dtype="int32", index="int64"),
    "one element": best((1, 1), 0),
    "largest int8": best((9, 21), 1, dtype="int8"),
    "smallest uint8 of long rows": best((3, 501), 1, "min", dtype="uint8"),
    "largest uint8 of one": best((5, 1), 1, dtype="uint8"),
    "largest uint8 of columns": best((7, 37), 0, dtype="uint8", index="int64"),
    "largest int16": best((2, 3, 70), 2, dtype="int16"),
    "smallest int16 of columns": best((7, 37), 0, "min", dtype="int16"),
    "top of rows": largest((4, 37), 5),
    "all of a row": largest((3, 20), 20),
    "top int32": largest((2, 3, 19), 4, "int32"),
    "top of long rows": largest((2, 1500), 40),
    "top of very long rows": largest((1, 9000), 3),
    "top one": largest((5,), 1),
    "boxes": suppressed(100, 1, 12),
    "boxes of classes": suppressed(37, 5, 40),
    "few boxes": suppressed(5, 2, 3),
    "no boxes": suppressed(20, 2, 3, threshold=2.0),
}
