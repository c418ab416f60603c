"""Small PTX texts for the tests: a kernel that applies a few lines to arrays, and a frame for kernels of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.gpu.simulator import Memory, Module
from tests.gpu.simulator.types import TYPES, Array

REGISTERS = """
.reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<60>; .reg .f32 %f<60>; .reg .b64 %d<40>; .reg .f64 %fd<8>;
"""


def kernel(body: str, parameters: Sequence[str] = (), name: str = "k", module: str = "") -> str:
    """A module with one kernel; `%tid.x` is in %r0, the pointer of `.u64` parameter n in %d<n>."""
    declared = ", ".join(f".param .{kind} p{number}" for number, kind in enumerate(parameters))
    loads = "\n".join(
        f"ld.param.u64 %d{number}, [p{number}];" for number, kind in enumerate(parameters) if kind == "u64"
    )
    header = f".version 8.7\n.target sm_90\n.address_size 64\n{module}\n.visible .entry {name}({declared})\n"
    return f"{header}{{{REGISTERS}mov.u32 %r0, %tid.x;\n{loads}\n{body}\nret;\n}}\n"


def run(body: str, *arrays: Array, threads: int = 32, result: Any = np.uint32, count: int = 0, **options: Any) -> Array:
    """Runs a body with one pointer per array (%d0, %d1, ...) and one more for the result; the result array."""
    memory = Memory()
    count = count or threads
    target = memory.allocate(count * np.dtype(result).itemsize)
    pointers = [*(memory.place(array) for array in arrays), target]
    module = Module(kernel(body, ["u64"] * len(pointers)))
    module.launch("k", (1,), (threads,), pointers, memory=memory, **options)
    return memory.array(target, result, count)


def apply(opcode: str, kinds: Sequence[str], *values: Sequence[Any] | Array, register: str = "") -> Array:
    """`opcode d, a, b, ...;` in every thread: `kinds` are the types of d, a, b, ..., one value of each per thread."""
    lines, offsets = [], []
    for number, kind in enumerate(kinds[1:]):
        size = TYPES[kind].size
        offsets.append(f"mad.wide.u32 %d20, %r0, {size}, %d{number};")
        lines.append(f"{offsets[-1]} ld.global.b{8 * size} {_register(kind, number + 1)}, [%d20];")
    sources = ", ".join(_register(kind, number + 1) for number, kind in enumerate(kinds[1:]))
    size = TYPES[kinds[0]].size
    lines.append(f"{opcode} {_register(kinds[0], 9)}, {sources};")
    lines.append(f"mad.wide.u32 %d20, %r0, {size}, %d{len(kinds) - 1};")
    lines.append(f"st.global.b{8 * size} [%d20], {_register(kinds[0], 9)};")
    arrays = [np.ascontiguousarray(value) for value in values]
    return run("\n".join(lines), *arrays, threads=len(arrays[0]), result=_dtype(kinds[0]))


def _register(kind: str, number: int) -> str:
    return {2: "%h", 4: "%r", 8: "%d1", 1: "%h"}[TYPES[kind].size] + str(number)


def _dtype(kind: str) -> np.dtype[Any]:
    if kind == "f16":
        return np.dtype(np.float16)
    number = TYPES[kind].decode(np.zeros(1, TYPES[kind].raw))
    return number.dtype if number.dtype.itemsize == TYPES[kind].size else TYPES[kind].raw
