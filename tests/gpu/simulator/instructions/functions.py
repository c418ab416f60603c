"""rcp, sqrt and ex2: the hardware's approximations are here as exact as float64 makes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction, types_of
from tests.gpu.simulator.instructions.arithmetic import elementwise
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import Array

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "rcp": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
    "ex2": np.exp2,
}


@instruction(*FUNCTIONS)
def _function(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)[-1:]
    function = FUNCTIONS[instruction.name]
    return elementwise(decoder, instruction, lambda x: function(x.astype(np.float64)), kind)
