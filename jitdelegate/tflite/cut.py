"""A partition of a model as a .tflite file of its own, which LiteRT runs.

    cutter = Cutter(content)
    partition = cutter.partition(graph, 0, graph.nodes[3:8], inputs=(7, 9), outputs=(12,))

Operators, tensors and constants are copied from the file unchanged, also fields that `Graph` does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flatbuffers.builder import BuilderSizeError

from jitdelegate.errors import CompileError, ModelError
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.program.flatbuffer import FlatBuffer, Table
from jitdelegate.tflite.constants import Buffers
from jitdelegate.tflite.pack import outside, pack_model
from jitdelegate.tflite.quantization import quantization_record
from jitdelegate.tflite.record import Record, default
from jitdelegate.tflite.schema import ENUMS, TABLES, UNIONS

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_IDENTIFIER = b"TFL3"
_VERSION = 3
_EXTERNAL = 1024
"""Bytes from which on constants lie behind the FlatBuffer: they are copied once, and may exceed its size limit."""

_COMPOSITE_OP, _COMPOSITE_UNION = "STABLEHLO_COMPOSITE", "builtin_options_2"
_COMPOSITE, _DECOMPOSITION = "StableHLOCompositeOptions", "decomposition_subgraph_index"
_SUBGRAPHS = "subgraphs"
_SUBGRAPHS_SLOT = next(slot for slot, field in enumerate(TABLES["Model"]) if field and field[0] == _SUBGRAPHS)
_NO_TABLE: tuple[str, Record] = ("", {})
"""A union without a value."""


class Cutter:
    """Cuts partitions out of one file.

    Args:
        content: a .tflite file that `read` accepts; it must not change.
    """

    def __init__(self, content: ReadableBuffer) -> None:
        source = FlatBuffer(content, ModelError)
        root = source.root(_IDENTIFIER, "model")
        self._file = stored(root, "Model", apart=_SUBGRAPHS)
        self._tables = root.tables(_SUBGRAPHS_SLOT, _SUBGRAPHS)
        self._subgraphs: dict[int, Record] = {}
        self._buffers = Buffers(
            source.content, [default("Buffer") | buffer for buffer in self._file.get("buffers", ())]
        )
        self._read: dict[int, memoryview] = {}

    def partition(
        self, graph: Graph, number: int, nodes: Sequence[Node], inputs: Sequence[int], outputs: Sequence[int]
    ) -> bytes:
        """A model of one subgraph that computes `nodes`; equal arguments give equal bytes in every process.

        Args:
            graph: the file's subgraph `number`, folded but not lowered. Its first tensors are the file's; further and
                folded ones are written as in the graph.
            nodes: the nodes of the partition, in order.
            inputs, outputs: tensors of the graph, in the partition's order.

        Raises:
            CompileError: a node is not exactly one operator of the file or runs another subgraph, other than the
                decomposition of a composite, a value is neither input nor computed nor constant, or the file would be
                too large; one sentence.
        """
        partition = _Partition(self, graph, self.subgraph(number), {*inputs, *(i for n in nodes for i in n.outputs)})
        return partition.content(nodes, inputs, outputs)

    def model(self) -> tuple[Record, dict[int, memoryview]]:
        """The whole file as `pack_model` takes it: the fields of its Model, and its large constants by buffer."""
        file, large = dict(self._file), dict[int, memoryview]()
        file["buffers"] = [self._inside(number, large) for number in range(len(self._file.get("buffers", ())))]
        file[_SUBGRAPHS] = [self._with_options(self.subgraph(number)) for number in range(len(self._tables))]
        return file, large

    def _inside(self, number: int, large: dict[int, memoryview]) -> Record:
        data = self.buffer(number)
        if len(data) < _EXTERNAL:
            return {"data": data} if data else {}
        large[number] = data
        return outside(len(data))

    def _with_options(self, subgraph: Record) -> Record:
        """The subgraph with all options of custom operators in the FlatBuffer."""
        operators = enumerate(subgraph.get("operators", ()))
        return subgraph | {"operators": [one | self.custom_options(one, position) for position, one in operators]}

    def subgraph(self, number: int) -> Record:
        """The file's SubGraph of this number, read at the first call: most partitions need few.

        Raises:
            CompileError: there is none.
        """
        if not 0 <= number < len(self._tables):
            raise CompileError(f"A composite names subgraph {number}, the model has {len(self._tables)}.")
        if number not in self._subgraphs:
            self._subgraphs[number] = stored(self._tables[number], "SubGraph")
        return self._subgraphs[number]

    @property
    def codes(self) -> Sequence[Record]:
        """The file's OperatorCodes."""
        codes: Sequence[Record] = self._file.get("operator_codes", ())
        return codes

    def buffer(self, number: int) -> memoryview:
        """The bytes of a buffer of the file; empty for runtime values."""
        if number not in self._read:
            self._read[number] = self._buffers.data(number, f"buffer {number}")
        return self._read[number]

    def custom_options(self, operator: Record, position: int) -> Record:
        """The fields of an operator's raw options, wherever they lie, for options within the FlatBuffer."""
        options: memoryview | None = operator.get("custom_options")
        if options is None:
            offset, size = (operator.get(f"large_custom_options_{side}", 0) for side in ("offset", "size"))
            options = self._buffers.external(offset, size, f"operator {position}: custom options") or None
        return {"custom_options": options, "large_custom_options_offset": None, "large_custom_options_size": None}


class _Partition:
    """One partition under construction.

    Attributes:
        _whole: the file's SubGraph.
        _running: tensors that are inputs or computed; all others need data.
    """

    def __init__(self, cutter: Cutter, graph: Graph, whole: Record, running: set[int]) -> None:
        self._cutter = cutter
        self._graph = graph
        self._whole = whole
        self._running = running
        self._indices: dict[int, int] = {}
        self._tensors: list[Record] = []
        self._buffers: list[Record] = [{}]
        self._buffer_numbers: dict[tuple[str, int], int] = {}
        self._external: dict[int, memoryview] = {}
        self._codes: dict[int, int] = {}
        self._decompositions: list[Record] = []
        self._decomposition_numbers: dict[int, int] = {}

    def content(self, nodes: Sequence[Node], inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The file."""
        written = set(inputs)
        subgraph: Record = {"inputs": self._all(inputs), "operators": []}
        for node in nodes:
            operator = self._operator(node)
            self._refuse_unknown(node.inputs, written)
            written.update(node.outputs[: len(operator["outputs"])])
            subgraph["operators"].append(operator)
        self._refuse_unknown(outputs, written)
        subgraph |= {"outputs": self._all(outputs), "tensors": self._tensors}
        codes = [self._cutter.codes[index] for index in self._codes]
        subgraphs = [subgraph, *self._decompositions]
        model = {"version": _VERSION, "operator_codes": codes, "subgraphs": subgraphs, "buffers": self._buffers}
        try:
            return pack_model(model, self._external)
        except BuilderSizeError:
            raise CompileError(
                f"A partition of {len(nodes)} operators takes more than the 2 GB of a FlatBuffer."
            ) from None

    def _all(self, indices: Iterable[int]) -> list[int]:
        return [self._tensor(index) for index in indices]

    def _refuse_unknown(self, indices: Iterable[int], known: set[int]) -> None:
        for index in indices:
            if index != ABSENT and index not in known and not self._has_value(self._tensors[self._tensor(index)]):
                name = self._graph.tensors[index].title
                raise CompileError(
                    f"Tensor {index} '{name}' gets its value outside the partition, but is no input of it."
                )

    def _has_value(self, tensor: Record) -> bool:
        """Whether the tensor has a value before a run; constants without elements have no data in LiteRT."""
        return bool(tensor["buffer"] or tensor.get("is_variable") or 0 in tensor["shape"])

    def _operator(self, node: Node) -> Record:
        if len(node.origin) != 1:
            raise CompileError(f"{node.op} stands for {len(node.origin)} operators of the file, expected one.")
        position = node.origin[0]
        operator: Record = self._whole["operators"][position]
        if not _is_composite(node, operator):
            _refuse_calls(operator, position)
        return self._moved(operator, position) | {
            "inputs": self._all(node.inputs),
            # A pass may have given the node further outputs, which LiteRT's kernel does not have.
            "outputs": self._all(node.outputs[: len(operator.get("outputs", ()))]),
            "intermediates": self._all(operator["intermediates"]) if "intermediates" in operator else None,
        }

    def _moved(self, operator: Record, position: int) -> Record:
        """The operator with the partition's numbers for all but its tensors."""
        code = operator.get("opcode_index", 0)
        return operator | {
            **self._cutter.custom_options(operator, position),
            **self._calls(operator, position),
            "opcode_index": self._codes.setdefault(code, len(self._codes)),
            "debug_metadata_index": None,
        }

    def _calls(self, operator: Record, position: int) -> Record:
        """The options that name the decomposition of a composite, which is added to the partition.

        Raises:
            CompileError: the operator names other subgraphs.
        """
        kind, options = operator.get(_COMPOSITE_UNION) or _NO_TABLE
        if kind != _COMPOSITE:
            _refuse_calls(operator, position)
            return {}
        number = self._decomposition(options.get(_DECOMPOSITION, 0))
        return {_COMPOSITE_UNION: (kind, options | {_DECOMPOSITION: number})}

    def _decomposition(self, number: int) -> int:
        """The partition's subgraph for the file's subgraph `number`, added with those that it names on first use."""
        if number not in self._decomposition_numbers:
            added = self._decomposition_numbers[number] = 1 + len(self._decomposition_numbers)
            self._decompositions.append({})
            whole = self._cutter.subgraph(number)
            tensors = [one | {"buffer": self._file_buffer(one.get("buffer", 0))} for one in whole.get("tensors", ())]
            operators = [self._moved(operator, at) for at, operator in enumerate(whole.get("operators", ()))]
            self._decompositions[added - 1] = whole | {
                "tensors": tensors,
                "operators": operators,
                "debug_metadata_index": None,
            }
        return self._decomposition_numbers[number]

    def _file_buffer(self, number: int) -> int:
        data = self._cutter.buffer(number)
        return self._added(("file", number), data) if data else 0

    def _tensor(self, index: int) -> int:
        """The tensor's index in the partition."""
        if index == ABSENT:
            return ABSENT
        if index not in self._indices:
            added = self._indices[index] = len(self._tensors)
            self._tensors.append({})
            self._tensors[added] = self._tensor_record(index)
        return self._indices[index]

    def _tensor_record(self, index: int) -> Record:
        tensor, stored = self._graph.tensors[index], self._whole.get("tensors", ())
        record: Record = stored[index] if index < len(stored) else _new_tensor(tensor)
        quantization = record.get("quantization")
        return record | {
            "shape": tensor.shape,
            "shape_signature": None,
            "has_rank": tensor.has_rank,
            "buffer": 0 if index in self._running else self._buffer(record.get("buffer", 0), tensor),
            "quantization": quantization and self._quantization(quantization),
        }

    def _quantization(self, quantization: Record) -> Record:
        """The quantization, with scales and zero points that are tensors added to the partition."""
        kind, details = quantization.get("details") or _NO_TABLE
        if "scales" not in _names(kind):
            return quantization
        added = {"scales": self._tensor(details.get("scales", 0))}
        if details.get("zero_points", 0) > 0:
            added["zero_points"] = self._tensor(details["zero_points"])
        return quantization | {"details": (kind, details | added)}

    def _buffer(self, number: int, tensor: Tensor) -> int:
        """The partition's buffer for the file's buffer `number` or, if that is empty, for the graph's tensor."""
        stored = self._file_buffer(number)
        if stored:
            return stored
        if tensor.data is None or not tensor.data.size:
            return 0
        return self._added(("graph", id(tensor.data)), tensor.data.reshape(-1).view("uint8").data)

    def _added(self, key: tuple[str, int], data: memoryview) -> int:
        """The number of the buffer with this data, added on first use."""
        number = self._buffer_numbers.setdefault(key, len(self._buffers))
        if number == len(self._buffers):
            external = len(data) >= _EXTERNAL
            self._buffers.append(outside(len(data)) if external else {"data": data})
            if external:
                self._external[number] = data
        return number


def _is_composite(node: Node, operator: Record) -> bool:
    """Whether the node is the file's composite, and not an operator of its decomposition, which has the same origin."""
    _, options = operator.get(_COMPOSITE_UNION) or _NO_TABLE
    known = node.attrs.get(_DECOMPOSITION), tuple(node.inputs), tuple(node.outputs)
    expected = options.get(_DECOMPOSITION, 0), tuple(operator.get("inputs", ())), tuple(operator.get("outputs", ()))
    return node.op == _COMPOSITE_OP and known == expected


def _refuse_calls(operator: Record, position: int) -> None:
    for union in ("builtin_options", "builtin_options_2"):
        kind, _ = operator.get(union) or _NO_TABLE
        if any("subgraph" in name or name == "called_computations" for name in _names(kind)):
            raise CompileError(f"Operator {position} has {kind}, which name subgraphs that a partition does not have.")


def _names(kind: str) -> list[str]:
    return [field[0] for field in TABLES.get(kind, ()) if field is not None]


def _new_tensor(tensor: Tensor) -> Record:
    """The record of a tensor that is not in the file."""
    if tensor.sparsity is not None or (tensor.quant is not None and tensor.quant.block_size):
        raise CompileError(f"'{tensor.title}' is sparse or quantized in blocks, and no tensor of the file.")
    quantization = None if tensor.quant is None else quantization_record(tensor.quant)
    return {"type": tensor.dtype.upper(), "name": tensor.name, "quantization": quantization}


def stored(table: Table, kind: str, apart: str = "") -> Record:
    """The fields of `table` that the file stores, as `pack` takes them, without the field `apart`.

    `record` gives absent fields their defaults. But LiteRT distinguishes absent strings and vectors from empty ones.
    """
    fields, known = dict[str, Any](), TABLES[kind]
    for slot in table.stored():
        field = known[slot] if slot < len(known) else None
        if field is not None and field[0] != apart and not (field[2] in UNIONS and field[1] == "B"):
            fields[field[0]] = _value(table, slot, *field[:3])
    return fields


def _value(table: Table, slot: int, name: str, code: str, of: str) -> Any:
    if code in ("t", "u"):
        return _child(table, slot, name, code, of)
    if code == "[t]":
        return tuple(stored(child, of) for child in table.tables(slot, name))
    if code == "s":
        return table.string(slot, name)
    if code == "[s]":
        return table.strings(slot, name)
    if code == "[B]":
        return table.memory(slot, name)
    if code[0] == "[":
        numbers = table.scalars(slot, name, code[1])
        return tuple(ENUMS[of][int(number)] for number in numbers) if of else numbers
    number = table.scalar(slot, name, code, 0)
    return ENUMS[of][int(number)] if of else number


def _child(table: Table, slot: int, name: str, code: str, of: str) -> Any:
    """The fields of a table; for a union, (kind, fields), or None without a value."""
    child = table.table(slot, name)
    if child is None or code == "t":
        return child and stored(child, of)
    kind = UNIONS[of].get(table.integer(slot - 1, name, "B"))
    return kind and (kind, stored(child, kind))
