"""NVVM IR of a kernel to LLVM IR of a coroutine, one of which runs as each thread.

The text stays as it is but for these: pointers have no types and no spaces, as in today's LLVM; a piece of PTX is a
call of what it does (`instructions.py`); special registers and the address of shared memory stand in the thread's row,
and arguments in memory; and where a thread waits for others, the coroutine suspends itself.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import llvmlite.binding as llvm

from tests.gpu.second_route import row
from tests.gpu.second_route.instructions import BARRIERS, PIECES, found
from tests.gpu.second_route.native import address_of

POINTER = re.compile(r"(?:<\d+ x \w+>|\[\d+ x \w+\]|\b\w+)(?: addrspace\(\d\))?\*")
SHARED_POINTER = re.compile(r"inttoptr i64 (\S+) to i8 addrspace\(3\)\*")
SHARED_BLOCK = re.compile(r'(?m)^@"(\w+)" = (\w+) addrspace\(3\) global \[(\d+) x i8\]')
SHARED_ADDRESS = re.compile(r'ptrtoint ptr @"(\w+)" to i64')
OUTSIDE = re.compile(r'(?m)^@"table_.*$|^declare \w+ @"llvm\.(?!nvvm).*$')
DEFINITION = re.compile(r'(?ms)^define void @"(\w+)"\((.*?)\)\n\{\n(.*?)\n\}')
LABEL = re.compile(r'"?([\w.]+)"?:')
INLINE = re.compile(r'(?:(%"\S+") = )?call (\{[^}]*\}|\S+) asm +(?:sideeffect )?"([^"]*)", *"[^"]*"\s*\((.*)\)')
REGISTER = re.compile(r'(%"\S+") = call i32 @"llvm\.nvvm\.read\.ptx\.sreg\.([\w.]+)"\(\)')
CLUSTER = re.compile(r'"cluster_dim_z", i32 (\d+)')
ALIGNMENT = 128
"""Of blocks of shared memory, in bytes."""
_ENDED = "void" if llvm.llvm_version_info[0] >= 22 else "i1"
BEGIN = f"""
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare ptr @llvm.coro.free(token, ptr)
declare {_ENDED} @llvm.coro.end(ptr, i1, token)
declare void @llvm.coro.resume(ptr)
declare void @llvm.coro.destroy(ptr)
declare ptr @malloc(i64)
declare void @free(ptr)
define i64 @resume(ptr %handle, i64 %unused) {{
  call void @llvm.coro.resume(ptr %handle)
  ret i64 0
}}
define i64 @destroy(ptr %handle, i64 %unused) {{
  call void @llvm.coro.destroy(ptr %handle)
  ret i64 0
}}
define ptr @start(ptr %row, ptr %arguments) presplitcoroutine {{
  %id = call token @llvm.coro.id(i32 0, ptr null, ptr null, ptr null)
  %size = call i64 @llvm.coro.size.i64()
  %frame = call ptr @malloc(i64 %size)
  %handle = call ptr @llvm.coro.begin(token %id, ptr %frame)
  %place = getelementptr i32, ptr %row, i64 {row.SHARED}
  %shared = load ptr, ptr %place
"""
END = f"""
thread.ended:
  %memory = call ptr @llvm.coro.free(token %id, ptr %handle)
  call void @free(ptr %memory)
  br label %thread.suspended
thread.suspended:
  call {_ENDED} @llvm.coro.end(ptr %handle, i1 false, token none)
  ret ptr %handle
}}
"""


class Coroutine:
    """A kernel as a coroutine.

    Attributes:
        name: of the kernel.
        parameters: LLVM's types of its parameters.
        cluster: blocks that run together.
        shared_bytes: of a block, without those that a launch adds.
    """

    def __init__(self, text: str) -> None:
        places, self.shared_bytes = {}, 0
        for name, _, nbytes in sorted(SHARED_BLOCK.findall(text), key=lambda block: block[1] == "external"):
            places[name] = self.shared_bytes
            self.shared_bytes += -(-int(nbytes) // ALIGNMENT) * ALIGNMENT
        text = SHARED_POINTER.sub(r"getelementptr i8, ptr %shared, i64 \1", text)
        text = POINTER.sub("ptr", text).replace("addrspacecast", "bitcast").replace("addrspace(1) ", "")
        text = SHARED_ADDRESS.sub(lambda match: f"add i64 0, {places[match.group(1)]}", text)
        (self.name, parameters, body), cluster = DEFINITION.findall(text)[0], CLUSTER.search(text)
        self.cluster = int(cluster.group(1)) if cluster else 1
        self.parameters = [one.split(" ")[0] for one in parameters.split(", ")]
        self._lines = [*OUTSIDE.findall(text), BEGIN]
        self._block, self._last_blocks, self._count = "", {}, 0
        for number, (type_, *_, name) in enumerate(one.split(" ") for one in parameters.split(", ")):
            self._lines.append(f"{name} = load {type_}, ptr {self._place('%arguments', 'i64', number)}")
        self._lines.append("br label %entry")
        for line in body.split("\n"):
            self._translate(line.strip())
        self._lines.append(END)

    @property
    def text(self) -> str:
        """LLVM IR with the functions `start`, `resume` and `destroy`, without NVIDIA's functions."""
        return "\n".join(self._with_last_blocks())

    def _with_last_blocks(self) -> Iterator[str]:
        """A block with a wait is several; what comes after it comes from the last of them."""
        last = self._last_blocks.get
        for line in self._lines:
            renamed = re.sub(r'(?<=, %")[^"]+(?="\])', lambda match: last(match.group(), match.group()), line)
            yield renamed if " = phi " in line else line

    def _new(self, name: str) -> str:
        self._count += 1
        return f'%"thread.{name}.{self._count}"'

    def _store(self, number: int, operand: object) -> None:
        """Stores an operand with its type in a word of the row."""
        self._lines.append(f"store {operand}, ptr {self._place('%row', 'i32', number)}")

    def _place(self, start: str, type_: str, number: int) -> str:
        place = self._new("place")
        self._lines.append(f"{place} = getelementptr {type_}, ptr {start}, i64 {number}")
        return place

    def _translate(self, line: str) -> None:
        if label := LABEL.fullmatch(line):
            self._block = label.group(1)
            self._lines.append(line)
        elif line == "ret void":
            self._wait(row.FINISHED)
            self._lines.append("unreachable")
        elif register := REGISTER.fullmatch(line):
            word = self._place("%row", "i32", row.REGISTERS + row.SPECIAL.index(register.group(2)))
            self._lines.append(f"{register.group(1)} = load i32, ptr {word}")
        elif inline := INLINE.match(line):
            result, type_, text, operands = inline.groups()
            self._piece(f"{result} = " if result else "", type_, text, operands.split(", ") if operands else [])
        else:
            self._lines.append(line)

    def _piece(self, target: str, type_: str, text: str, operands: list[str]) -> None:
        if text in BARRIERS:
            self._wait(BARRIERS[text])
            return
        pattern, numbers = found(text)
        piece = PIECES[pattern]
        uses_own = "own" in inspect.signature(piece.function).parameters
        if piece.is_collective:
            for number, operand in enumerate(operands):
                self._store(number, operand)
            self._wait(row.OF_WARP, address_of(piece.function, "void", ("ptr",)))
        else:
            words = [self._word_of(operand, is_bits=".b32" in text) for operand in operands]
            arguments = ["ptr %row"] * uses_own + [*words, *(f"i32 {one}" for one in numbers)]
            returned = "void" if uses_own else type_
            address = address_of(piece.function, returned, tuple(one.split(" ")[0] for one in arguments))
            call = f"call {returned} inttoptr (i64 {address} to ptr)({', '.join(arguments)})"
            self._lines.append(call if returned == "void" else target + call)
        if target and (piece.is_collective or uses_own):
            self._lines.append(f"{target}load {type_}, ptr %row")

    def _word_of(self, operand: str, *, is_bits: bool) -> str:
        """The operand; as i32 a truth value, and a float of which the bits matter."""
        convert = {"i1": "zext", "float": "bitcast" if is_bits else ""}.get(operand.split(" ")[0])
        if not convert:
            return operand
        number = self._new("number")
        self._lines.append(f"{number} = {convert} {operand} to i32")
        return f"i32 {number}"

    def _wait(self, scope: int, collective: int = 0) -> None:
        """Suspends the thread until those of `scope` have come here too."""
        after, answer = self._new("after"), self._new("answer")
        self._store(row.SCOPE, f"i32 {scope}")
        self._store(row.SITE, f"i32 {self._count if scope else 0}")
        self._store(row.COLLECTIVE, f"i64 {collective}")
        self._lines += [
            f"{answer} = call i8 @llvm.coro.suspend(token none, i1 false)",
            f"switch i8 {answer}, label %thread.suspended [i8 0, label {after} i8 1, label %thread.ended]",
            f"{after[1:]}:",
        ]
        self._last_blocks[self._block] = after[2:-1]
