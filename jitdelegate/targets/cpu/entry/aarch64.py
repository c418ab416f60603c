"""AArch64's instructions in entry code."""

from __future__ import annotations

from jitdelegate.targets.cpu.code.vector_ir import INDEX, Function, Value
from jitdelegate.targets.cpu.entry.architecture import Architecture

FUTEX = 98
FLUSH = 1 << 24
"""FPCR's bit FZ. FZ16 stays off: products of float16 below 2^-14 are common, and their sums would be zeros."""
WHOLE_SYSTEM = 15
"""Operand of isb."""
SYSTEM_CALL = (
    0xAA0003E8,  # mov x8, x0
    0xAA0103E0,  # mov x0, x1
    0xAA0203E1,  # mov x1, x2
    0xAA0303E2,  # mov x2, x3
    0xAA1F03E3,  # mov x3, xzr
    0xD4000001,  # svc #0
    0xD65F03C0,  # ret
)
"""`system_call(number, three arguments)`; the fourth argument is 0. It lies among the constants, which are executable
as all of a program's code is."""


class AArch64(Architecture):
    def now(self, f: Function) -> Value:
        f.module.declare("i64 @llvm.read_volatile_register.i64(metadata)")
        return f.emit(INDEX, 'call i64 @llvm.read_volatile_register.i64(metadata !{!"cntvct_el0"})')

    def pause(self, f: Function) -> None:
        """Most cores take yield for no operation."""
        f.module.declare("void @llvm.aarch64.isb(i32)")
        f.do(f"call void @llvm.aarch64.isb(i32 {WHOLE_SYSTEM})")

    def wake(self, f: Function, operation: int, count: int) -> None:
        f.do(f"call i64 {f.module.table(SYSTEM_CALL)}(i64 {FUTEX}, ptr %word, i64 {operation}, i64 {count})")

    def sleep(self, f: Function, operation: int) -> None:
        f.do(f"call i64 {f.module.table(SYSTEM_CALL)}(i64 {FUTEX}, ptr %word, i64 {operation}, i64 %value)")

    def flush_denormals(self, f: Function) -> Value:
        f.module.declare("i64 @llvm.aarch64.get.fpcr()")
        f.module.declare("void @llvm.aarch64.set.fpcr(i64)")
        before = f.emit(INDEX, "call i64 @llvm.aarch64.get.fpcr()")
        self.restore_denormals(f, f.emit(INDEX, f"or {before}, {FLUSH}"))
        return before

    def restore_denormals(self, f: Function, before: Value) -> None:
        f.do(f"call void @llvm.aarch64.set.fpcr({before})")


OWN = UNASSEMBLED = AArch64()
