"""How fast this machine reads memory, and how many bytes of weights a run has to read."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from jitdelegate.ir.graph import Model

READ_BYTES = 512 << 20
"""More than any cache holds."""
REPEATS = 5
READS_ROWS = frozenset({"GATHER", "EMBEDDING_LOOKUP", "GATHER_ND"})
"""Operators that read a few rows of a constant."""


@cache
def _summing() -> Any:
    """`i64 sum(i64[n])`, which LLVM makes a loop over vectors of eight independent sums."""
    import numba

    @numba.njit(nogil=True, fastmath=True)  # type: ignore[untyped-decorator]
    def total(numbers: Any) -> Any:
        result = 0
        for index in range(numbers.size):
            result += numbers[index]
        return result

    return total


def read_speed(threads: int) -> float:
    """Bytes a second that `threads` threads read together: the best of several readings of READ_BYTES."""
    total = _summing()
    parts = np.array_split(np.ones(READ_BYTES // 8, np.int64), threads)
    total(parts[0][:1])
    seconds = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(REPEATS):
            start = time.perf_counter()
            list(pool.map(total, parts))
            seconds.append(time.perf_counter() - start)
    return READ_BYTES / min(seconds)


def weight_bytes(model: Model, key: str) -> int:
    """Bytes of the constants that a signature reads whole, as the file stores them; each buffer once."""
    graph = model.graphs[next(signature.graph for signature in model.signatures if signature.key == key)]
    found = {}
    for node in graph.nodes:
        for index in () if node.op in READS_ROWS else node.inputs:
            data = graph.tensors[index].data if index >= 0 else None
            if data is not None:
                found[data.__array_interface__["data"][0]] = data.nbytes
    return sum(found.values())
