"""Rounding modes, flushing of subnormals and saturation, as the suffixes of an instruction ask for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Get
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import Array, Type

SMALLEST_NORMAL = np.float32(2.0**-126)


def flush(values: Array) -> Array:
    """Subnormal float32 become zeros of the same sign."""
    tiny = np.abs(values) < SMALLEST_NORMAL
    return np.where(tiny, np.copysign(np.zeros_like(values), values), values) if tiny.any() else values


def flush_inputs(get: Get, instruction: Instruction, kind: Type) -> Get:
    """The reader, with subnormals flushed where the instruction says `.ftz`."""
    if "ftz" not in instruction.parts or kind.name != "f32":
        return get
    return lambda group: flush(get(group))


def exact(operation: Callable[..., Array], instruction: Instruction, kind: Type) -> Callable[..., Array]:
    """The operation, in float64 where the result is to be rounded towards one side."""
    if kind.name == "f32" and direction(instruction):
        return lambda *values: operation(*(value.astype(np.float64) for value in values))
    return operation


def direction(instruction: Instruction) -> str | None:
    """`rz`, `rm` or `rp`; None for rounding to nearest."""
    return next((part for part in instruction.parts if part in ("rz", "rm", "rp")), None)


def round_towards(values: Array, mode: str | None) -> Array:
    """float64 -> float32, to nearest or towards zero (rz), minus (rm) or plus infinity (rp)."""
    near = values.astype(np.float32)
    if mode is None:
        return near
    too_high, too_low = near.astype(np.float64) > values, near.astype(np.float64) < values
    down = too_high & ((values > 0) if mode == "rz" else mode == "rm")
    up = too_low & ((values < 0) if mode == "rz" else mode == "rp")
    near = np.where(down, np.nextafter(near, np.float32(-np.inf)), near)
    return np.where(up, np.nextafter(near, np.float32(np.inf)), near)


def finish(operation: Callable[..., Array], instruction: Instruction, kind: Type) -> Callable[..., Array]:
    """The operation followed by the rounding, flushing and clamping that the instruction asks for."""
    steps: list[Callable[[Array], Array]] = []
    mode = direction(instruction)
    if mode and kind.name == "f32":
        steps.append(lambda values: round_towards(values, mode))
    if "ftz" in instruction.parts and kind.name == "f32":
        steps.append(lambda values: flush(values.astype(np.float32)))
    if "sat" in instruction.parts:
        steps.append(saturate)
    if not steps:
        return operation

    def finished(*values: Array) -> Array:
        result = operation(*values)
        for step in steps:
            result = step(result)
        return result

    return finished


def saturate(values: Array) -> Array:
    """Clamped to 0..1, NaN to 0."""
    return np.where(np.isnan(values), 0, np.clip(values, 0, 1)).astype(values.dtype)
