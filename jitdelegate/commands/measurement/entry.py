"""Entry: what of a model is run, a subgraph or a signature, with its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from jitdelegate.base.options import DelegateOptions
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import TensorError
from jitdelegate.ir.graph import Graph, Quant, Signature
from jitdelegate.tflite.read import read

Shape = tuple[int, ...]
_NO_SIGNATURE = Signature("", 0, {}, {})
NARROW = ("int8", "uint8", "int16")
"""Types of quantized activations."""


@dataclass(frozen=True)
class Interface:
    """An input or output.

    Attributes:
        name: the signature's name of it; without a signature, the tensor's.
        tensor: the tensor's name.
        index: among the subgraph's tensors.
        shape: its sizes in the runs; those of an output that depends on other inputs' sizes are the file's.
        shape_signature: the file's sizes, -1 where any is possible; empty if the file says nothing.
        dtype: numpy's name of the type, or "string".
        quant: quantization; None without.
    """

    name: str
    tensor: str
    index: int
    shape: Shape
    shape_signature: Shape
    dtype: str
    quant: Quant | None

    @property
    def is_quantized(self) -> bool:
        return self.quant is not None and bool(self.quant.scales) and self.dtype in NARROW

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Entry:
    """What is run of a model.

    Attributes:
        source: the file's path, or a model's content.
        content: the model.
        subgraph: its index.
        signature: key of the signature that has to be called to run it; None for the main subgraph.
        called: key of the signature, as the user knows it; "" where there is none.
    """

    source: str | bytes
    content: bytes
    subgraph: int
    signature: str | None
    called: str
    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]

    @cached_property
    def graph(self) -> Graph:
        """The subgraph."""
        return read(self.content).graphs[self.subgraph]

    def position(self, name: str) -> int:
        """The position of an input from its name, the tensor's name, or its number.

        Raises:
            TensorError: there is no such input.
        """
        for position, port in enumerate(self.inputs):
            if name in (port.name, port.tensor):
                return position
        if name.isdecimal() and int(name) < len(self.inputs):
            return int(name)
        raise TensorError(f"no input is named {name!r}, expected one of {[each.name for each in self.inputs]}")

    def with_shapes(self, shapes: Mapping[int, Shape]) -> Entry:
        """The same with other sizes of some inputs, by position.

        Raises:
            TensorError: an input has another number of dimensions.
        """
        for position, shape in shapes.items():
            port = self.inputs[position]
            if len(shape) != len(port.shape) and len(port.shape):
                raise TensorError(f"the shape of input {port.name!r} is {list(shape)}, expected {_told(port)}")
        inputs = [replace(port, shape=shapes.get(position, port.shape)) for position, port in enumerate(self.inputs)]
        return replace(self, inputs=tuple(inputs))


def find_entry(model: str | bytes, options: DelegateOptions, signature: str = "") -> Entry:
    """What of a model is run.

    Args:
        model: a path, or a model's content.
        options: those that change the types of inputs and outputs count.
        signature: its key; "" is the main subgraph.
    Raises:
        ModelError: the file cannot be opened or is not a model.
        TensorError: there is no such signature.
    """
    content = ModelFile(model, options).content()
    known = read(content)
    source = content if options.port_key else model
    named = {each.key: each for each in known.signatures}
    if signature and signature not in named:
        raise TensorError(f"no signature is named {signature!r}, the model has {list(named)}")
    chosen = named.get(signature) or next((own for own in known.signatures if own.graph == 0), _NO_SIGNATURE)
    graph = known.graphs[chosen.graph]
    has_to_be_called = bool(signature) and (chosen.graph > 0 or not _is_whole(chosen, graph))
    if has_to_be_called:
        inputs, outputs = ([*each.items()] for each in (chosen.inputs, chosen.outputs))
    else:
        inputs, outputs = _plain(graph.inputs, chosen.inputs), _plain(graph.outputs, chosen.outputs)
    return Entry(
        source=source,
        content=content,
        subgraph=chosen.graph,
        signature=signature if has_to_be_called else None,
        called=chosen.key,
        inputs=tuple(interface(graph, index, name) for name, index in inputs),
        outputs=tuple(interface(graph, index, name) for name, index in outputs),
    )


def _is_whole(signature: Signature, graph: Graph) -> bool:
    """Whether the signature is the subgraph under other names."""
    return {*signature.inputs.values()} == {*graph.inputs} and {*signature.outputs.values()} == {*graph.outputs}


def _plain(indices: Sequence[int], names: Mapping[str, int]) -> list[tuple[str, int]]:
    """(name, index) of a subgraph's inputs or outputs; without a name, "" stands for the tensor's."""
    called = {index: name for name, index in names.items()}
    return [(called.get(index, ""), index) for index in indices]


def interface(graph: Graph, index: int, name: str = "") -> Interface:
    """A tensor of a subgraph as an input or output; "" stands for the tensor's own name."""
    tensor = graph.tensors[index]
    return Interface(
        name=name or tensor.name,
        tensor=tensor.name,
        index=index,
        shape=tensor.shape,
        shape_signature=tensor.shape_signature,
        dtype=tensor.dtype,
        quant=tensor.quant,
    )


def _told(port: Interface) -> str:
    return str(list(port.shape_signature or port.shape)).replace("-1", "any")
