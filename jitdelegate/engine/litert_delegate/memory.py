"""Safe reads of any address: None where a plain read would end the process."""

from __future__ import annotations

import _thread
import ctypes
import os

PAGE = 4096
"""Bytes of a page, the unit of mapped memory; a pipe takes this many at once."""

_libc = ctypes.CDLL(None, use_errno=True)
_write = _libc.write
_write.restype = ctypes.c_ssize_t
_write.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)


class _SymbolPlace(ctypes.Structure):
    """Dl_info, the result of dladdr."""

    _fields_ = (
        ("library", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


_dladdr = getattr(_libc, "dladdr", None)
if _dladdr is not None:
    _dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(_SymbolPlace))


class _Pipe:
    """A pipe of this process: writing unmapped memory to it fails with EFAULT.

    Attributes:
        process: the process that may use it; 0 once it is unusable.
    """

    __slots__ = ("lock", "process", "reader", "writer")

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.reader, self.writer = os.pipe()
        self.process = os.getpid()

    def page(self, address: int) -> bytes | None:
        """The page at `address`, a multiple of PAGE."""
        with self.lock:
            try:
                count = _write(self.writer, address, PAGE)
                content = os.read(self.reader, count) if count > 0 else b""
            except BaseException:  # an interrupt between write and read leaves bytes in the pipe
                self.process = 0
                raise
        return content if len(content) == PAGE else None


_pipes: list[_Pipe] = []


def _pipe() -> _Pipe:
    """The pipe of this process: after a fork, parent and child would read each other's bytes from a shared one."""
    if not _pipes or _pipes[-1].process != os.getpid():
        _pipes.append(_Pipe())
    return _pipes[-1]


class SafeReader:
    """Reads any address, each page once: later reads see the memory of the first."""

    __slots__ = ("_pages", "_pipe")

    def __init__(self) -> None:
        self._pipe = _pipe()
        self._pages: dict[int, bytes | None] = {}

    def read(self, address: int, nbytes: int) -> bytes | None:
        """`nbytes` bytes at `address`; None where not all of them are mapped."""
        number, offset = divmod(address, PAGE)
        if offset + nbytes <= PAGE:
            page = self._pages.get(number) or self._page(number)
            return None if page is None else page[offset : offset + nbytes]
        return self._read_pages(address, nbytes, range(number, (address + nbytes - 1) // PAGE + 1))

    def integer(self, address: int, nbytes: int) -> int | None:
        """A little-endian signed number."""
        content = self.read(address, nbytes)
        return None if content is None else int.from_bytes(content, "little", signed=True)

    def _read_pages(self, address: int, nbytes: int, numbers: range) -> bytes | None:
        pages = []
        for number in numbers:
            page = self._page(number)
            if page is None:
                return None
            pages.append(page)
        return b"".join(pages)[address % PAGE : address % PAGE + nbytes]

    def _page(self, number: int) -> bytes | None:
        if number not in self._pages:
            inside = 0 < number < 1 << 52
            self._pages[number] = self._pipe.page(number * PAGE) if inside else None
        return self._pages[number]


def library_of(address: int) -> str:
    """The path of the shared object with a function, as the loader knows it; "" for none."""
    symbol = _SymbolPlace()
    if _dladdr is None or not _dladdr(address, ctypes.byref(symbol)) or not symbol.library:
        return ""
    return os.fsdecode(symbol.library)
