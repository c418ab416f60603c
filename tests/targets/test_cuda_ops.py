"""Every case of every operator, compiled for a GPU and run in the simulator, against the operator's own reference; and
kernels for every type of integers that an operator takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import ABSENT, Graph, Quant
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.ops.registry import Op
from jitdelegate.passes.lower import lower
from scripts.lowered_models import lowered
from scripts.one_op_models import MAKERS, one_op_models
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of, text_of

CASES = [
    pytest.param(name, case, id=f"{name}-{number}")
    for name, op in OPS.items()
    for number, case in enumerate(op.cases)
    if op.check(case.graph(op), case.graph(op).nodes[0]) is None
]
QUANT = Quant((1 / 16,), (0,))


@pytest.mark.parametrize(("name", "case"), CASES)
def test_simulated_kernels_compute_what_the_reference_says(name: str, case: Case) -> None:
    op = OPS[name]
    results = run(lower(case.graph(op)), case.feeds())
    for found, expected in zip(results, case.outputs(op), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        error = 2e-6 if expected.dtype.kind in "fc" else 0
        np.testing.assert_allclose(found, expected, rtol=error, atol=error * scale)


def assert_taken(graph: Graph) -> None:
    """Kernels for the graph are written, also for a GPU without tensor cores."""
    for architecture in ("sm_72", "sm_90"):
        for template in templates_of(graph, architecture):
            text_of(template)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", OPS)
def test_an_operator_has_kernels_for_all_its_integers(name: str) -> None:
    op = OPS[name]
    for graph in (graph for case in op.cases[:2] for graph in of_integers(op, case)):
        if op.check(graph, graph.nodes[0]) is None:
            assert_taken(passes.run(graph, passes=(*passes.FOLD, *passes.REWRITE)))


def of_integers(op: Op, case: Case) -> Iterator[Graph]:
    """The case with values of each type of integers that the operator names, as they are and quantized."""
    graph = case.graph(op)
    (node,) = graph.nodes
    values = {index for k, index in enumerate(node.inputs) if index != ABSENT and k not in (*op.parameters, *op.kinds)}
    values |= {index for k, index in enumerate(node.outputs) if k not in op.results}
    pairs = [*((dtype, None) for dtype in (*op.types, *op.narrow)), *((dtype, QUANT) for dtype in op.quantized)]
    for dtype, quant in pairs:
        if dtype in ELEMENT_TYPES and ELEMENT_TYPES[dtype].kind in ("int", "uint", "bool"):
            tensors = list(graph.tensors)
            for index in values:
                data = tensors[index].data
                stored = None if data is None else (np.asarray(data) * 16).astype(dtype)
                tensors[index] = replace(tensors[index], dtype=dtype, data=stored, quant=quant)
            yield replace(graph, tensors=tuple(tensors))


@pytest.mark.parametrize("op", MAKERS)
def test_a_quantized_operator_has_kernels_for_all_its_types(op: str) -> None:
    graphs = [graph for model in one_op_models([op], 3) if (graph := lowered(model.content)) is not None]
    assert graphs
    for graph in graphs:
        assert_taken(graph)


def test_detection_compiles_everywhere_without_local_memory() -> None:
    op = OPS["TFLite_Detection_PostProcess"]
    for case in op.cases[1:3]:
        assert_compiles_everywhere(templates_of(passes.run(case.graph(op), passes=passes.REWRITE)))
