"""A net under mapped files: where one has become too short, or its disk fails, reads give zeros and the process lives.

A read of a page that a mapped file has no more ends the process by SIGBUS. The handler here looks the address up in a
table of our mappings, puts zeros over the whole of that mapping and counts it; whoever reads has to look at the count
before what was read is used. It is machine code without a line of Python, so it works in every thread, whether or not
that thread holds the interpreter's lock. x86-64 Linux.

Any other SIGBUS goes to the handler that was there before: the handler here puts that one back in its place and sends
it the same signal again.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from _signal import SIGBUS, getsignal  # type: ignore[import-not-found]  # `signal` brings enum along

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.arena import Memory, libc

_WORD = 8
_TABLE_BYTES = 4096
"""The words of the table: how many signals were passed on; one word free; three dispositions as the kernel has them
(handler, flags, restorer, mask), of which the last one stays SIG_DFL; then the rows (first address, address after the
last, hits, one word free)."""
_PASSED, _DISPOSITIONS, _ROWS = 0, 2, 16
_DISPOSITION_WORDS = _ROW_WORDS = 4
_PREVIOUS = 2
"""Dispositions that are kept: a handler like faulthandler's puts back, and signals, what it found before itself."""
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
    """A range of addresses under which the net is spread, until `release`.

    Attributes:
        hits: how often a read found nothing there and got zeros.
    """

    __slots__ = ("_guard", "_row")

    def __init__(self, guard: _Guard, row: int) -> None:
        self._guard: _Guard | None = guard
        self._row = row

    @property
    def hits(self) -> int:
        return self._guard.words[self._row + _HITS] if self._guard else 0

    def release(self) -> None:
        """Take the net away; has to come before the mapping goes. Harmless a second time."""
        guard, self._guard = self._guard, None
        if guard:
            guard.words[self._row + _END] = 0  # first: a row without an end holds nothing
            guard.words[self._row + _START] = 0
            guard.free.append(self._row)


class _Guard:
    """The handler and its table, which stay for the life of the process.

    Attributes:
        words: the table.
        free: the rows that hold nothing.

    Raises:
        DeviceError: the system gives no executable memory, or takes no handler.
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
        """Come first, and keep what comes after."""
        found = (ctypes.c_uint64 * _DISPOSITION_WORDS)()
        self._seen = _others()
        self.words[_PASSED] = 0
        if libc.syscall(_RT_SIGACTION, int(SIGBUS), self._own, found, _WORD):
            raise DeviceError(f"no handler of SIGBUS: {os.strerror(ctypes.get_errno())}")
        handler = found[_HANDLER_WORD]
        if handler == self._own[_HANDLER_WORD]:
            return
        if found[_FLAGS_WORD] & _NO_DEFER:  # faulthandler, which does nothing once it is off: the next time is the end
            found[_FLAGS_WORD] |= _RESET
        self._chain = [] if handler == _DEFAULT else [list(found), *self._chain][:_PREVIOUS]
        words = [word for each in self._chain for word in each]
        for place, word in enumerate(words + [0] * (_ROWS - _DISPOSITIONS - len(words)), _DISPOSITIONS):
            self.words[place] = word

    def renew(self) -> None:
        """Come first again where Python, or its faulthandler, has taken the signal since, or it was passed on."""
        if self.words[_PASSED] or self._seen != _others():
            self._install()

    def spread(self, address: int, nbytes: int) -> Net | None:
        """A net under these bytes, to the end of their last page; None where there are too many."""
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
    """A net under `nbytes` bytes at `address`, which begins a page; None where there can be none.

    There is none on other systems and CPUs, where a process may have no executable memory or no handler of its own, and
    for more than a hundred mappings at a time.
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
    """Make sure that the net holds; to be called before mapped memory is read again.

    Not noticed is a handler that native code sets later, past Python, and a faulthandler that was off and is on again.
    """
    if _guard:
        _guard.renew()


def _others() -> tuple[object, bool]:
    """Python's own handler, and whether its faulthandler is on: both take the signal without a word to anybody."""
    faulthandler = sys.modules.get("faulthandler")
    return getsignal(SIGBUS), faulthandler is not None and faulthandler.is_enabled()
