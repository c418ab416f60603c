"""The GPU at hand and prepared programs on it, through jitdelegate's runtime: Python and xxhash are all it needs."""

from __future__ import annotations

from array import array
from functools import cache
from math import inf, isnan, sqrt

from jitdelegate.program.read import read
from jitdelegate.runtime import cuda_library
from jitdelegate.runtime.cuda_device import Device, find_device
from jitdelegate.runtime.cuda_session import CudaSession
from scripts.gpu_check.bundle import Prepared


@cache
def gpu() -> Device:
    """The first GPU that this process may use.

    Raises:
        DeviceError: there is none, or its driver is too old.
    """
    return find_device(cuda_library.open_library())


def open_session(prepared: Prepared) -> CudaSession:
    """The program on the GPU, with the case's inputs in the memory that `invoke` reads.

    Raises:
        ProgramError: the file is damaged or of another version of jitdelegate.
        DeviceError: the GPU cannot run it.
    """
    session = CudaSession(read(prepared.content), gpu())
    for position, value in enumerate(prepared.inputs):
        session.set_input(position, value)
    return session


def nrmse(found: bytes, expected: bytes) -> float:
    """rms(found - expected) / rms(expected) of float32 values; infinite where lengths or the places of NaN differ."""
    pairs = array("f", found), array("f", expected)
    if len(found) != len(expected) or any(isnan(a) != isnan(b) for a, b in zip(*pairs, strict=True)):
        return inf
    difference = sqrt(sum((a - b) ** 2 for a, b in zip(*pairs, strict=True) if a != b and not isnan(a)))
    scale = sqrt(sum(b * b for b in pairs[1] if not isnan(b)))
    return difference / scale if scale else difference
