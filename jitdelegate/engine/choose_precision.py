"""The precision "auto": runs a model in every precision of its device, and takes the fastest that is exact enough.

The error of a precision is the largest NRMSE of an output: rms(found - expected) / rms(expected), where expected is the
output in the exact precision. Of an output that is no float it is the share of elements that differ. The decision is a
part of the program's key, "float16: error of tf32 0.0003, float16 0.0011, bfloat16 0.0093", so that a program that is
found in the cache was measured before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from statistics import median
from typing import Any

import numpy as np

from jitdelegate.compiler.entry import compiled
from jitdelegate.engine.example_values import example_values
from jitdelegate.engine.executable import Executable
from jitdelegate.errors import CompilerFailedError, DeviceError, OptionError, ProgramError
from jitdelegate.program.program import IN_PARTITIONS, LITERT, Port, Program
from jitdelegate.program.read import read
from jitdelegate.runtime.cache.key import CHOSEN, INPUTS, Key, fingerprint
from jitdelegate.runtime.io_binding import IOBinding

ROUNDS = 15
"""Times that each precision runs, in turns."""
GAIN = 0.03
"""Share of its time by which a less exact precision has to be faster."""

now: Callable[[], float] = time.perf_counter


def decided(executable: Executable) -> Key:
    """The executable's key with the precision that was chosen by running its model.

    Raises:
        OptionError: the file of inputs cannot be read, has changed since the model was opened, or does not fit it.
        ModelError, DeviceError, CompilerFailedError: the model is not compiled in the exact precision.
    """
    sessions: dict[str, IOBinding] = {}
    options, device, key = executable.source.options, executable.device, executable.key
    path = options.precision_inputs
    given = None if path is None else _given(path, key.part(INPUTS))
    (exact, _), *_ = precisions = device.precisions(key)
    try:
        for name, own in precisions:
            try:
                program = read(b"".join(compiled(executable.source.content(), options, own, {})))
                if program.target == LITERT or program.loader in IN_PARTITIONS or key.hosted:
                    return _chosen(key, exact, "not measured, since not all of the model is compiled")
                sessions[name] = device.session(program, options, executable.source.threads)
            except (CompilerFailedError, DeviceError):
                if name == exact:
                    raise
        inputs = _inputs(sessions[exact].program, given, f"precision_inputs is {path!r}, which has")
        return _measured(key, exact, sessions, inputs, options.precision_bound)
    finally:
        for session in sessions.values():
            session.close()


def _measured(key: Key, exact: str, sessions: dict[str, IOBinding], inputs: Sequence[np.ndarray], bound: float) -> Key:
    try:
        outputs = {name: session.run(inputs) for name, session in sessions.items()}
        errors = {name: largest_error(output, outputs[exact]) for name, output in outputs.items()}
        seconds = _seconds({name: session for name, session in sessions.items() if errors[name] <= bound}, inputs)
    except (DeviceError, ProgramError) as error:
        return _chosen(key, exact, f"not measured: {error}")
    told = ", ".join(f"{name} {error:.2g}" for name, error in errors.items() if name != exact)
    return _chosen(key, fastest(seconds, errors), f"error of {told}")


def _chosen(key: Key, precision: str, why: str) -> Key:
    return key.changed(CHOSEN, f"{precision}: {why}")


def fastest(seconds: dict[str, float], errors: dict[str, float]) -> str:
    """The most exact of the precisions that take hardly longer than the fastest one."""
    most = min(seconds.values()) / (1 - GAIN)
    return min((name for name, taken in seconds.items() if taken <= most), key=lambda name: errors[name])


def _seconds(sessions: dict[str, IOBinding], inputs: Sequence[np.ndarray]) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(ROUNDS):
        for name, session in sessions.items():
            start = now()
            session.run(inputs)
            taken[name].append(now() - start)
    return {name: median(durations) for name, durations in taken.items()}


def largest_error(outputs: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest error of an output; infinite where NaN or infinities are in other places."""
    pairs = zip(map(np.asarray, outputs), map(np.asarray, expected), strict=True)
    return max((_error(*pair) for pair in pairs), default=0.0)


def _error(output: np.ndarray, expected: np.ndarray) -> float:
    if expected.dtype.kind not in "fc":
        return float(np.mean(output != expected)) if expected.size else 0.0
    counted = np.isfinite(expected)
    if not np.array_equal(output[~counted], expected[~counted], equal_nan=True):
        return math.inf
    one, other = (array[counted].astype(np.complex128) for array in (output, expected))
    difference, scale = (float(np.sqrt(np.sum(np.abs(array) ** 2))) for array in (one - other, other))
    if math.isnan(difference):
        return math.inf
    return difference / scale if scale else math.inf if difference else 0.0


def _given(path: str, expected: str) -> dict[str, np.ndarray]:
    """The arrays in a file of inputs by name.

    Raises:
        OptionError: the file cannot be read, or has another fingerprint than `expected`.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
        arrays = dict(np.lib.npyio.NpzFile(BytesIO(content), allow_pickle=False))
    except Exception as error:  # a damaged file makes zipfile, zlib and numpy raise errors of many kinds
        raise OptionError(f"precision_inputs is {path!r}, which cannot be read: {error!r}") from error
    if fingerprint(content) != expected:
        raise OptionError(f"precision_inputs is {path!r}, which has changed since the model was opened")
    return arrays


def _inputs(program: Program, given: Mapping[str, np.ndarray] | None, has: str) -> list[np.ndarray]:
    """Values for all inputs: the given ones, or made up ones where none are given."""
    random = np.random.default_rng(0)
    if given is None:
        return [example_values(port.shape, port.dtype, random) for port in program.inputs]
    return [_fitting(port, given, has) for port in program.inputs]


def _fitting(port: Port, arrays: Mapping[str, np.ndarray], has: str) -> np.ndarray:
    """
    Args:
        has: how an error begins.
    Raises:
        OptionError: there is no array for the input, or one of another type or shape.
    """
    if port.name not in arrays:
        there = ", ".join(arrays) or "nothing"
        raise OptionError(f"{has} {there}, but an input of the model is {port.name!r}")
    array = np.ascontiguousarray(arrays[port.name])
    if (str(array.dtype), array.shape) != (port.dtype, tuple(port.shape)):
        is_found, expected = f"{array.dtype}{list(array.shape)}", f"{port.dtype}{list(port.shape)}"
        raise OptionError(f"{has} {is_found} for {port.name!r}, expected {expected}")
    return array
