"""Places outside of the data, constants, and kernels that operators share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.errors import RefusedValueError
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ir.index_forms import Gather, TopK
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Fed, ints
from jitdelegate.passes import infer_shapes
from jitdelegate.passes.lower import lower
from jitdelegate.passes.support import node_reason
from jitdelegate.targets.host import level
from tests.targets.execute import execute


@pytest.mark.parametrize("place", [-1, 5, -(1 << 31), (1 << 31) - 1])
def test_a_runtime_place_outside_is_refused_and_gives_zeros_where_the_form_says_nothing(place: int) -> None:
    feeds = [np.arange(1, 16, dtype=np.float32).reshape(5, 3), np.array([place, 4], np.int32)]
    graph = lower(Case(((5, 3), Fed((2,), "int32")), {"axis": 0}, low=0, high=5).graph(OPS["GATHER"]))
    with pytest.raises(RefusedValueError, match=f"found {place}, expected an index from 0 to 4"):
        execute(graph, feeds, level())
    silent = [replace(node, form=Gather()) if isinstance(node.form, Gather) else node for node in graph.nodes]
    (found,) = execute(replace(graph, nodes=tuple(silent)), feeds, level())
    assert found.tolist() == [[0, 0, 0], [13, 14, 15]]


def test_constant_places_outside_are_refused() -> None:
    graph = Case(((5, 3), ints(0, 4)), {"axis": 0}).graph(OPS["GATHER"])
    tensors = (graph.tensors[0], replace(graph.tensors[1], data=ints(0, 5)), *graph.tensors[2:])
    found = node_reason(replace(graph, tensors=tensors), graph.nodes[0])
    assert found == "GATHER: the indices from 0 to 5 leave the sizes [5]."


def test_what_is_looked_up_in_constants_is_a_constant() -> None:
    graph = infer_shapes(Case((ints(7, 8, 9), ints(2, 0)), {"axis": 0}).graph(OPS["GATHER"]))
    assert graph.nodes == ()
    assert graph.tensors[graph.outputs[0]].data.tolist() == [9, 7]


def test_the_indices_of_the_largest_are_found_once() -> None:
    graph = lower(OPS["TOPK_V2"].cases[0].graph(OPS["TOPK_V2"]))
    forms = [type(node.form) for node in graph.nodes]
    assert (forms.count(TopK), forms.count(Gather)) == (1, 1)


def test_a_slice_whose_size_is_not_known_is_refused() -> None:
    case = Case(((5, 6), Fed((2,), "int32"), ints(2, 3)), low=0, high=1)
    graph = case.graph(OPS["SLICE"])
    size = replace(graph.tensors[2], data=ints(2, -1))
    found = node_reason(replace(graph, tensors=(*graph.tensors[:2], size, graph.tensors[3])), graph.nodes[0])
    assert found == "SLICE: size [2, -1] depends on where the slice begins, which is known at run time only."


def test_tables_of_very_many_places_are_refused() -> None:
    case = Case(((4, 5), Fed((2,), "int32"), ints(4, 3)), low=0, high=1)
    graph = case.graph(OPS["SLICE"])
    wide = (
        replace(graph.tensors[0], shape=(1 << 22, 5)),
        graph.tensors[1],
        replace(graph.tensors[2], data=ints(1 << 22, 3)),
    )
    found = node_reason(replace(graph, tensors=(*wide, *graph.tensors[3:])), graph.nodes[0])
    assert found == "SLICE: 12582912 runtime indices are more than 4194304."


def where(data: np.ndarray | None) -> Graph:
    tensors = (Tensor("data", (2, 2), "bool", data), Tensor("places", (1, 2), "int64"))
    inputs = (0,) if data is None else ()
    return infer_shapes(Graph(tensors, (Node("WHERE", (0,), (1,), origin=(0,)),), inputs, (1,)))


def test_where_is_known_of_constants_and_refused_of_other_values() -> None:
    known = where(np.array([[True, False], [True, True]]))
    assert known.tensors[1].data.tolist() == [[0, 0], [1, 0], [1, 1]]
    unknown = where(None)
    found = node_reason(unknown, unknown.nodes[0])
    assert found == "WHERE: the size of its output depends on values that are known at run time only."
