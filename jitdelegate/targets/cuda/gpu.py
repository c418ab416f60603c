"""What kernels are chosen by: the limits of each supported GPU architecture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One architecture.

    Attributes:
        architecture: "sm_90".
        multiprocessors: of a common GPU of this kind; tiles are chosen so that work fills about as many.
        shared_bytes: the most shared memory that a block can ask for. Source: CUDA Programming Guide, table
            "Technical Specifications per Compute Capability".
    """

    architecture: str
    multiprocessors: int
    shared_bytes: int

    @property
    def capability(self) -> int:
        """Major and minor number as one: 75, 80, ... 120."""
        return int(self.architecture.removeprefix("sm_"))

    @property
    def has_async_copy(self) -> bool:
        """cp.async, bf16, tf32 and m16n8k16 came together."""
        return self.capability >= 80


GPUS = {
    gpu.architecture: gpu
    for gpu in (
        Gpu("sm_75", 40, 64 * 1024),
        Gpu("sm_80", 108, 163 * 1024),
        Gpu("sm_86", 72, 99 * 1024),
        Gpu("sm_89", 58, 99 * 1024),
        Gpu("sm_90", 132, 227 * 1024),
        Gpu("sm_100", 148, 227 * 1024),
        Gpu("sm_120", 170, 99 * 1024),
    )
}
"""By architecture."""
