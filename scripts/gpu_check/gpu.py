"""The GPU at hand and prepared programs on it, through jitdelegate's runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import inf

import numpy as np

from jitdelegate.program.program import Launch, Program
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
    return _fed(open_program(read(prepared.content)), prepared)


def _fed(session: CudaSession, prepared: Prepared) -> CudaSession:
    """The session with the values of the first step."""
    for position, value in prepared.fed(prepared.inputs, 0):
        session.set_input(position, value)
    return session


def open_in_order(prepared: Prepared, *, early: bool, branches: bool) -> CudaSession:
    """As `open_session`, without branches, and without launches that begin early, unless asked for."""
    program = read(prepared.content)
    launches = rearranged(program.launches, early=early, branches=branches)
    return _fed(open_program(program.altered(launches=launches)), prepared)


def rearranged(launches: Sequence[Launch], *, early: bool, branches: bool) -> tuple[Launch, ...]:
    """The launches of a program as `open_in_order` orders them."""
    waits_itself = any(launch.is_dependent for launch in launches)
    changed = []
    for number, launch in enumerate(launches):
        own = launch if branches else launch.altered(stream=0, waits=(), is_dependent=waits_itself and number > 0)
        changed.append(own if early else own.altered(is_dependent=False))
    return tuple(changed)


def open_program(program: Program) -> CudaSession:
    """Any program on the GPU; raises what `open_session` raises."""
    return CudaSession(program, gpu())


def outputs_of(session: CudaSession, prepared: Prepared, inputs: Sequence[bytes]) -> list[bytes]:
    """Outputs of the case's last step. All memory that is written is filled with NaN before.

    Args:
        inputs: the case's.
    Raises:
        DeviceError: the GPU failed.
    """
    session.soil()
    outputs: list[bytes] = []
    for step in range(prepared.case.steps):
        carried = [(position, outputs[place]) for position, place in prepared.case.carried] if step else []
        for position, value in [*prepared.fed(inputs, step), *carried]:
            session.set_input(position, value)
        session.invoke()
        outputs = [bytes(session.output_memory(position)) for position in range(len(prepared.case.outputs))]
    return outputs


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
