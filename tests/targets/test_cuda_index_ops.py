"""Operators of several kernels that look elements up, on CUDA, against the operators' own references."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.passes import REWRITE
from jitdelegate.passes import run as rewrite
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of

NAMES = (
    "GATHER",
    "GATHER_ND",
    "EMBEDDING_LOOKUP",
    "REVERSE_SEQUENCE",
    "DYNAMIC_UPDATE_SLICE",
    "SLICE",
    "SCATTER_ND",
    "UNSORTED_SEGMENT_PROD",
    "UNSORTED_SEGMENT_MAX",
    "SEGMENT_SUM",
    "NON_MAX_SUPPRESSION_V4",
    "NON_MAX_SUPPRESSION_V5",
    "ARG_MAX",
    "ARG_MIN",
    "TOPK_V2",
    "CUMSUM",
    "TFLite_Detection_PostProcess",
)
CASES = [
    pytest.param(name, case, id=f"{name}-{number}") for name in NAMES for number, case in enumerate(OPS[name].cases)
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_the_kernels_compute_what_the_reference_says(name: str, case: Case) -> None:
    op = OPS[name]
    graph = rewrite(case.graph(op), passes=REWRITE)
    for found, expected in zip(run(graph, case.feeds()), case.outputs(op), strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6 if expected.dtype == np.float32 else 0)


def test_detection_compiles_everywhere_without_local_memory() -> None:
    for case in OPS["TFLite_Detection_PostProcess"].cases[1:3]:
        graph = rewrite(case.graph(OPS["TFLite_Detection_PostProcess"]), passes=REWRITE)
        assert_compiles_everywhere(templates_of(graph))
