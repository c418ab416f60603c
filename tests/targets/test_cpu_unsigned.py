"""int8 tensors that the CPU stores as uint8: which ones, and that no result changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, Cast, Expr, binary, clamp, maximum, select
from jitdelegate.ir.forms import Concat, Contract, Depthwise, Form, IndexMap, Map, Pool, Reduce, Shape, View
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.quantized import Table, quantize, rescale
from jitdelegate.ir.verify import verify
from jitdelegate.targets.cpu.unsigned import store_unsigned
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.integer_graphs import feeds_of, whole_range
from tests.targets.levels import INTEGERS

IMAGE = (1, 5, 6, 8)
SAME = {"kernel": (3, 3), "padding": (1, 1, 1, 1), "accumulator": "int32", "input_zero": -5, "halo_value": -5}
ROUNDED = quantize(Cast(RESULT, "float32") * 0.002, "int8", 9, -100, 120)
TWICE = rescale(RESULT, 1 << 30, 39, "int8", output_zero=-3, low=-90)
FILLED = IndexMap((0, 1, 2, 3), (0, -1, 0, 0), (1, 1, 1, 1), fill=-7.0)


@dataclass
class Network:
    """A graph with one input x, int8, of shape IMAGE."""

    tensors: list[Tensor] = field(default_factory=lambda: [Tensor("x", IMAGE, "int8")])
    nodes: list[Node] = field(default_factory=list)

    def constant(self, shape: Shape, dtype: str = "int8") -> int:
        self.tensors.append(Tensor("c", shape, dtype, whole_range(shape, dtype, len(self.tensors))))
        return len(self.tensors) - 1

    def add(self, form: Form, inputs: Sequence[int], shape: Shape = IMAGE, dtype: str = "int8") -> int:
        extra = len(inputs) - form.core
        if extra and not form.operands:
            maps = tuple(IndexMap.broadcast(self.tensors[i].shape, shape) for i in inputs[form.core :])
            form = replace(form, operands=maps) if form.takes_epilogue else form
        self.tensors.append(Tensor(f"t{len(self.tensors)}", shape, dtype))
        self.nodes.append(Node("TEST", tuple(inputs), (len(self.tensors) - 1,), form=form))
        return len(self.tensors) - 1

    def conv(self, data: int, epilogue: Expr = ROUNDED, *extra: int) -> int:
        weights = self.constant((8, 3, 3, 8))
        return self.add(Contract(**SAME, epilogue=epilogue), (data, weights, ABSENT, *extra))

    def graph(self, *outputs: int) -> Graph:
        graph = Graph(tuple(self.tensors), tuple(self.nodes), (0,), outputs)
        verify(graph, "test")
        return graph


def unsigned(graph: Graph) -> set[str]:
    """Names of the tensors that became uint8; nothing that is computed changed."""
    changed, feeds = store_unsigned(graph), feeds_of(graph)
    verify(changed, "storing unsigned")
    for found, expected in zip(run_graph(changed, feeds), run_graph(graph, feeds), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    return {tensor.name for tensor in changed.tensors if tensor.dtype == "uint8"}


def between(form: Form, *more: int, net: Network | None = None) -> set[str]:
    """What becomes uint8 of the form's operand and result, both of which convolutions read."""
    net = net or Network()
    first = net.conv(0)
    middle = net.add(form, (first, *more))
    return unsigned(net.graph(net.conv(middle), net.conv(first))) & {net.tensors[first].name, net.tensors[middle].name}


def test_what_products_read_between_kernels_is_unsigned() -> None:
    net = Network()
    first = net.conv(0)
    last = net.conv(net.conv(first, TWICE))
    assert unsigned(net.graph(last)) == {"x as uint8", "t2", "t4"}
    assert unsigned(net.graph(last, first)) == {"x as uint8", "t4"}


NUMBER = Cast(Arg(0), "int32")
ENTRIES = tuple(int(entry) for entry in np.random.default_rng(1).integers(-128, 128, 256))


@pytest.mark.parametrize(
    "epilogue",
    [
        Arg(0),
        Table(Arg(0), ENTRIES, "int8"),
        rescale(Arg(0), 1 << 30, 31, "int8", input_zero=3, output_zero=-9),
        Cast(clamp(NUMBER * 3 - 17, -128, 127), "int8"),
        Cast(Cast(Arg(0), "float32") * 0.3, "int8"),
        Cast(Cast(Arg(0), "int16"), "int8"),
        maximum(Arg(0), 4),
        select(binary("gt", NUMBER, 0), Arg(0), Cast(NUMBER * -1, "int8")),
        binary("and", Arg(0), 15),
        quantize(Cast(Arg(0), "float32") * 0.7, "int8", 1),
    ],
    ids=str,
)  # fmt: skip
def test_elementwise_work_reads_and_writes_either(epilogue: Expr) -> None:
    assert between(Map(epilogue, (IndexMap.broadcast(IMAGE, IMAGE),))) == {"t2", "t3"}


@pytest.mark.parametrize(
    "form",
    [
        Map(Arg(0), (FILLED,)),
        Pool(kind="max", kernel=(3, 3), padding=(1, 1, 1, 1)),
        Pool(kind="max", kernel=(3, 3), padding=(1, 1, 1, 1), halo_value=-20),
    ],
    ids=["pad", "pool", "padded pool"],
)
def test_forms_that_move_elements_do_too(form: Form) -> None:
    assert between(form) == {"t2", "t3"}


def test_a_depthwise_window_reads_either() -> None:
    net = Network()
    filters = net.constant((1, 3, 3, 8))
    assert between(Depthwise(**SAME, epilogue=ROUNDED), filters, ABSENT, net=net) == {"t3", "t4"}


def test_an_average_reads_int8() -> None:
    mean = Pool(kind="mean", kernel=(3, 3), padding=(1, 1, 1, 1), accumulator="int32", epilogue=Cast(RESULT, "int8"))
    assert between(mean) == {"t3"}


def test_sums_and_residuals_read_either() -> None:
    net = Network()
    first = net.conv(0)
    total = net.add(Reduce(kind="sum", axes=(1, 2), accumulator="int32"), (first,), (1, 1, 1, 8), "int32")
    most = net.add(Reduce(kind="max", axes=(1, 2)), (first,), (1, 1, 1, 8))
    both = Cast(ROUNDED, "int32") + Cast(Arg(1), "int32") + Arg(2)
    last = net.conv(first, quantize(Cast(both, "float32") * 0.01, "int8"), first, total)
    assert unsigned(net.graph(last, most)) == {"x as uint8", "t2"}


def test_views_and_concatenations_go_together() -> None:
    net = Network()
    parts = [net.conv(0), net.conv(0)]
    both = net.add(Concat(axis=1), parts, (1, 10, 6, 8))
    rows = net.add(View(), (both,), (60, 8))
    matrix = net.constant((4, 8))
    last = net.add(Contract(accumulator="int32"), (rows, matrix, ABSENT), (60, 4), "int32")
    assert unsigned(net.graph(last)) == {"x as uint8", "t2", "t4", "t5", "t6"}
    assert unsigned(net.graph(last, parts[1])) == {"x as uint8"}


@pytest.mark.parametrize("features", [each for each in INTEGERS if each.endswith("vnni")])
def test_kernels_compute_with_unsigned_tensors(features: str) -> None:
    net = Network()
    first = net.conv(0)
    pooled = net.add(Pool(kind="max", kernel=(3, 3), padding=(1, 1, 1, 1)), (first,))
    again = net.add(Depthwise(**SAME, epilogue=ROUNDED), (pooled, net.constant((1, 3, 3, 8)), ABSENT))
    both = net.add(Concat(axis=1), (net.conv(pooled), net.conv(again, Table(ROUNDED, ENTRIES, "int8"))), (1, 10, 6, 8))
    weights = net.constant((8, 3, 3, 8))
    last = net.add(Contract(**SAME, epilogue=ROUNDED), (both, weights, ABSENT), (1, 10, 6, 8))
    graph = net.graph(last)
    (found,), (expected,) = (run(graph, feeds_of(graph)) for run in (lambda g, x: execute(g, x, features), run_graph))
    np.testing.assert_array_equal(found, expected)
