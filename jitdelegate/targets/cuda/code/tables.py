"""The tables of tuned kernels that a plan reads: the package's own, and the user's over it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jitdelegate.runtime.cache.directory import CacheDirectory
from jitdelegate.runtime.cache.store import DAMAGED, counts
from jitdelegate.runtime.cache.tuned import Winner, parse_table, read_table, table_name
from jitdelegate.targets.cuda.code.gpu import Gpu

FOLDER = Path(__file__).parent / "tuned"
"""The package's tables: written by `scripts/tune_kernels` on a GPU, and part of the generators' digest."""


@cache
def shipped_table(kind: str, folder: Path = FOLDER) -> Mapping[str, Winner]:
    """The package's table for a kind of GPU; empty where nothing was measured on one."""
    try:
        return parse_table((folder / table_name(kind)).read_bytes())
    except OSError:
        return {}
    except ValueError:
        counts.miss(DAMAGED)
        return {}


def shipped(gpu: Gpu) -> dict[str, str]:
    """Problem to candidate, by the package's table."""
    return candidates_of(shipped_table(gpu.kind))


def merged(gpu: Gpu, directory: CacheDirectory | None) -> dict[str, Winner]:
    """The user's table over the package's."""
    return {**shipped_table(gpu.kind), **read_table(directory, gpu.kind)}


def candidates_of(winners: Mapping[str, Winner]) -> dict[str, str]:
    """Problem to candidate."""
    return {problem: winner.candidate for problem, winner in winners.items()}
