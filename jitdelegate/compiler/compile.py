"""The compile path as one function: .tflite bytes in, program bytes out. Read it first.

bytes -> tflite.read -> Model -> passes -> lowered Graph -> target -> code -> program.write -> bytes
"""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from jitdelegate import passes
from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.codegen import target_program
from jitdelegate.compiler.compilation import Compilation
from jitdelegate.compiler.litert_child import deadly_signal
from jitdelegate.compiler.program_metadata import (
    as_in_file,
    compiled_operators,
    executions,
    idle_subgraphs,
    litert_operators,
    ports,
    signatures,
)
from jitdelegate.compiler.trace import open_trace
from jitdelegate.errors import CompileError, JitDelegateError, ModelError, ShapesError
from jitdelegate.ir.faults import reason_of
from jitdelegate.ir.graph import ABSENT, Graph, Model, QuantizedOptions
from jitdelegate.ops import find
from jitdelegate.passes.shape_inputs import shape_inputs
from jitdelegate.passes.shared_matrices import shared_matrices
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import WHOLE_MODEL, port_problem, unsupported
from jitdelegate.passes.update_windows import Window, update_windows
from jitdelegate.passes.works_on import applies
from jitdelegate.program.known_constants import NO_CONSTANTS, known_constants
from jitdelegate.program.program import NO_TENSOR, NOTHING_ELSE, Program
from jitdelegate.program.write import parts
from jitdelegate.runtime.cache.key import FEATURES, Key
from jitdelegate.targets import target_named
from jitdelegate.tflite.read import Reading, read
from jitdelegate.tflite.svdf_states import narrow_states, widened

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from jitdelegate.compiler.partitioned import PartitionedModel
    from jitdelegate.program.program import FileParts

LEAST_SCALE, LARGEST_SCALE = 2.0**-60, 2.0**60
"""Scales beyond them overflow LiteRT's multipliers and shifts."""
NARROW = {"int8", "uint8", "int16"}
ONE_STATE = "Resource variables live in the program for the shapes that the file says."


def compile_model(
    content: ReadableBuffer,
    options: DelegateOptions,
    key: Key,
    seconds: MutableMapping[str, float],
    sources: Sequence[Program | None] = (),
    reading: Reading | None = None,
) -> FileParts:
    """The file of a model's program, in parts; equal inputs give equal bytes in every process.

    Args:
        content: the .tflite file.
        options: the user's options.
        key: named parts, stored in the program; says which subgraph to compile, for which input shapes and which
            device.
        seconds: receives the seconds of each stage, by its name.
        sources: the programs of `key.weight_sources`, verified, whose weights the file need not repeat; None for one
            that does not exist.
        reading: has read the content for another program, or keeps what is read for the next one.
    Raises:
        ModelError: the bytes are not a model, or one that would corrupt LiteRT's memory.
        ShapesError: the model cannot run with inputs of the key's shapes, on LiteRT neither.
        DeviceError: the compilers for the device are not installed, or it lacks a requested feature.
    """
    trace = open_trace(key)
    with _stage(seconds, "read"):
        model = (reading or Reading()).model(content)
        is_narrow = bool(narrow_states(model))
        if is_narrow and not key.hosted:
            content = widened(content)
            model = read(content)
    _refuse_deadly(content, model)
    try:
        known = known_constants(sources) if any(sources) else NO_CONSTANTS
        one = Compilation(content, _with_options(model, options, key), options, key, trace, sources, known)
        return _file(_program(one, seconds, may_host=not is_narrow), model, key, seconds, sources, is_narrow=is_narrow)
    except ShapesError:
        raise
    except Exception as error:  # noqa: BLE001 - a fault of ours
        program = litert_program(model, key, [(WHOLE_MODEL, reason_of(error))])
        return _file(program, model, key, seconds, is_narrow=is_narrow)


def _file(
    program: Program,
    model: Model,
    key: Key,
    seconds: MutableMapping[str, float],
    sources: Sequence[Program | None] = (),
    *,
    is_narrow: bool,
) -> FileParts:
    """The program's file, with its facts about the model around its graph."""
    _describe(program, model, key)
    program.narrow_states = int(is_narrow)
    with _stage(seconds, "write"):
        return parts(program, sources)


def _with_options(model: Model, options: DelegateOptions, key: Key) -> Model:
    """The model whose graphs know how quantized operators are computed."""
    multiplies_bytes = target_named(key.part("target")).multiplies_bytes(key.part(FEATURES))
    quantized = QuantizedOptions(options.quantized_rounding, options.quantized_execution, multiplies_bytes, key.cpu)
    return replace(model, graphs=tuple(replace(graph, quantized=quantized) for graph in model.graphs))


def uncompiled_program(content: ReadableBuffer, key: Key, failure: str) -> Program:
    """A program without code, for a model that cannot be compiled on this machine after the compiler's `failure`.

    Raises:
        ModelError: the bytes are not a model, or one that would corrupt LiteRT's memory.
    """
    model = read(content)
    _refuse_deadly(content, model)
    program = litert_program(model, key, [(WHOLE_MODEL, f"{failure}.")])
    program.failure = failure
    _describe(program, model, key)
    program.narrow_states = int(bool(narrow_states(model)))
    return program


def _program(one: Compilation, seconds: MutableMapping[str, float], *, may_host: bool) -> Program:
    """The program: one that runs by itself, else one for LiteRT's own interpreter.

    Raises:
        ShapesError: as `compile_model`; shapes with which every operator can be compiled fit.
    """
    try:
        one = replace(one, model=shared_matrices(one.model))
    except Exception as error:  # noqa: BLE001 - a fault of ours
        one.faults.skip(shared_matrices.__name__, error)
    program, windows, key = None, tuple[Window, ...](), one.key
    if key.hosted and key.shapes:
        _refuse_misfit(one)
    if not key.hosted:
        with _stage(seconds, "passes"):
            entered = specialize_subgraph(one.model, key.subgraph, key.shapes, key.values)
            folded = _folded(one, entered.graphs[key.subgraph])
            reasons, windows = _reasons(entered, folded, key), _windows(one, folded)
            if reasons and key.shapes:
                _refuse_misfit(one)
        program = _own_program(one, folded, reasons, seconds, may_host=may_host)
    if program is None:
        program = _hosted_program(one, seconds)
    program.notes, program.windows = tuple(one.faults.notes), windows
    return program


def _windows(one: Compilation, folded: Graph) -> tuple[Window, ...]:
    """The windows of inputs that a run updates; none where they cannot be found."""
    try:
        return update_windows(folded) if applies(update_windows, folded) else ()
    except Exception as error:  # noqa: BLE001 - a fault of ours
        one.faults.skip(update_windows.__name__, error)
        return ()


def _own_program(
    one: Compilation,
    folded: Graph,
    reasons: list[tuple[int, str]],
    seconds: MutableMapping[str, float],
    *,
    may_host: bool,
) -> Program | None:
    """A program that runs by itself, or one without code that says why LiteRT runs the model; None where only LiteRT's
    own interpreter can combine LiteRT's and compiled partitions, which it may unless `may_host` is false.

    Args:
        folded: the subgraph, made ready.
        reasons: against compiling it as a whole.
    """
    model, key = one.model, one.key
    deciding = shape_inputs(folded) if reasons else ()
    if deciding or any(position == WHOLE_MODEL for position, _ in reasons):
        return litert_program(model, key, reasons, deciding)
    with _stage(seconds, "generate"):
        failed: Exception | None = None
        if not reasons and not one.options.partition_key and not port_problem(folded):
            try:
                return _whole_program(one, folded)
            except Exception as error:  # noqa: BLE001 - a fault of ours
                failed = error
        from jitdelegate.compiler.partitioned import PartitionedModel  # not before: most models are compiled whole

        partitioned = PartitionedModel(one)
        if failed is not None:
            partitioned.blame(folded, range(len(folded.nodes)), failed)
            failed = None  # the frames of its traceback hold the model
        refuse_unsafe(model, key)
        program = partitioned.cut(folded)
        return program if program or (may_host and partitioned.needs_host) else _undelegated(one, partitioned)


def _hosted_program(one: Compilation, seconds: MutableMapping[str, float]) -> Program:
    """A program for LiteRT's own interpreter; without partitions where LiteRT runs the whole subgraph."""
    refuse_unsafe(one.model, one.key)
    with _stage(seconds, "host generate"):
        refusal = target_named(one.key.part("target")).refusal(one.key)
        if refusal:
            return litert_program(one.model, one.key, [(WHOLE_MODEL, refusal)])
        from jitdelegate.compiler.litert_partitions import LiteRTPartitions  # not before: few models need it

        partitions = LiteRTPartitions(one)
        return partitions.program() or _undelegated(one, partitions)


def _undelegated(one: Compilation, partitioned: PartitionedModel) -> Program:
    return litert_program(one.model, one.key, [*partitioned.reasons, (WHOLE_MODEL, NOTHING_ELSE)])


def _folded(one: Compilation, graph: Graph) -> Graph:
    one.trace.graph("read", graph)
    return passes.run(graph, one.trace.graph, passes.FOLD, one.faults)


def _reasons(model: Model, graph: Graph, key: Key) -> list[tuple[int, str]]:
    """Reasons against compiling the folded `graph` as a whole, as `unsupported` gives them."""
    refusal = target_named(key.part("target")).refusal(key)
    if refusal:
        return [(WHOLE_MODEL, refusal)]
    if key.shapes and any(state.is_resource for state in graph.states):
        return [(WHOLE_MODEL, ONE_STATE)]
    return unsupported(model, graph, key.subgraph)


def _whole_program(one: Compilation, folded: Graph) -> Program:
    """A program of the whole folded graph; one without code where that would be too long."""
    lowered = passes.run(folded, one.trace.graph, passes.REWRITE, one.faults)
    try:
        program, origins = target_program(lowered, one.options, one.key, one.trace, one.known)
    except CompileError as error:
        if error.reasons:
            raise
        return litert_program(one.model, one.key, [(WHOLE_MODEL, str(error))])
    program.operators = compiled_operators(
        one.model.graphs[one.key.subgraph], lowered, origins, program.target, executions(folded, lowered)
    )
    return program


def _describe(program: Program, model: Model, key: Key) -> None:
    """Add to a program its facts about the model around its graph."""
    graph = model.graphs[key.subgraph]
    program.inputs = as_in_file(program.inputs, graph, graph.inputs)
    program.outputs = as_in_file(program.outputs, graph, graph.outputs)
    program.states = tuple(
        state.altered(index=NO_TENSOR) if state.index >= len(graph.tensors) else state for state in program.states
    )
    program.signatures = signatures(model)
    program.num_subgraphs = len(model.graphs)
    program.num_tensors, program.num_nodes = len(graph.tensors), len(graph.nodes)
    if key.subgraph == 0 and not key.shapes and (key.hosted or program.loader == "delegate"):
        program.idle = idle_subgraphs(model)


@contextmanager
def _stage(seconds: MutableMapping[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def litert_program(
    model: Model, key: Key, reasons: list[tuple[int, str]], shape_inputs: tuple[int, ...] = ()
) -> Program:
    """A program without code: the model runs whole on LiteRT, for these reasons.

    Args:
        reasons: (position of the operator or WHOLE_MODEL, sentence) pairs.
        shape_inputs: positions of the shape inputs, for whose values it may be specialized.
    Raises:
        ModelError: LiteRT would access memory beyond what this model has.
    """
    refuse_unsafe(model, key)
    graph = model.graphs[key.subgraph]
    return Program(
        key=tuple(key.parts),
        target="litert",
        inputs=ports(graph, graph.inputs),
        outputs=ports(graph, graph.outputs),
        operators=litert_operators(graph, reasons),
        shape_inputs=shape_inputs,
    )


def refuse_unsafe(model: Model, key: Key) -> None:
    """
    Raises:
        ModelError: LiteRT would access memory beyond what this model has.
    """
    for graph in model.graphs:
        _refuse_lacking_tensors(graph)
    for state in narrow_states(model) if key.hosted else ():
        raise ModelError(f"operator {state.position}: {state.reason} Its own interpreter cannot be given one")


def _refuse_lacking_tensors(graph: Graph) -> None:
    """XNNPACK accesses a node's required inputs and outputs before LiteRT's kernels check that they exist."""
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


def _refuse_deadly(content: ReadableBuffer, model: Model) -> None:
    """
    Raises:
        ModelError: LiteRT would end the process, as its checks of scales do. Only LiteRT knows where: it is asked, in a
            child process, about models with integers whose scales are missing or out of the ordinary.
    """
    odd = next(_odd_scales(model), None)
    if odd is None:
        return
    for graph in model.graphs:
        _refuse_lacking_tensors(graph)
    number = deadly_signal(bytes(content))
    if number:
        raise ModelError(f"{odd}; LiteRT would end the process by signal {number}")


def _refuse_misfit(one: Compilation) -> None:
    """
    Raises:
        ShapesError: the model cannot run with inputs of the key's shapes; says which input and operator.
    """
    from jitdelegate.compiler.misfit import misfit  # not before: most shapes fit

    try:
        problem = misfit(one.content, one.model, one.key)
    except JitDelegateError:
        raise
    except Exception:  # noqa: BLE001 - the passes meet it again, and tell
        return
    if problem:
        raise ShapesError(problem)


def _odd_scales(model: Model) -> Iterator[str]:
    """One sentence per tensor without an ordinary scale, of operators with quantized values."""
    for graph in model.graphs:
        for position, node in enumerate(graph.nodes):
            op, tensors = find(node), [graph.tensors[i] for i in (*node.inputs, *node.outputs) if i != ABSENT]
            stored = {*op.quantized} & NARROW if op else set()  # moving operators list all types
            if all(tensor.dtype not in stored for tensor in tensors):
                continue
            for tensor in tensors:
                scales = tensor.quant.scales if tensor.quant else ()
                odd = [f"the scale {scale:g}" for scale in scales if not LEAST_SCALE <= scale <= LARGEST_SCALE]
                odd += ["no scale"] if tensor.dtype in stored and not scales else []
                if odd:
                    yield f"operator {position} ({node.op}) has a tensor of {tensor.dtype} with {odd[0]}"
