"""A lowered graph as the program of its target: code, weights and memory, without a word about the model around it."""

from __future__ import annotations

from typing import Any

from jitdelegate.cache.key import PRECISION, PROFILE, Key
from jitdelegate.cache.store import open_store
from jitdelegate.compiler.program_metadata import ports, states
from jitdelegate.compiler.trace import Trace
from jitdelegate.errors import DeviceError
from jitdelegate.ir.graph import Graph
from jitdelegate.options import Options
from jitdelegate.program.program import Kernel, Program

Origins = tuple[tuple[int, ...], ...]
"""Per kernel, the positions of the operators that it computes."""


def target_program(graph: Graph, options: Options, key: Key, trace: Trace) -> tuple[Program, Origins]:
    """Code for the whole lowered `graph`, for the target that the key names.

    Raises:
        CompileError: the code would take too long to compile.
        DeviceError: there are no compilers for the GPU, or it lacks what was asked for.
    """
    trace.kernels(graph)
    if key.part("target") == "cuda":
        return _cuda_program(graph, options, key, trace)
    return _cpu_program(graph, key, trace)


def _cpu_program(graph: Graph, key: Key, trace: Trace) -> tuple[Program, Origins]:
    from jitdelegate.targets.cpu.generate import generate  # not before: without LLVM, all but code can be made

    generated = generate(graph, key.part("features"), trace.text, profile=bool(key.part(PROFILE)))
    program = _program(
        graph,
        key,
        generated,
        loader=generated.loader,
        kernels=tuple(Kernel(name=k.name, form=k.form, chunks=k.chunks) for k in generated.kernels),
        scratch_bytes=generated.scratch_bytes,
        sync_bytes=generated.sync_bytes,
    )
    return program, tuple(kernel.origin for kernel in generated.kernels)


def _cuda_program(graph: Graph, options: Options, key: Key, trace: Trace) -> tuple[Program, Origins]:
    place = open_store(options.serialization_dir).place
    try:
        from jitdelegate.targets.cuda.generate import generate

        generated = generate(graph, key.gpu, key.part(PRECISION), place, trace.text)
    except ImportError as error:
        raise DeviceError(
            f"{error}; CUDA kernels are compiled by the extra 'cuda': pip install jitdelegate[cuda]"
        ) from error
    program = _program(
        graph,
        key,
        generated,
        loader="cubin",
        kernels=generated.kernels,
        launches=generated.launches,
        input_offsets=generated.input_offsets,
        output_offsets=generated.output_offsets,
    )
    return program, tuple(generated.origins)


def _program(graph: Graph, key: Key, generated: Any, **own: Any) -> Program:
    """What the programs of all targets have, with what is this one's `own`."""
    weights, found = states(graph, generated.weights)
    return Program(
        key=tuple(key.parts),
        target=key.part("target"),
        features=key.part("features"),
        inputs=ports(graph, graph.given),
        outputs=ports(graph, graph.returned),
        states=found,
        arena_bytes=generated.arena_bytes,
        entries=generated.entries,
        code=generated.code,
        weights=weights,
        **own,
    )
