"""Every operator's cases: its lowering and its reference agree."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.verify import verify
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Weights
from jitdelegate.passes.lower import lower
from jitdelegate.targets.reference.evaluate import run_graph
from tests.ops.litert import answers

CASES = [pytest.param(name, case, id=f"{name}-{i}") for name, op in OPS.items() for i, case in enumerate(op.cases)]


UNIT = {"stride_h": 1, "stride_w": 1}
WITHOUT_BIAS = [
    pytest.param("CONV_2D", Case(((1, 5, 5, 3), Weights((4, 3, 3, 3))), UNIT), id="CONV_2D-none"),
    pytest.param("CONV_2D", Case(((1, 5, 5, 3), Weights((4, 3, 3, 3)), None), UNIT), id="CONV_2D-absent"),
    pytest.param("DEPTHWISE_CONV_2D", Case(((1, 5, 5, 3), Weights((1, 3, 3, 3))), UNIT), id="DEPTHWISE_CONV_2D-none"),
]
"""LiteRT refuses the first two and crashes on the last."""


@pytest.mark.parametrize(("name", "case"), CASES + WITHOUT_BIAS)
def test_the_lowered_form_computes_what_the_reference_says(name: str, case: Case) -> None:
    op = OPS[name]
    graph = case.graph(op)
    assert op.check(graph, graph.nodes[0]) is None
    lowered = lower(graph)
    verify(lowered, "lower")
    for answer, expected in zip(run_graph(lowered, case.feeds()), case.outputs(op), strict=True):
        assert answer.dtype == expected.dtype
        assert answer.shape == expected.shape
        np.testing.assert_allclose(answer, expected, **tolerance(expected, 1e-5))


BUILTIN = [case for case in CASES if not OPS[str(case.values[0])].custom]


@pytest.mark.parametrize(("name", "case"), BUILTIN)
def test_the_reference_is_what_litert_computes(name: str, case: Case) -> None:
    op = OPS[name]
    for answer, expected in zip(answers(case.graph(op), case.feeds()), case.outputs(op), strict=True):
        assert answer.dtype == expected.dtype
        assert answer.shape == expected.shape
        np.testing.assert_allclose(answer, expected, **tolerance(expected, 2e-5))


def tolerance(expected: np.ndarray, error: float) -> dict[str, float]:
    """Relative and absolute; only floats may differ at all."""
    error = error if expected.dtype.kind in "fc" else 0
    return {"rtol": error, "atol": error}
