"""Tensors without elements: what follows from them is known while compiling, and kernels leave them out."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Weights, ints
from jitdelegate.passes import FOLD, run
from tests.ops.litert import answers

NOTHING = np.zeros(0, np.int32)
FOLDED = [
    ("SLICE", Case(((4, 5), ints(1, 2), ints(0, 3)))),
    ("STRIDED_SLICE", Case(((4, 5), ints(2, 0), ints(2, 5), ints(1, 1)))),
    ("STRIDED_SLICE", Case(((0, 5), ints(0, 1), ints(0, 5), ints(1, 2)))),
    ("GATHER", Case(((4, 5), NOTHING), {"axis": 0})),
    ("RESHAPE", Case(((0, 4), ints(2, 0)))),
    ("RESHAPE", Case(((0, 4), ints(-1, 2)))),
    ("PAD", Case((Weights((0, 2)), ints((1, 1), (0, 1))))),
    ("CONCATENATION", Case(((0, 3), (0, 2)), {"axis": 1})),
    ("PACK", Case(((0, 3), (0, 3)), {"axis": 0, "values_count": 2})),
    ("REDUCE_PROD", Case((np.zeros(0, np.int32), ints(0)), {"keep_dims": False})),
    ("SUM", Case((Weights((0, 2)), ints(0)), {"keep_dims": True})),
    ("ADD", Case(((0, 3), (1,)))),
    ("SHAPE", Case((Weights((0, 3)),), {"out_type": "INT32"})),
    ("SPLIT", Case((ints(0), (0, 3)), {"num_splits": 2})),
    ("SPLIT_V", Case((ints(5, 6), ints(0, 2, 0), ints(0)), {"num_splits": 3})),
]


@pytest.mark.parametrize(("name", "case"), [pytest.param(*each, id=f"{each[0]}-{k}") for k, each in enumerate(FOLDED)])
def test_what_follows_from_no_elements_needs_no_kernel(name: str, case: Case) -> None:
    graph = _graph(name, case)
    folded = run(graph, passes=FOLD)
    assert not folded.nodes
    for index, expected in zip(folded.outputs, answers(graph, case.feeds()), strict=True):
        np.testing.assert_array_equal(folded.tensors[index].data, expected)
        assert folded.tensors[index].shape == expected.shape


def _graph(name: str, case: Case) -> Graph:
    """The operator alone; the outputs of SHAPE, which has no reference, are written here."""
    if name != "SHAPE":
        return case.graph(OPS[name])
    (array,) = case.arrays()
    assert array is not None
    tensors = Tensor("data", array.shape, "float32", array), Tensor("shape", (array.ndim,), "int32")
    return Graph(tensors, (Node("SHAPE", (0,), (1,), case.attrs, origin=(0,)),), (), (1,))


@pytest.mark.parametrize(
    ("name", "case"),
    [("MAX_POOL_2D", Case(((0, 8, 8, 3),))), ("PAD", Case(((0, 2), ints((1, 1), (0, 1)))))],
    ids=["MAX_POOL_2D", "PAD"],
)
def test_kernels_are_not_asked_to_read_no_elements(name: str, case: Case) -> None:
    shape = case.feeds()[0].shape
    tensors = [Tensor("data", shape, "float32"), *(Tensor("more", a.shape, "int32", a) for a in case.arrays()[1:])]
    result = (shape[0] + 2, shape[1] + 1) if name == "PAD" else shape
    options = {"filter_width": 1, "filter_height": 1, "stride_w": 1, "stride_h": 1, "padding": "VALID"}
    node = Node(name, tuple(range(len(tensors))), (len(tensors),), {} if name == "PAD" else options)
    graph = Graph((*tensors, Tensor("result", result, "float32")), (node,), (0,), (len(tensors),))
    assert OPS[name].check(graph, node) == f"{name}: 'data' has no elements, its shape is {list(shape)}."
