"""The only file that imports llvmlite: compiles LLVM IR text to object code for a named instruction set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import llvmlite
import llvmlite.binding as llvm

from jitdelegate.errors import CompilerFailedError

LEAST_LLVM = 20
"""The first LLVM that knows all that kernels are written in; others print what they do not know on stderr."""
if llvm.llvm_version_info[0] < LEAST_LLVM:
    raise CompilerFailedError(
        f"the compiler is too old: llvmlite {llvmlite.__version__} has LLVM {llvm.llvm_version_info[0]}, expected LLVM "
        f"{LEAST_LLVM} or later, as in llvmlite 0.45 and numba 0.62"
    )

PREFIX = {
    "x86-64-v4-vbmi": ("x86-64-v4", "-prefer-256-bit,+avx512vnni,+fast-dpwssd,+avx512vbmi"),
    "x86-64-v4-vnni": ("x86-64-v4", "-prefer-256-bit,+avx512vnni,+fast-dpwssd"),
    "x86-64-v4": ("x86-64-v4", "-prefer-256-bit"),
    "x86-64-v3-vnni": ("x86-64-v3", "+avxvnni,+fast-dpwssd"),
    "x86-64-v3": ("x86-64-v3", ""),
}
"""Instruction set -> LLVM's CPU name and feature string. Levels are used instead of the host's CPU name, so that a
program runs on every machine of its level. LLVM would split 512-bit vectors on x86-64-v4 if it preferred 256 bits, and
take products of int16 and their sums apart if it were not told that one instruction for both is fast."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about the CPU that code is written for.

    Attributes:
        features: a key of PREFIX, or "generic".
        lanes: floats in a vector register.
        tiles: rows of the register tile that is 1, 2, ... vectors wide; accumulators, weights and one broadcast fit the
            vector registers, and row addresses fit the general registers.
        has_fma: whether one instruction computes a * b + c.
        has_half: whether one instruction widens a vector of float16.
        avx512_lanes: floats in a vector for AVX-512's own instructions; 0 without AVX-512.
        has_threads: whether workers may wait in a futex (Linux on x86-64).
        pairs: LLVM's function that multiplies int16 and adds up neighbours; "" without such an instruction.
        shuffle_bytes: LLVM's function that looks up bytes of 16; "" without such an instruction.
        has_vnni: whether one instruction multiplies and adds up four bytes or two int16.
        has_vbmi: whether one instruction looks up bytes in a table of 128.
    """

    features: str
    lanes: int
    tiles: tuple[int, ...]
    has_fma: bool
    has_half: bool
    avx512_lanes: int
    has_threads: bool
    pairs: str = ""
    shuffle_bytes: str = ""
    has_vnni: bool = False
    has_vbmi: bool = False


V4 = Machine(
    *("x86-64-v4", 16, (10, 10, 8, 6)),
    has_fma=True,
    has_half=True,
    avx512_lanes=16,
    has_threads=True,
    pairs="x86.avx512.pmaddw.d.512",
    shuffle_bytes="x86.avx512.pshuf.b.512",
)
V3 = Machine(
    *("x86-64-v3", 8, (8, 6)),
    has_fma=True,
    has_half=True,
    avx512_lanes=0,
    has_threads=True,
    pairs="x86.avx2.pmadd.wd",
    shuffle_bytes="x86.avx2.pshuf.b",
)
GENERIC = Machine("generic", 4, (6, 4), has_fma=False, has_half=False, avx512_lanes=0, has_threads=False)
MACHINES = {
    machine.features: machine
    for machine in (
        replace(V4, features="x86-64-v4-vbmi", has_vnni=True, has_vbmi=True),
        *(replace(V4, features="x86-64-v4-vnni", has_vnni=True), V4),
        *(replace(V3, features="x86-64-v3-vnni", has_vnni=True), V3),
        GENERIC,
    )
}


def toolchain() -> str:
    """`llvmlite 0.50.0, LLVM 22.1.0`."""
    return f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


@cache
def _target_machine(features: str) -> tuple[str, llvm.TargetMachine]:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # without it, inline assembly in IR aborts the process
    triple = "x86_64-unknown-linux-gnu" if features in PREFIX else llvm.get_process_triple()
    cpu, attributes = PREFIX.get(features, ("", ""))
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=cpu, features=attributes, opt=2, reloc="pic", codemodel="small")
    return triple, machine


def triple(features: str) -> str:
    """The target triple that code for `features` is compiled for."""
    return _target_machine(features)[0]


def compile_object(ir: str, features: str) -> bytes:
    """Relocatable object code; equal text gives equal bytes."""
    module = llvm.parse_assembly(ir)
    emitted: bytes = _target_machine(features)[1].emit_object(module)
    return emitted


def assembly(ir: str, features: str) -> str:
    """The machine code as text, for dumps."""
    text: str = _target_machine(features)[1].emit_assembly(llvm.parse_assembly(ir))
    return text
