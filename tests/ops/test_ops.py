"""Every operator's cases: its lowering and its reference agree."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.verify import verify
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.passes.lower import lower
from tests.ops.form_reference import run_graph
from tests.ops.litert import model_of, run_litert

CASES = [pytest.param(name, case, id=f"{name}-{i}") for name, op in OPS.items() for i, case in enumerate(op.cases)]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_the_lowered_form_computes_what_the_reference_says(name: str, case: Case) -> None:
    op = OPS[name]
    graph = case.graph(op)
    assert op.check(graph, graph.nodes[0]) is None
    lowered = lower(graph)
    verify(lowered, "lower")
    (answer,) = run_graph(lowered, case.feeds())
    expected = case.expected(op)
    assert answer.dtype == expected.dtype == np.float32
    np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_the_reference_is_what_litert_computes(name: str, case: Case) -> None:
    op = OPS[name]
    answer = run_litert(model_of(case.graph(op)), case.feeds())
    expected = case.expected(op)
    assert answer.shape == expected.shape
    np.testing.assert_allclose(answer, expected, rtol=2e-5, atol=2e-5)
