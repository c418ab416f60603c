"""Maps of bytes on the CPU, on each instruction set, against the reference target: whole registers and what is left."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, clamp, select
from jitdelegate.ir.forms import Concat, Form, IndexMap, Map
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ir.quantized import Table, quantize, rescale
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.elementwise_graphs import of_elements
from tests.targets.execute import execute, program_of
from tests.targets.integer_graphs import whole_range
from tests.targets.levels import INTEGERS, RUNNABLE

LENGTHS = (7, 64, 397)
RANDOM = np.random.default_rng(3)
TABLES = {
    dtype: tuple(RANDOM.integers(*limits, 256).tolist())
    for dtype, limits in (("int8", (-128, 128)), ("uint8", (0, 256)))
}


def check(graph: Graph, feeds: list[np.ndarray], features: str) -> None:
    for found, expected in zip(execute(graph, feeds, features), run_graph(graph, feeds), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def floats(size: int) -> np.ndarray:
    """Halves between and beyond all bytes, and numbers that no integer has."""
    found = np.resize(np.arange(-300, 300, 0.5, np.float32), size)
    special = [np.inf, -np.inf, 3e9, -3e9, -32768.5, 33000, -33000][:size]
    found[: len(special)] = special
    return found


def values(size: int, dtype: str, seed: int) -> np.ndarray:
    return floats(size) if dtype == "float32" else whole_range((size,), dtype, seed)


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("size", [1, 64])
def test_the_lowest_number_stands_for_nan(size: int, features: str) -> None:
    graph = of_elements(quantize(Arg(0), "int8", 5, -100, 90), ["float32"], size)
    (found,) = execute(graph, [np.full(size, np.nan, np.float32)], features)
    assert set(found.tolist()) == {-100}


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize(
    "dtype, zero, low, high",
    [
        ("int8", 0, -128, 127),
        ("int8", -128, -128, 127),
        ("int8", 127, -5, 100),
        ("uint8", 255, 0, 255),
        ("uint8", 3, 3, 200),
        ("int16", 0, -32768, 32767),
        ("int16", 5, -32768, 7),
    ],
)
def test_floats_are_quantized(dtype: str, zero: int, low: int, high: int, features: str) -> None:
    for rounding in ("even", "away"):
        for size in LENGTHS:
            expr = quantize(Arg(0), dtype, zero, low, high, rounding)
            check(of_elements(expr, ["float32"], size), [floats(size)], features)


WIDE = Cast(Arg(0), "int32") * 70001
EXPRESSIONS = {
    "clamped": (Cast(clamp(WIDE + Const(3), -128, 127), "int8"), ("int8",)),
    "clamped to fewer": (Cast(clamp(WIDE, 7, 99), "uint8"), ("uint8",)),
    "clamped from int16": (Cast(clamp(WIDE, -5, 127), "int8"), ("int16",)),
    "wrapped": (Cast(WIDE, "int8"), ("int8",)),
    "sum": (
        Cast(
            clamp(
                binary("shift_right", (Cast(Arg(0), "int32") - 3) * 70001 + (Cast(Arg(1), "int32") + 5) * 50002, 17)
                + 4,
                -128,
                127,
            ),
            "int8",
        ),
        ("int8", "int8"),
    ),
    "product": (
        quantize(Cast((Cast(Arg(0), "int32") - 3) * Cast(Arg(1), "int32"), "float32") * 0.013, "uint8", 7),
        ("uint8",) * 2,
    ),
    "dequantized": (Cast(Cast(Arg(0), "int32") - 9, "float32") * 0.25, ("uint8",)),
    "quantized": (quantize(Arg(0) * 0.7, "int8", 3), ("float32",)),
    "selected": (select(binary("lt", Arg(0), Arg(1)), Arg(0), Arg(1)), ("uint8", "uint8")),
    "compared": (binary("ge", Arg(0), Arg(1)), ("int8", "int8")),
    "table": (Table(Arg(0), TABLES["int8"], "int8"), ("int8",)),
    "table of others": (Table(Arg(0), TABLES["uint8"], "uint8"), ("int8",)),
    "table of int16": (Table(Arg(0), tuple(range(-12800, 12800, 100)), "int16"), ("uint8",)),
    "table of a table": (Table(Table(Arg(0), TABLES["uint8"], "uint8"), TABLES["int8"], "int8"), ("uint8",)),
    "table of a sum": (
        Table(quantize(Cast(Arg(0), "float32") * 0.7 + Arg(1), "int8", 3), TABLES["int8"], "int8"),
        ("int8", "float32"),
    ),
    "sum of functions of a byte": (
        quantize(
            Cast(rescale(Cast(Arg(0), "int32") - 3, 1518500250, 29, "int8", output_zero=-7), "float32") * 0.3
            + Cast(rescale(Cast(Arg(1), "int32") + 5, 1518500250, 31, "uint8", output_zero=9), "float32") * 0.7,
            "int8",
            5,
        ),
        ("int8", "uint8"),
    ),
    "sum of tables": (
        Cast(clamp(Cast(Table(Arg(0), TABLES["int8"], "int8"), "int32") + Cast(Arg(1), "int32"), -128, 127), "int8"),
        ("int8", "int8"),
    ),
}


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_bytes_are_calculated_with(name: str, features: str) -> None:
    expr, types = EXPRESSIONS[name]
    for size in LENGTHS:
        feeds = [values(size, dtype, number) for number, dtype in enumerate(types)]
        check(of_elements(expr, types, size), feeds, features)


@pytest.mark.parametrize("features", ["x86-64-v3", "x86-64-v4", "x86-64-v4-vbmi"])
def test_long_functions_of_a_byte_within_others_are_looked_up(features: str) -> None:
    expr, types = EXPRESSIONS["sum of functions of a byte"]
    texts = dict[str, str]()
    generate(of_elements(expr, types, 512), features, lambda stage, make: texts.update({stage: make()}))
    look_ups = ("vpermi2b", "vpermt2b") if features.endswith("vbmi") else ("vpshufb",)
    assert any(name in texts["assembly"] for name in look_ups)
    assert "vpmaddwd" not in texts["assembly"]


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("source", ["int8", "uint8"])
def test_every_byte_is_looked_up(source: str, features: str) -> None:
    every = np.arange(256, dtype=np.uint8).view(source)
    for dtype, entries in TABLES.items():
        check(of_elements(Table(Arg(0), entries, dtype), [source], 256), [every], features)


def moved(form: Form, feeds: list[np.ndarray], shape: tuple[int, ...]) -> Graph:
    tensors = [Tensor(f"x{number}", feed.shape, str(feed.dtype)) for number, feed in enumerate(feeds)]
    inputs = tuple(range(len(feeds)))
    node = Node("TEST", inputs, (len(feeds),), form=form)
    return Graph((*tensors, Tensor("y", shape, tensors[0].dtype)), (node,), inputs, (len(feeds),))


ONES = (1, 1, 1, 1)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("channels", [3, 24, 75, 128])
def test_bytes_are_moved(channels: int, dtype: str, features: str) -> None:
    data, other = (whole_range((2, 5, 9, channels), dtype, seed) for seed in range(2))
    padded = IndexMap((0, 1, 2, 3), (0, -1, -2, -1), ONES, -7.0)
    cut = IndexMap((0, 1, 2, 3), (0, 1, 2, 1), (1, 1, 2, 1))
    strided = IndexMap((0, 1, 2, 3), (0, 0, 8, channels - 1), (1, 1, -1, -1))
    for order in ((0, 3, 1, 2), (0, 2, 1, 3), (3, 2, 1, 0)):
        turned = IndexMap(tuple(order.index(axis) for axis in range(4)), (0,) * 4, ONES)
        shape = tuple(data.shape[axis] for axis in order)
        check(moved(Map(Arg(0), (turned,)), [data], shape), [data], features)
    check(moved(Map(Arg(0), (padded,)), [data], (2, 7, 12, channels + 3)), [data], features)
    check(moved(Map(Arg(0), (cut,)), [data], (2, 4, 3, channels - 1)), [data], features)
    check(moved(Map(Arg(0), (strided,)), [data], (2, 5, 9, channels)), [data], features)
    check(moved(Concat(axis=3), [data, other], (2, 5, 9, 2 * channels)), [data, other], features)


def row(expr: Expr, types: tuple[str, str], features: str) -> None:
    """Rows of one operand with a row of another, and with one element for each row."""
    for size in (3, 64, 75, 200):
        whole = (4, 5, size)
        for part in ((size,), (4, 1, 1), (1, 5, size)):
            shapes = whole, part
            pairs = enumerate(zip(shapes, types, strict=True))
            feeds = [whole_range(shape, dtype, seed) for seed, (shape, dtype) in pairs]
            form = Map(expr, tuple(IndexMap.broadcast(shape, whole) for shape in shapes))
            check(moved(form, feeds, whole), feeds, features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_bytes_are_calculated_with_by_rows(features: str) -> None:
    row(*EXPRESSIONS["sum"], features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("name", ["table", "dequantized", "product", "quantized"])
def test_long_rows_may_begin_anywhere(name: str, features: str) -> None:
    """Operands and outputs begin at any byte of a cache line; the whole output is written, and nothing around it."""
    expr, types = EXPRESSIONS[name]
    graph = of_elements(expr, types, 2003)
    session = Session(program_of(graph, generate(graph, features), features), 1)
    feeds = [values(2003, dtype, number) for number, dtype in enumerate(types)]
    (expected,) = run_graph(graph, feeds)
    memory, sources = np.zeros(expected.nbytes + 256, np.uint8), [np.zeros(2003 * 4 + 256, np.uint8) for _ in feeds]
    for offset in range(0, 64, max(expected.itemsize, feeds[0].itemsize)):
        memory[:], first = 77, -memory.ctypes.data % 64 + offset
        for source, feed in zip(sources, feeds, strict=True):
            source[offset : offset + feed.nbytes] = feed.view(np.uint8)
        session.run_on([*(source.ctypes.data + offset for source in sources), memory.ctypes.data + first])
        assert memory[first : first + expected.nbytes].tobytes() == expected.tobytes()
        assert {*memory[:first], *memory[first + expected.nbytes :]} == {77}
    session.close()


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("shape", [(1, 12, 20, 3), (7, 5), (2, 11, 13, 3), (1, 1, 1, 3)], ids=str)
def test_pixels_of_few_channels_meet_a_constant_per_channel(shape: tuple[int, ...], features: str) -> None:
    """As many pixels as make up a row are computed together; 286 pixels of three channels leave none over."""
    expr, (dtype, _) = EXPRESSIONS["sum"]
    for ones in ((), (1,) * (len(shape) - 1)):
        constant = whole_range((*ones, shape[-1]), dtype, 1)
        tensors = (Tensor("x", shape, dtype), Tensor("c", constant.shape, dtype, constant), Tensor("y", shape, dtype))
        accesses = tuple(IndexMap.broadcast(tensor.shape, shape) for tensor in tensors[:2])
        graph = Graph(tensors, (Node("TEST", (0, 1), (2,), form=Map(expr, accesses)),), (0,), (2,))
        check(graph, [whole_range(shape, dtype, 0)], features)
