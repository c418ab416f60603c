"""Transposes on the CPU: every permutation, size and type against numpy, in memory between protected pages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import Graph
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.passes.lower import lower
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.targets.cpu.code.kernel import Job
from jitdelegate.targets.cpu.forms.transpose import TransposeWriter
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute, program_of
from tests.targets.fenced import Machine
from tests.targets.test_cpu_graphs import RUNNABLE, Network

Shape = tuple[int, ...]
DTYPES = ("float32", "int8", "int16", "int32", "int64", "bool", "float16")
EDGES = (2, 3, 5, 8, 15, 17, 33, 67)
"""Sizes around the blocks of all levels and types."""

fences = pytest.mark.skipif(sys.platform != "linux", reason="protects pages through libc")


def transpose(shape: Shape, order: Sequence[int], dtype: str) -> tuple[Graph, np.ndarray, np.ndarray]:
    """The lowered graph, its input and its output."""
    case, op = Case((Fed(shape, dtype), ints(*order)), low=-120, high=120), OPS["TRANSPOSE"]
    (feed,), (expected,) = case.feeds(), case.outputs(op)
    return lower(case.graph(op)), feed, expected


def assert_transposes(shape: Shape, order: Sequence[int], dtype: str, features: str, threads: int = 1) -> None:
    graph, feed, expected = transpose(shape, order, dtype)
    program = program_of(graph, generate(graph, features), features)
    for at_end in (False, True):
        machine = Machine(graph, program, threads, at_end=at_end)
        try:
            (found,) = machine.run([feed])
        finally:
            machine.close()
        assert found.tobytes() == expected.tobytes(), (shape, tuple(order), dtype, features, at_end)


@fences
@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_permutations_are_numpys(features: str, dtype: str) -> None:
    random = np.random.default_rng(DTYPES.index(dtype))
    for _ in range(15):
        rank = int(random.integers(1, 7))
        largest = {1: 99, 2: 99, 3: 40, 4: 17, 5: 9, 6: 6}[rank]
        shape = tuple(int(size) for size in random.integers(1, largest + 1, rank))
        assert_transposes(shape, [int(axis) for axis in random.permutation(rank)], dtype, features)


@fences
@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("rows", EDGES)
def test_matrices_of_all_sizes_around_a_block(features: str, rows: int) -> None:
    for columns in EDGES:
        dtype = DTYPES[(rows + columns) % len(DTYPES)]
        for each in dict.fromkeys(("float32", dtype)):
            assert_transposes((rows, columns), (1, 0), each, features)


@fences
@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("few", (2, 3, 4))
@pytest.mark.parametrize("dtype", ("float32", "int8", "int16", "int64"))
def test_a_few_long_rows_are_interleaved_and_separated(features: str, few: int, dtype: str) -> None:
    for many in (64, 77, 200):
        assert_transposes((2, few, many), (0, 2, 1), dtype, features)
        assert_transposes((2, many, few), (0, 2, 1), dtype, features)


@fences
@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("rows", [5, 16, 40])
def test_whole_lines_are_read_of_bytes_in_rows_that_compete_for_lines(
    features: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks, write = set[tuple[int, int]](), TransposeWriter.job

    def job(writer: TransposeWriter) -> Job:
        blocks.add((writer.along.size, writer.across.size))
        return write(writer)

    monkeypatch.setattr(TransposeWriter, "job", job)
    assert_transposes((rows, 4096), (1, 0), "int8", features)
    assert blocks == {(4 if rows == 5 else 16, 64)}


@fences
@pytest.mark.parametrize("features", RUNNABLE)
def test_threads_share_a_large_transpose(features: str) -> None:
    assert_transposes((300, 333), (1, 0), "float32", features, threads=3)
    assert_transposes((2, 90, 5, 70), (0, 3, 1, 2), "float32", features, threads=3)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("shape", [(48, 21), (67, 64), (3, 5, 32), (64, 3)])
def test_memory_of_the_caller_may_begin_anywhere(features: str, shape: Shape) -> None:
    order = (1, 0) if len(shape) == 2 else (2, 1, 0)
    graph, feed, expected = transpose(shape[::-1], order, "float32")
    session = Session(program_of(graph, generate(graph, features), features), 1)
    room = np.empty(feed.nbytes + 128, np.uint8), np.full(expected.nbytes + 128, 77, np.uint8)
    try:
        for offset in range(0, 64, 4):
            source, target = (-array.ctypes.data % 64 + offset for array in room)
            room[0][source : source + feed.nbytes] = np.frombuffer(feed.tobytes(), np.uint8)
            room[1][:] = 77
            session.run_on([room[0].ctypes.data + source, room[1].ctypes.data + target])
            assert room[1][target : target + expected.nbytes].tobytes() == expected.tobytes(), offset
            assert {*room[1][:target], *room[1][target + expected.nbytes :]} == {77}, offset
    finally:
        session.close()


@pytest.mark.parametrize(
    ("shape", "order"),
    [((1, 3136, 512), (0, 2, 1)), ((1, 56, 56, 512), (0, 3, 1, 2)), ((1, 224, 224, 3), (0, 3, 1, 2)),
     ((1, 64, 2, 2, 64, 64), (0, 1, 4, 2, 5, 3)), ((1, 12, 64, 197), (0, 3, 1, 2))],
)  # fmt: skip
def test_a_transpose_of_vectors_is_one_kernel_of_blocks(shape: Shape, order: Shape) -> None:
    graph, _, _ = transpose(shape, order, "float32")
    (kernel,) = generate(graph, "x86-64-v4").kernels
    assert kernel.name.startswith("transpose")


@pytest.mark.parametrize("order", [order for order in permutations(range(3)) if order[2] != 2])
@pytest.mark.parametrize("shape", [(20, 35, 9), (3, 40, 50), (70, 2, 5), (4, 3, 90)])
def test_elementwise_work_is_fused_with_a_transpose(shape: Shape, order: Shape) -> None:
    """x transposed, and multiplied with itself; a vector and a constant along the output, and one across it."""
    net = Network(np.random.default_rng(0))
    x = net.input(*shape)
    out = tuple(shape[axis] for axis in order)
    along, across, whole = net.input(out[2]), net.input(out[0], out[1], 1), net.input(*out)
    turned = net.op("TRANSPOSE", x, net.integers(*order), shape=out)
    y = net.op("ADD", net.op("MUL", turned, turned, shape=out), along, shape=out)
    y = net.op("ADD", net.op("EXP", y, shape=out), across, shape=out)
    first, second = net.graph(y), None
    net.nodes = net.nodes[:1]
    second = net.graph(net.op("MAXIMUM", net.op("MUL", turned, net.weights(1), shape=out), whole, shape=out))
    for graph, kernels in ((first, 1), (second, 1)):
        lowered = passes.run(graph)
        assert len(lowered.nodes) == kernels
        feeds = [np.random.default_rng(1).normal(0, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
        (expected,) = run_graph(lowered, feeds)
        for features in RUNNABLE:
            (found,) = execute(lowered, feeds, features)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
