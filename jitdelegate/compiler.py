"""The cold road as one function: .tflite bytes in, program bytes out. Read it first.

bytes -> model.read -> Model -> passes -> lowered Graph -> target -> code -> program.write -> bytes
"""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

import numpy as np

from jitdelegate.cache.key import Key
from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Graph, Model, Tensor
from jitdelegate.model.read import read
from jitdelegate.options import Options
from jitdelegate.program.program import Operator, Port, Program, Signature
from jitdelegate.program.write import write

NOT_YET = "this version compiles no operators."
ASKED = "LiteRT was asked for."


def compile_model(content: bytes, options: Options, key: Key, seconds: MutableMapping[str, float]) -> bytes:
    """The program of a model; equal inputs give equal bytes in every process.

    Args:
        content: the .tflite file.
        options: target and CPU features to compile for.
        key: named parts that the program carries.
        seconds: receives the time that each stage took, by its name.
    Raises:
        ModelError: the bytes are not a model, or one that would corrupt LiteRT's memory.
    """
    with _stage(seconds, "read"):
        model = read(content)
    reason = ASKED if options.target == "litert" else NOT_YET
    with _stage(seconds, "write"):
        return write(litert_program(model, key, [reason] * len(model.graphs[0].nodes)))


@contextmanager
def _stage(seconds: MutableMapping[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def litert_program(model: Model, key: Key, reasons: list[str]) -> Program:
    """A program without code: the model runs whole on LiteRT.

    Args:
        reasons: per operator of the main subgraph one sentence, "" where that operator alone could be compiled.
    Raises:
        ModelError: LiteRT would write past the end of a tensor of this model.
    """
    for graph in model.graphs:
        _refuse_narrow_state(graph)
    graph = model.graphs[0]
    operators = tuple(
        Operator(index=index, op=node.op, place="litert", reason=reason)
        for index, (node, reason) in enumerate(zip(graph.nodes, reasons, strict=True))
    )
    return Program(
        key=tuple(key.parts),
        target="litert",
        inputs=ports(graph, graph.inputs),
        outputs=ports(graph, graph.outputs),
        signatures=signatures(model),
        operators=operators,
        num_subgraphs=len(model.graphs),
    )


def _refuse_narrow_state(graph: Graph) -> None:
    """LiteRT's integer SVDF kernels treat the state as int16 whatever its type, so int8 states overflow the heap."""
    for index, node in enumerate(graph.nodes):
        if node.op == "SVDF" and len(node.inputs) > 4:
            data, state = graph.tensors[node.inputs[0]], graph.tensors[node.inputs[4]]
            if data.dtype == "int8" and state.dtype != "int16":
                raise ModelError(
                    f"operator {index} (SVDF): the state '{state.name}' is {state.dtype}, expected int16; "
                    "LiteRT would write past its end"
                )


def ports(graph: Graph, indices: tuple[int, ...]) -> tuple[Port, ...]:
    """Inputs or outputs as a program describes them."""
    return tuple(_port(graph.tensors[index], index) for index in indices)


def _port(tensor: Tensor, index: int) -> Port:
    quant = tensor.quant
    return Port(
        name=tensor.name,
        index=index,
        shape=tensor.shape,
        shape_signature=tensor.shape_signature or tensor.shape,
        dtype=tensor.dtype,
        nbytes=_bytes(tensor),
        scales=quant.scales if quant else (),
        zero_points=quant.zero_points if quant else (),
        axis=quant.axis if quant else 0,
    )


def _bytes(tensor: Tensor) -> int:
    """Bytes of the dense tensor; 0 for types that numpy has not, whose memory only LiteRT knows."""
    try:
        return tensor.size * np.dtype(tensor.dtype).itemsize
    except TypeError:
        return 0


def signatures(model: Model) -> tuple[Signature, ...]:
    """The model's signatures, arguments in the alphabetical order in which LiteRT lists them."""
    return tuple(
        Signature(
            key=each.key,
            graph=each.graph,
            inputs=tuple(sorted(each.inputs.items())),
            outputs=tuple(sorted(each.outputs.items())),
        )
        for each in model.signatures
    )
