"""The only file that imports llvmlite: compiles LLVM IR text to object code for a named instruction set."""

from __future__ import annotations

import mmap
from functools import cache

import llvmlite
import llvmlite.binding as llvm
from xxhash import xxh3_128_digest

from jitdelegate.base.targets import LEVELS
from jitdelegate.errors import CompilerFailedError

LEAST_LLVM = 20
"""The first LLVM that knows all that kernels are written in; others print what they do not know on stderr."""
LEAST_ROOM, ROOM_PER_CHARACTER = 32 << 20, 12
"""Bytes that LLVM takes for any code, and for each character of its text besides, about."""
MOST_KEPT = 512
"""Objects that the process keeps for further programs, together some two megabytes; their texts have twenty times as
much, and a large LSTM has 136."""
_KEPT: dict[tuple[str, bytes], bytes] = {}
if llvm.llvm_version_info[0] < LEAST_LLVM:
    raise CompilerFailedError(
        f"the compiler is too old: llvmlite {llvmlite.__version__} has LLVM {llvm.llvm_version_info[0]}, expected LLVM "
        f"{LEAST_LLVM} or later, as in llvmlite 0.45 and numba 0.62"
    )


@cache
def _target_machine(features: str) -> tuple[str, llvm.TargetMachine]:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # without it, inline assembly in IR aborts the process
    level = LEVELS[features]
    triple = f"{level.host}-unknown-linux-gnu" if level.host else llvm.get_process_triple()
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(
        cpu=level.cpu, features=level.attributes, opt=2, reloc="pic", codemodel="small"
    )
    return triple, machine


def triple(features: str) -> str:
    """The target triple that code for `features` is compiled for."""
    return _target_machine(features)[0]


def is_assembled(features: str) -> bool:
    """Whether inline assembly for `features` is understood; elsewhere it ends the process."""
    own: str = llvm.get_process_triple()
    return triple(features).partition("-")[0] == own.partition("-")[0]


def compile_object(ir: str, features: str) -> bytes:
    """Relocatable object code; equal text gives equal bytes.

    Raises:
        MemoryError: there is no room for LLVM, which would end the process.
    """
    room = LEAST_ROOM + ROOM_PER_CHARACTER * len(ir)
    try:
        mmap.mmap(-1, room).close()
    except OSError as error:
        raise MemoryError(f"LLVM needs some {room >> 20} MB for this code: {error.strerror}") from error
    module = llvm.parse_assembly(ir)
    emitted: bytes = _target_machine(features)[1].emit_object(module)
    return emitted


def compile_again(ir: str, features: str) -> bytes:
    """As `compile_object`, for text that further programs of the process may have too, which its hash recognises."""
    content = features, xxh3_128_digest(ir.encode())
    found = _KEPT.get(content)
    if found is None:
        found = _KEPT[content] = compile_object(ir, features)
        for oldest in list(_KEPT)[:-MOST_KEPT]:
            _KEPT.pop(oldest, None)
    return found


def assembly(ir: str, features: str) -> str:
    """The machine code as text, for dumps."""
    text: str = _target_machine(features)[1].emit_assembly(llvm.parse_assembly(ir))
    return text
