"""How many bytes of weights a run has to read."""

from __future__ import annotations

from jitdelegate.commands.suite.kernel_work import READS_ROWS
from jitdelegate.ir.graph import Model


def weight_bytes(model: Model, key: str) -> int:
    """Bytes of the constants that a signature reads whole, as the file stores them; each buffer once."""
    graph = model.graphs[next(signature.graph for signature in model.signatures if signature.key == key)]
    found = {}
    for node in graph.nodes:
        for index in () if node.op in READS_ROWS else node.inputs:
            data = graph.tensors[index].data if index >= 0 else None
            if data is not None:
                found[data.__array_interface__["data"][0]] = data.nbytes
    return sum(found.values())
