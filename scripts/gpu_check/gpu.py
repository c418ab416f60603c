"""The GPU at hand and prepared programs on it, through jitdelegate's runtime."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import inf

import numpy as np

from jitdelegate.program.program import Program
from jitdelegate.program.read import read
from jitdelegate.runtime.cuda.device import Device, find_device
from jitdelegate.runtime.cuda.session import CudaSession
from jitdelegate.targets.cuda import target as cuda_target
from scripts.gpu_check.bundle import Bundle, Prepared


@cache
def gpu() -> Device:
    """The first GPU that this process may use.

    Raises:
        DeviceError: there is none, or its driver is too old.
    """
    return find_device(cuda_target.open_library())


def prepared_here(bundle: Bundle, group: str = "") -> Iterator[Prepared]:
    """The bundle's programs for this GPU, those of one group or all.

    Raises:
        ProgramError: there are none for it.
    """
    return bundle.prepared(bundle.kind(gpu()), group)


def example_here(bundle: Bundle, precision: str, batch: int = 1) -> Prepared:
    """The example network for this GPU.

    Raises:
        ProgramError: it is not in the bundle.
    """
    return bundle.example(bundle.kind(gpu()), precision, batch)


def open_session(prepared: Prepared) -> CudaSession:
    """The program on the GPU, with the case's inputs in the memory that `invoke` reads.

    Raises:
        ProgramError: the file is damaged or of another version of jitdelegate.
        DeviceError: the GPU cannot run it.
    """
    session = open_program(read(prepared.content))
    for position, value in enumerate(prepared.inputs):
        session.set_input(position, value)
    return session


def open_program(program: Program) -> CudaSession:
    """Any program on the GPU; raises what `open_session` raises."""
    return CudaSession(program, gpu())


def nrmse(found: bytes, expected: bytes) -> float:
    """rms(found - expected) / rms(expected) of float32 values; infinite where lengths or the places of NaN differ."""
    if len(found) != len(expected):
        return inf
    one, other = (np.frombuffer(content, np.float32) for content in (found, expected))
    if not np.array_equal(np.isnan(one), np.isnan(other)):
        return inf
    counted = (one != other) & ~np.isnan(one)  # so that equal infinities do not
    difference = float(np.sqrt(np.sum((one[counted].astype(np.float64) - other[counted]) ** 2)))
    scale = float(np.sqrt(np.nansum(other.astype(np.float64) ** 2)))
    return difference / scale if scale and difference < inf else difference
