"""Index forms on the CPU, on every instruction set, against their numpy references."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import Contract, IndexMap, Map
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.index_forms import ArgReduce, Gather, Scan, TopK
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute, program_of
from tests.targets.fenced import Machine
from tests.targets.index_graphs import EXAMPLES, Example, graph_of, numbers
from tests.targets.levels import RUNNABLE


def check(example: Example, features: str, threads: int = 1) -> np.ndarray:
    form, feeds, shape, dtype = example
    graph = graph_of(form, feeds, shape, dtype)
    (found,) = execute(graph, feeds, features, threads=threads)
    (expected,) = run_graph(graph, feeds)
    assert (found.dtype, found.shape) == (np.dtype(dtype), shape)
    np.testing.assert_array_equal(found, expected)
    return found


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_form_of_places_is_as_the_reference_has_it(name: str, features: str) -> None:
    check(EXAMPLES[name], features)


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages through libc")
@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_beyond_an_operand_is_touched(name: str, features: str) -> None:
    form, feeds, shape, dtype = EXAMPLES[name]
    graph = graph_of(form, feeds, shape, dtype)
    program = program_of(graph, generate(graph, features), features)
    for at_end in (True, False):
        machine = Machine(graph, program, 1, at_end=at_end)
        try:
            (found,) = machine.run(feeds)
        finally:
            machine.close()
        np.testing.assert_array_equal(found, run_graph(graph, feeds)[0])


def test_images_with_halos_are_written_and_read() -> None:
    """What a convolution with padding reads has rows and columns of zeros around it."""
    unit = IndexMap.broadcast((1, 6, 5, 3), (1, 6, 5, 3))
    filters = np.random.default_rng(0).uniform(-1, 1, (3, 3, 3, 3)).astype(np.float32)
    contract = Contract(kernel=(3, 3), padding=(1, 1, 1, 1))
    for form, extra in ((Gather(axis=1), True), (Scan(axis=2), False), (Scan(axis=3), False)):
        tensors = [Tensor(f"tensor{k}", (1, 6, 5, 3), "float32") for k in range(4)]
        tensors += [Tensor("weights", filters.shape, "float32", filters), Tensor("places", (6, 1), "int32")]
        nodes = (
            Node("MUL", (0,), (1,), form=Map(RESULT * 2, (unit,))),
            Node("OP", (1, 5) if extra else (1,), (2,), form=form),
            Node("CONV_2D", (2, 4, ABSENT), (3,), form=contract),
            Node("CONV_2D", (1, 4, ABSENT), (6,), form=contract),
        )
        tensors.append(Tensor("beside", (1, 6, 5, 3), "float32"))
        graph = Graph(tuple(tensors), nodes, (0, 5), (3, 6))
        feeds = [numbers((1, 6, 5, 3)), np.array([[5], [0], [9], [2], [2], [1]], np.int32)]
        for found, expected in zip(execute(graph, feeds, RUNNABLE[-1]), run_graph(graph, feeds), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("kind", ["max", "min"])
def test_nan_is_the_extreme_only_where_it_comes_first(kind: str, features: str) -> None:
    for axis, size in ((0, 40), (1, 40), (1, 90), (1, 3)):
        data = np.random.default_rng(0).uniform(-1, 1, (40, size)).astype(np.float32)
        data[::3, 1::2] = data[0, 0] = data[5] = np.nan
        data[7] = -np.inf if kind == "max" else np.inf
        check((ArgReduce(kind=kind, axis=axis), [data], (size if axis == 0 else 40,), "int32"), features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_infinities_and_zeros_of_both_signs_are_ranked(features: str) -> None:
    data = np.array([[0.0, -np.inf, -0.0, np.inf, 0.0, -np.inf, -1.0]], np.float32)
    found = check((TopK(), [data], (1, 7), "int32"), features)
    assert found.tolist() == [[3, 0, 2, 4, 6, 1, 5]]


def test_many_rows_are_shared_among_threads() -> None:
    for name in ("rows", "sums of rows", "largest of rows", "top of rows"):
        form, (data, *others), shape, dtype = EXAMPLES[name]
        repeated = np.tile(data, (1, 1)) if name == "rows" else np.tile(data, (1000, 1))
        rows = shape if name == "rows" else (len(repeated), *shape[1:])
        check((form, [repeated, *others], rows, dtype), RUNNABLE[-1], threads=3)
