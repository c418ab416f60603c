"""The entry through which LiteRT's interpreter runs a program: `invoke(TfLiteContext*, TfLiteNode*)`.

No Python runs between LiteRT and the kernels. `runtime.delegate_table` makes the table of words that the entry reads.
"""

from __future__ import annotations

from collections.abc import Callable

from jitdelegate.runtime.delegate_table import COPIES, FILLS, FORMATS, HEAD, WORD
from jitdelegate.runtime.litert_layout import LAYOUT
from jitdelegate.runtime.status import FOUND_BITS
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Function, Module, Value
from jitdelegate.targets.cpu.entry.schedule import ENTRY_PARAMETERS

PART, BYTE = "i32", "i8"
PART_BYTES = 4
"""Variables are copied in such parts, then byte by byte."""


def write_host_entry(module: Module, *, may_refuse: bool) -> None:
    """Adds `invoke`: takes the tensors' addresses from LiteRT, calls `run`, copies variables back, returns 0. If `run`
    refuses a value, `invoke` tells LiteRT why instead, and returns 1."""
    parameters = [("context", POINTER), ("node", POINTER)]
    f = Function(module, "invoke", parameters, exported=True, result=INDEX)
    context, node = f.parameters
    tensors = f.load(POINTER, context + LAYOUT.context["tensors"], WORD)
    slot = f.load(POINTER, node + LAYOUT.node["user_data"], WORD)
    words = f.load(POINTER, slot + WORD, WORD)
    run = [f.load(POINTER, words + number * WORD, WORD) for number in range(len(ENTRY_PARAMETERS))]
    io = run[[name for name, _ in ENTRY_PARAMETERS].index("io")]
    fills, copies = (f.load(INDEX, words + number * WORD, WORD) for number in (FILLS, COPIES))

    def data_of(offset: Value) -> Value:
        return f.load(POINTER, tensors + offset, WORD)

    def fill(number: Value) -> None:
        pair = words + (number * (2 * WORD) + HEAD * WORD)
        port, offset = f.load(INDEX, pair, WORD), f.load(INDEX, pair + WORD, WORD)
        f.store(data_of(offset), io + port * WORD, WORD)

    def copy(number: Value) -> None:
        triple = words + fills * (2 * WORD) + (number * (3 * WORD) + HEAD * WORD)
        source, offset = f.load(POINTER, triple, WORD), f.load(INDEX, triple + WORD, WORD)
        target, size = data_of(offset), f.load(INDEX, triple + 2 * WORD, WORD)
        rest = size & (PART_BYTES - 1)
        whole = size - rest

        def part(at: Value) -> None:
            f.store(f.load(PART, source + at * PART_BYTES), target + at * PART_BYTES)

        def byte(at: Value) -> None:
            f.store(f.load(BYTE, source + whole + at), target + whole + at)

        _for_each(f, whole >> 2, part)
        _for_each(f, rest, byte)

    _for_each(f, fills, fill)
    status = f.emit(INDEX, f"call i64 @run({', '.join(map(str, run))})")
    if may_refuse:
        f.branch(f.compare("eq", status, 0), "ran", "refused")
        f.start_block("refused")
        _report(f, context, words, status)
        f.do("ret i64 1")
        f.start_block("ran")
    _for_each(f, copies, copy)
    f.do("ret i64 0")
    f.close()


def _report(f: Function, context: Value, words: Value, status: Value) -> None:
    """Tells LiteRT what the status word says."""
    formats = f.load(POINTER, words + FORMATS * WORD, WORD)
    number, found = status >> FOUND_BITS, f.ashr(status << (64 - FOUND_BITS), 64 - FOUND_BITS)
    text = f.load(POINTER, formats + (number - 1) * WORD, WORD)
    report = f.load(POINTER, context + LAYOUT.context["ReportError"], WORD)
    f.do(f"call void (ptr, ptr, ...) {report.text}({context}, {text}, {found})")


def _for_each(f: Function, count: Value, body: Callable[[Value], None]) -> None:
    """Calls `body(i)` for every i below `count`, which may be 0."""

    def loop() -> None:
        f.loop(count, body)

    f.when(f.compare("ne", count, 0), loop)
