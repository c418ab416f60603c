"""AArch64's instructions in entry code."""

from __future__ import annotations

from jitdelegate.targets.cpu.code.vector_ir import INDEX, Function, Module, Value
from jitdelegate.targets.cpu.entry.architecture import Architecture

FLUSH = 1 << 24 | 1 << 19
"""Bits of FPCR: FZ and, for arithmetic of float16, FZ16."""
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
    clock = 'call i64 @llvm.read_volatile_register.i64(metadata !{!"cntvct_el0"})'
    pause = f"call void @llvm.aarch64.isb(i32 {WHOLE_SYSTEM})"  # most cores take yield for no operation
    futex = 98
    wake = sleep = "@system_call"
    declarations = (
        "i64 @llvm.read_volatile_register.i64(metadata)",
        "void @llvm.aarch64.isb(i32)",
        "i64 @llvm.aarch64.get.fpcr()",
        "void @llvm.aarch64.set.fpcr(i64)",
    )

    def declare(self, module: Module) -> None:
        super().declare(module)
        module.constant("system_call", SYSTEM_CALL, "i32")

    def flush_denormals(self, f: Function) -> Value:
        before = f.emit(INDEX, "call i64 @llvm.aarch64.get.fpcr()")
        self.restore_denormals(f, f.emit(INDEX, f"or {before}, {FLUSH}"))
        return before

    def restore_denormals(self, f: Function, before: Value) -> None:
        f.do(f"call void @llvm.aarch64.set.fpcr({before})")


OWN = AArch64()
