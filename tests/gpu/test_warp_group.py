"""wgmma multiplies tiles of shared memory laid out as their descriptors say."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.one_instruction import run
from tests.gpu.simulator import SimulationError

N = 16


def stored(matrix, swizzle: int) -> bytes:
    """f16[rows, 16] as the manual lays it out: rows of 32 bytes in atoms of 8 rows, 16-byte chunks exchanged."""
    width = {0: 16, 1: 128, 2: 64, 3: 32}[swizzle]
    rows = matrix.shape[0]
    memory = np.zeros(rows // 8 * (8 * width if swizzle else 256), np.uint8)
    for row in range(rows):
        for chunk in range(2):
            if swizzle:
                place = row // 8 * 8 * width + row % 8 * width + 16 * chunk
                place ^= {1: row % 8, 2: row % 8 // 2, 3: row % 8 // 4}[swizzle] * 16
            else:
                place = row // 8 * 256 + chunk * 128 + row % 8 * 16
            memory[place : place + 16] = matrix[row, 8 * chunk : 8 * chunk + 8].view(np.uint8)
    return memory.tobytes()


def product(swizzle: int, barrier: str = "bar.sync 0;", after: str = "", **options):
    """(what wgmma computes, what numpy computes) for random f16 matrices."""
    rng = np.random.default_rng(swizzle)
    a, b = (rng.standard_normal((rows, 16)).astype(np.float16) for rows in (64, N))
    image = np.zeros(16384 + 4096, np.uint8)
    for start, matrix in ((0, a), (16384, b)):
        contents = stored(matrix, swizzle)
        image[start : start + len(contents)] = np.frombuffer(contents, np.uint8)
    atom = {0: 256, 1: 1024, 2: 512, 3: 256}[swizzle]
    high = swizzle << 30 | atom >> 4
    results = [f"%f{number}" for number in range(1, 1 + N // 2)]
    body = f"""
    .shared .align 1024 .b8 tile[20480];
    mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 160, %r1; mad.wide.u32 %d20, %r0, 160, %d0; mov.u32 %r3, 0;
    L: ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d20]; st.shared.v4.u32 [%r2], {{%r4, %r5, %r6, %r7}};
    add.u64 %d20, %d20, 16; add.u32 %r2, %r2, 16; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 10; @%p1 bra L;
    {barrier}
    shr.u32 %r8, %r1, 4; or.b32 %r8, %r8, {128 >> 4 << 16}; add.u32 %r9, %r8, {16384 >> 4};
    mov.b64 %d30, {{%r8, {high}}}; mov.b64 %d31, {{%r9, {high}}};
    {" ".join(f"mov.f32 {name}, 0f3F800000;" for name in results)}
    setp.ne.u32 %p2, %r1, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{N}k16.f32.f16.f16 {{{", ".join(results)}}}, %d30, %d31, %p2, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    {after}
    mad.wide.u32 %d20, %r0, {2 * N}, %d1;
    {" ".join(f"st.global.f32 [%d20+{4 * number}], {name};" for number, name in enumerate(results))}
    """
    found = run(body, image, threads=128, result=np.float32, count=64 * N, **options).reshape(128, N // 2)
    matrix = np.empty((64, N))
    for thread in range(128):
        for i in range(N // 2):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
            matrix[row, 8 * (i // 4) + 2 * (thread % 4) + i % 2] = found[thread, i]
    return matrix, a.astype(np.float64) @ b.astype(np.float64).T + 1


@pytest.mark.parametrize("schedule", ["lockstep", "random"])
@pytest.mark.parametrize("swizzle", [0, 1, 2, 3])
def test_wgmma_multiplies_swizzled_tiles(swizzle, schedule):
    found, expected = product(swizzle, schedule=schedule)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("writer", [0, 32, 96])
def test_no_warp_may_overwrite_a_tile_before_the_barrier(writer):
    store = f"setp.eq.u32 %p3, %r0, {writer}; @%p3 st.shared.u32 [%r1+16384], 0;"
    with pytest.raises(SimulationError, match="race"):
        product(1, after=store)
    product(1, after=f"bar.sync 0; {store}")


def test_wgmma_before_the_barrier_is_a_race():
    with pytest.raises(SimulationError, match="race"):
        product(1, barrier="")
