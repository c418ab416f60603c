"""Estimates how many multiprocessor cycles a launch takes.

Launches whose tiles are chosen by an estimate use that estimate; all other launches use the one in this file. The plan
stores each estimate with its launch, for comparison with measurements.
"""

from __future__ import annotations

from jitdelegate.targets.cuda.code.gpu import Gpu

COPIED = 32
"""Bytes per cycle that a multiprocessor receives from the L2 cache while all multiprocessors read."""
CLUSTERS = (4, 8)
"""Sizes of clusters; every GPU that has clusters runs eight blocks together."""
LATENCY_CYCLES = 1500
"""Duration of a block that does almost nothing: three dependent reads of memory and a store."""


def launch_cycles(gpu: Gpu) -> float:
    """What a launch costs besides its own time, in cycles."""
    costs = gpu.costs
    return costs.saved_edge * costs.clock if gpu.has_dependent_launch else costs.full_edge_cycles


def cycles(
    gpu: Gpu, blocks: int, resident: int, turns: int, turn: float, alone: float, latency: float, ends: float = 0.0
) -> float:
    """Estimated cycles of equal blocks, each of which does the same in every turn: the more of what a multiprocessor
    has to do for all its blocks, and of what they wait, as many at a time as it runs.

    Args:
        resident: blocks that a multiprocessor runs at a time.
        turns: of a block.
        turn, alone: cycles for which a turn keeps a multiprocessor busy, and of a turn of a block without neighbours.
        latency: cycles that a block waits before its first and after its last turn.
        ends: cycles for which the end of a block keeps a multiprocessor busy.
    """
    share = -(-blocks // gpu.multiprocessors)  # of the busiest multiprocessor
    return max(share * (turns * turn + ends), -(-share // resident) * (turns * alone + latency + ends))


def moving_cycles(gpu: Gpu, blocks: int, nbytes: int, products: int = 0) -> float:
    """Cycles of a launch whose reads and writes are spread evenly over its blocks.

    Args:
        nbytes: bytes read and written.
        products: float32 multiply-adds.
    """
    share = -(-blocks // gpu.multiprocessors) / blocks  # the busiest multiprocessor's share
    return LATENCY_CYCLES + share * max(nbytes / COPIED, products / gpu.lanes)
