"""A lowered graph as the program of its target: code, weights and memory, without a word about the model around it."""

from __future__ import annotations

from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.program_metadata import ports, states
from jitdelegate.compiler.trace import Trace
from jitdelegate.ir.graph import Graph
from jitdelegate.program.program import Program
from jitdelegate.runtime.cache.key import FEATURES, Key
from jitdelegate.targets import target_named
from jitdelegate.targets.planning.in_place import aliases

Origins = tuple[tuple[int, ...], ...]
"""Per kernel, the positions of the operators that it computes."""


def target_program(graph: Graph, options: DelegateOptions, key: Key, trace: Trace) -> tuple[Program, Origins]:
    """Code for the whole lowered `graph`, for the target that the key names.

    Raises:
        CompileError: the code would take too long to compile.
        DeviceError: there are no compilers for the target, or its device lacks what was asked for.
    """
    trace.kernels(graph)
    target = key.part("target")
    generated = target_named(target).generate(graph, options, key, trace.text)
    found = states(graph, generated.weights)
    program = Program(
        key=key.tuned([generated.tuned]).parts,
        target=target,
        features=key.part(FEATURES),
        loader=generated.loader,
        inputs=ports(graph, graph.given),
        outputs=ports(graph, graph.returned),
        states=found,
        aliases=aliases(graph),
        arena_bytes=generated.arena_bytes,
        scratch_bytes=generated.scratch_bytes,
        sync_bytes=generated.sync_bytes,
        entries=generated.entries,
        kernels=generated.kernels,
        launches=generated.launches,
        input_offsets=generated.input_offsets,
        output_offsets=generated.output_offsets,
        large_constants=generated.large_constants,
        refusals=generated.refusals,
        code=generated.code,
        weights=generated.weights,
    )
    return program, generated.origins
