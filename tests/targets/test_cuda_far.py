"""Tensors of almost 2**31 bytes, or of 2**30 elements, which is as far as kernels count: the first and last blocks run
on memory that is there only where it is touched, and the last rows are what they are in a small tensor."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import Concat, Contract, Depthwise, Form, IndexMap, Map, MatMul, Pool, Reduce, Resize, Softmax
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.index_forms import ArgReduce, Gather, Scan, TopK
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cuda.code import writer
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.code.writer import LARGEST_MEMORY, LARGEST_NUMBER
from jitdelegate.targets.cuda.plan.plan import MOST_ELEMENTS, plan
from jitdelegate.targets.reference.evaluate import run_graph
from tests.gpu.simulator import Memory, Module, SimulationError
from tests.gpu.simulator import module as simulator
from tests.gpu.simulator.memory import ALIGNMENT, BASE, GUARD
from tests.gpu.simulator.types import UNSIGNED
from tests.targets.cuda_execute import _value, ptx_of
from tests.targets.index_graphs import numbers
from tests.targets.test_in_place import Draft

NO_RESERVE = 0x4000
"""Linux's MAP_NORESERVE: there may be less memory than addresses."""
FEW = 5
"""Rows of the small tensors; the last one is compared."""


class FarMemory(Memory):
    """Memory in which only places that are touched take room; they are zeros, and nobody asks who wrote there."""

    def __init__(self) -> None:
        super().__init__()
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        self.data = np.frombuffer(mmap.mmap(-1, 5 * LARGEST_MEMORY, flags), np.uint8)

    def allocate(self, nbytes: int) -> int:
        start = self.top
        self.top = -(-(start + nbytes + GUARD) // ALIGNMENT) * ALIGNMENT
        self.allocations.append((start, nbytes))
        return BASE + start

    def _span(self, address: int, nbytes: int) -> slice:
        return slice(address - BASE, address - BASE + nbytes)

    def locate(self, group: Any, addresses: Any, total: int, verb: str) -> Any:
        offsets = super().locate(group, addresses, total, verb)
        starts, sizes = np.array(self.allocations).T
        at = np.maximum(np.searchsorted(starts, offsets, "right") - 1, 0)
        outside = (offsets < starts[at]) | (offsets + total > starts[at] + sizes[at])
        if outside.any():
            self._refuse(group, addresses, outside, "out of bounds", f"{verb} {total} bytes at")
        return offsets

    def load(self, group: Any, addresses: Any, width: int, count: int) -> Any:
        first = self.locate(group, addresses, width * count, "reads") // width
        return [self.data.view(UNSIGNED[width])[first + column] for column in range(count)]

    def store(self, group: Any, addresses: Any, width: int, columns: Any) -> None:
        first = self.locate(group, addresses, width * len(columns), "writes") // width
        for column, values in enumerate(columns):
            self.data.view(UNSIGNED[width])[first + column] = values


def outermost(launch: Any, rng: object) -> Iterator[np.ndarray]:
    """The blocks of `few_blocks`."""
    x, y, z = ({0, max(size - 2, 0), size - 1} for size in launch.grid)
    width, height, _ = launch.grid
    yield np.array(sorted(i + width * (j + height * k) for i, j, k in product(x, y, z)))


def each(rank: int, *, reverse: int = 0) -> IndexMap:
    """Every element where it is, the last axis backwards if its size is given."""
    dims = tuple(range(rank))
    return IndexMap(dims, (*(0,) * (rank - 1), max(reverse - 1, 0)), (*(1,) * (rank - 1), -1 if reverse else 1))


def rowwise(form: Form, row: tuple[int, ...], result: tuple[int, ...], dtype: str = "float32", **further: Any) -> Any:
    """A node of one data operand, by its number of rows, and the bytes of a row."""
    made = further.pop("made", dtype)

    def graph(rows: int) -> Graph:
        tensors = [Tensor("data", (rows, *row), dtype), Tensor("made", (rows, *result), made)]
        tensors += [Tensor(name, value.shape, value.dtype.name, value) for name, value in further.items()]
        absent = (ABSENT,) if isinstance(form, Contract | Depthwise) else ()
        inputs = (0, *range(2, len(tensors)), *absent)
        return Graph(tuple(tensors), (Node("OP", inputs, (1,), form=form),), (0,), (1,))

    sizes = ((row, dtype), (result, made))
    return graph, max(int(np.prod(shape)) * ELEMENT_TYPES[kind].nbytes for shape, kind in sizes)


PADDED: Any = {"kernel": (3, 3), "padding": (1, 1, 1, 1)}
CASES: dict[str, Any] = {
    "map": rowwise(Map(Arg(0) + Arg(0), (each(2),)), (7,), (7,)),
    "map of bytes": rowwise(Map(Arg(0), (each(2, reverse=8),)), (8,), (8,), "int8"),
    "map backwards": rowwise(Map(Arg(0), (each(2, reverse=33),)), (33,), (33,)),
    "transpose": rowwise(Map(Arg(0), (IndexMap((0, 2, 1), (0, 0, 0), (1, 1, 1)),)), (5, 3), (3, 5)),
    "sum": rowwise(Reduce(kind="sum", axes=(1,)), (9,), (1,)),
    "mean of images": rowwise(Reduce(kind="mean", axes=(1, 2)), (3, 3, 8), (1, 1, 8)),
    "softmax": rowwise(Softmax(), (33,), (33,)),
    "index of the largest": rowwise(ArgReduce(axis=1), (9,), (1,), made="int32"),
    "largest": rowwise(TopK(), (9,), (3,), made="int32"),
    "running sum": rowwise(Scan(axis=1), (9,), (9,)),
    "pool": rowwise(Pool(kernel=(2, 2), stride=(2, 2)), (8, 8, 4), (4, 4, 4)),
    "resize": rowwise(Resize(), (4, 4, 4), (9, 9, 4)),
    "contract": rowwise(Contract(**PADDED), (8, 8, 12), (8, 8, 16), weights=numbers((16, 3, 3, 12))),
    "product": rowwise(Contract(), (64,), (32,), weights=numbers((32, 64))),
    "depthwise": rowwise(Depthwise(**PADDED), (8, 8, 12), (8, 8, 12), weights=numbers((1, 3, 3, 12))),
    "matmul": rowwise(MatMul(), (24, 40), (24, 16), other=numbers((1, 40, 16))),
}


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last block along each axis of a grid run, and the one before the last."""
    monkeypatch.setattr(simulator._Launch, "_batches", outermost)


def run_far(graph: Graph, feeds: dict[int, tuple[int, np.ndarray]], precision: str = "float32") -> Callable[..., Any]:
    """Runs a graph on inputs of zeros.

    Args:
        feeds: by input, numbers and the byte at which they begin there.
    Returns:
        (byte of the output, type, shape) -> numbers there.
    """
    planned, memory = plan(graph, GPUS["sm_80"], precision), FarMemory()
    places = {index: memory.allocate(max(1, size)) for index, (_, size) in planned.blocks.items()}
    addresses = {index: places[root] for index, root in planned.buffers.items() if root in places} | places
    weights = memory.keep(memory.place(np.frombuffer(planned.writer.weights.content or bytes(16), np.uint8)))
    for index, (start, array) in feeds.items():
        memory.write(addresses[index] + start, array)
    for launch in planned.launches:
        Module(ptx_of(launch.template, "sm_80")).launch(
            launch.template.symbol,
            grid=launch.grid,
            block=(launch.template.threads, 1, 1),
            arguments=[_value(argument, addresses, weights, 0) for argument in launch.arguments],
            shared_bytes=launch.shared_bytes,
            memory=memory,
            check_races=False,
        )
    (output,) = graph.outputs
    return lambda start, dtype, shape: memory.array(addresses[output] + start, dtype, shape)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_the_last_rows_of_the_largest_tensors_are_those_of_a_small_one(name: str, precision: str) -> None:
    graph, row_bytes = CASES[name]
    most = (MOST_ELEMENTS if "bytes" in name else LARGEST_MEMORY - 1) // row_bytes
    near, feed = graph(FEW), numbers(graph(FEW).tensors[0].shape, graph(FEW).tensors[0].dtype)
    found = run_far(graph(most), {0: ((most - FEW) * (feed.nbytes // FEW), feed)}, precision)
    (expected,) = run_graph(near, [feed])
    last = found((most - 1) * expected[-1].nbytes, expected.dtype, expected.shape[1:])
    tolerance = {"float32": 1e-5, "float16": 2e-2}[precision] if expected.dtype == np.float32 else 0
    np.testing.assert_allclose(last, expected[-1], rtol=tolerance, atol=tolerance)
    assert expected[-1].any()


def test_past_the_limit_a_kernel_loses_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LARGEST_MEMORY", 2 * LARGEST_MEMORY)
    graph, row_bytes = CASES["map"]
    with pytest.raises(SimulationError, match="out of bounds"):
        run_far(graph((2 * LARGEST_MEMORY - 1) // row_bytes), {})


ROWS, DEPTH = (LARGEST_MEMORY - 1) // 28, 7
ROW = numbers((1, DEPTH), "float32")
LAST = (ROWS - 1) * ROW.nbytes


def test_the_last_row_of_the_largest_table_is_gathered() -> None:
    draft = Draft()
    data, places = draft.given((ROWS, DEPTH)), draft.given((2, 1), "int32")
    graph = draft.graph(draft.node(Gather(), (data, places), (2, DEPTH)))
    found = run_far(graph, {data: (LAST, ROW), places: (0, np.int32([[ROWS - 1], [0]]))})
    np.testing.assert_array_equal(found(0, "float32", (2, DEPTH)), np.concatenate([ROW, np.zeros((1, DEPTH))]))


def test_the_last_row_of_the_largest_cache_is_updated() -> None:
    draft = Draft()
    data, row, start = draft.given((ROWS, DEPTH)), draft.given((1, DEPTH)), draft.given((2,), "int32")
    found = run_far(
        draft.graph(draft.update(data, row, start)), {row: (0, ROW), start: (0, np.int32([LARGEST_NUMBER, 0]))}
    )
    np.testing.assert_array_equal(found(LAST, "float32", (1, DEPTH)), ROW)


def test_rows_are_joined_at_the_end_of_the_largest_tensor() -> None:
    draft = Draft()
    first, second = draft.given((3, DEPTH)), draft.given((ROWS - 3, DEPTH))
    graph = draft.graph(draft.node(Concat(axis=0), (first, second), (ROWS, DEPTH)))
    found = run_far(graph, {second: (LAST - 3 * ROW.nbytes, ROW)})
    np.testing.assert_array_equal(found(LAST, "float32", (1, DEPTH)), ROW)


def test_the_last_column_of_the_longest_rows_is_summed() -> None:
    draft, columns = Draft(), (LARGEST_MEMORY - 1) // 12
    data = draft.given((3, columns))
    graph = draft.graph(draft.node(Reduce(kind="sum", axes=(0,)), (data,), (1, columns)))
    found = run_far(graph, {data: (12 * columns - ROW.nbytes, ROW)})
    np.testing.assert_array_equal(found(4 * columns - ROW.nbytes, "float32", (1, DEPTH)), ROW)
