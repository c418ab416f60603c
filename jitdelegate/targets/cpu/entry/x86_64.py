"""x86-64's instructions in entry code."""

from __future__ import annotations

import struct

from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Function, Value
from jitdelegate.targets.cpu.entry.architecture import Architecture

FUTEX = 202
CONTROL = "i32"
FLUSH = 0x8040
"""Bits of MXCSR: flush to zero, denormals are zeros."""
SYSTEM_CALL = struct.unpack(
    "<5I",
    b"\x48\x89\xf8"  # mov rax, rdi
    b"\x48\x89\xf7"  # mov rdi, rsi
    b"\x48\x89\xd6"  # mov rsi, rdx
    b"\x48\x89\xca"  # mov rdx, rcx
    b"\x45\x31\xd2"  # xor r10d, r10d
    b"\x0f\x05"  # syscall
    b"\xc3\xcc\xcc",  # ret
)
"""`system_call(number, three arguments)`; the fourth argument is 0."""


class X8664(Architecture):
    def now(self, f: Function) -> Value:
        f.module.declare("i64 @llvm.readcyclecounter()")
        return f.emit(INDEX, "call i64 @llvm.readcyclecounter()")

    def pause(self, f: Function) -> None:
        f.do('call void asm sideeffect "pause", ""()')

    def wake(self, f: Function, operation: int, count: int) -> None:
        registers = "={rax},{rax},{rdi},{rsi},{rdx},~{rcx},~{r11},~{memory}"
        f.do(f'call i64 asm sideeffect "syscall", "{registers}"(i64 {FUTEX}, ptr %word, i64 {operation}, i64 {count})')

    def sleep(self, f: Function, operation: int) -> None:
        registers = "={rax},{rax},{rdi},{rsi},{rdx},~{r10},~{rcx},~{r11},~{flags},~{memory}"
        f.do(
            f'call i64 asm sideeffect "xorq %r10, %r10; syscall", "{registers}"'
            f"(i64 {FUTEX}, ptr %word, i64 {operation}, i64 %value)"
        )

    def flush_denormals(self, f: Function) -> Value:
        saved, changed = (f.emit(POINTER, f"alloca {CONTROL}") for _ in range(2))
        for name in ("stmxcsr", "ldmxcsr"):
            f.module.declare(f"void @llvm.x86.sse.{name}(ptr)")
        f.do(f"call void @llvm.x86.sse.stmxcsr({saved})")
        f.store(f.emit(CONTROL, f"or {f.load(CONTROL, saved)}, {FLUSH}"), changed)
        self.restore_denormals(f, changed)
        return saved

    def restore_denormals(self, f: Function, before: Value) -> None:
        f.do(f"call void @llvm.x86.sse.ldmxcsr({before})")


class Unassembled(X8664):
    """Without inline assembly, which LLVM on other machines does not understand."""

    def pause(self, f: Function) -> None:
        f.module.declare("void @llvm.x86.sse2.pause()")
        f.do("call void @llvm.x86.sse2.pause()")

    def wake(self, f: Function, operation: int, count: int) -> None:
        f.do(f"call i64 {f.module.table(SYSTEM_CALL)}(i64 {FUTEX}, ptr %word, i64 {operation}, i64 {count})")

    def sleep(self, f: Function, operation: int) -> None:
        f.do(f"call i64 {f.module.table(SYSTEM_CALL)}(i64 {FUTEX}, ptr %word, i64 {operation}, i64 %value)")


OWN, UNASSEMBLED = X8664(), Unassembled()
