"""Two ways to run a template, whose results have the same bits: in the simulator, and by LLVM on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from unittest.mock import patch

import numpy as np

from jitdelegate.targets.cuda.code.dependent_launch import for_architecture
from jitdelegate.targets.cuda.code.template import Template
from tests.gpu import second_route
from tests.gpu.simulator import Module
from tests.targets.cuda_execute import back_end, text_of


@lru_cache(maxsize=64)
def simulated(template: Template, architecture: str) -> Module:
    """Its kernel in the simulator. NVVM makes no FMAs of products and sums here: LLVM would make others."""
    own = back_end.nvvm.compile_program

    def compile_program(program: int, count: int, options: list[str]) -> None:
        own(program, count + 1, [*options, "-fma=0"])

    with patch.object(back_end.nvvm, "compile_program", compile_program):
        return Module(back_end.ptx(text_of(template), architecture))


@lru_cache(maxsize=64)
def on_the_cpu(template: Template, architecture: str) -> second_route.Module:
    """Its kernel by the second route."""
    return second_route.Module(for_architecture(text_of(template), architecture))


def bits(arrays: Sequence[np.ndarray]) -> list[bytes]:
    """The bytes of arrays; all NaN are the same."""
    return [
        np.where(one == one, one, one.dtype.type(np.nan if one.dtype.kind == "f" else 0)).tobytes() for one in arrays
    ]
