"""While a program runs, numbers below 2^-126 are zeros, as in LiteRT's XNNPACK: an instruction that meets one takes a
hundred times longer, and a softmax over masked scores is full of them."""

from __future__ import annotations

from jitdelegate.targets.cpu.code.vector_ir import POINTER, Function, Value

CONTROL = "i32"
CONTROL_BYTES = 4
FLUSH = 0x8040
"""Bits of MXCSR: denormal results, and denormal operands, are zeros."""


def flush_denormals(f: Function) -> Value:
    """From here on, this thread flushes denormals; returns the address of what `restore_denormals` wants back."""
    saved, changed = (f.emit(POINTER, f"alloca {CONTROL}") for _ in range(2))
    for name in ("stmxcsr", "ldmxcsr"):
        f.module.declare(f"void @llvm.x86.sse.{name}(ptr)")
    f.do(f"call void @llvm.x86.sse.stmxcsr({saved})")
    f.store(f.emit(CONTROL, f"or {f.load(CONTROL, saved, CONTROL_BYTES)}, {FLUSH}"), changed, CONTROL_BYTES)
    f.do(f"call void @llvm.x86.sse.ldmxcsr({changed})")
    return saved


def restore_denormals(f: Function, saved: Value) -> None:
    """The caller's way to treat denormals again."""
    f.do(f"call void @llvm.x86.sse.ldmxcsr({saved})")
