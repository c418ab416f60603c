"""A small matrix product in PTX with all that a real one has: copies in two stages, barriers, ldmatrix, mma, edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.gpu.simulator import Memory, Module
from tests.gpu.simulator.types import Array

# out f32[M, 8] = a f16[M, K] @ b f16[8, K]^T, K a multiple of 16; two warps, 16 rows each, 32 rows a block.
# A stage is 32 rows of a and 8 rows of b, 32 bytes each; what lies below row M is filled with zeros.
PTX = """
.version 8.7
.target sm_80
.address_size 64
.visible .entry gemm(.param .u64 out, .param .u64 a, .param .u64 b, .param .u32 M, .param .u32 K)
.maxntid 64
{
.reg .pred %p<8>; .reg .b32 %r<60>; .reg .f32 %f<9>; .reg .b64 %d<20>;
.shared .align 128 .b8 stages[2560];
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u32 %r1, [M]; ld.param.u32 %r2, [K];
mov.u32 %r3, %tid.x; mov.u32 %r4, %ctaid.x; mov.u32 %r5, stages;
and.b32 %r6, %r3, 31; shr.u32 %r7, %r3, 5;
shr.u32 %r8, %r3, 1; and.b32 %r9, %r3, 1; shl.b32 %r10, %r9, 4;
mad.lo.u32 %r11, %r4, 32, %r8;
shl.b32 %r12, %r2, 1;
setp.lt.u32 %p1, %r11, %r1; selp.b32 %r13, 16, 0, %p1;
mad.lo.u32 %r14, %r11, %r12, %r10; cvt.u64.u32 %d3, %r14; add.u64 %d4, %d1, %d3;
setp.lt.u32 %p2, %r3, 16;
mad.lo.u32 %r15, %r8, %r12, %r10; cvt.u64.u32 %d5, %r15; add.u64 %d6, %d2, %d5;
shl.b32 %r16, %r3, 4; add.u32 %r17, %r5, %r16;
cp.async.cg.shared.global [%r17], [%d4], 16, %r13;
@%p2 cp.async.cg.shared.global [%r17+1024], [%d6], 16;
cp.async.commit_group;
and.b32 %r20, %r6, 15; shr.u32 %r21, %r6, 4; mad.lo.u32 %r22, %r7, 16, %r20; shl.b32 %r23, %r22, 5;
mad.lo.u32 %r24, %r21, 16, %r23; add.u32 %r25, %r5, %r24;
and.b32 %r26, %r6, 7; shr.u32 %r27, %r6, 3; and.b32 %r27, %r27, 1; shl.b32 %r28, %r26, 5;
mad.lo.u32 %r29, %r27, 16, %r28; add.u32 %r30, %r5, %r29;
mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
shr.u32 %r31, %r2, 4; mov.u32 %r32, 0; mov.u32 %r33, 0;
LOOP:
add.u32 %r32, %r32, 1; sub.u32 %r34, 1280, %r33;
setp.ge.u32 %p3, %r32, %r31; @%p3 bra COPIED;
add.u64 %d4, %d4, 32; add.u64 %d6, %d6, 32; add.u32 %r35, %r17, %r34;
cp.async.cg.shared.global [%r35], [%d4], 16, %r13;
@%p2 cp.async.cg.shared.global [%r35+1024], [%d6], 16;
COPIED:
cp.async.commit_group;
cp.async.wait_group 1;
bar.sync 0;
add.u32 %r36, %r25, %r33; add.u32 %r37, %r30, %r33;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r40, %r41, %r42, %r43}, [%r36];
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r44, %r45}, [%r37+1024];
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r40, %r41, %r42, %r43}, {%r44, %r45},
 {%f1, %f2, %f3, %f4};
bar.sync 0;
mov.u32 %r33, %r34;
setp.lt.u32 %p4, %r32, %r31; @%p4 bra LOOP;
shr.u32 %r50, %r6, 2; mad.lo.u32 %r51, %r7, 16, %r50; mad.lo.u32 %r51, %r4, 32, %r51;
and.b32 %r52, %r6, 3; shl.b32 %r53, %r52, 3; mad.lo.u32 %r54, %r51, 32, %r53; cvt.u64.u32 %d10, %r54;
add.u64 %d11, %d0, %d10;
setp.lt.u32 %p5, %r51, %r1; add.u32 %r55, %r51, 8;
@%p5 st.global.v2.f32 [%d11], {%f1, %f2};
setp.ge.u32 %p6, %r55, %r1; @%p6 bra END;
st.global.v2.f32 [%d11+256], {%f3, %f4};
END:
ret;
}
"""


def relative_error(text: str, rows: int = 37, depth: int = 80, **options: Any) -> float:
    """Runs the product on random matrices; the error against numpy, infinite where the result is not finite."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((count, depth)).astype(np.float16) for count in (rows, 8))
    memory = Memory()
    arguments = [memory.place(np.zeros((rows, 8), np.float32)), memory.place(a), memory.place(b), rows, depth]
    Module(text).launch("gemm", (-(-rows // 32),), (64,), arguments, memory=memory, **options)
    return error(memory.array(arguments[0], np.float32, (rows, 8)), a.astype(np.float64) @ b.astype(np.float64).T)


def error(found: Array, expected: Array) -> float:
    """Norm of the difference over the norm of what is expected."""
    value = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    return value if np.isfinite(value) else float("inf")
