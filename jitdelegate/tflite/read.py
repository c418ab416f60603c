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


def not_a_model(found: str) -> ModelError:
    """The error about bytes that are no FlatBuffer of a model, in LiteRT's words, and with what was found."""
    return ModelError(f"The model is not a valid Flatbuffer buffer: {found}")


def read(content: ReadableBuffer) -> Model:
    """The model in `content`; its constants are read-only views of these bytes, which must not change.

    Raises:
        ModelError: the bytes are not a consistent model; the message names the part of the file, the value found and
            the expected one.
    """
    source = FlatBuffer(content, not_a_model)
    file = record(source.root(_IDENTIFIER, "model"), "Model")
    if file["version"] != _VERSION:
        raise ModelError(f"model: has the schema version {file['version']}, expected {_VERSION}")
    if not file["subgraphs"]:
        raise ModelError("model: has no subgraph, expected at least one")
    return _model(file, source)


class Reading:
    """Reads a content once."""

    def __init__(self) -> None:
        self._read: tuple[ReadableBuffer, Model] | None = None

    def model(self, content: ReadableBuffer) -> Model:
        """The model; read again only if `content` is another object than before.

        Raises:
            ModelError: the bytes are not a model.
        """
        known = self._read
        if known is None or known[0] is not content:
            known = self._read = content, read(content)
        return known[1]


def _model(file: Record, source: FlatBuffer) -> Model:
    buffers = Buffers(source.content, file["buffers"])
    graphs = tuple(
        read_subgraph(record, index, file["operator_codes"], buffers) for index, record in enumerate(file["subgraphs"])
    )
    check_calls(graphs)
    signatures = tuple(_signature(record, index, file) for index, record in enumerate(file["signature_defs"]))
    return Model(graphs, signatures, file["description"], file["version"], _metadata(file, buffers, source))


def _signature(record: Record, index: int, file: Record) -> Signature:
    where = label("signature", index, record["signature_key"])
    graph: int = record["subgraph_index"]
    if graph >= len(file["subgraphs"]):
        raise ModelError(f"{where}: subgraph {graph} does not exist, there are {len(file['subgraphs'])}")
    tensors = len(file["subgraphs"][graph]["tensors"])
    inputs, outputs = (_arguments(record[side], tensors, f"{where}, {side}") for side in ("inputs", "outputs"))
    return Signature(record["signature_key"], graph, inputs, outputs)


def _arguments(maps: tuple[Record, ...], tensors: int, where: str) -> Mapping[str, int]:
    for index, entry in enumerate(maps):
        if entry["tensor_index"] >= tensors:
            argument = f"{where} {label('argument', index, entry['name'])}"
            raise ModelError(f"{argument}: tensor {entry['tensor_index']} does not exist, there are {tensors}")
    return {entry["name"]: entry["tensor_index"] for entry in maps}


def _metadata(file: Record, buffers: Buffers, source: FlatBuffer) -> Mapping[str, bytes]:
    """Name to bytes; entries may share buffers, so copying counts against the limit for reading.

    Without entries whose buffer does not exist, on which nothing depends: LiteRT runs such files.
    """
    entries: dict[str, bytes] = {}
    for index, entry in enumerate(file["metadata"]):
        if entry["buffer"] >= len(file["buffers"]):
            continue
        where = label("metadata", index, entry["name"])
        data = buffers.data(entry["buffer"], where)
        source.spend(len(data), where)
        entries[entry["name"]] = bytes(data)
    return entries
