"""Images that are constants, through the CPU target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ops import OPS
from jitdelegate.targets.host import level
from tests.passes.graphs import ops
from tests.targets.execute import execute

WINDOWS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D")


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_slides_over_a_constant_as_over_an_input(name: str) -> None:
    op = OPS[name]
    for case in op.cases:
        data = 2 if name == "TRANSPOSE_CONV" else 0
        image = case.arrays()[data]
        known = replace(case, inputs=(*case.inputs[:data], image, *case.inputs[data + 1 :]))
        (found,) = execute(passes.run(known.graph(op)), known.feeds(), level())
        (expected,) = known.outputs(op)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6 * float(np.abs(expected).max()))


def test_images_of_the_run_are_not_copied() -> None:
    op = OPS["MAX_POOL_2D"]
    assert ops(passes.run(op.cases[0].graph(op))) == ["MAX_POOL_2D"]
