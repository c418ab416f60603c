"""`.tflite` bytes to a Model. Any bytes give a well-formed Model or a ModelError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Model, Signature
from jitdelegate.program.flatbuffer import FlatBuffer
from jitdelegate.tflite.calls import check_calls
from jitdelegate.tflite.constants import Buffers
from jitdelegate.tflite.record import Record, record
from jitdelegate.tflite.subgraph import label, read_subgraph

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_IDENTIFIER = b"TFL3"
_VERSION = 3


def read(content: ReadableBuffer) -> Model:
    """The model in `content`; its constants are read-only views of these bytes, which must not change.

    Raises:
        ModelError: the bytes are not a consistent model; the message names the part of the file, the value found and
            the expected one.
    """
    source = FlatBuffer(content, ModelError)
    file = record(source.root(_IDENTIFIER, "model"), "Model")
    if file["version"] != _VERSION:
        raise ModelError(f"model: has the schema version {file['version']}, expected {_VERSION}")
    if not file["subgraphs"]:
        raise ModelError("model: has no subgraph, expected at least one")
    return _model(file, source)


def _model(file: Record, source: FlatBuffer) -> Model:
    buffers = Buffers(source.content, file["buffers"])
    graphs = tuple(
        read_subgraph(each, index, file["operator_codes"], buffers) for index, each in enumerate(file["subgraphs"])
    )
    check_calls(graphs)
    signatures = tuple(_signature(each, index, file) for index, each in enumerate(file["signature_defs"]))
    return Model(graphs, signatures, file["description"], file["version"], _metadata(file, buffers, source))


def _signature(found: Record, index: int, file: Record) -> Signature:
    where = label("signature", index, found["signature_key"])
    graph: int = found["subgraph_index"]
    if graph >= len(file["subgraphs"]):
        raise ModelError(f"{where}: subgraph {graph} does not exist, there are {len(file['subgraphs'])}")
    tensors = len(file["subgraphs"][graph]["tensors"])
    inputs, outputs = (_arguments(found[side], tensors, f"{where}, {side}") for side in ("inputs", "outputs"))
    return Signature(found["signature_key"], graph, inputs, outputs)


def _arguments(maps: tuple[Record, ...], tensors: int, where: str) -> Mapping[str, int]:
    for index, each in enumerate(maps):
        if each["tensor_index"] >= tensors:
            argument = f"{where} {label('argument', index, each['name'])}"
            raise ModelError(f"{argument}: tensor {each['tensor_index']} does not exist, there are {tensors}")
    return {each["name"]: each["tensor_index"] for each in maps}


def _metadata(file: Record, buffers: Buffers, source: FlatBuffer) -> Mapping[str, bytes]:
    """Name to bytes; entries may share buffers, so copying counts against the limit for reading.

    Without entries whose buffer does not exist, on which nothing depends: LiteRT runs such files.
    """
    found: dict[str, bytes] = {}
    for index, each in enumerate(file["metadata"]):
        if each["buffer"] >= len(file["buffers"]):
            continue
        where = label("metadata", index, each["name"])
        data = buffers.data(each["buffer"], where)
        source.spend(len(data), where)
        found[each["name"]] = bytes(data)
    return found
