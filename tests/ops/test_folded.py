"""Operators without a kernel: what they are folded to is what LiteRT computes."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.passes import FOLD, run
from tests.ops.litert import all_outputs, model_of

ZERO, ONE = np.array([0, 2, 0, 1], np.int32), np.array([[True, False], [True, True]])
NODES = {
    "RANGE": (np.int32(0), np.int32(5), np.int32(2)),
    "RANGE down": (np.int64(5), np.int64(-3), np.int64(-2)),
    "RANGE of floats": (np.float32(0.5), np.float32(2), np.float32(0.3)),
    "RANGE down of floats": (np.float32(1.5), np.float32(0), np.float32(-0.5)),
    "WHERE": (ONE,),
    "WHERE of numbers": (ZERO,),
    "ZEROS_LIKE": (ZERO,),
    "BROADCAST_ARGS": (np.array([2, 1, 3], np.int32), np.array([4, 1], np.int32)),
    "SHAPE": (ONE,),
    "RANK": (ONE,),
}


@pytest.mark.parametrize("name", NODES)
def test_a_node_of_constants_becomes_what_litert_computes(name: str) -> None:
    op, arrays = name.split()[0], [np.asarray(array) for array in NODES[name]]
    dtype = {"WHERE": "int64", "SHAPE": "int32", "RANK": "int32"}.get(op, str(arrays[0].dtype))
    tensors = [Tensor(f"x{k}", array.shape, str(array.dtype), array) for k, array in enumerate(arrays)]
    node = Node(op, tuple(range(len(arrays))), (len(arrays),), {"out_type": "INT32"} if op == "SHAPE" else {})
    graph = Graph((*tensors, Tensor("y", (), dtype)), (node,), (), node.outputs)
    folded = run(graph, passes=FOLD).tensors[-1].data
    (expected,) = all_outputs(model_of(graph), [])
    assert folded is not None
    assert folded.dtype == expected.dtype
    np.testing.assert_array_equal(folded, expected)


def test_zeros_are_known_where_the_data_is_not() -> None:
    node = Node("ZEROS_LIKE", (0,), (1,))
    graph = Graph((Tensor("x", (2, 3), "float32"), Tensor("y", (), "float32")), (node,), (0,), (1,))
    np.testing.assert_array_equal(run(graph, passes=FOLD).tensors[1].data, np.zeros((2, 3)))
