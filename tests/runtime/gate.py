"""A program that a test holds up: it waits until the first number of its input is not zero, and counts its runs."""

from __future__ import annotations

import ctypes
import struct
from functools import cache

import numpy as np
from llvmlite import binding

from jitdelegate.program.program import Port, Program, State
from jitdelegate.runtime.binding import Place
from jitdelegate.targets.cpu.entry.link import link
from tests.runtime.tiny import TRIPLE, opened

STATE_BYTES = 8

# weights: [0] scale. io: x, (state), y, (next state). y[0] = x[0] * scale, y[1] = the number of runs so far in the
# state, or of this arena.
_IR = """
define i64 @run(ptr %arena, ptr %weights, ptr %io, ptr %sync, ptr %scratch) {{
entry:
  %x = load ptr, ptr %io
  %y_slot = getelementptr ptr, ptr %io, i64 {y}
  %y = load ptr, ptr %y_slot
  %before_slot = getelementptr ptr, ptr %io, i64 1
  %state_before = load ptr, ptr %before_slot
  %after_slot = getelementptr ptr, ptr %io, i64 3
  %state_after = load ptr, ptr %after_slot
  br label %wait
wait:
  %value = load atomic i64, ptr %x seq_cst, align 8
  %closed = icmp eq i64 %value, 0
  br i1 %closed, label %wait, label %go
go:
  %scale = load i64, ptr %weights
  %scaled = mul i64 %value, %scale
  %runs = load i64, ptr {before}
  %next = add i64 %runs, 1
  store i64 %next, ptr {after}
  store i64 %scaled, ptr %y
  %second = getelementptr i64, ptr %y, i64 1
  store i64 %next, ptr %second
  ret i64 0
}}
define ptr @work(ptr %arguments) {{
  ret ptr null
}}
define void @stop(ptr %arena, ptr %weights, ptr %io, ptr %sync, ptr %scratch) {{
  ret void
}}
"""


@cache
def _code(has_state: bool) -> tuple[bytes, dict[str, int]]:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    target = binding.Target.from_triple(TRIPLE)
    machine = target.create_target_machine(opt=1, reloc="pic", codemodel="small")
    places = ("%state_before", "%state_after") if has_state else ("%arena", "%arena")
    text = _IR.format(y=2 if has_state else 1, before=places[0], after=places[1])
    return link(machine.emit_object(binding.parse_assembly(text)))


def gate_program(*, scale: int = 3, has_state: bool = False) -> Program:
    """int64[2] -> int64[2]"""
    blob, entries = _code(has_state)
    states = (State(name="s", index=2, shape=(1,), dtype="int64", nbytes=STATE_BYTES),) if has_state else ()
    return opened(
        Program(
            key=(("model", "0" * 32), ("target", "cpu")),
            target="cpu",
            features="generic",
            loader="flat",
            inputs=(Port(name="x", index=0, shape=(2,), dtype="int64", nbytes=16),),
            outputs=(Port(name="y", index=1, shape=(2,), dtype="int64", nbytes=16),),
            states=states,
            arena_bytes=64,
            scratch_bytes=64,
            sync_bytes=256,
            entries=tuple(sorted(entries.items())),
            code=blob,
            weights=struct.pack("<q", scale) + bytes(1000),
        )
    )


def place(array: np.ndarray) -> Place:
    """An array's memory."""
    return Place(array.ctypes.data, array.nbytes, array)


def open_gate(x: np.ndarray, value: int = 1) -> None:
    """Let the run go on that reads `x`."""
    ctypes.c_int64.from_address(x.ctypes.data).value = value
