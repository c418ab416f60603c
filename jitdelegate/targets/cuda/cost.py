"""Estimates how many multiprocessor cycles a launch takes.

Launches whose tiles are chosen by an estimate use that estimate; all other launches use the one in this file. The plan
stores each estimate with its launch, for comparison with measurements.
"""

from __future__ import annotations

from jitdelegate.targets.cuda.gpu import Gpu

COPIED = 32
"""Bytes per cycle that a multiprocessor receives from the L2 cache while all multiprocessors read."""
LATENCY_CYCLES = 1500
"""Duration of a block that does almost nothing: three dependent reads of memory and a store."""


def moving_cycles(gpu: Gpu, blocks: int, nbytes: int, products: int = 0) -> float:
    """Cycles of a launch whose reads and writes are spread evenly over its blocks.

    Args:
        nbytes: bytes read and written.
        products: float32 multiply-adds.
    """
    share = -(-blocks // gpu.multiprocessors) / blocks  # the busiest multiprocessor's share
    return LATENCY_CYCLES + share * max(nbytes / COPIED, products / gpu.lanes)
