"""AArch64's machine code for native requests; see `request_code.py`. No instruction is later than ARMv8.0.

Whatever another thread waits for is written with release and read with acquire. Where a thread writes one word and then
reads another, which others write and read the other way round, both accesses are such: these keep their order.
"""

from __future__ import annotations

CODE = (
    # worker: void *worker(struct *), for pthread_create
    "fd7bbba9"  #  stp x29, x30, [sp, #-80]!
    "fd030091"  #  mov x29, sp
    "f35301a9"  #  stp x19, x20, [sp, #16]
    "f55b02a9"  #  stp x21, x22, [sp, #32]
    "f76303a9"  #  stp x23, x24, [sp, #48]
    "f30300aa"  #  mov x19, x0
    "740240f9"  #  ldr x20, [x19]
    # next:
    "17008052"  #  mov w23, #0
    # look: is there a request that nobody has taken?
    "89020391"  #  add x9, x20, #192
    "2afddf88"  #  ldar w10, [x9]
    "5f090071"  #  cmp w10, #2
    "02130054"  #  b.hs leave
    "8b020191"  #  add x11, x20, #64
    "76fddfc8"  #  ldar x22, [x11]
    "8cfedfc8"  #  ldar x12, [x20]
    "df020ceb"  #  cmp x22, x12
    "0b040054"  #  b.lt take
    "4a120035"  #  cbnz w10, leave
    "f7060011"  #  add w23, w23, #1
    "ffa20f71"  #  cmp w23, #1000
    "68000054"  #  b.hi doze
    "df3f03d5"  #  isb
    "f2ffff17"  #  b look
    # doze:
    "89220091"  #  add x9, x20, #8
    # asleep:
    "2afd5f88"  #  ldaxr w10, [x9]
    "4a050011"  #  add w10, w10, #1
    "2afd0b88"  #  stlxr w11, w10, [x9]
    "abffff35"  #  cbnz w11, asleep
    "80320091"  #  add x0, x20, #12
    "02fcdf88"  #  ldar w2, [x0]
    "8b020191"  #  add x11, x20, #64
    "6dfddfc8"  #  ldar x13, [x11]
    "8cfedfc8"  #  ldar x12, [x20]
    "bf010ceb"  #  cmp x13, x12
    "0b010054"  #  b.lt awake
    "89020391"  #  add x9, x20, #192
    "2afddf88"  #  ldar w10, [x9]
    "aa000035"  #  cbnz w10, awake
    "011080d2"  #  mov x1, #128
    "e3031faa"  #  mov x3, xzr
    "480c80d2"  #  mov x8, #98
    "010000d4"  #  svc #0
    # awake:
    "89220091"  #  add x9, x20, #8
    # up:
    "2afd5f88"  #  ldaxr w10, [x9]
    "4a050051"  #  sub w10, w10, #1
    "2afd0b88"  #  stlxr w11, w10, [x9]
    "abffff35"  #  cbnz w11, up
    "d8ffff17"  #  b next
    # take: take the request, if no other worker was faster
    "cc060091"  #  add x12, x22, #1
    # try:
    "6dfd5fc8"  #  ldaxr x13, [x11]
    "bf0116eb"  #  cmp x13, x22
    "81000054"  #  b.ne late
    "6cfd0ec8"  #  stlxr w14, x12, [x11]
    "8e000034"  #  cbz w14, taken
    "fbffff17"  #  b try
    # late:
    "5f3f03d5"  #  clrex
    "d0ffff17"  #  b look
    # taken:
    "6aa641a9"  #  ldp x10, x9, [x19, #24]
    "d802098a"  #  and x24, x22, x9
    "18530a9b"  #  madd x24, x24, x10, x20
    "18030491"  #  add x24, x24, #256
    "15830091"  #  add x21, x24, #32
    "170b40f9"  #  ldr x23, [x24, #16]
    # event: wait for each event
    "f70600f1"  #  subs x23, x23, #1
    "44050054"  #  b.mi ready
    # again:
    "0f008052"  #  mov w15, #0
    "a92a40a9"  #  ldp x9, x10, [x21]
    # spin:
    "2bfddfc8"  #  ldar x11, [x9]
    "7f010aeb"  #  cmp x11, x10
    "0a040054"  #  b.ge happened
    "8c020391"  #  add x12, x20, #192
    "8dfddf88"  #  ldar w13, [x12]
    "ae1240b9"  #  ldr w14, [x21, #16]
    "bf010e6b"  #  cmp w13, w14
    "a8030054"  #  b.hi abandon
    "ef050011"  #  add w15, w15, #1
    "ffa10f71"  #  cmp w15, #1000
    "68000054"  #  b.hi sleep
    "df3f03d5"  #  isb
    "f4ffff17"  #  b spin
    # sleep: for 50 ms at most, since events of others do not know the stop flag
    "2c210091"  #  add x12, x9, #8
    # lie:
    "8dfd5f88"  #  ldaxr w13, [x12]
    "ad050011"  #  add w13, w13, #1
    "8dfd0e88"  #  stlxr w14, w13, [x12]
    "aeffff35"  #  cbnz w14, lie
    "22fddfc8"  #  ldar x2, [x9]
    "5f000aeb"  #  cmp x2, x10
    "2a010054"  #  b.ge woken
    "0b109e52"  #  movz w11, #0xf080
    "4b5fa072"  #  movk w11, #0x2fa, lsl #16
    "ff2f04a9"  #  stp xzr, x11, [sp, #64]
    "e00309aa"  #  mov x0, x9
    "011080d2"  #  mov x1, #128
    "e3030191"  #  add x3, sp, #64
    "480c80d2"  #  mov x8, #98
    "010000d4"  #  svc #0
    # woken:
    "8dfd5f88"  #  ldaxr w13, [x12]
    "ad050051"  #  sub w13, w13, #1
    "8dfd0e88"  #  stlxr w14, w13, [x12]
    "aeffff35"  #  cbnz w14, woken
    "ddffff17"  #  b again
    # happened:
    "b5620091"  #  add x21, x21, #24
    "d9ffff17"  #  b event
    # abandon:
    "290080d2"  #  mov x9, #1
    "090700f9"  #  str x9, [x24, #8]
    "1e000014"  #  b done
    # ready: copy the addresses to io, and run
    "691e40f9"  #  ldr x9, [x19, #56]
    "6a0a40f9"  #  ldr x10, [x19, #16]
    # address:
    "aa0000b4"  #  cbz x10, run
    "ab8640f8"  #  ldr x11, [x21], #8
    "2b8500f8"  #  str x11, [x9], #8
    "4a0500d1"  #  sub x10, x10, #1
    "fcffff17"  #  b address
    # run:
    "608642a9"  #  ldp x0, x1, [x19, #40]
    "628e43a9"  #  ldp x2, x3, [x19, #56]
    "642640f9"  #  ldr x4, [x19, #72]
    "690640f9"  #  ldr x9, [x19, #8]
    "20013fd6"  #  blr x9
    "000700f9"  #  str x0, [x24, #8]
    "170f40f9"  #  ldr x23, [x24, #24]
    # copy: copy outputs that could not be written in place
    "f70600f1"  #  subs x23, x23, #1
    "c4010054"  #  b.mi done
    "a006c1a8"  #  ldp x0, x1, [x21], #16
    "a28640f8"  #  ldr x2, [x21], #8
    # pair:
    "424000f1"  #  subs x2, x2, #16
    "83000054"  #  b.lo rest
    "2928c1a8"  #  ldp x9, x10, [x1], #16
    "092881a8"  #  stp x9, x10, [x0], #16
    "fcffff17"  #  b pair
    # rest:
    "424000b1"  #  adds x2, x2, #16
    # byte:
    "c0feff54"  #  b.eq copy
    "29144038"  #  ldrb w9, [x1], #1
    "09140038"  #  strb w9, [x0], #1
    "420400f1"  #  subs x2, x2, #1
    "fcffff17"  #  b byte
    # done: leave the mark; then publish in order, also requests of faster workers
    "c9060091"  #  add x9, x22, #1
    "09ff9fc8"  #  stlr x9, [x24]
    # publish:
    "89020291"  #  add x9, x20, #128
    "2afddfc8"  #  ldar x10, [x9]
    "6cae41a9"  #  ldp x12, x11, [x19, #24]
    "4b010b8a"  #  and x11, x10, x11
    "6b510c9b"  #  madd x11, x11, x12, x20
    "6b010491"  #  add x11, x11, #256
    "6cfddfc8"  #  ldar x12, [x11]
    "4d050091"  #  add x13, x10, #1
    "9f010deb"  #  cmp x12, x13
    "01010054"  #  b.ne published
    "2efd5fc8"  #  ldaxr x14, [x9]
    "df010aeb"  #  cmp x14, x10
    "61000054"  #  b.ne behind
    "2dfd0fc8"  #  stlxr w15, x13, [x9]
    "f2ffff17"  #  b publish
    # behind:
    "5f3f03d5"  #  clrex
    "f0ffff17"  #  b publish
    # published:
    "89220291"  #  add x9, x20, #136
    "2afddf88"  #  ldar w10, [x9]
    "6aedff34"  #  cbz w10, next
    "80020291"  #  add x0, x20, #128
    "211080d2"  #  mov x1, #129
    "0200b012"  #  mov w2, #0x7fffffff
    "480c80d2"  #  mov x8, #98
    "010000d4"  #  svc #0
    "65ffff17"  #  b next
    # leave:
    "f35341a9"  #  ldp x19, x20, [sp, #16]
    "f55b42a9"  #  ldp x21, x22, [sp, #32]
    "f76343a9"  #  ldp x23, x24, [sp, #48]
    "fd7bc5a8"  #  ldp x29, x30, [sp], #80
    "e0031faa"  #  mov x0, xzr
    "c0035fd6"  #  ret
    # wait: int wait(word, value, timespec or null): 0 once the word has reached the value
    "09008052"  #  mov w9, #0
    # wait_spin:
    "0afcdfc8"  #  ldar x10, [x0]
    "5f0101eb"  #  cmp x10, x1
    "ea030054"  #  b.ge reached
    "29050011"  #  add w9, w9, #1
    "3f210371"  #  cmp w9, #200
    "68000054"  #  b.hi wait_sleep
    "df3f03d5"  #  isb
    "f9ffff17"  #  b wait_spin
    # wait_sleep:
    "e40300aa"  #  mov x4, x0
    "e50301aa"  #  mov x5, x1
    "e30302aa"  #  mov x3, x2
    "06200091"  #  add x6, x0, #8
    # wait_lie:
    "c9fc5f88"  #  ldaxr w9, [x6]
    "29050011"  #  add w9, w9, #1
    "c9fc0a88"  #  stlxr w10, w9, [x6]
    "aaffff35"  #  cbnz w10, wait_lie
    # wait_check:
    "82fcdfc8"  #  ldar x2, [x4]
    "00008052"  #  mov w0, #0
    "5f0005eb"  #  cmp x2, x5
    "2a010054"  #  b.ge wait_ended
    "e00304aa"  #  mov x0, x4
    "011080d2"  #  mov x1, #128
    "480c80d2"  #  mov x8, #98
    "010000d4"  #  svc #0
    "830000b5"  #  cbnz x3, wait_ended
    "e0feff34"  #  cbz w0, wait_check
    "1f2c0031"  #  cmn w0, #11  EAGAIN
    "a0feff54"  #  b.eq wait_check
    # wait_ended:
    "c9fc5f88"  #  ldaxr w9, [x6]
    "29050051"  #  sub w9, w9, #1
    "c9fc0a88"  #  stlxr w10, w9, [x6]
    "aaffff35"  #  cbnz w10, wait_ended
    "c0035fd6"  #  ret
    # reached:
    "00008052"  #  mov w0, #0
    "c0035fd6"  #  ret
    # ring: void ring(control): another request is there
    "09fc5fc8"  #  ldaxr x9, [x0]
    "29050091"  #  add x9, x9, #1
    "09fc0ac8"  #  stlxr w10, x9, [x0]
    "aaffff35"  #  cbnz w10, ring
    "0b200091"  #  add x11, x0, #8
    "00300091"  #  add x0, x0, #12
    # bell:
    "09fc5f88"  #  ldaxr w9, [x0]
    "29050011"  #  add w9, w9, #1
    "09fc0a88"  #  stlxr w10, w9, [x0]
    "aaffff35"  #  cbnz w10, bell
    "69fddf88"  #  ldar w9, [x11]
    "69020034"  #  cbz w9, quiet
    "22008052"  #  mov w2, #1
    "0e000014"  #  b wake
    # stop: void stop(control, level)
    "09000391"  #  add x9, x0, #192
    "21fd9f88"  #  stlr w1, [x9]
    "00300091"  #  add x0, x0, #12
    # knell:
    "09fc5f88"  #  ldaxr w9, [x0]
    "29050011"  #  add w9, w9, #1
    "09fc0a88"  #  stlxr w10, w9, [x0]
    "aaffff35"  #  cbnz w10, knell
    "05000014"  #  b all
    # tell: void tell(word, value): set the word and wake who waits for it
    "01fc9fc8"  #  stlr x1, [x0]
    "09200091"  #  add x9, x0, #8
    "29fddf88"  #  ldar w9, [x9]
    "a9000034"  #  cbz w9, quiet
    # all:
    "0200b012"  #  mov w2, #0x7fffffff
    # wake:
    "211080d2"  #  mov x1, #129
    "480c80d2"  #  mov x8, #98
    "010000d4"  #  svc #0
    # quiet:
    "c0035fd6"  #  ret
    # order: void order(): what is read from now on is read after what was read before
    "bf3903d5"  #  dmb ishld
    "c0035fd6"  #  ret
)
WAIT, RING, STOP, TELL, ORDER = 676, 820, 876, 908, 944
"""Offsets of the functions behind the loop."""
