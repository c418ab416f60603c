"""Every case of every operator, compiled for a GPU and run in the simulator, against the operator's own reference."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.passes.lower import lower
from tests.targets.cuda_execute import run

CASES = [
    pytest.param(name, case, id=f"{name}-{number}")
    for name, op in OPS.items()
    for number, case in enumerate(op.cases)
    if op.check(case.graph(op), case.graph(op).nodes[0]) is None
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_simulated_kernels_compute_what_the_reference_says(name: str, case: Case) -> None:
    op = OPS[name]
    try:
        results = run(lower(case.graph(op)), case.feeds())
    except CompileError as reason:
        if not str(reason).endswith("has no CUDA kernel."):
            raise
        pytest.skip(str(reason))
    for found, expected in zip(results, case.outputs(op), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        error = 2e-6 if expected.dtype.kind in "fc" else 0
        np.testing.assert_allclose(found, expected, rtol=error, atol=error * scale)
