"""What launches are expected to take, in cycles of a multiprocessor.

Where tiles are chosen by an estimate of their own, that is the launch's; all others get the one here. Plans keep them
with the launches, so that measurements can be held against them.
"""

from __future__ import annotations

from jitdelegate.targets.cuda.gpu import Gpu

COPIED = 32
"""Bytes that reach a multiprocessor from the L2 cache in a cycle while all of them read."""
LATENCY_CYCLES = 1500
"""Of a block that does next to nothing: three reads of memory in a row, a store."""


def moving_cycles(gpu: Gpu, blocks: int, nbytes: int, products: int = 0) -> float:
    """Of a launch whose blocks share out evenly what is read and written.

    Args:
        nbytes: read and written.
        products: float32 multiply-adds.
    """
    share = -(-blocks // gpu.multiprocessors) / blocks  # of the busiest multiprocessor
    return LATENCY_CYCLES + share * max(nbytes / COPIED, products / gpu.lanes)
