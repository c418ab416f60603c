"""Which inputs have to be known before a graph can be compiled."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.passes.shape_inputs import shape_inputs

ON, OFF = np.array(5), np.array(0)


@pytest.mark.parametrize(
    ("name", "case", "positions"),
    [
        ("RESHAPE", Case(((2, 6), Fed((1,), "int32")), {"new_shape": (12,)}, low=12, high=12), (1,)),
        ("ONE_HOT", Case((Fed((2, 3), "int32"), Fed((), "int32"), ON, OFF), {"axis": -1}, low=1, high=4), (1,)),
        ("SLICE", Case(((4, 5), Fed((2,), "int32"), ints(-1, 2)), low=0, high=3), (1,)),
        ("SLICE", Case(((4, 5), Fed((2,), "int32"), ints(1, 2)), low=0, high=3), ()),
        ("GATHER", Case(((4, 5), Fed((2,), "int32")), {"axis": 0}, low=0, high=3), ()),
    ],
)
def test_inputs_decide_that_shapes_are_made_of(name: str, case: Case, positions: tuple[int, ...]) -> None:
    assert shape_inputs(case.graph(OPS[name])) == positions
