"""x86-64's instructions in entry code."""

from __future__ import annotations

from jitdelegate.targets.cpu.code.vector_ir import POINTER, Function, Value
from jitdelegate.targets.cpu.entry.architecture import Architecture

CONTROL = "i32"
FLUSH = 0x8040
"""Bits of MXCSR: flush to zero, denormals are zeros."""


class X8664(Architecture):
    clock = "call i64 @llvm.readcyclecounter()"
    pause = 'call void asm sideeffect "pause", ""()'
    futex = 202
    wake = 'asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},{rdx},~{rcx},~{r11},~{memory}"'
    sleep = (
        'asm sideeffect "xorq %r10, %r10; syscall", '
        '"={rax},{rax},{rdi},{rsi},{rdx},~{r10},~{rcx},~{r11},~{flags},~{memory}"'
    )
    declarations = (
        "i64 @llvm.readcyclecounter()",
        *(f"void @llvm.x86.sse.{name}(ptr)" for name in ("stmxcsr", "ldmxcsr")),
    )

    def flush_denormals(self, f: Function) -> Value:
        saved, changed = (f.emit(POINTER, f"alloca {CONTROL}") for _ in range(2))
        f.do(f"call void @llvm.x86.sse.stmxcsr({saved})")
        f.store(f.emit(CONTROL, f"or {f.load(CONTROL, saved)}, {FLUSH}"), changed)
        self.restore_denormals(f, changed)
        return saved

    def restore_denormals(self, f: Function, before: Value) -> None:
        f.do(f"call void @llvm.x86.sse.ldmxcsr({before})")


OWN = X8664()
