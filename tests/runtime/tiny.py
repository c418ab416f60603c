"""A program of a few lines of LLVM IR: y = x * weights[0] + the number of runs before this one."""

from __future__ import annotations

import os
import struct
from functools import cache
from pathlib import Path

import pytest
from llvmlite import binding

from jitdelegate.program.program import Port, Program
from jitdelegate.program.read import read, read_parts, weights_start
from jitdelegate.program.write import write
from jitdelegate.runtime.memory import machine
from jitdelegate.runtime.shared_file import share
from jitdelegate.targets.cpu.entry.link import link

ELEMENTS = 6
SCALE = 3.0
TRIPLE = f"{machine() or 'x86_64'}-unknown-linux-gnu"

# sync: [0] set by stop, [1] workers that came, [2] workers that are there. arena: [0] runs so far.
_IR = """
define i64 @run(ptr %arena, ptr %weights, ptr %io, ptr %sync, ptr %scratch) {
entry:
  %x = load ptr, ptr %io
  %y_slot = getelementptr ptr, ptr %io, i64 1
  %y = load ptr, ptr %y_slot
  %scale = load float, ptr %weights
  %runs = load float, ptr %arena
  %next = fadd float %runs, 1.0
  store float %next, ptr %arena
  store float %scale, ptr %scratch
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i_next, %loop ]
  %from = getelementptr float, ptr %x, i64 %i
  %to = getelementptr float, ptr %y, i64 %i
  %value = load float, ptr %from, align 4
  %scaled = fmul float %value, %scale
  %sum = fadd float %scaled, %runs
  store float %sum, ptr %to, align 4
  %i_next = add i64 %i, 1
  %more = icmp ult i64 %i_next, 6
  br i1 %more, label %loop, label %done
done:
  ret i64 0
}
define ptr @work(ptr %arguments) {
entry:
  %sync_slot = getelementptr ptr, ptr %arguments, i64 3
  %sync = load ptr, ptr %sync_slot
  %scratch_slot = getelementptr ptr, ptr %arguments, i64 4
  %scratch = load ptr, ptr %scratch_slot
  store float 1.0, ptr %scratch
  %came = getelementptr i32, ptr %sync, i64 1
  %there = getelementptr i32, ptr %sync, i64 2
  %a = atomicrmw add ptr %came, i32 1 seq_cst
  %b = atomicrmw add ptr %there, i32 1 seq_cst
  br label %wait
wait:
  %stop = load atomic i32, ptr %sync seq_cst, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %leave, label %wait
leave:
  %c = atomicrmw sub ptr %there, i32 1 seq_cst
  ret ptr null
}
define void @stop(ptr %arena, ptr %weights, ptr %io, ptr %sync, ptr %scratch) {
  store atomic i32 1, ptr %sync seq_cst, align 4
  ret void
}
"""


@cache
def machine_object() -> bytes:
    """The functions as an ELF object for any CPU of this machine's kind."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    target = binding.Target.from_triple(TRIPLE)
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="small")
    emitted: bytes = machine.emit_object(binding.parse_assembly(_IR))
    return emitted


def tiny_program(*, loader: str = "flat", name: str = "x", code: bytes | None = None) -> Program:
    """The program as the compiler makes it, before it is written."""
    blob, entries = link(machine_object())
    if loader == "object":
        blob = machine_object()
    return Program(
        key=(("model", "0" * 32), ("target", "cpu")),
        target="cpu",
        features="generic",
        loader=loader,
        inputs=(Port(name=name, index=0, shape=(2, 3), dtype="float32", nbytes=4 * ELEMENTS),),
        outputs=(Port(name="y", index=1, shape=(3, 2), dtype="float32", nbytes=4 * ELEMENTS),),
        arena_bytes=64,
        scratch_bytes=64,
        sync_bytes=256,
        entries=tuple(sorted(entries.items())),
        code=blob if code is None else code,
        weights=struct.pack("<f", SCALE) + bytes(1000),
    )


def opened(program: Program) -> Program:
    """The program as the runtime sees it: written and read."""
    return read(write(program))


def opened_from(path: Path, program: Program) -> Program:
    """The same from a file, whose weights it shares."""
    content = write(program)
    path.write_bytes(content)
    start = weights_start(content, len(content))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        weights = share([(descriptor, start, len(content) - start)])
    finally:
        os.close(descriptor)
    if weights is None:
        pytest.skip("nothing is shared on this system")
    return read_parts(content[:start], weights.content)
