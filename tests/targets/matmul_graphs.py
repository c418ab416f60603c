"""Graphs of one MatMul, and the sizes at which its kernels have edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg
from jitdelegate.ir.forms import IndexMap, MatMul, Softmax, View
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.passes import run
from jitdelegate.tflite.read import read
from tests.ops.quantized_models import one_op
from tests.targets.cuda_graphs import Shape, graph_of

LEADING: list[tuple[Shape, Shape]] = [((), ()), ((2,), (2,)), ((3, 1), (2,)), ((2, 2), (1,)), ((1, 2, 1), (2, 1, 3))]
"""Leading axes of both operands: none, the same, broadcast on either side, of different ranks."""
HEADS = (0, 2, 1, 3)
ORDERS = [(True, False, False), (False, True, False), (False, False, True), (True, True, True)]
"""Which of a, b and the result of `heads` are stored with rows before heads."""
ADJOINTS = [(False, False), (False, True), (True, False), (True, True)]


def matmul(
    sizes: tuple[int, int, int],
    leading: tuple[Shape, Shape] = ((), ()),
    adjoint: tuple[bool, bool] = (False, False),
    *extra: Shape,
) -> Graph:
    """[..., m, k] times [..., k, n] for sizes (m, k, n); (result + first extra operand) * second one."""
    rows, depth, columns = sizes
    adj_x, adj_y = adjoint
    a = (*leading[0], depth, rows) if adj_x else (*leading[0], rows, depth)
    b = (*leading[1], columns, depth) if adj_y else (*leading[1], depth, columns)
    output = (*np.broadcast_shapes(*leading), rows, columns)
    expr = RESULT
    if extra:
        expr = RESULT + Arg(1) if len(extra) == 1 else (RESULT + Arg(1)) * Arg(2)
    form = MatMul(expr, tuple(IndexMap.broadcast(one, output) for one in extra), adj_x, adj_y)
    return graph_of(form, [a, b, *extra], output)


def bytes_matmul(sizes: tuple[int, int, int], adjoint: tuple[bool, bool]) -> Graph:
    """A quantized BATCH_MATMUL of three matrices each, lowered to sums of bytes."""
    (rows, depth, columns), (adj_x, adj_y) = sizes, adjoint
    a = (3, depth, rows) if adj_x else (3, rows, depth)
    b = (3, columns, depth) if adj_y else (3, depth, columns)
    data = [(a, "int8", 0.02, 5), (b, "int8", 0.03, -7)]
    content = one_op("BATCH_MATMUL", data, ((3, rows, columns), "int8", 0.01 * depth, 3), adj_x=adj_x, adj_y=adj_y)
    return run(read(content).graphs[0])


def heads(sizes: tuple[int, int, int], adjoint: tuple[bool, bool], orders: tuple[bool, bool, bool]) -> Graph:
    """Products of two by three matrices, of which a, b and the result may be stored with their rows before the
    heads."""
    plain = matmul(sizes, ((2, 3), (2, 3)), adjoint)
    a, b, output = (
        tuple(shape[axis] for axis in HEADS) if is_apart else shape
        for shape, is_apart in zip(
            (plain.tensors[i].shape for i in (*plain.inputs, *plain.outputs)), orders, strict=True
        )
    )
    a_order, b_order, order = (HEADS if is_apart else () for is_apart in orders)
    form = MatMul(adj_x=adjoint[0], adj_y=adjoint[1], a_order=a_order, b_order=b_order, order=order)
    return graph_of(form, [a, b], output)


def attention(sizes: tuple[int, int, int, int], *, adj_y: bool, has_views: bool = False) -> Graph:
    """Six products of sizes (rows, depth, columns) with a mask, their Softmax, and its products with [columns, last],
    whose rows and the result's lie before the heads. With `has_views`, the Softmax has another shape."""
    rows, depth, columns, last = sizes
    scores, heads = (2, 3, rows, columns), (1, 3, columns, depth) if adj_y else (1, 3, depth, columns)
    shapes = [(2, 3, rows, depth), heads, (rows, columns), (2, columns, 3, last), scores, scores, (2, rows, 3, last)]
    tensors = tuple(Tensor(f"tensor{k}", shape, "float32") for k, shape in enumerate(shapes))
    masked = MatMul(RESULT * 0.5 + Arg(1), (IndexMap.broadcast((rows, columns), scores),), adj_y=adj_y)
    nodes = (
        Node("SCORES", (0, 1, 2), (4,), form=masked),
        Node("SOFTMAX", (4,), (5,), form=Softmax(beta=2.0)),
        Node("VALUES", (5, 3), (6,), form=MatMul(b_order=HEADS, order=HEADS)),
    )
    if has_views:
        flat, last = (6, rows, columns), len(tensors)
        tensors += tuple(Tensor(f"tensor{last + k}", shape, "float32") for k, shape in enumerate((flat, flat)))
        softmax = replace(nodes[1], inputs=(last,), outputs=(last + 1,))
        views = (Node("VIEW", (one,), (other,), form=View()) for one, other in ((4, last), (last + 1, 5)))
        nodes = (nodes[0], next(views), softmax, next(views), nodes[2])
    return Graph(tensors, nodes, (0, 1, 2, 3), (6,))


def feeds_of(graph: Graph) -> list[np.ndarray]:
    """Random numbers between -1 and 1."""
    random = np.random.default_rng(0)
    return [random.uniform(-1, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
