"""AArch64's machine code for runs that Python calls; see `builtin_run.py`. No instruction is later than ARMv8.0.

The lock is taken with acquire and given up with release, so that a run sees what the one before has written.
"""

from __future__ import annotations

CODE = (
    # run: PyObject *run(PyObject *self, PyObject *const *addresses, Py_ssize_t count)
    "fd7bbda9"  # stp x29, x30, [sp, #-48]!
    "fd030091"  # mov x29, sp
    "f35301a9"  # stp x19, x20, [sp, #16]
    "f55b02a9"  # stp x21, x22, [sp, #32]
    "f50301aa"  # mov x21, x1
    "f60302aa"  # mov x22, x2
    "c90a0058"  # ldr x9, as_pointer
    "20013fd6"  # blr x9
    "f30300aa"  # mov x19, x0
    "6a220091"  # add x10, x19, #8
    "2b008052"  # mov w11, #1
    # try:
    "49fd5f88"  # ldaxr w9, [x10]
    "49070035"  # cbnz w9, taken
    "4b7d0c88"  # stxr w12, w11, [x10]
    "acffff35"  # cbnz w12, try
    # mine: write the addresses to io
    "741240f9"  # ldr x20, [x19, #32]
    # address:
    "d60600f1"  # subs x22, x22, #1
    "44010054"  # b.mi ready
    "a07a76f8"  # ldr x0, [x21, x22, lsl #3]
    "29090058"  # ldr x9, as_pointer
    "20013fd6"  # blr x9
    "6aae43a9"  # ldp x10, x11, [x19, #56]
    "df020aeb"  # cmp x22, x10
    "6ba19f9a"  # csel x11, x11, xzr, ge
    "6b01168b"  # add x11, x11, x22
    "807a2bf8"  # str x0, [x20, x11, lsl #3]
    "f6ffff17"  # b address
    # ready: run, without the interpreter's lock
    "69080058"  # ldr x9, save
    "20013fd6"  # blr x9
    "f40300aa"  # mov x20, x0
    "600641a9"  # ldp x0, x1, [x19, #16]
    "620e42a9"  # ldp x2, x3, [x19, #32]
    "641a40f9"  # ldr x4, [x19, #48]
    "690240f9"  # ldr x9, [x19]
    "20013fd6"  # blr x9
    "f50300aa"  # mov x21, x0
    "e00100b5"  # cbnz x0, ended
    "6ca644a9"  # ldp x12, x9, [x19, #72]
    "29050091"  # add x9, x9, #1
    "692a00f9"  # str x9, [x19, #80]
    "6aae43a9"  # ldp x10, x11, [x19, #56]
    "6d1240f9"  # ldr x13, [x19, #32]
    "aa0d0a8b"  # add x10, x13, x10, lsl #3
    "ac0d0c8b"  # add x12, x13, x12, lsl #3
    # swap: next states become the current ones
    "6b0500f1"  # subs x11, x11, #1
    "c4000054"  # b.mi ended
    "4e796bf8"  # ldr x14, [x10, x11, lsl #3]
    "8f796bf8"  # ldr x15, [x12, x11, lsl #3]
    "4f792bf8"  # str x15, [x10, x11, lsl #3]
    "8e792bf8"  # str x14, [x12, x11, lsl #3]
    "faffff17"  # b swap
    # ended:
    "60220091"  # add x0, x19, #8
    # leave:
    "097c5f88"  # ldxr w9, [x0]
    "1ffc0c88"  # stlxr w12, wzr, [x0]
    "ccffff35"  # cbnz w12, leave
    "3f090071"  # cmp w9, #2
    "a1000054"  # b.ne free
    "211080d2"  # mov x1, #129
    "220080d2"  # mov x2, #1
    "480c80d2"  # mov x8, #98
    "010000d4"  # svc #0
    # free:
    "e00314aa"  # mov x0, x20
    "49040058"  # ldr x9, restore
    "20013fd6"  # blr x9
    "e00315aa"  # mov x0, x21
    "29040058"  # ldr x9, from_number
    "f55b42a9"  # ldp x21, x22, [sp, #32]
    "f35341a9"  # ldp x19, x20, [sp, #16]
    "fd7bc3a8"  # ldp x29, x30, [sp], #48
    "20011fd6"  # br x9
    # taken: another thread runs it: sleep until it has ended
    "5f3f03d5"  # clrex
    "e9020058"  # ldr x9, save
    "20013fd6"  # blr x9
    "f40300aa"  # mov x20, x0
    # wait:
    "60220091"  # add x0, x19, #8
    "4b008052"  # mov w11, #2
    # sleep:
    "09fc5f88"  # ldaxr w9, [x0]
    "0b7c0c88"  # stxr w12, w11, [x0]
    "ccffff35"  # cbnz w12, sleep
    "e9000034"  # cbz w9, given
    "011080d2"  # mov x1, #128
    "420080d2"  # mov x2, #2
    "e3031faa"  # mov x3, xzr
    "480c80d2"  # mov x8, #98
    "010000d4"  # svc #0
    "f5ffff17"  # b wait
    # given:
    "e00314aa"  # mov x0, x20
    "29010058"  # ldr x9, restore
    "20013fd6"  # blr x9
    "b6ffff17"  # b mine
    # idle: long long idle(void)
    "00008092"  # mov x0, #-1
    "c0035fd6"  # ret
)
IDLE = 360
"""Offset of the function behind it."""
