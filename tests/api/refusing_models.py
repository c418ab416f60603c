"""Models of one operator that refuses some indices, with inputs that it takes and inputs that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder

Values = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Refusing:
    """A model and its inputs.

    Attributes:
        content: the .tflite file.
        good: inputs that LiteRT takes.
        bad: the last, or `place`-th, input instead, which LiteRT refuses.
        words: of LiteRT's message for most of them.
        beyond: the same, where LiteRT reads or writes memory of others instead.
    """

    content: bytes
    good: Values
    bad: tuple[np.ndarray, ...]
    words: str
    place: int = -1
    beyond: tuple[np.ndarray, ...] = ()

    def inputs(self, bad: np.ndarray) -> Values:
        """The inputs with a bad one among them."""
        values = list(self.good)
        values[self.place] = bad
        return tuple(values)


def floats(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


class _Named(ModelBuilder):
    """A model that knows its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, int] = {}

    def input(self, *arguments: Any, **options: Any) -> int:
        name = f"x{len(self.given)}"
        self.given[name] = super().input(*arguments, name=name, **options)
        return self.given[name]


def built(build: Callable[[ModelBuilder], int]) -> bytes:
    """The model with the signature "serving_default", whose inputs are x0, x1, ... and whose output is y."""
    model = _Named()
    result = build(model)
    model.output(result)
    model.signature("serving_default", model.given, {"y": result})
    return model.finish()


def _gather(dtype: str, axis: int, batch: int = 0, data: str = "float32") -> Refusing:
    shape, count = (3, 5, 7), 4
    places = (*shape[:batch], count)
    size = shape[axis]

    def build(model: ModelBuilder) -> int:
        given = model.input(shape, data), model.input(places, dtype)
        out = (*shape[:axis], *places[batch:], *shape[axis + 1 :])
        return model.op("GATHER", given, out, dtype=data, options={"axis": axis, "batch_dims": batch})

    good = np.resize(np.arange(size), places).astype(dtype)
    limits = np.iinfo(dtype)
    bad = [_with(good, number) for number in (size, -1, size + 1000, limits.min, limits.max)]
    return Refusing(built(build), (floats(*shape).astype(data), good), tuple(bad), "gather index out of bounds")


def _with(values: np.ndarray, number: int) -> np.ndarray:
    """The values with one replaced."""
    found = values.copy()
    found.flat[values.size // 2] = number
    return found


def _gather_nd(depth: int) -> Refusing:
    shape = (3, 5, 7)
    good = np.array([[0, 4, 6], [2, 0, 0], [1, 1, 1]], np.int32)[:, :depth]

    def build(model: ModelBuilder) -> int:
        given = model.input(shape), model.input(good.shape, "int32")
        return model.op("GATHER_ND", given, (len(good), *shape[depth:]))

    bad = []
    for axis in range(depth):
        for number in (shape[axis], 1 << 30):
            found = good.copy()
            found[1, axis] = number
            bad.append(found)
    return Refusing(built(build), (floats(*shape), good), tuple(bad), "gather_nd index out of bounds")


def _embedding(kind: str) -> Refusing:
    table = np.arange(-15, 15).reshape(5, 6)

    def build(model: ModelBuilder) -> int:
        places = model.input((3,), "int32")
        if kind == "float32":
            rows = model.constant(table.astype(np.float32))
        else:
            rows = model.constant(table.astype(np.int8), quant=Quant((0.5,), (0,)))
        return model.op("EMBEDDING_LOOKUP", [places, rows], (3, 6))

    bad = tuple(np.array([4, number, 0], np.int32) for number in (5, -1, (1 << 31) - 1))
    return Refusing(built(build), (np.array([4, 0, 3], np.int32),), bad, "Embedding Lookup: index out of bounds. Got ")


def _scatter_nd() -> Refusing:
    def build(model: ModelBuilder) -> int:
        given = model.input((3, 2), "int32"), model.input((3, 17))
        return model.op("SCATTER_ND", [*given, model.constant(np.array([4, 5, 17], np.int32))], (4, 5, 17))

    good = np.array([[0, 0], [3, 4], [1, 2]], np.int32)
    bad = tuple(np.array([[0, 0], pair, [1, 1]], np.int32) for pair in ([4, 0], [0, 5], [-1, 0], [0, -1], [1 << 20, 0]))
    return Refusing(built(build), (good, floats(3, 17)), bad, "scatter_nd index out of bounds", 0)


def _segments(kind: str) -> Refusing:
    def build(model: ModelBuilder) -> int:
        given = model.input((4, 3)), model.input((4,), "int32")
        return model.op(f"UNSORTED_SEGMENT_{kind}", [*given, model.constant(np.array(3, np.int32))], (3, 3))

    good = np.array([0, -1, 2, -7], np.int32)  # negative numbers are skipped
    bad = tuple(np.array([0, number, 2, -7], np.int32) for number in (3, (1 << 31) - 1))
    return Refusing(built(build), (floats(4, 3), good), bad, "max_index < num_segments_ was not true")


def _reverse_sequence(dtype: str) -> Refusing:
    def build(model: ModelBuilder) -> int:
        given = model.input((3, 7, 2)), model.input((3,), dtype)
        return model.op("REVERSE_SEQUENCE", given, (3, 7, 2), options={"seq_dim": 1, "batch_dim": 0})

    good = np.array([7, 0, 3], dtype)
    bad, beyond = np.array([8, 0, 3], dtype), np.array([7, 8, 3], dtype)
    words = "seq_lengths[i] <= SizeOfDimension(input, seq_dim) was not true"
    return Refusing(built(build), (floats(3, 7, 2), good), (bad,), words, beyond=(beyond,))


def _slice(dtype: str, size: tuple[int, ...]) -> Refusing:
    shape = (5, 6, 7)

    def build(model: ModelBuilder) -> int:
        given = model.input(shape), model.input((3,), dtype)
        return model.op("SLICE", [*given, model.constant(np.array(size, dtype))], size)

    good = np.subtract(shape, size).astype(dtype)
    bad = [good.copy() for _ in range(6)]
    for axis in range(3):
        bad[axis][axis] += 1
        bad[3 + axis][axis] = -1
    return Refusing(built(build), (floats(*shape), good), tuple(bad), "Invalid begin")


def _division(op: str, dtype: str, *, zero: int = 0) -> Refusing:
    quant = Quant((0.5,), (zero,)) if dtype in ("int8", "int16") else None

    def build(model: ModelBuilder) -> int:
        given = [model.input((2, 19), dtype, quant=quant) for _ in range(2)]
        return model.op(op, given, (2, 19), dtype=dtype, quant=quant, version=2)

    good = np.resize(np.array([-3, 7, 11]), (2, 19)).astype(dtype)
    bad = good.copy()
    bad[1, 17] = zero
    words = "data[i] != zero_point was not true" if op == "DIV" else "Division by 0"
    return Refusing(built(build), (floats(2, 19).astype(dtype), good), (bad, np.full_like(good, zero)), words)


REFUSING: dict[str, Refusing] = {
    "GATHER": _gather("int32", 0),
    "GATHER int64": _gather("int64", 1),
    "GATHER int16": _gather("int16", 2),
    "GATHER of pairs": _gather("int32", 1, 1),
    "GATHER of bytes": _gather("int32", 0, 0, "int8"),
    "GATHER_ND": _gather_nd(3),
    "GATHER_ND of rows": _gather_nd(1),
    "EMBEDDING_LOOKUP": _embedding("float32"),
    "EMBEDDING_LOOKUP int8": _embedding("int8"),
    "SCATTER_ND": _scatter_nd(),
    "UNSORTED_SEGMENT_SUM": _segments("SUM"),
    "UNSORTED_SEGMENT_MAX": _segments("MAX"),
    "UNSORTED_SEGMENT_MIN": _segments("MIN"),
    "UNSORTED_SEGMENT_PROD": _segments("PROD"),
    "REVERSE_SEQUENCE": _reverse_sequence("int32"),
    "REVERSE_SEQUENCE int64": _reverse_sequence("int64"),
    "SLICE": _slice("int32", (2, 3, 4)),
    "SLICE of rows": _slice("int64", (2, 6, 7)),
    "SLICE of all": _slice("int32", (5, 6, 7)),
    "DIV int32": _division("DIV", "int32"),
    "DIV int8": _division("DIV", "int8", zero=5),
    "FLOOR_DIV": _division("FLOOR_DIV", "float32"),
    "FLOOR_DIV int16": _division("FLOOR_DIV", "int16"),
    "FLOOR_MOD int64": _division("FLOOR_MOD", "int64"),
}
"""By name: the operator, and what is special about its operands."""
GATHER = REFUSING["GATHER"]


def chain(op: str) -> bytes:
    """`op`, of one operand, of rows gathered from f32[3,5,7] at i32[4]: with the signature of `built`."""

    def build(model: ModelBuilder) -> int:
        given = model.input((3, 5, 7)), model.input((4,), "int32")
        rows = model.op("GATHER", given, (4, 5, 7), options={"axis": 0})
        return model.op(op, [rows], (4, 5, 7))

    return built(build)


def rows() -> bytes:
    """i32[?,2] -> f32[?,2,2]: for each row, two rows of f32[5,2], whose elements count from 0 on."""

    def build(model: ModelBuilder) -> int:
        places = model.input((1, 2), "int32", shape_signature=(-1, 2))
        table = model.constant(np.arange(10, dtype=np.float32).reshape(5, 2))
        return model.op("GATHER", [table, places], (1, 2, 2), options={"axis": 0}, name="y")

    return built(build)


def constant(places: np.ndarray) -> bytes:
    """f32[3,5,7] at constant places along its first axis."""

    def build(model: ModelBuilder) -> int:
        given = model.input((3, 5, 7)), model.constant(places)
        return model.op("GATHER", given, (*places.shape, 5, 7), options={"axis": 0})

    return built(build)
