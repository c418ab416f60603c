"""One subgraph of a file as a Graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import ABSENT, Graph, Node, Quant, Sparsity, Tensor
from jitdelegate.tflite.constants import UNSIZED, Buffers, constant, stored_values
from jitdelegate.tflite.options import attributes
from jitdelegate.tflite.quantization import quantization, with_block_scales
from jitdelegate.tflite.record import Record
from jitdelegate.tflite.schema import ENUMS
from jitdelegate.tflite.sparsity import sparsity

_OPERATORS = ENUMS["BuiltinOperator"]
_MOST_DIMENSIONS = 32
_MOST_ELEMENTS = 1 << 40
_LONGEST_NAME = 80


def label(kind: str, index: int, name: str) -> str:
    """What messages call a part of the file: its kind, its index in the file and its (shortened) name."""
    shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
    return f"{kind} {index} {shown!r}" if name else f"{kind} {index}"


def read_subgraph(record: Record, index: int, codes: Sequence[Record], buffers: Buffers) -> Graph:
    """The graph of the file's subgraph `index`.

    Args:
        record: its SubGraph.
        codes: the model's OperatorCodes.
        buffers: the model's buffers.

    Raises:
        ModelError: a tensor or operator is invalid, or a value is written twice or read before it is written.
    """
    where = label("subgraph", index, record["name"])
    tensors = _tensors(record, buffers, where)
    nodes = tuple(_node(operator, i, codes, buffers, tensors, where) for i, operator in enumerate(record["operators"]))
    inputs, outputs = record["inputs"], record["outputs"]
    graph = Graph(_with_empty_constants(tensors, nodes, inputs), nodes, inputs, outputs, record["name"])
    _check_ports(graph, where)
    _check_order(graph, where)
    return graph


def _tensors(record: Record, buffers: Buffers, where: str) -> tuple[Tensor, ...]:
    says_rank = any(tensor["has_rank"] for tensor in record["tensors"])
    titles = [f"{where}, {label('tensor', index, tensor['name'])}" for index, tensor in enumerate(record["tensors"])]
    tensors = tuple(
        _tensor(tensor, buffers, says_rank, title) for tensor, title in zip(record["tensors"], titles, strict=True)
    )
    return with_block_scales(tensors, record["tensors"], titles)


def _tensor(record: Record, buffers: Buffers, says_rank: bool, where: str) -> Tensor:
    shape = _shape(record["shape"], where)
    dtype = record["type"].lower()
    data, sparse = _data(record, shape, dtype, buffers, where)
    return Tensor(
        record["name"],
        shape,
        dtype,
        data,
        quantization(record["quantization"], shape, where),
        _signature(record["shape_signature"], shape, where),
        record["is_variable"],
        # Converters before 2023 never wrote has_rank; then an empty shape is a scalar.
        has_rank=record["has_rank"] or bool(shape) or data is not None or not says_rank,
        sparsity=sparse,
    )


def _shape(shape: tuple[int, ...], where: str) -> tuple[int, ...]:
    if len(shape) > _MOST_DIMENSIONS:
        raise ModelError(f"{where}: has {len(shape)} dimensions, expected at most {_MOST_DIMENSIONS}")
    if any(size < 0 for size in shape):
        raise ModelError(f"{where}: the shape {list(shape)} has a negative size")
    if prod(size for size in shape if size) > _MOST_ELEMENTS:
        raise ModelError(f"{where}: the shape {list(shape)} has more than {_MOST_ELEMENTS} elements")
    return shape


def _signature(signature: tuple[int, ...], shape: tuple[int, ...], where: str) -> tuple[int, ...]:
    if signature and (len(signature) != len(shape) or min(signature) < -1):
        raise ModelError(
            f"{where}: the shape signature {list(signature)[:_MOST_DIMENSIONS]} does not fit {list(shape)}"
        )
    return signature or shape


def _data(
    record: Record, shape: tuple[int, ...], dtype: str, buffers: Buffers, where: str
) -> tuple[np.ndarray | None, Sparsity | None]:
    if record["external_buffer"]:
        raise ModelError(f"{where}: its data is in another file (external buffer {record['external_buffer']})")
    data = buffers.data(record["buffer"], where)
    if not data:
        return None, None
    if record["is_variable"]:
        raise ModelError(f"{where}: is a variable, but has a buffer of {len(data)} bytes")
    if record["sparsity"] is None:
        return constant(data, shape, dtype, where), None
    values = stored_values(data, dtype, where)
    return values, sparsity(record["sparsity"], shape, values.size, where)


def _node(
    record: Record, position: int, codes: Sequence[Record], buffers: Buffers, tensors: Sequence[Tensor], where: str
) -> Node:
    own = f"{where}, operator {position}"
    if record["opcode_index"] >= len(codes):
        raise ModelError(f"{own}: operator code {record['opcode_index']} does not exist, there are {len(codes)}")
    code = codes[record["opcode_index"]]
    op = operator_name(code, own)
    custom = op == "CUSTOM"
    return Node(
        code["custom_code"] if custom else op,
        record["inputs"],
        record["outputs"],
        attributes(op, record),
        code["version"],
        custom,
        _custom_options(record, buffers, own) if custom else b"",
        (position,),
        tuple(_quantization(tensors, index, own) for index in record["intermediates"]),
    )


def _quantization(tensors: Sequence[Tensor], index: int, where: str) -> Quant | None:
    """The quantization of a value inside an operator; None for one that is left out."""
    if index == ABSENT:
        return None
    if not 0 <= index < len(tensors):
        raise ModelError(f"{where} has tensor {index} inside, which does not exist; there are {len(tensors)}")
    return tensors[index].quant


def operator_name(code: Record, where: str) -> str:
    """The builtin operator of an OperatorCode. Files from before 2020 have only the one-byte field, newer ones both.

    Raises:
        ModelError: the schema has no such operator, or a custom one has no name.
    """
    number = max(code["deprecated_builtin_code"], code["builtin_code"])
    if number not in _OPERATORS:
        raise ModelError(f"{where}: {number} is no builtin operator; known are 0..{max(_OPERATORS)}")
    if _OPERATORS[number] == "CUSTOM" and not code["custom_code"]:
        raise ModelError(f"{where}: is a custom operator without a name")
    return _OPERATORS[number]


def _custom_options(record: Record, buffers: Buffers, where: str) -> bytes:
    inline: bytes = record["custom_options"]
    if inline:
        return inline
    offset, size = record["large_custom_options_offset"], record["large_custom_options_size"]
    return bytes(buffers.external(offset, size, f"{where}: custom options"))


def _with_empty_constants(
    tensors: tuple[Tensor, ...], nodes: Sequence[Node], inputs: Sequence[int]
) -> tuple[Tensor, ...]:
    """The tensors, with data for constants without elements, which in the file look like unwritten runtime values."""
    written = {index for node in nodes for index in node.outputs} | set(inputs)
    return tuple(tensor if index in written else _as_empty_constant(tensor) for index, tensor in enumerate(tensors))


def _as_empty_constant(tensor: Tensor) -> Tensor:
    if tensor.is_constant or tensor.is_variable or 0 not in tensor.shape or tensor.dtype in UNSIZED:
        return tensor
    return replace(tensor, data=constant(memoryview(b""), tensor.shape, tensor.dtype, tensor.name))


def _check_ports(graph: Graph, where: str) -> None:
    for kind, indices in (("input", graph.inputs), ("output", graph.outputs)):
        for index in indices:
            if not 0 <= index < len(graph.tensors):
                raise ModelError(f"{where}: {kind} tensor {index} does not exist, there are {len(graph.tensors)}")


def _check_order(graph: Graph, where: str) -> None:
    """Check that every value is written once, and before it is read. A variable has a value before it is written."""
    variables = {index for index, tensor in enumerate(graph.tensors) if tensor.is_variable} - set(graph.inputs)
    written = {index for index, tensor in enumerate(graph.tensors) if tensor.is_constant} | set(graph.inputs)
    known = variables | written
    for position, node in enumerate(graph.nodes):
        title = f"{where}, {label('operator', position, node.op)}"
        for index in node.inputs:
            if index != ABSENT:
                _check_known(graph, index, known, f"{title} reads")
        for index in node.outputs:
            _check_new(graph, index, written, f"{title} writes")
            written.add(index)
            known.add(index)
    for index in graph.outputs:
        _check_known(graph, index, known, f"{where} answers")


def _check_known(graph: Graph, index: int, known: set[int], subject: str) -> None:
    if not 0 <= index < len(graph.tensors):
        raise ModelError(f"{subject} tensor {index}, which does not exist; there are {len(graph.tensors)}")
    if index not in known:
        raise ModelError(f"{subject} {label('tensor', index, graph.tensors[index].name)} before it is written")


def _check_new(graph: Graph, index: int, written: set[int], subject: str) -> None:
    if not 0 <= index < len(graph.tensors):
        raise ModelError(f"{subject} tensor {index}, which does not exist; there are {len(graph.tensors)}")
    if index in written:
        name = label("tensor", index, graph.tensors[index].name)
        raise ModelError(f"{subject} {name}, which has a value already (an input, a constant, or written before)")
