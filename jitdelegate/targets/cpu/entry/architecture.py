"""What the entry code says in a processor's own instructions, since LLVM IR has no words for it: a class per
architecture, found by the target triple."""

from __future__ import annotations

from importlib import import_module

from jitdelegate.targets.cpu.code.vector_ir import INDEX, Function, Value


class Architecture:
    """Instructions of one architecture, on Linux. This class is for those that are not known: they have no threads.

    LLVM understands inline assembly for its own machine only: code that other machines compile, `UNASSEMBLED`, has
    none.
    """

    def now(self, f: Function) -> Value:
        """The time in ticks, on a clock that all cores have in common; 0 where there is none."""
        return f.emit(INDEX, "add i64 0, 0")

    def pause(self, f: Function) -> None:
        """Ten nanoseconds or more, in which a thread that spins does not keep its core busy."""

    def wake(self, f: Function, operation: int, count: int) -> None:
        """Calls the system's futex for the word of `f`, an operation that does not wait."""

    def sleep(self, f: Function, operation: int) -> None:
        """Calls the system's futex for the word and the value of `f`, without a time limit."""

    def flush_denormals(self, f: Function) -> Value | None:
        """From here on, denormal results and operands are zeros on this thread; returns how it was before, None where
        nothing has changed.

        Numbers below 2^-126 are zeros in LiteRT's XNNPACK too: an instruction that meets one may take a hundred times
        longer, and a softmax over masked scores is full of them.
        """
        return None

    def restore_denormals(self, f: Function, before: Value) -> None:
        """As it was before."""


FILES = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
"""By the first part of a target triple; Apple has another name."""


def architecture_of(triple: str, *, is_assembled: bool = True) -> Architecture:
    """That of code for a target triple; `is_assembled` tells whether LLVM understands inline assembly for it here."""
    file = FILES.get(triple.partition("-")[0])
    if file is None:
        return Architecture()
    module = import_module(f"jitdelegate.targets.cpu.entry.{file}")
    own: Architecture = module.OWN if is_assembled else module.UNASSEMBLED
    return own
