"""Estimates how many multiprocessor cycles a launch takes.

Launches whose tiles are chosen by an estimate use that estimate; all other launches use the one in this file. The plan
stores each estimate with its launch, for comparison with measurements.
"""

from __future__ import annotations

from jitdelegate.targets.cuda.code.gpu import Gpu

COPIED = 32
"""Bytes per cycle that a multiprocessor receives from the L2 cache while all multiprocessors read."""
CLUSTER_CYCLES = 1500
"""Cost of adding up the sums of a cluster's blocks: two barriers, and reads of other multiprocessors' shared memory.
Estimated from latencies, and rounded up, since every size of a cluster is a kernel of its own."""
CLUSTERS = (4, 8)
"""Sizes of clusters; every GPU that has clusters runs eight blocks together."""
LATENCY_CYCLES = 1500
"""Duration of a block that does almost nothing: three dependent reads of memory and a store."""
CLOCK = 1.755
"""Cycles per nanosecond of an H100 at its usual clock under load."""
FULL_EDGE = 900
"""Nanoseconds from the end of a launch to the beginning of one that follows it in a CUDA graph. An estimate, like the
next one: neither is measured."""
DEPENDENT_EDGE = 200 - 400
"""The same for a launch that begins early: 200 to notice that it need not wait any longer, less 400 of its own
beginning, which is over by then."""
FULL_EDGE_CYCLES = FULL_EDGE * CLOCK
SAVED_EDGE = 400
"""Nanoseconds that one launch less saves where launches begin early: between the two, since both are estimates."""


def launch_cycles(gpu: Gpu) -> float:
    """What a launch costs besides its own time, in cycles."""
    return SAVED_EDGE * CLOCK if gpu.has_dependent_launch else FULL_EDGE_CYCLES


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
