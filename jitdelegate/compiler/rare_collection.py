"""Lets Python look for cyclic garbage less often while a model is compiled, and gives the memory back afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from jitdelegate.runtime.memory import libc

OBJECTS = 50_000
"""New objects from one search to the next: most of what compilers import and make stays, and is searched again and
again. After every 700, as is usual, the searches take a seventh of the time in which Numba lowers a network."""

YOUNG = 1
"""The oldest generation of objects that a compilation makes: few searches are made meanwhile."""


@contextmanager
def rare_collection() -> Iterator[None]:
    """Applies to the whole process, unless its thresholds are higher, or 0, which stands for never."""
    usual = gc.get_threshold()
    if not 0 < usual[0] < OBJECTS:  # of threads that compile at once, one changes the thresholds and resets them
        yield
        return
    gc.set_threshold(OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def release_memory() -> None:
    """Give the system the memory that cyclic garbage and the C library keep: of a language model, a hundred MB. Takes
    some hundredths of a second, since objects are left out that were there before the compilation."""
    gc.collect(YOUNG)
    trim = getattr(libc, "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
