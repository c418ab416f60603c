"""Puts a model's weights back into its programs, and checks that they are those that the programs were compiled with.

The compiler's passes and planner lay them out again, which takes tenths of a second and neither a compiler nor a GPU.
"""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from xxhash import xxh3_128_hexdigest

from jitdelegate.errors import JitDelegateError, ProgramError
from jitdelegate.program.read import read
from jitdelegate.runtime.cache.place import open_place
from scripts.gpu_check.row import Row

if TYPE_CHECKING:
    from jitdelegate.ir.graph import Graph
    from jitdelegate.targets.cuda.plan.plan import Plan
    from scripts.gpu_check.bundle import Bundle, Prepared

SECTION = "weights"
CACHE = "jitdelegate-gpu-check"


def rows(bundle: Bundle) -> Iterator[Row]:
    """Restores every program that needs it, on as many processes as there are CPUs, for the sections that follow."""
    prepared = [one for kind in bundle.kinds for one in bundle.prepared(kind) if one.case.model]
    start, others = time.perf_counter(), 0
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as pool:  # forked before anyone meets the GPU
        for one, trouble in zip(prepared, pool.map(_trouble, prepared), strict=True):
            if trouble:
                others += 1
                yield Row(SECTION, one.name, "weights", note=trouble)
    yield Row(SECTION, bundle.name, "restored", float(len(prepared)))
    yield Row(SECTION, bundle.name, "others than prepared", float(others), limit=0.0)
    yield Row(SECTION, bundle.name, "time", time.perf_counter() - start, "s")


def _trouble(prepared: Prepared) -> str:
    """Restores a program; what is wrong with its weights, "" if nothing is."""
    try:
        found = read(prepared.content).weights
    except JitDelegateError as error:
        return str(error)
    if xxh3_128_hexdigest(found) == prepared.entry.weights:
        return ""
    return "numpy lays out other weights here than where the program was compiled; it computes on those"


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
    open_place(str(folder))  # anybody could have made it, and what is in it runs on the GPU
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
    weights = planned.weights
    states(planned.graph, weights)  # appends their first values
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
