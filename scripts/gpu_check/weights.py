"""Puts a model's weights back into its programs.

The compiler's passes and planner lay them out again, which takes tenths of a second and neither a compiler nor a GPU.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xxhash import xxh3_128_hexdigest

from jitdelegate.errors import ProgramError
from jitdelegate.program.read import read
from jitdelegate.runtime.cache.directory import open_cache_directory

if TYPE_CHECKING:
    from jitdelegate.ir.graph import Graph
    from jitdelegate.targets.cuda.plan.plan import Plan

CACHE = "jitdelegate-gpu-check"


def restored(kept: bytes, model: Path, shapes: Sequence[Sequence[int]], kind: str, precision: str) -> bytes:
    """The program `kept` with the weights of its model, which are made once for all sections.

    Args:
        model: packed.
        shapes: of the inputs, where they are others than the model says.
        kind: of the GPU that the program is for.
    Raises:
        ProgramError: the model's weights have no place in the program.
        CacheError: others may write the folder that the programs are kept in.
    """
    name = xxh3_128_hexdigest(kept + str(model.resolve()).encode())
    folder = Path(tempfile.gettempdir()) / f"{CACHE}-{os.getuid()}"
    open_cache_directory(str(folder))  # anybody could have made it, and what is in it runs on the GPU
    path = folder / f"{name}.jitd"
    try:
        return path.read_bytes()
    except OSError:
        content = _with_weights(kept, zlib.decompress(model.read_bytes()), shapes, kind, precision)
    passing = path.with_suffix(f".{os.getpid()}")
    passing.write_bytes(content)
    passing.replace(path)
    return content


def _with_weights(kept: bytes, model: bytes, shapes: Sequence[Sequence[int]], kind: str, precision: str) -> bytes:
    from jitdelegate.compiler.program_metadata import states
    from jitdelegate.program.write import write

    program, planned = read(kept), plan_of(model, shapes, kind, precision)
    weights = planned.writer.weights.content
    states(planned.writer.graph, weights)  # appends their first values
    if len(weights) != len(program.weights):
        raise ProgramError(f"the model's weights take {len(weights)} bytes, expected {len(program.weights)}")
    program.weights = weights
    return write(program)


def plan_of(model: bytes, shapes: Sequence[Sequence[int]], kind: str, precision: str) -> Plan:
    """Launches, memory and weights of a model that is compiled as a whole."""
    from jitdelegate.targets.cuda.code.gpu import gpu_of
    from jitdelegate.targets.cuda.plan.plan import plan

    return plan(lowered(model, shapes), gpu_of(kind), precision)


def lowered(model: bytes, shapes: Sequence[Sequence[int]]) -> Graph:
    """The graph of a model that is compiled as a whole, as targets get it."""
    from jitdelegate import passes
    from jitdelegate.passes.specialize_subgraph import specialize_subgraph
    from jitdelegate.tflite.read import read as read_model

    entered = specialize_subgraph(read_model(model), 0, tuple(map(tuple, shapes)), ())
    folded = passes.run(entered.graphs[0], passes=passes.FOLD)
    return passes.run(folded, passes=passes.REWRITE)
