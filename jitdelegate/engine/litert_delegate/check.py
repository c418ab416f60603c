"""Checks that memory has the expected structures, before it is trusted, with reads that cannot end the process.

After a `Doubt` the caller delegates nothing, and the model runs on LiteRT as without a delegate.
"""

from __future__ import annotations

import os

from jitdelegate.engine.litert_delegate.context import type_name
from jitdelegate.engine.litert_delegate.memory import SafeReader, library_of
from jitdelegate.runtime.litert_layout import CONTEXT_FUNCTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Literal

    from jitdelegate.engine.litert_delegate.context import Context
    from jitdelegate.engine.litert_delegate.delegate_client import Facts
    from jitdelegate.runtime.litert_layout import Layout, Structure

_LARGEST_TYPE = 63
_LARGEST_ALLOCATION_TYPE = 15
_LARGEST_RANK = 16
_USUAL_RANK = 6
_MOST_TENSORS = 1 << 22
_CHECKED_FIELDS = ("type", "dims", "allocation_type", "name", "is_variable")
_FORMATS: dict[int, Literal["B", "i", "Q"]] = {1: "B", 4: "i", 8: "Q"}


class Doubt(Exception):  # noqa: N818 - nothing failed
    """Something differs from what is expected; the message says what."""


class TensorTable:
    """A copy of a context's tensors.

    Attributes:
        reader: the pages that were read.
        rows: (type, dims, allocation_type, name, is_variable) of each tensor; dims and name are addresses.
    """

    __slots__ = ("reader", "rows")

    def __init__(self, reader: SafeReader, rows: list[tuple[int, int, int, int, int]]) -> None:
        self.reader = reader
        self.rows = rows

    def name(self, index: int, length: int) -> bytes | None:
        """`length` + 1 bytes of a tensor's name; None where there is no such memory."""
        return self.reader.read(self.rows[index][3], length + 1)


def check_functions(address: int, layout: Layout, libraries: Collection[str]) -> None:
    """Check that the context's functions lie in a trusted library.

    Raises:
        Doubt: they do not, or there is no such memory.
    """
    reader = SafeReader()
    for name in CONTEXT_FUNCTIONS:
        function = reader.read(address + layout.context[name], layout.context.fields[name][1])
        if function is None:
            raise Doubt("LiteRT's TfLiteContext cannot be read")
        library = library_of(int.from_bytes(function, "little"))
        if library not in libraries and os.path.realpath(library) not in map(os.path.realpath, libraries):
            found = f"in {library}" if library else "no function of a library"
            raise Doubt(f"TfLiteContext.{name} is {found}, expected one of the installed ai_edge_litert")


def read_tensors(address: int, layout: Layout) -> TensorTable:
    """All tensors of the context at `address`.

    Raises:
        Doubt: a tensor's fields are not plausible.
    """
    reader = SafeReader()
    size = reader.integer(address + layout.context["tensors_size"], 8)
    first = reader.integer(address + layout.context["tensors"], 8)
    if size is None or first is None or not 0 <= size <= _MOST_TENSORS:
        raise Doubt(f"TfLiteContext has {size} tensors, expected at most {_MOST_TENSORS}")
    content = reader.read(first, size * layout.tensor.size)
    if content is None:
        raise Doubt(f"the {size} tensors of TfLiteContext cannot be read")
    rows = list(zip(*(_column(content, layout.tensor, name) for name in _CHECKED_FIELDS), strict=True))
    for index, (dtype, dims, allocation_type, _, is_variable) in enumerate(rows):
        if not 0 <= dtype <= _LARGEST_TYPE or not 0 <= allocation_type <= _LARGEST_ALLOCATION_TYPE or is_variable > 1:
            raise Doubt(f"tensor {index} has type {dtype}, allocation {allocation_type}, is_variable {is_variable}")
        if dims:
            _check_dims(reader, layout.int_array, index, dims)
    return TensorTable(reader, rows)


def difference(table: TensorTable, facts: Facts) -> str:
    """ "" if the tensors are those of the subgraph, else the first thing that differs."""
    if len(table.rows) < facts.num_tensors:
        return f"there are {len(table.rows)} tensors, expected {facts.num_tensors} or more"
    for index, name, dtype in facts.tensors:
        expected = name.encode("utf-8", "surrogateescape")
        found = table.name(index, len(expected))
        if found != expected + b"\0":
            return f"tensor {index} is called {found!r}, expected {name!r}"
        if type_name(table.rows[index][0]) != dtype:
            return f"tensor {index} ({name}) is {type_name(table.rows[index][0])}, expected {dtype}"
        if not table.rows[index][1]:
            return f"tensor {index} ({name}) has no shape"
    return ""


def plan_difference(plan: tuple[int, ...], facts: Facts) -> str:
    """ "" if the execution plan may be the subgraph's: whole, or with nodes replaced by other delegates."""
    if len(plan) == facts.num_nodes == len(set(plan)) and max(plan, default=-1) < facts.num_nodes:
        return ""
    replaced = max(plan, default=-1) >= facts.num_nodes and set(plan) != set(range(len(plan)))
    return "" if replaced else f"there are {len(plan)} nodes, expected {facts.num_nodes}"


def node_difference(context: Context, plan: tuple[int, ...], facts: Facts) -> str:
    """ "" if the nodes have the file's operators and tensors, else the first difference."""
    present = set(plan)
    for position, code in facts.codes:
        if position in present and context.node(position).builtin_code != code:
            return f"node {position} has the code {context.node(position).builtin_code}, expected {code}"
    for position, inputs, outputs in facts.nodes:
        if position not in present:
            continue
        node = context.node(position)
        if node.inputs != tuple(inputs) or node.outputs != tuple(outputs):
            found, expected = (node.inputs, node.outputs), (tuple(inputs), tuple(outputs))
            return f"node {position} has the tensors {found}, expected {expected}"
    return ""


def _column(content: bytes, tensor: Structure, name: str) -> list[int]:
    """One field of all tensors."""
    offset, size = tensor.fields[name]
    if offset % size or tensor.size % size:
        raise Doubt(f"TfLiteTensor.{name} would lie at byte {offset} of {tensor.size}, expected multiples of {size}")
    return memoryview(content).cast(_FORMATS[size])[offset // size :: tensor.size // size].tolist()


def _check_dims(reader: SafeReader, int_array: Structure, index: int, dims: int) -> None:
    """Check a shape: one read for the usual ranks; near the end of a page, one for the rank and one for the sizes."""
    start, place = int_array["data"], int_array["size"]
    content = reader.read(dims, start + 4 * _USUAL_RANK)
    if content is None:
        content = reader.read(dims, int_array.end()) or b""
    rank = int.from_bytes(content[place : place + 4], "little", signed=True) if content else -1
    known = 0 <= rank <= _LARGEST_RANK
    if not known or (start + 4 * rank > len(content) and reader.read(dims + start, 4 * rank) is None):
        raise Doubt(f"tensor {index} has the rank {rank}, expected at most {_LARGEST_RANK}")
