"""Chains of operators on sizes, as exporters write them for inputs whose sizes are open: whole, and as in LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.tflite.write import ModelBuilder

SHAPES = ((1, 1, 4), (2, 5, 4), (3, 12, 4))


class Chain(ModelBuilder):
    """A model of x: f32[?,?,4] with operators on its sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.x = self.input((1, 1, 4), name="x", shape_signature=(-1, -1, 4))
        self.sizes = self.ints("SHAPE", self.x, rank=1, out_type="INT32")

    def const(self, values: Any, dtype: str = "int32") -> int:
        """A constant, of integers unless its type is given."""
        return self.constant(np.array(values, dtype))

    def floats(self, op: str, *inputs: int | None, rank: int = 3, **options: Any) -> int:
        """An operator with one result, whose sizes the file does not know."""
        version = 2 if op == "BROADCAST_TO" else 1
        return self.op(op, inputs, (1,) * rank, options=options or None, version=version)

    def ints(self, op: str, *inputs: int, rank: int = 0, dtype: str = "int32", **options: Any) -> int:
        """An operator on sizes."""
        return self.op(op, inputs, (1,) * rank, dtype=dtype, options=options or None)

    def size(self, axis: int, of: int | None = None) -> int:
        """One of the sizes, a scalar."""
        bounds = [self.const([each]) for each in (axis, axis + 1, 1)]
        return self.ints("STRIDED_SLICE", self.sizes if of is None else of, *bounds, shrink_axis_mask=1)

    def pack(self, *sizes: int | str) -> int:
        """A vector of sizes: scalar tensors, and numbers as text."""
        scalars = [self.const(int(each)) if isinstance(each, str) else each for each in sizes]
        return self.op("PACK", scalars, (len(sizes),), dtype="int32", options={"values_count": len(sizes), "axis": 0})

    def parts(self, op: str, *inputs: int, sizes: Sequence[tuple[int, ...]], **options: int) -> list[int]:
        """An operator on sizes with several results, of these shapes."""
        outputs = [self.tensor(shape, "int32") for shape in sizes]
        self.node(op, inputs, outputs, options=options)
        return outputs


def flat(m: Chain) -> int:
    rows = m.ints("MUL", m.size(0), m.size(1))
    return m.floats("RESHAPE", m.x, m.pack(rows, "4"), rank=2)


def heads(m: Chain) -> int:
    b, t = m.size(0), m.size(1)
    split = m.floats("RESHAPE", m.x, m.pack(b, t, "2", "2"), rank=4)
    turned = m.floats("TRANSPOSE", split, m.const([0, 2, 1, 3]), rank=4)
    scores = m.floats("BATCH_MATMUL", turned, turned, rank=4, adj_y=True)
    context = m.floats("BATCH_MATMUL", m.floats("SOFTMAX", scores, rank=4, beta=1.0), turned, rank=4)
    back = m.floats("TRANSPOSE", context, m.const([0, 2, 1, 3]), rank=4)
    return m.floats("RESHAPE", back, m.pack(b, t, "4"))


def filled(m: Chain) -> int:
    zeros = m.floats("FILL", m.pack(m.size(0), m.size(1), "2"), m.const(0.5, "float32"))
    return m.floats("CONCATENATION", m.x, zeros, axis=-1)


def broadcast(m: Chain) -> int:
    row = m.const([[[1, 2, 3, 4]]], "float32")
    return m.floats("ADD", m.x, m.floats("BROADCAST_TO", row, m.sizes))


def broadcast_args(m: Chain) -> int:
    both = m.ints("BROADCAST_ARGS", m.sizes, m.const([1, 1, 4]), rank=1)
    return m.floats("MUL", m.x, m.floats("BROADCAST_TO", m.const([2, 3, 4, 5], "float32"), both))


def positions(m: Chain) -> int:
    steps = m.ints("RANGE", m.const(0), m.size(1), m.const(1), rank=1)
    column = m.floats("RESHAPE", m.floats("CAST", steps, rank=1), m.pack("1", "-1", "1"))
    return m.floats("ADD", m.x, column)


def embedded(m: Chain) -> int:
    table = m.const(np.random.default_rng(1).normal(size=(16, 4)), "float32")
    steps = m.ints("RANGE", m.const(0), m.size(1), m.const(1), rank=1)
    return m.floats("ADD", m.x, m.floats("EXPAND_DIMS", m.floats("GATHER", table, steps, rank=2, axis=0), m.const(0)))


def first_rows(m: Chain) -> int:
    table = m.const(np.random.default_rng(2).normal(size=(1, 16, 4)), "float32")
    end = m.pack("1", m.size(1), "4")
    rows = m.floats("STRIDED_SLICE", table, m.const([0, 0, 0]), end, m.const([1, 1, 1]), begin_mask=5, end_mask=5)
    return m.floats("ADD", m.x, rows)


def tiled(m: Chain) -> int:
    one = m.const([1])
    counts = [m.ints("EXPAND_DIMS", m.size(axis), m.const(0), rank=1) for axis in (0, 1)]
    times = m.ints("CONCATENATION", *counts, one, rank=1, axis=0)
    return m.floats("MUL", m.x, m.floats("TILE", m.const([[[1, -1, 2, -2]]], "float32"), times))


def half(m: Chain) -> int:
    t = m.ints("MAXIMUM", m.ints("FLOOR_DIV", m.size(1), m.const(2)), m.const(1))
    return m.floats("STRIDED_SLICE", m.x, m.const([0, 0, 0]), m.pack(m.size(0), t, "4"), m.const([1, 1, 1]))


def padded(m: Chain) -> int:
    left = m.ints("FLOOR_MOD", m.ints("SUB", m.const(8), m.ints("FLOOR_MOD", m.size(1), m.const(8))), m.const(8))
    pair = m.pack("0", left)
    none = m.const([0, 0])
    paddings = m.op("PACK", [none, pair, none], (3, 2), dtype="int32", options={"values_count": 3, "axis": 0})
    whole = m.floats("PAD", m.x, paddings)
    b = m.size(0)
    windows = m.ints("FLOOR_DIV", m.ints("ADD", m.size(1), left), m.const(8))
    return m.floats("RESHAPE", whole, m.pack(m.ints("MUL", b, windows), "8", "4"))


def product(m: Chain) -> int:
    count = m.ints("REDUCE_PROD", m.sizes, m.const([0]), rank=1, keep_dims=True)
    return m.floats("RESHAPE", m.x, count, rank=1)


def gathered(m: Chain) -> int:
    turned = m.ints("GATHER", m.sizes, m.const([1, 0, 2]), rank=1, axis=0)
    ones = m.floats("FILL", turned, m.const(1.0, "float32"))
    return m.floats("ADD", m.floats("TRANSPOSE", m.x, m.const([1, 0, 2])), ones)


def by_scale(m: Chain) -> int:
    image = m.floats("EXPAND_DIMS", m.x, m.const(0), rank=4)  # [1, b, t, 4]
    sizes = m.ints("SHAPE", image, rank=1, out_type="INT32")
    wanted = m.ints("STRIDED_SLICE", sizes, m.const([1]), m.const([3]), m.const([1]), rank=1)
    larger = m.floats(
        "FLOOR", m.floats("MUL", m.floats("CAST", wanted, rank=1), m.const([1.5, 2], "float32"), rank=1), rank=1
    )
    return m.floats("RESIZE_NEAREST_NEIGHBOR", image, m.ints("CAST", larger, rank=1), rank=4)


def wide_integers(m: Chain) -> int:
    sizes = m.ints("SHAPE", m.x, rank=1, dtype="int64", out_type="INT64")
    bounds = [m.const([each]) for each in (0, 2, 1)]
    two = m.ints("STRIDED_SLICE", sizes, *bounds, rank=1, dtype="int64")
    rows = m.ints("REDUCE_PROD", two, m.const([0]), rank=1, dtype="int64", keep_dims=True)
    whole = m.ints("CONCATENATION", rows, m.const([4], "int64"), rank=1, dtype="int64", axis=0)
    return m.floats("RESHAPE", m.x, m.ints("CAST", whole, rank=1), rank=2)


def unpacked(m: Chain) -> int:
    b, t, c = m.parts("UNPACK", m.sizes, sizes=[()] * 3, num=3, axis=0)
    return m.floats("RESHAPE", m.x, m.pack(m.ints("MUL", b, c), t), rank=2)


def split(m: Chain) -> int:
    parts = m.parts("SPLIT", m.const(0), m.sizes, sizes=[(1,)] * 3, num_splits=3)
    return m.floats("RESHAPE", m.x, m.ints("CONCATENATION", parts[2], parts[0], parts[1], rank=1, axis=0))


def split_v(m: Chain) -> int:
    outer, inner = m.parts("SPLIT_V", m.sizes, m.const([2, 1]), m.const(0), sizes=[(2,), (1,)], num_splits=2)
    rows = m.ints("REDUCE_PROD", outer, m.const(0))
    return m.floats("RESHAPE", m.x, m.ints("CONCATENATION", m.pack(rows), inner, rank=1, axis=0), rank=2)


def selected(m: Chain) -> int:
    is_one = m.ints("EQUAL", m.sizes, m.const([1, 1, 1]), rank=1, dtype="bool")
    sizes = m.ints("SELECT_V2", is_one, m.const([2, 2, 2]), m.sizes, rank=1)
    return m.floats("BROADCAST_TO", m.floats("MEAN", m.x, m.const([0, 1]), keep_dims=True), sizes)


def computed_axes(m: Chain) -> int:
    rank = m.ints("RANK", m.x)
    axes = m.ints("RANGE", m.const(1), rank, m.const(1), rank=1)
    centred = m.floats("SUB", m.x, m.floats("MEAN", m.x, axes, keep_dims=True))
    order = m.ints("REVERSE_V2", m.ints("RANGE", m.const(0), rank, m.const(1), rank=1), m.const([0]), rank=1)
    return m.floats("TRANSPOSE", centred, order)


def causal(m: Chain) -> int:
    t = m.size(1)
    steps = m.ints("RANGE", m.const(0), t, m.const(1), rank=1)
    rows, columns = (m.ints("RESHAPE", steps, m.const(shape), rank=2) for shape in ([-1, 1], [1, -1]))
    seen = m.ints("LESS_EQUAL", columns, rows, rank=2, dtype="bool")
    bias = m.floats("SELECT_V2", seen, m.const(0.0, "float32"), m.const(-1e4, "float32"), rank=2)
    scores = m.floats("BATCH_MATMUL", m.x, m.x, adj_y=True)
    return m.floats("BATCH_MATMUL", m.floats("SOFTMAX", m.floats("ADD", scores, bias), beta=1.0), m.x)


def transposed(m: Chain) -> int:
    image = m.floats("EXPAND_DIMS", m.x, m.const(1), rank=4)  # [b, 1, t, 4]
    weights = m.const(np.random.default_rng(3).normal(size=(3, 1, 2, 4)), "float32")
    shape = m.pack(m.size(0), "1", m.ints("MUL", m.size(1), m.const(2)), "3")
    options = {"padding": "SAME", "stride_w": 2, "stride_h": 1}
    return m.floats("TRANSPOSE_CONV", shape, weights, image, rank=4, **options)


def scattered(m: Chain) -> int:
    zeros = m.floats("FILL", m.sizes, m.const(0.0, "float32"))
    starts = m.pack("0", m.ints("SUB", m.size(1), m.const(1)), "0")
    last = m.floats("STRIDED_SLICE", m.x, starts, m.sizes, m.const([1, 1, 1]))
    return m.floats("DYNAMIC_UPDATE_SLICE", zeros, last, starts)


def one_hot(m: Chain) -> int:
    steps = m.ints("RANGE", m.const(0), m.size(1), m.const(1), rank=1)
    eye = m.floats("ONE_HOT", steps, m.size(1), m.const(1.0, "float32"), m.const(0.0, "float32"), rank=2, axis=-1)
    return m.floats("BATCH_MATMUL", m.floats("BROADCAST_TO", eye, m.pack(m.size(0), m.size(1), m.size(1))), m.x)


def scatter_nd(m: Chain) -> int:
    steps = m.ints("RESHAPE", m.ints("RANGE", m.const(0), m.size(0), m.const(1), rank=1), m.const([-1, 1]), rank=2)
    return m.floats("SCATTER_ND", steps, m.x, m.pack(m.ints("ADD", m.size(0), m.const(2)), m.size(1), "4"))


def arithmetic(m: Chain) -> int:
    t = m.ints("MINIMUM", m.ints("MUL", m.size(1), m.size(1)), m.ints("ABS", m.ints("NEG", m.const(6))))
    t = m.ints("SUB", m.ints("POW", t, m.const(2)), m.ints("MUL", t, m.ints("SUB", t, m.const(1))))
    return m.floats("BROADCAST_TO", m.floats("SUM", m.x, m.const([1]), keep_dims=True), m.pack(m.size(0), t, "4"))


def sums(m: Chain) -> int:
    total = m.ints("SUM", m.sizes, m.const([0]))
    largest = m.ints("REDUCE_MAX", m.sizes, m.const([0]))
    ends = m.ints("CUMSUM", m.sizes, m.const(0), rank=1)
    sizes = m.pack(total, largest, m.size(2, ends))
    return m.floats("FILL", sizes, m.floats("MEAN", m.x, m.const([0, 1, 2]), rank=0))


def like(m: Chain) -> int:
    ones = m.ints("ADD", m.ints("ZEROS_LIKE", m.sizes, rank=1), m.const(1), rank=1)
    corner = m.floats("STRIDED_SLICE", m.x, m.ints("ZEROS_LIKE", m.sizes, rank=1), ones, ones)
    return m.floats("ADD", m.floats("BROADCAST_TO", corner, m.sizes), m.x)


def reversed_half(m: Chain) -> int:
    t = m.size(1)
    begin = m.pack("0", m.ints("FLOOR_DIV", t, m.const(2)), "0")
    rest = m.floats("STRIDED_SLICE", m.x, begin, m.sizes, m.const([1, 1, 1]))
    return m.floats("REVERSE_V2", rest, m.const([1]))


def squeezed(m: Chain) -> int:
    end = m.pack(m.size(0), m.size(1), "2")
    column = m.floats("STRIDED_SLICE", m.x, m.const([0, 0, 1]), end, m.const([1, 1, 1]))
    row = m.floats("SQUEEZE", column, rank=2, squeeze_dims=(2,))
    sizes = m.ints("SHAPE", row, rank=1, out_type="INT32")
    return m.floats("RESHAPE", row, m.ints("GATHER", sizes, m.const([1, 0]), rank=1, axis=0), rank=2)


CHAINS: tuple[Callable[[Chain], int], ...] = (
    *(flat, heads, filled, broadcast, broadcast_args, positions, embedded, first_rows, tiled, half, padded, product),
    *(gathered, by_scale, wide_integers, unpacked, split, split_v, selected, computed_axes, causal, transposed),
    *(scattered, one_hot, scatter_nd, arithmetic, sums, like, reversed_half, squeezed),
)


def litert(content: bytes, x: np.ndarray) -> np.ndarray:
    interpreter = LiteRT(model_content=content)
    interpreter.resize_tensor_input(0, x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, x)
    interpreter.invoke()
    return np.array(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


@pytest.mark.parametrize("make", CHAINS, ids=lambda make: make.__name__)
def test_a_chain_on_sizes_is_whole_for_every_shape(make: Callable[[Chain], int]) -> None:
    chain = Chain()
    chain.output(make(chain))
    content = chain.finish()
    with jitdelegate.load(content, target="cpu", serialization_dir=False, num_threads=1) as model:
        for shape in SHAPES:
            x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
            found, expected = np.asarray(model(x)), litert(content, x)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        programs = [model._opened.program, *(one.program for one in model._specializations.further)]
        left = [(one.op, one.reason) for program in programs for one in program.operators if one.place == "litert"]
        assert (left, len(programs)) == ([], len(SHAPES))
