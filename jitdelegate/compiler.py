"""The cold road as one function: .tflite bytes in, program bytes out. Read it first.

bytes -> model.read -> Model -> passes -> lowered Graph -> target -> code -> program.write -> bytes
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from jitdelegate import passes
from jitdelegate.cache.key import Key
from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Graph, Model, Tensor
from jitdelegate.ir.print import graph_text
from jitdelegate.model.read import read
from jitdelegate.options import Options
from jitdelegate.passes.support import WHOLE_MODEL, unsupported
from jitdelegate.program.program import NO_KERNEL, Kernel, Operator, Port, Program, Signature
from jitdelegate.program.write import write
from jitdelegate.targets.cpu.generate import Generated, generate

ASKED = "LiteRT was asked for."
DUMP = "JITDELEGATE_DUMP"
"""The environment variable that names a directory for one readable file per stage."""


def compile_model(content: bytes, options: Options, key: Key, seconds: MutableMapping[str, float]) -> bytes:
    """The program of a model; equal inputs give equal bytes in every process.

    Args:
        content: the .tflite file.
        options: the target to compile for.
        key: named parts that the program carries; "features" among them is the instruction set.
        seconds: receives the time that each stage took, by its name.
    Raises:
        ModelError: the bytes are not a model, or one that would corrupt LiteRT's memory.
    """
    dump = Dump(os.environ.get(DUMP, ""))
    with _stage(seconds, "read"):
        model = read(content)
        dump.graph("read", model.graphs[0])
    with _stage(seconds, "check"):
        reasons = _reasons(model, options)
    program = litert_program(model, key, reasons) if reasons else cpu_program(model, key, seconds, dump)
    with _stage(seconds, "write"):
        return write(program)


def _reasons(model: Model, options: Options) -> list[tuple[int, str]]:
    """Why the model runs on LiteRT, by operator; none if it is compiled."""
    if options.target == "litert":
        return [(WHOLE_MODEL, ASKED)]
    return unsupported(model, passes.run(model.graphs[0], passes=passes.FOLD))


def cpu_program(model: Model, key: Key, seconds: MutableMapping[str, float], dump: Dump) -> Program:
    """A program of machine code for the whole model."""
    with _stage(seconds, "passes"):
        graph = passes.run(model.graphs[0], dump.graph)
    with _stage(seconds, "generate"):
        generated = generate(graph, key.part("features"))
        dump.text("llvm_ir", generated.ir, ".ll")
    return Program(
        key=key.parts,
        target="cpu",
        features=key.part("features"),
        loader=generated.loader,
        operators=_compiled_operators(model.graphs[0], generated),
        kernels=tuple(Kernel(name=note.name, form=note.form, chunks=note.chunks) for note in generated.kernels),
        arena_bytes=generated.arena_bytes,
        scratch_bytes=generated.scratch_bytes,
        sync_bytes=generated.sync_bytes,
        entries=generated.entries,
        code=generated.code,
        weights=generated.weights,
        **_interface(model),
    )


def _compiled_operators(graph: Graph, generated: Generated) -> tuple[Operator, ...]:
    """Where each .tflite operator went: into a kernel, or nowhere because its value was known."""
    kernels = {origin: place for place, note in enumerate(generated.kernels) for origin in note.origin}
    return tuple(
        Operator(
            index=index,
            op=node.op,
            place="cpu" if index in kernels else "folded",
            kernel=kernels.get(index, NO_KERNEL),
        )
        for index, node in enumerate(graph.nodes)
    )


class Dump:
    """Writes one numbered text per stage into a directory, or nothing where there is none."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._count = 0

    def graph(self, stage: str, graph: Graph) -> None:
        if self._folder:
            self.text(stage, graph_text(graph))

    def text(self, stage: str, text: str, suffix: str = ".txt") -> None:
        if self._folder:
            os.makedirs(self._folder, exist_ok=True)
            with open(os.path.join(self._folder, f"{self._count:02}_{stage}{suffix}"), "w", encoding="utf-8") as file:
                file.write(text + "\n")
            self._count += 1


@contextmanager
def _stage(seconds: MutableMapping[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def litert_program(model: Model, key: Key, reasons: Sequence[tuple[int, str]]) -> Program:
    """A program without code: the model runs whole on LiteRT.

    Args:
        reasons: (position of an operator in the main subgraph or WHOLE_MODEL, one sentence) pairs, at least one.
    Raises:
        ModelError: LiteRT would write past the end of a tensor of this model.
    """
    for graph in model.graphs:
        _refuse_narrow_state(graph)
    whole = next((reason for position, reason in reasons if position == WHOLE_MODEL), "")
    by_operator = dict(reversed(reasons))  # the first reason of each counts
    operators = tuple(
        Operator(index=index, op=node.op, place="litert", reason=by_operator.get(index, whole))
        for index, node in enumerate(model.graphs[0].nodes)
    )
    return Program(key=key.parts, target="litert", operators=operators, **_interface(model))


def _interface(model: Model) -> dict[str, Any]:
    """What every program says about the model, however it runs."""
    graph = model.graphs[0]
    return {
        "inputs": ports(graph, graph.inputs),
        "outputs": ports(graph, graph.outputs),
        "signatures": signatures(model),
        "num_subgraphs": len(model.graphs),
    }


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
