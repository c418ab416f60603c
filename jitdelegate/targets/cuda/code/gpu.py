"""The limits of each supported GPU architecture, which kernels are chosen by."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cuda.architectures import parsed, size_of
from jitdelegate.targets.cuda.code.dependent_launch import LOWEST_CAPABILITY
from jitdelegate.targets.cuda.code.tuned.measured import MEASURED

REGISTERS = 65536
"""Registers of a multiprocessor, on every supported GPU. Source: as for `Gpu.shared_bytes`."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What launches and clusters take. These numbers are estimates for an H100; `measured.py` has measured ones.

    Attributes:
        clock: cycles per nanosecond under load.
        full_edge: nanoseconds from the end of a launch to the beginning of one that follows it in a CUDA graph.
        dependent_edge: the same for a launch that begins early; less than 0 where the time to notice that it need not
            wait any longer is shorter than its own beginning, which is over by then.
        saved_edge: nanoseconds that one launch less saves where launches begin early.
        cluster: cycles of adding up the sums of a cluster's blocks: two barriers, and reads of other multiprocessors'
            shared memory. The estimate is rounded up, since every size of a cluster is a kernel of its own.
        exchange: cycles in which the blocks of a cluster store values in all of them, and meet at a barrier.
    """

    clock: float = 1.755
    full_edge: float = 900
    dependent_edge: float = -200
    saved_edge: float = 400
    cluster: float = 1500
    exchange: float = 600

    @property
    def full_edge_cycles(self) -> float:
        """`full_edge` in cycles."""
        return self.full_edge * self.clock


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU.

    Attributes:
        architecture: "sm_90"; "compute_90" for code as PTX.
        multiprocessors: about how many multiprocessors the chosen tiles should fill.
        shared_bytes: the most shared memory that a block can request. Source: CUDA Programming Guide, table
            "Technical Specifications per Compute Capability".
        costs: what the cost model expects of it.
    """

    architecture: str
    multiprocessors: int
    shared_bytes: int
    costs: Costs = field(default_factory=Costs)

    @property
    def kind(self) -> str:
        """As programs are named by: "sm_90:132"."""
        return f"{self.architecture}:{self.multiprocessors}"

    @property
    def capability(self) -> int:
        """Major and minor number as one: 72, 75, ... 121."""
        return int(self.architecture.rpartition("_")[2])

    @property
    def lanes(self) -> int:
        """Float32 multiply-adds that a multiprocessor begins in a cycle. Source: CUDA Programming Guide, "Arithmetic
        Instructions"."""
        return 64 if self.capability in (72, 75, 80) else 128

    @property
    def has_clusters(self) -> bool:
        """Whether blocks of a cluster read each other's shared memory."""
        return self.capability >= 90

    @property
    def has_mma(self) -> bool:
        """Whether the GPU has the instructions by which kernels use its tensor cores: ldmatrix, and mma of 8 steps."""
        return self.capability >= 75

    @property
    def has_async_copy(self) -> bool:
        """Whether the GPU has cp.async; bf16, tf32 and m16n8k16 came with it."""
        return self.capability >= 80

    @property
    def has_dependent_launch(self) -> bool:
        """Whether kernels may begin while the launches before them still run."""
        return self.capability >= LOWEST_CAPABILITY


GPUS = {
    gpu.architecture: gpu
    for gpu in (
        Gpu(architecture, size_of(architecture), 1024 * kibibytes, Costs(**MEASURED.get(architecture, {})))
        for architecture, kibibytes in (
            *(("sm_72", 96), ("sm_75", 64), ("sm_80", 163), ("sm_86", 99), ("sm_87", 163), ("sm_89", 99)),
            *(("sm_90", 227), ("sm_100", 227), ("sm_110", 227), ("sm_120", 99), ("sm_121", 99)),
        )
    )
}
"""Supported GPUs by architecture, with the most common number of multiprocessors."""


def gpu_of(kind: str) -> Gpu:
    """The GPU of a kind: "sm_90:114", or "sm_90" for the most common number of multiprocessors.

    Raises:
        DeviceError: the GPU is not supported.
    """
    try:
        architecture, multiprocessors = parsed(kind)
    except ValueError as error:
        raise DeviceError(f"the GPU cannot be compiled for: {error}") from error
    limits = GPUS[f"sm_{architecture.rpartition('_')[2]}"]
    return replace(limits, architecture=architecture, multiprocessors=multiprocessors)
