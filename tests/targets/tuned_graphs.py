"""Graphs of one node whose kernels are chosen, between Maps, so that its tensors are stored as the precision says."""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.forms import Contract, Depthwise, Form
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from tests.targets.cuda_graphs import Shape, stored_between
from tests.targets.matmul_graphs import matmul
from tests.targets.part_graphs import Draft


def weighted(form: Form, data: Shape, weights: Shape, output: Shape) -> Graph:
    random = np.random.default_rng(0)
    tensors = (
        Tensor("data", data, "float32"),
        Tensor("weights", weights, "float32", random.uniform(-1, 1, weights).astype(np.float32)),
        Tensor("output", output, "float32"),
    )
    return stored_between(Graph(tensors, (Node("OP", (0, 1, ABSENT), (2,), form=form),), (0,), (2,)))


def convolution() -> Graph:
    return weighted(Contract(kernel=(1, 1)), (1, 14, 14, 256), (128, 1, 1, 256), (1, 14, 14, 128))


def fully_connected() -> Graph:
    """Between normalisations: a product of so few rows and a Map are a cell, of which there is one kind."""
    draft = Draft((1, 64))
    weights = draft.constant(np.random.default_rng(0).uniform(-1, 1, (40, 64)).astype(np.float32))
    return draft.graph(draft.made(draft.node(Contract(), (draft.made(0), weights, ABSENT), (1, 40))))


def depthwise(size: int = 16, channels: int = 64) -> Graph:
    form = Depthwise(kernel=(3, 3), padding=(1, 1, 1, 1))
    return weighted(form, (1, size, size, channels), (1, 3, 3, channels), (1, size, size, channels))


def product() -> Graph:
    return stored_between(matmul((48, 64, 40)))


def separable() -> Graph:
    """A depthwise convolution and the 1x1 convolution that reads it, which one kernel computes."""
    random = np.random.default_rng(0)
    weights = {1: (1, 3, 3, 128), 4: (128, 1, 1, 128)}
    image = (1, 56, 56, 128)
    tensors = tuple(
        Tensor(f"t{index}", weights.get(index, image), "float32")
        if index not in weights
        else Tensor(f"t{index}", weights[index], "float32", random.uniform(-1, 1, weights[index]).astype(np.float32))
        for index in range(6)
    )
    first = Node("OP", (0, 1, ABSENT), (3,), form=Depthwise(kernel=(3, 3), padding=(1, 1, 1, 1)))
    second = Node("OP", (3, 4, ABSENT), (5,), form=Contract(kernel=(1, 1)))
    return Graph(tensors, (first, second), (0,), (5,))
