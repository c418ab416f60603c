"""The models of some folders as a target gets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from jitdelegate import passes
from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Graph
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import port_problem, unsupported
from jitdelegate.tflite.read import read


def lowered_models(paths: Sequence[Path]) -> Iterator[tuple[Path, Graph]]:
    """Every .tflite file of the folders and files that is compiled as a whole, with its lowered main subgraph."""
    for path in paths:
        for file in sorted(path.glob("*.tflite")) if path.is_dir() else [path]:
            graph = _lowered(file)
            if graph is not None:
                yield file, graph


def _lowered(file: Path) -> Graph | None:
    try:
        model = specialize_subgraph(read(file.read_bytes()))
    except ModelError:
        return None
    folded = passes.run(model.graphs[0], passes=passes.FOLD)
    return None if unsupported(model, folded) or port_problem(folded) else passes.run(folded, passes=passes.REWRITE)
