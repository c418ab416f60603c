"""Blocks of a cluster: they see each other's shared memory, and what they forget to wait for is found."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.one_instruction import kernel
from tests.gpu.simulator import Memory, Module, SimulationError

SHARED = ".shared .align 16 .b8 tile[128];"
WAIT = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
RANK = "mov.u32 %r3, %ctaid.z;"
OWN = f"{RANK} mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1; mul.lo.u32 %r4, %r3, 100; add.u32 %r4, %r4, %r0;"
PUT = f"{OWN} st.shared.u32 [%r2], %r4;"
READ = "xor.b32 %r5, %r3, 1; mapa.shared::cluster.u32 %r6, %r2, %r5; ld.shared::cluster.u32 %r7, [%r6];"
STORE = "mad.lo.u32 %r8, %r3, 32, %r0; mad.wide.u32 %d1, %r8, 4, %d0; st.global.u32 [%d1], %r7;"


def run(body: str, schedule: str = "lockstep", blocks: int = 2) -> np.ndarray:
    """What two blocks of 32 threads, a cluster along z, write to 64 numbers."""
    text = kernel(body, ["u64"], module=SHARED).replace(")\n{", ")\n.explicitcluster\n.reqnctapercluster 1, 1, 2\n{")
    memory = Memory()
    target = memory.allocate(256)
    Module(text).launch("k", (1, 1, blocks), (32,), [target], memory=memory, schedule=schedule)
    return memory.array(target, np.uint32, (64,))


@pytest.mark.parametrize("schedule", ["lockstep", "random"])
def test_a_block_reads_the_memory_of_another_one(schedule: str) -> None:
    threads = np.arange(32)
    assert run(f"{PUT} {WAIT} {READ} {STORE} {WAIT}", schedule).tolist() == [*(100 + threads), *threads]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (f"{PUT} {READ} {WAIT}", "race"),
        (f"{PUT} {WAIT} {READ}", "race"),
        (f"{PUT} {WAIT} {READ} {PUT} {WAIT}", "race"),
        (f"{PUT} {WAIT} {READ} barrier.cluster.wait.acquire.aligned;", "barrier divergence"),
        (f"{PUT} {WAIT} {READ.replace('1;', '2;', 1)} {WAIT}", "out of bounds"),
        (f"{OWN} {WAIT} {READ} {WAIT}", "uninitialised"),
        (f"{PUT} setp.eq.u32 %p1, %r3, 0; @%p1 bra after; {WAIT} after:", "barrier divergence"),
    ],
)
def test_what_blocks_do_not_wait_for_is_found(body: str, kind: str) -> None:
    with pytest.raises(SimulationError) as caught:
        run(body)
    assert caught.value.kind == kind


def test_a_grid_is_made_of_whole_clusters() -> None:
    with pytest.raises(SimulationError, match="not made of clusters of 2 blocks"):
        run(PUT, blocks=3)
