"""Every case of every operator, compiled for each instruction set, against the operator's own reference."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.passes.lower import lower
from jitdelegate.targets.host import level
from tests.targets.execute import execute
from tests.targets.levels import LEVELS, RUNNABLE

CASES = [
    pytest.param(name, case, id=f"{name}-{number}")
    for name, op in OPS.items()
    for number, case in enumerate(op.cases)
    if op.check(case.graph(op), case.graph(op).nodes[0]) is None
]


@pytest.mark.parametrize("features", LEVELS)
@pytest.mark.parametrize(("name", "case"), CASES)
def test_compiled_code_computes_what_the_reference_says(name: str, case: Case, features: str) -> None:
    if features not in RUNNABLE:
        pytest.skip(f"this CPU is {level()}, the case needs {features}")
    op = OPS[name]
    results = execute(lower(case.graph(op)), case.feeds(), features)
    for found, expected in zip(results, case.outputs(op), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        error = 2e-6 if expected.dtype.kind in "fc" else 0
        np.testing.assert_allclose(found, expected, rtol=error, atol=error * scale)
