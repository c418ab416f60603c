"""What the entry code says in a processor's own instructions, since LLVM IR has no words for it: a class per
architecture, found by the target triple."""

from __future__ import annotations

from importlib import import_module

from jitdelegate.targets.cpu.code.vector_ir import INDEX, Function, Module, Value


class Architecture:
    """Instructions of one architecture, on Linux. This class is for those that are not known.

    LLVM understands inline assembly for its own machine only: code that other machines compile has none.

    Attributes:
        clock: reads a clock that all cores have in common; 0 where there is none.
        pause: lets a thread spin for ten nanoseconds or more without keeping its core busy.
        futex: number of the system call.
        wake, sleep: what is called for a system call of three arguments, and for one with a fourth argument of 0.
        declarations: of the functions that these call.
    """

    clock = "add i64 0, 0"
    pause = wake = sleep = ""
    futex = 0
    declarations: tuple[str, ...] = ()

    def declare(self, module: Module) -> None:
        """Adds to a module what the instructions need."""
        for declaration in self.declarations:
            module.declare(declaration)

    def now(self, f: Function) -> Value:
        """The time on the clock, in ticks."""
        return f.emit(INDEX, self.clock)

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


def architecture_of(triple: str) -> Architecture:
    """That of code for a target triple."""
    file = FILES.get(triple.partition("-")[0])
    if file is None:
        return Architecture()
    own: Architecture = import_module(f"jitdelegate.targets.cpu.entry.{file}").OWN
    return own
