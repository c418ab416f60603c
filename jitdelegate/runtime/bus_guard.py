"""A guard for mapped files: if one is truncated, or its disk fails, reads give zeros and the process survives.

Reading a page beyond the end of a mapped file raises SIGBUS, which ends the process. The handler here finds the address
in a table of our mappings, maps zeros over that whole mapping and counts the event. Readers have to check the count
before they use what they read. The handler is machine code, so it works in every thread, with or without the
interpreter's lock. Linux, on the processors of `runtime.memory.machine`.

Any other SIGBUS goes to the handler before: this one restores it and sends the signal again. On AArch64 it does not
send what the thread's own instruction caused, which runs again then.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from _signal import SIGBUS, getsignal  # type: ignore[import-not-found]  # `signal` brings enum along

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.memory import Memory, libc, machine

_WORD = 8
_TABLE_BYTES = 4096
"""The words of the table: number of signals passed on; one unused; three dispositions in the kernel's format (handler,
flags, restorer, mask), the last one always SIG_DFL; then the rows (first address, address after the last, hits, one
unused)."""
_PASSED, _DISPOSITIONS, _ROWS = 0, 2, 16
_DISPOSITION_WORDS = _ROW_WORDS = 4
_PREVIOUS = 2
"""Number of dispositions kept: a handler like faulthandler's restores the one before it, and signals again."""
_START, _END, _HITS = 0, 1, 2
_NOWHERE = (1 << 64) - 1
"""First address of an empty row. In whatever order another core sees a row change, it is empty until both are set."""

_FLAGS = 0x4 | 0x08000000  # SA_SIGINFO, SA_ONSTACK
_NO_DEFER, _RESET = 0x40000000, 0x80000000  # SA_NODEFER, SA_RESETHAND
_DEFAULT = 0
_HANDLER_WORD, _FLAGS_WORD = 0, 1

# void handler(int signal, siginfo_t *info, void *context)
_HANDLER_X86_64 = (
    "49b8{table}"  #           mov r8, table
    "837e0802"  #              cmp dword [rsi+8], 2      si_code: BUS_ADRERR
    "752c"  #                  jne pass
    "488b4610"  #              mov rax, [rsi+16]         si_addr
    "4d8d8880000000"  #        lea r9, [r8+128]          the first row
    "4d8d9000100000"  #        lea r10, [r8+4096]        the end of the table
    # row:
    "498b09"  #                mov rcx, [r9]
    "4d8b5908"  #              mov r11, [r9+8]
    "4839c8"  #                cmp rax, rcx
    "7205"  #                  jb next
    "4c39d8"  #                cmp rax, r11
    "7262"  #                  jb found
    # next:
    "4983c120"  #              add r9, 32
    "4d39d1"  #                cmp r9, r10
    "72e6"  #                  jb row
    # pass: rt_sigaction(SIGBUS, next disposition, NULL, 8), then rt_tgsigqueueinfo(getpid(), gettid(), SIGBUS, info)
    "53"  #                    push rbx
    "4889f3"  #                mov rbx, rsi
    "b801000000"  #            mov eax, 1
    "f0490fc100"  #            lock xadd [r8], rax
    "b902000000"  #            mov ecx, 2
    "4839c8"  #                cmp rax, rcx
    "480f47c1"  #              cmova rax, rcx
    "c1e005"  #                shl eax, 5
    "498d740010"  #            lea rsi, [r8+rax+16]
    "bf07000000"  #            mov edi, 7
    "31d2"  #                  xor edx, edx
    "41ba08000000"  #          mov r10d, 8
    "b80d000000"  #            mov eax, 13
    "0f05"  #                  syscall
    "b8ba000000"  #            mov eax, 186
    "0f05"  #                  syscall
    "89c6"  #                  mov esi, eax
    "b827000000"  #            mov eax, 39
    "0f05"  #                  syscall
    "89c7"  #                  mov edi, eax
    "ba07000000"  #            mov edx, 7
    "4989da"  #                mov r10, rbx
    "b829010000"  #            mov eax, 297
    "0f05"  #                  syscall
    "5b"  #                    pop rbx
    "c3"  #                    ret
    # found: mmap(start, end - start, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0)
    "56"  #                    push rsi
    "4150"  #                  push r8
    "f049ff4110"  #            lock inc qword [r9+16]
    "4889cf"  #                mov rdi, rcx
    "4c89de"  #                mov rsi, r11
    "4829fe"  #                sub rsi, rdi
    "ba01000000"  #            mov edx, 1
    "41ba32000000"  #          mov r10d, 0x32
    "4983c8ff"  #              or r8, -1
    "4531c9"  #                xor r9d, r9d
    "b809000000"  #            mov eax, 9
    "0f05"  #                  syscall
    "4158"  #                  pop r8
    "5e"  #                    pop rsi
    "483d00f0ffff"  #          cmp rax, -4096
    "0f876effffff"  #          ja pass
    "c3"  #                    ret
)
_HANDLER_AARCH64 = (
    "09080058"  #  ldr x9, table
    "2a0840b9"  #  ldr w10, [x1, #8]  si_code: BUS_ADRERR
    "5f090071"  #  cmp w10, #2
    "81010054"  #  b.ne pass
    "2b0840f9"  #  ldr x11, [x1, #16]  si_addr
    "2c010291"  #  add x12, x9, #128  the first row
    "2d054091"  #  add x13, x9, #4096  the end of the table
    # row:
    "8e3d40a9"  #  ldp x14, x15, [x12]
    "7f010eeb"  #  cmp x11, x14
    "63000054"  #  b.lo following
    "7f010feb"  #  cmp x11, x15
    "43040054"  #  b.lo found
    # following:
    "8c810091"  #  add x12, x12, #32
    "9f010deb"  #  cmp x12, x13
    "23ffff54"  #  b.lo row
    # pass: rt_sigaction(SIGBUS, next disposition, NULL, 8); then rt_tgsigqueueinfo(getpid(), gettid(), SIGBUS, info)
    "f00301aa"  #  mov x16, x1
    # count:
    "2afd5fc8"  #  ldaxr x10, [x9]
    "4b050091"  #  add x11, x10, #1
    "2bfd0cc8"  #  stlxr w12, x11, [x9]
    "acffff35"  #  cbnz w12, count
    "4b0080d2"  #  mov x11, #2
    "5f010beb"  #  cmp x10, x11
    "6a818a9a"  #  csel x10, x11, x10, hi
    "21150a8b"  #  add x1, x9, x10, lsl #5
    "21400091"  #  add x1, x1, #16
    "e00080d2"  #  mov x0, #7
    "e2031faa"  #  mov x2, xzr
    "030180d2"  #  mov x3, #8
    "c81080d2"  #  mov x8, #134
    "010000d4"  #  svc #0
    "0a0a40b9"  #  ldr w10, [x16, #8]
    "4a050051"  #  sub w10, w10, #1
    "5f110071"  #  cmp w10, #4  this thread's own: its instruction runs again
    "63010054"  #  b.lo return
    "481680d2"  #  mov x8, #178
    "010000d4"  #  svc #0
    "eb0300aa"  #  mov x11, x0
    "881580d2"  #  mov x8, #172
    "010000d4"  #  svc #0
    "e1030baa"  #  mov x1, x11
    "e20080d2"  #  mov x2, #7
    "e30310aa"  #  mov x3, x16
    "081e80d2"  #  mov x8, #240
    "010000d4"  #  svc #0
    # return:
    "c0035fd6"  #  ret
    # found: mmap(start, end - start, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0)
    "8a410091"  #  add x10, x12, #16
    # hit:
    "4bfd5fc8"  #  ldaxr x11, [x10]
    "6b050091"  #  add x11, x11, #1
    "4bfd0cc8"  #  stlxr w12, x11, [x10]
    "acffff35"  #  cbnz w12, hit
    "f00301aa"  #  mov x16, x1
    "e0030eaa"  #  mov x0, x14
    "e1010ecb"  #  sub x1, x15, x14
    "220080d2"  #  mov x2, #1
    "430680d2"  #  mov x3, #0x32
    "04008092"  #  mov x4, #-1
    "e5031faa"  #  mov x5, xzr
    "c81b80d2"  #  mov x8, #222
    "010000d4"  #  svc #0
    "e10310aa"  #  mov x1, x16
    "1ffc3fb1"  #  cmn x0, #4095
    "42faff54"  #  b.hs pass
    "c0035fd6"  #  ret
    "1f2003d5"  #  nop
    # table:
    "{table}"
)


class _Row:
    """What differs between processors.

    Attributes:
        action: number of the system call rt_sigaction.
        handler: machine code, with a place for the address of the table.
        restorer: what the handler returns to, in the form that debuggers and unwinders know; b"" where the system has
            its own.
        flag: with which the system is told of it: SA_RESTORER.
    """

    __slots__ = ("action", "flag", "handler", "restorer")

    def __init__(self, action: int, handler: str, restorer: bytes = b"", flag: int = 0) -> None:
        self.action = action
        self.handler = handler
        self.restorer = restorer
        self.flag = flag


_ROWS_OF_MACHINES = {
    # the restorer: mov rax, 15 (rt_sigreturn); syscall
    "x86_64": _Row(13, _HANDLER_X86_64, bytes.fromhex("48c7c00f0000000f05"), 0x04000000),
    "aarch64": _Row(134, _HANDLER_AARCH64),
}


class Net:
    """A guarded range of addresses, until `release` or the end of this object.

    Attributes:
        hits: number of reads that failed and got zeros.
    """

    __slots__ = ("_guard", "_row")
    _is_ending = staticmethod(sys.is_finalizing)  # a module's own names are gone before its last objects

    def __init__(self, guard: _Guard, row: int) -> None:
        self._guard: _Guard | None = guard
        self._row = row

    @property
    def hits(self) -> int:
        return self._guard.words[self._row + _HITS] if self._guard else 0

    def __del__(self) -> None:
        if not self._is_ending():
            self.release()

    def release(self) -> None:
        """End guarding; call it before unmapping. Harmless a second time."""
        guard, self._guard = self._guard, None
        if guard:
            guard.words[self._row + _START] = _NOWHERE
            guard.words[self._row + _END] = 0
            guard.free.append(self._row)


class _Guard:
    """The handler and its table, which live as long as the process.

    Attributes:
        words: the table.
        free: the empty rows.

    Raises:
        DeviceError: executable memory is not available, or the system refuses a handler.
    """

    def __init__(self) -> None:
        table, code = Memory(_TABLE_BYTES), Memory(_TABLE_BYTES)
        own = _ROWS_OF_MACHINES[machine()]
        self.words = (ctypes.c_uint64 * (_TABLE_BYTES // _WORD)).from_address(table.address)
        self.free = list(range(_ROWS, len(self.words), _ROW_WORDS))
        for row in self.free:
            self.words[row + _START] = _NOWHERE
        handler = bytes.fromhex(own.handler.format(table=struct.pack("<Q", table.address).hex()))
        code.write(handler + own.restorer)
        code.make_executable()
        restorer = code.address + len(handler) if own.restorer else 0
        self._own = (ctypes.c_uint64 * _DISPOSITION_WORDS)(code.address, _FLAGS | own.flag, restorer, 0)
        self._action = own.action
        self._chain: list[list[int]] = []
        self._install()

    def _install(self) -> None:
        """Install the handler first, and keep the disposition before it."""
        before = (ctypes.c_uint64 * _DISPOSITION_WORDS)()
        self._seen = _others()
        self.words[_PASSED] = 0
        if libc.syscall(self._action, int(SIGBUS), self._own, before, _WORD):
            raise DeviceError(f"no handler of SIGBUS: {os.strerror(ctypes.get_errno())}")
        handler = before[_HANDLER_WORD]
        if handler == self._own[_HANDLER_WORD]:
            return
        if before[_FLAGS_WORD] & _NO_DEFER:  # faulthandler; once disabled it does nothing, so reset it after one signal
            before[_FLAGS_WORD] |= _RESET
        self._chain = [] if handler == _DEFAULT else [list(before), *self._chain][:_PREVIOUS]
        words = [word for disposition in self._chain for word in disposition]
        for index, word in enumerate(words + [0] * (_ROWS - _DISPOSITIONS - len(words)), _DISPOSITIONS):
            self.words[index] = word

    def renew(self) -> None:
        """Install the handler again if Python or its faulthandler replaced it, or a signal was passed on."""
        if self.words[_PASSED] or self._seen != _others():
            self._install()

    def spread(self, address: int, nbytes: int) -> Net | None:
        """Guard these bytes, to the end of their last page; None if there are too many mappings."""
        if not self.free:
            return None
        row = self.free.pop()
        page = os.sysconf("SC_PAGE_SIZE")
        self.words[row + _HITS] = 0
        self.words[row + _START] = address
        self.words[row + _END] = address + -(-nbytes // page) * page
        return Net(self, row)


_guard: _Guard | None = None


def spread_net(address: int, nbytes: int) -> Net | None:
    """Guard `nbytes` bytes at the page-aligned `address`; None where that is impossible.

    It is impossible on other systems and CPUs, without executable memory or the right to set a handler, and for more
    than a hundred mappings at a time.
    """
    global _guard
    if not machine():
        return None
    try:
        _guard = _guard or _Guard()
        _guard.renew()
    except DeviceError:
        return None
    return _guard.spread(address, nbytes)


def renew_net() -> None:
    """Make sure that the guard works; call it before mapped memory is read again.

    It does not detect a handler that native code sets, nor a faulthandler that was disabled and enabled again.
    """
    if _guard:
        _guard.renew()


def _others() -> tuple[object, bool]:
    """Python's own handler, and whether its faulthandler is on: both replace the handler silently."""
    faulthandler = sys.modules.get("faulthandler")
    return getsignal(SIGBUS), faulthandler is not None and faulthandler.is_enabled()
