"""The example network compared with torch, which runs the same layers, interleaved in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from scripts.gpu_check.bundle import Bundle
from scripts.gpu_check.gpu import example_here, open_session
from scripts.gpu_check.row import RATIO, Row, measured
from scripts.gpu_check.sides import Ours, Side, interleave

OURS = "jitdelegate"
QUICK, COMPILED = "torch.compile reduce-overhead", "torch.compile max-autotune"
COMPILED_GRAPH = f"{COMPILED}, one CUDA graph"
DEVICE, CALL = "device time", "a call"
ROUNDS = 15
LIMITS = {(DEVICE, COMPILED): 1.0, (DEVICE, COMPILED_GRAPH): 1.0}
"""By quantity and side, the most that our time over its may be."""
Makers = Mapping[str, Callable[[str, int], Side]]
"""By name, what makes a side of a precision and a number of images."""


def rows(bundle: Bundle, precision: str, batch: str, *names: str) -> Iterator[Row]:
    """Each side's medians and our ratio to it. The others join one by one, since some take minutes to compile.

    Args:
        names: of the others.
    """
    images = int(batch)
    sides: dict[str, Side] = {OURS: Ours(open_session(example_here(bundle, precision, images)))}
    for name in names:
        yield from compare(section_of(precision, images), precision, images, sides, {name: OTHERS[name]})


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
        (DEVICE, {name: side.device_seconds for name, side in sides.items()}),
        (CALL, {name: side.call_seconds for name, side in sides.items()}),
    ):
        seconds = interleave(measures, ROUNDS)
        for name, values in seconds.items():
            yield measured(section, name, quantity, values)
            if name != OURS:
                ratios = [ours / other for ours, other in zip(seconds[OURS], values, strict=True)]
                limit = LIMITS.get((quantity, name))
                yield measured(section, f"{OURS} / {name}", quantity, ratios, unit=RATIO, limit=limit)


def _torch(kind: str) -> Callable[[str, int], Side]:
    """What makes torch's side of a kind; torch is imported then, since it may not be there."""

    def make(precision: str, batch: int) -> Side:
        from scripts.gpu_check.torch_side import torch_side

        side: Side = torch_side(kind, precision, batch)
        return side

    return make


OTHERS: Makers = {
    QUICK: _torch("reduce-overhead"),
    COMPILED: _torch("max-autotune"),
    COMPILED_GRAPH: _torch("graph"),
}
