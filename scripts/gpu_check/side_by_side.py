"""The example network beside torch and JAX, which run the same layers, interleaved in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from scripts.gpu_check.bundle import Bundle
from scripts.gpu_check.gpu import gpu, open_session
from scripts.gpu_check.row import RATIO, Row, measured
from scripts.gpu_check.sides import Ours, Side, interleave

OURS = "jitdelegate"
COMPILED, COMPILED_GRAPH = "torch.compile max-autotune", "torch.compile max-autotune, one CUDA graph"
DEVICE, CALL = "device time", "a call"
ROUNDS = 40
LIMITED = "float16"
"""The precision in which we have to be at least as fast as torch.compile."""
Makers = Mapping[str, Callable[[str], Side]]


def rows(bundle: Bundle, precision: str) -> Iterator[Row]:
    """Each side's medians and our ratio to it; what takes minutes to compile joins one by one."""
    prepared = bundle.example(bundle.architecture(gpu().capability), precision)
    sides: dict[str, Side] = {OURS: Ours(open_session(prepared))}
    yield from compare(precision, sides, QUICK)
    for name, make in SLOW.items():
        yield from compare(precision, sides, {name: make})


def compare(precision: str, sides: dict[str, Side], makers: Makers) -> Iterator[Row]:
    """Add the sides that can be made to `sides`, and measure all of them together."""
    section = f"side by side, {precision}"
    for name, make in makers.items():
        try:
            sides[name] = make(precision)
        except Exception as error:  # noqa: BLE001 - whatever another's software raises, the rest is still compared
            yield Row(section, name, DEVICE, note=f"{type(error).__name__}: {str(error).strip()[:300]}")
    for quantity, measures in (
        (DEVICE, {name: side.device_seconds for name, side in sides.items()}),
        (CALL, {name: side.call_seconds for name, side in sides.items()}),
    ):
        yield from report(section, quantity, interleave(measures, ROUNDS), _limits(precision, quantity))


def _limits(precision: str, quantity: str) -> Mapping[str, float]:
    if (precision, quantity) != (LIMITED, DEVICE):
        return {}
    return {COMPILED: 1.0, COMPILED_GRAPH: 1.0}


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


def _torch(kind: str) -> Callable[[str], Side]:
    """What makes torch's side of a kind; torch is imported then, since it may not be there."""

    def make(precision: str) -> Side:
        from scripts.gpu_check.torch_side import torch_side

        side: Side = torch_side(kind, precision)
        return side

    return make


def _jax(precision: str) -> Side:
    from scripts.gpu_check.jax_side import JaxSide

    return JaxSide(precision)


QUICK: Makers = {
    "torch eager": _torch("eager"),
    "torch eager, one CUDA graph": _torch("eager graph"),
    "JAX": _jax,
}
SLOW: Makers = {COMPILED_GRAPH: _torch("compiled graph"), COMPILED: _torch("compiled")}
"""In this order: the second finds what the first one's tuning found."""
