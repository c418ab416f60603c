"""A graph of any operator comes back from a file as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jitdelegate.errors import ModelError
from jitdelegate.ir.archive import load_graph, save_graph
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.print import graph_text
from jitdelegate.ops import OPS
from jitdelegate.passes.lower import lower
from jitdelegate.passes.single_node import single_node
from jitdelegate.targets.reference.evaluate import run_graph


def saved(graph: Graph, path: Path) -> Graph:
    save_graph(graph, path)
    return load_graph(path)


def assert_equal(found: Graph, expected: Graph) -> None:
    assert graph_text(found) == graph_text(expected)
    assert [(each.form, dict(each.attrs)) for each in found.nodes] == [
        (each.form, dict(each.attrs)) for each in expected.nodes
    ]
    for one, other in zip(found.tensors, expected.tensors, strict=True):
        assert (one.name, one.shape, one.dtype, one.quant) == (other.name, other.shape, other.dtype, other.quant)
        assert (one.data is None) == (other.data is None)
        if one.data is not None and other.data is not None:
            assert one.data.dtype == other.data.dtype
            np.testing.assert_array_equal(one.data, other.data)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.cases])
def test_every_operator_before_and_after_lowering(name: str, tmp_path: Path) -> None:
    case = OPS[name].cases[0]
    graph = case.graph(OPS[name])
    assert_equal(saved(graph, tmp_path / "graph.npz"), graph)
    lowered = lower(graph)
    assert_equal(saved(lowered, tmp_path / "lowered.npz"), lowered)


@pytest.mark.parametrize("name", ["CONV_2D", "LSTM", "HARD_SWISH", "GATHER"])
def test_nodes_one_after_another_compute_what_the_graph_computes(name: str, tmp_path: Path) -> None:
    case = OPS[name].cases[0]
    lowered = lower(case.graph(OPS[name]))
    values = dict(zip(lowered.inputs, case.feeds(), strict=True))
    for position, node in enumerate(lowered.nodes):
        graph = saved(single_node(lowered, position), tmp_path / f"{position}.npz")
        feeds = [values[index] for index in sorted(set(node.inputs) & set(values))]
        (values[node.outputs[0]],) = run_graph(graph, feeds)
    for index, expected in zip(lowered.outputs, run_graph(lowered, case.feeds()), strict=True):
        np.testing.assert_array_equal(values[index], expected)


def test_a_file_without_a_graph_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "kernel.npz"
    np.savez(path, other=np.zeros(3))
    with pytest.raises(ModelError, match=r"kernel\.npz holds no graph"):
        load_graph(path)
    np.savez(path, graph=np.array('{"class": "Quant", "fields": {"scales": [1.0], "zero_points": [0]}}'))
    with pytest.raises(ModelError, match="holds a Quant, expected a graph"):
        load_graph(path)
    np.savez(path, graph=np.array('{"class": "Popen", "fields": {}}'))
    with pytest.raises(ModelError, match="holds no graph: 'Popen'"):
        load_graph(path)
    path.write_bytes(b"text")
    with pytest.raises(ModelError, match="holds no graph"):
        load_graph(path)
    with pytest.raises(ModelError, match="could not open"):
        load_graph(tmp_path / "absent.npz")
