"""Models, lowered as for a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from jitdelegate import passes
from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Graph, Model
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import port_problem, unsupported
from jitdelegate.tflite.read import read


def lowered_models(paths: Sequence[Path], batch: int = 1) -> Iterator[tuple[Path, Graph]]:
    """Every .tflite file of the folders and files that is compiled as a whole, with its lowered main subgraph.

    The first axis of every input is `batch` times as long as in the file; models that cannot be resized are left out.
    """
    for path in paths:
        for file in sorted(path.glob("*.tflite")) if path.is_dir() else [path]:
            graph = lowered(file.read_bytes(), batch)
            if graph is not None:
                yield file, graph


def lowered(content: bytes, batch: int = 1) -> Graph | None:
    """The lowered main subgraph of a model that is compiled as a whole; None of another one, and of one that cannot be
    resized."""
    try:
        model = read(content)
        model = specialize_subgraph(model, shapes=_shapes(model, batch) if batch > 1 else ())
    except ModelError:
        return None
    folded = passes.run(model.graphs[0], passes=passes.FOLD)
    return None if unsupported(model, folded) or port_problem(folded) else passes.run(folded, passes=passes.REWRITE)


def _shapes(model: Model, batch: int) -> list[tuple[int, ...]]:
    """The shapes of the main subgraph's inputs at a larger batch."""
    found = (model.graphs[0].tensors[index].shape for index in model.graphs[0].inputs)
    return [(batch * shape[0], *shape[1:]) if shape else shape for shape in found]
