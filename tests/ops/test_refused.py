"""What LiteRT's kernels refuse is refused here, in one sentence."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Fed, Weights, ints
from tests.ops.litert import answers

LONGS = Fed((2, 3), "int64")
REFUSED = [
    ("ABS", Case((LONGS,))),
    ("SQUARED_DIFFERENCE", Case((LONGS, LONGS))),
    ("DIV", Case((LONGS, np.array([3])))),
    ("REVERSE_V2", Case(((2, 3, 4), ints(0, 2)))),
    ("SPACE_TO_BATCH_ND", Case(((1, 4, 4), ints(2, 2), ints((0, 0), (0, 0))))),
    ("BATCH_TO_SPACE_ND", Case(((4, 4, 4, 2), ints(2), ints((0, 0))))),
    ("ONE_HOT", Case((Fed((2, 3), "int32"), ints(4), np.array(5), np.array(0)), {"axis": -3})),
    ("PACK", Case(((3, 4), (3, 4)), {"axis": 0, "values_count": 3})),
    (
        "DEPTHWISE_CONV_2D",
        Case(((1, 4, 4, 2), Weights((1, 3, 3, 2)), Weights((1, 2))), {"stride_h": 1, "stride_w": 1}),
    ),
    ("REVERSE_SEQUENCE", Case(((2, 8, 4, 3), ints(6, 1, 3)), {"seq_dim": 2, "batch_dim": 3})),
    ("SEGMENT_SUM", Case(((3, 2), ints(1, 1, 2)))),
    ("SCATTER_ND", Case((np.array([[0], [1]]), (2, 3), np.array([4, 3])))),
]


@pytest.mark.parametrize(("name", "case"), REFUSED)
def test_what_litert_refuses_is_refused(name: str, case: Case) -> None:
    op = OPS[name]
    graph = case.graph(op)
    reason = op.check(graph, graph.nodes[0])
    assert reason is not None
    assert reason.startswith(name)
    with pytest.raises(RuntimeError):
        answers(graph, case.feeds())
