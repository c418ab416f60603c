"""The cold road as one function: .tflite bytes in, program bytes out. Read it first.

bytes -> model.read -> Model -> passes -> lowered Graph -> target -> code -> program.write -> bytes
"""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from jitdelegate import passes
from jitdelegate.cache.key import Key
from jitdelegate.cache.store import open_store
from jitdelegate.debug import dump, dump_graph
from jitdelegate.describe import compiled_operators, litert_operators, ports, signatures, states
from jitdelegate.errors import CompileError, DeviceError, ModelError
from jitdelegate.ir.graph import ABSENT, Graph, Model
from jitdelegate.model.read import read
from jitdelegate.ops import find
from jitdelegate.options import Options
from jitdelegate.passes.deciding_inputs import deciding_inputs
from jitdelegate.passes.enter import enter
from jitdelegate.passes.support import WHOLE_MODEL, unsupported
from jitdelegate.program.program import Kernel, Program
from jitdelegate.program.write import write
from jitdelegate.targets.cpu.generate import Generated, generate

ASKED = "LiteRT was asked for."
ONE_STATE = "Resource variables live in the program for the shapes that the file says."


def compile_model(content: bytes, options: Options, key: Key, seconds: MutableMapping[str, float]) -> bytes:
    """The program of a model; equal inputs give equal bytes in every process.

    Args:
        content: the .tflite file.
        options: what was asked for.
        key: named parts that the program carries; says which subgraph to compile, for which shapes of its inputs and
            for which instruction set.
        seconds: receives the time that each stage took, by its name.
    Raises:
        ModelError: the bytes are not a model, or one that would corrupt LiteRT's memory.
        DeviceError: there are no compilers for the GPU, or it lacks what was asked for.
    """
    with _stage(seconds, "read"):
        model = read(content)
        entered = enter(model, key.subgraph, key.shapes, key.values)
        graph = entered.graphs[key.subgraph]
        dump_graph("read", graph)
    with _stage(seconds, "passes"):
        folded = passes.run(graph, dump_graph, passes.FOLD)
        reasons = _reasons(entered, folded, options, key)
        lowered = None if reasons else passes.run(folded, dump_graph, passes.REWRITE)
    if lowered is None:
        program = litert_program(model, key, reasons, deciding_inputs(folded))
    else:
        with _stage(seconds, "generate"):
            program = _generated_program(model, lowered, options, key)
    with _stage(seconds, "write"):
        return write(program)


def _reasons(model: Model, graph: Graph, options: Options, key: Key) -> list[tuple[int, str]]:
    """Why LiteRT has to run the folded `graph`, as `unsupported` gives it."""
    if options.target == "litert":
        return [(WHOLE_MODEL, ASKED)]
    if key.shapes and any(state.is_resource for state in graph.states):
        return [(WHOLE_MODEL, ONE_STATE)]
    return unsupported(model, graph, key.subgraph)


def _generated_program(model: Model, graph: Graph, options: Options, key: Key) -> Program:
    try:
        if key.part("target") == "cuda":
            return cuda_program(model, graph, options, key)
        return cpu_program(model, graph, generate(graph, key.part("features"), dump), key)
    except CompileError as error:
        return litert_program(model, key, [(WHOLE_MODEL, str(error))])


@contextmanager
def _stage(seconds: MutableMapping[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def cpu_program(model: Model, graph: Graph, generated: Generated, key: Key) -> Program:
    """A program with machine code for the whole lowered `graph`."""
    weights, found = states(graph, generated.weights)
    origins = [kernel.origin for kernel in generated.kernels]
    return Program(
        key=tuple(key.parts),
        target="cpu",
        features=key.part("features"),
        loader=generated.loader,
        inputs=ports(graph, graph.given),
        outputs=ports(graph, graph.returned),
        states=found,
        signatures=signatures(model),
        operators=compiled_operators(model.graphs[key.subgraph], graph, origins, "cpu"),
        kernels=tuple(Kernel(name=k.name, form=k.form, chunks=k.chunks) for k in generated.kernels),
        arena_bytes=generated.arena_bytes,
        scratch_bytes=generated.scratch_bytes,
        sync_bytes=generated.sync_bytes,
        entries=generated.entries,
        code=generated.code,
        weights=weights,
        num_subgraphs=len(model.graphs),
    )


def cuda_program(model: Model, graph: Graph, options: Options, key: Key) -> Program:
    """A program of cubins for the whole lowered `graph`, for the GPU architecture that the key names.

    Raises:
        DeviceError: the compilers of the extra "cuda" are not installed, or the GPU lacks what was asked for.
    """
    place = open_store(options.serialization_dir).place
    try:
        from jitdelegate.targets.cuda.generate import generate

        generated = generate(graph, key.part("features"), key.part("precision"), place, dump)
    except ImportError as error:
        raise DeviceError(
            f"{error}; CUDA kernels are compiled by the extra 'cuda': pip install jitdelegate[cuda]"
        ) from error
    weights, found = states(graph, generated.weights)
    return Program(
        key=tuple(key.parts),
        target="cuda",
        features=key.part("features"),
        loader="cubin",
        inputs=ports(graph, graph.given),
        outputs=ports(graph, graph.returned),
        states=found,
        signatures=signatures(model),
        operators=compiled_operators(model.graphs[key.subgraph], graph, generated.origins, "cuda"),
        kernels=generated.kernels,
        launches=generated.launches,
        arena_bytes=generated.arena_bytes,
        input_offsets=generated.input_offsets,
        output_offsets=generated.output_offsets,
        entries=generated.entries,
        code=generated.code,
        weights=weights,
        num_subgraphs=len(model.graphs),
    )


def litert_program(model: Model, key: Key, reasons: list[tuple[int, str]], deciding: tuple[int, ...] = ()) -> Program:
    """A program without code: the model runs whole on LiteRT, for these reasons.

    Args:
        reasons: (position of the operator or WHOLE_MODEL, sentence) pairs.
        deciding: positions of the inputs for whose values it might be compiled.
    Raises:
        ModelError: LiteRT would access memory beyond what this model has.
    """
    for graph in model.graphs:
        _refuse_narrow_state(graph)
        _refuse_lacking_tensors(graph)
    graph = model.graphs[key.subgraph]
    return Program(
        key=tuple(key.parts),
        target="litert",
        inputs=ports(graph, graph.inputs),
        outputs=ports(graph, graph.outputs),
        signatures=signatures(model),
        operators=litert_operators(graph, reasons),
        deciding=deciding,
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


def _refuse_lacking_tensors(graph: Graph) -> None:
    """XNNPACK looks at inputs and outputs that a node should have before LiteRT's kernels ask whether it has them."""
    for index, node in enumerate(graph.nodes):
        op = find(node)
        required = (*node.inputs, ABSENT)[: op.least] if op and not op.custom else ()
        if ABSENT in required:
            raise ModelError(f"operator {index} ({node.op}) lacks its input {required.index(ABSENT)}")
        if op and not op.custom and not node.outputs:
            raise ModelError(f"operator {index} ({node.op}) has no outputs")
        if node.op == "SPLIT" and node.attrs.get("num_splits", 0) != len(node.outputs):
            found = f"{len(node.outputs)} outputs for {node.attrs.get('num_splits', 0)} parts"
            raise ModelError(f"operator {index} (SPLIT) has {found}")
