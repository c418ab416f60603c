"""A guard for mapped files: if one is truncated, or its disk fails, reads give zeros and the process survives.

Reading a page beyond the end of a mapped file raises SIGBUS, which ends the process. The handler here finds the address
in a table of our mappings, maps zeros over that whole mapping and counts the event. Readers have to check the count
before they use what they read. The handler is machine code, so it works in every thread, with or without the
interpreter's lock. x86-64 Linux.

Any other SIGBUS goes to the handler before: this one restores it and sends the signal again.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from _signal import SIGBUS, getsignal  # type: ignore[import-not-found]  # `signal` brings enum along

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.memory import Memory, libc

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

_RT_SIGACTION = 13
_FLAGS = 0x4 | 0x08000000 | 0x04000000  # SA_SIGINFO, SA_ONSTACK, SA_RESTORER
_NO_DEFER, _RESET = 0x40000000, 0x80000000  # SA_NODEFER, SA_RESETHAND
_DEFAULT = 0
_HANDLER_WORD, _FLAGS_WORD = 0, 1

# void handler(int signal, siginfo_t *info, void *context)
_HANDLER = (
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
# the form that debuggers and unwinders know
_RESTORER = bytes.fromhex(
    "48c7c00f000000"  #        mov rax, 15               rt_sigreturn
    "0f05"  #                  syscall
)


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
            guard.words[self._row + _END] = 0  # first: a row without an end is empty
            guard.words[self._row + _START] = 0
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
        self.words = (ctypes.c_uint64 * (_TABLE_BYTES // _WORD)).from_address(table.address)
        self.free = list(range(_ROWS, len(self.words), _ROW_WORDS))
        handler = bytes.fromhex(_HANDLER.format(table=struct.pack("<Q", table.address).hex()))
        code.write(handler + _RESTORER)
        code.make_executable()
        restorer = code.address + len(handler)
        self._own = (ctypes.c_uint64 * _DISPOSITION_WORDS)(code.address, _FLAGS, restorer, 0)
        self._chain: list[list[int]] = []
        self._install()

    def _install(self) -> None:
        """Install the handler first, and keep the disposition before it."""
        before = (ctypes.c_uint64 * _DISPOSITION_WORDS)()
        self._seen = _others()
        self.words[_PASSED] = 0
        if libc.syscall(_RT_SIGACTION, int(SIGBUS), self._own, before, _WORD):
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
    if sys.platform != "linux" or os.uname().machine != "x86_64" or ctypes.sizeof(ctypes.c_void_p) != _WORD:
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
