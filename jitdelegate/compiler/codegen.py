"""A lowered graph as the program of its target: code, weights and memory, without a word about the model around it."""

from __future__ import annotations

from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.program_metadata import ports, states
from jitdelegate.compiler.trace import Trace
from jitdelegate.ir.graph import Graph
from jitdelegate.program.known_constants import NO_CONSTANTS
from jitdelegate.program.program import Program
from jitdelegate.runtime.cache.key import FEATURES, Key
from jitdelegate.targets import target_named
from jitdelegate.targets.planning.in_place import aliases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.known_constants import Known


Origins = tuple[tuple[int, ...], ...]
"""Per kernel, the positions of the operators that it computes."""


def target_program(
    graph: Graph, options: DelegateOptions, key: Key, trace: Trace, known: Known = NO_CONSTANTS
) -> tuple[Program, Origins]:
    """Code for the whole lowered `graph`, for the target that the key names.

    Args:
        known: constants that other programs of the model store, which the program lacks (`Program.shared`).

    Raises:
        CompileError: the code would take too long to compile.
        DeviceError: there are no compilers for the target, or its device lacks what was asked for.
    """
    trace.kernels(graph)
    target = key.part("target")
    generated = target_named(target).generate(graph, options, key, trace.text, known)
    found = states(graph, generated)
    program = Program(
        key=key.tuned([generated.tuned]).parts,
        target=target,
        features=key.part(FEATURES),
        inputs=ports(graph, graph.given),
        outputs=ports(graph, graph.returned),
        states=found,
        aliases=aliases(graph),
        **generated.of_program(),
    )
    return program, generated.origins
