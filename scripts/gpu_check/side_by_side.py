"""The example network compared with torch and JAX, which run the same layers, interleaved in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from scripts.gpu_check.bundle import Bundle
from scripts.gpu_check.gpu import example_here, open_session
from scripts.gpu_check.row import RATIO, Row, measured
from scripts.gpu_check.sides import Ours, Side, interleave

OURS, JAX = "jitdelegate", "JAX"
COMPILED, COMPILED_GRAPH = "torch.compile max-autotune", "torch.compile max-autotune, one CUDA graph"
DEVICE, QUEUED, CALL = "device time", "queued", "a call"
ROUNDS = 15
LIMITS: Mapping[str, Mapping[str, float]] = {DEVICE: {COMPILED: 1.0, COMPILED_GRAPH: 1.0}, QUEUED: {JAX: 1.0}}
"""By quantity and side, the most that our time over its may be."""
Makers = Mapping[str, Callable[[str, int], Side]]
"""By name, what makes a side of a precision and a number of images."""


def rows(bundle: Bundle, precision: str, batch: str) -> Iterator[Row]:
    """Each side's medians and our ratio to it; what takes minutes to compile joins one by one."""
    images = int(batch)
    prepared = example_here(bundle, precision, images)
    sides: dict[str, Side] = {OURS: Ours(open_session(prepared))}
    section = section_of(precision, images)
    yield from compare(section, precision, images, sides, QUICK)
    for name, make in SLOW.items():
        yield from compare(section, precision, images, sides, {name: make})


def section_of(precision: str, batch: int) -> str:
    """What the section of a precision and batch is called."""
    return f"side by side, {precision}, batch {batch}"


def compare(section: str, precision: str, batch: int, sides: dict[str, Side], makers: Makers) -> Iterator[Row]:
    """Add the sides that can be made to `sides`, and measure all of them together."""
    for name, make in makers.items():
        try:
            sides[name] = make(precision, batch)
        except Exception as error:  # noqa: BLE001 - whatever another's software raises, the rest is still compared
            yield Row(section, name, DEVICE, note=f"{type(error).__name__}: {str(error).strip()[:300]}")
    for quantity, measures in (
        (DEVICE, {name: side.device_seconds for name, side in sides.items() if side.has_events}),
        (QUEUED, {name: side.queued_seconds for name, side in sides.items()}),
        (CALL, {name: side.call_seconds for name, side in sides.items()}),
    ):
        yield from report(section, quantity, interleave(measures, ROUNDS), LIMITS.get(quantity, {}))


def report(
    section: str, quantity: str, seconds: Mapping[str, list[float]], limits: Mapping[str, float]
) -> Iterator[Row]:
    """Each side's median, and our time over each other side's, round by round.

    Args:
        limits: by side, the most that our time over its may be.
    """
    for name, values in seconds.items():
        yield measured(section, name, quantity, values)
    for name, values in seconds.items():
        if name != OURS:
            ratios = [ours / other for ours, other in zip(seconds[OURS], values, strict=True)]
            yield measured(section, f"{OURS} / {name}", quantity, ratios, unit=RATIO, limit=limits.get(name))


def _torch(kind: str) -> Callable[[str, int], Side]:
    """What makes torch's side of a kind; torch is imported then, since it may not be there."""

    def make(precision: str, batch: int) -> Side:
        from scripts.gpu_check.torch_side import torch_side

        side: Side = torch_side(kind, precision, batch)
        return side

    return make


def _jax(precision: str, batch: int) -> Side:
    from scripts.gpu_check.jax_side import JaxSide

    return JaxSide(precision, batch)


QUICK: Makers = {
    "torch eager": _torch("eager"),
    "torch eager, one CUDA graph": _torch("eager graph"),
    JAX: _jax,
}
SLOW: Makers = {COMPILED_GRAPH: _torch("compiled graph"), COMPILED: _torch("compiled")}
"""In this order: the second finds what the first one's tuning found."""
