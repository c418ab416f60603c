"""Graphs of one Contract of floats, and their comparison with the reference."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.cuda_execute import run
from tests.targets.integer_graphs import size_of

TOLERANCE = 1e-6
"""Root mean square error against the outputs'."""
PLAIN = Contract()


def coarse(values: np.ndarray) -> np.ndarray:
    """Numbers from -1 to 1 as multiples of 1/128, which floats of every precision hold exactly; but a small one, so
    that they are not stored as float16 where float32 is asked for."""
    rounded = (np.round(values * 128) / 128).astype(np.float32)
    rounded.flat[0] = 2.0**-30
    return rounded


@dataclass(frozen=True)
class Case:
    """A Contract and the shapes of its tensors.

    Attributes:
        extra: operands of the epilogue.
        is_coarse: whether weights and bias have few bits.
    """

    data: tuple[int, ...]
    weights: tuple[int, ...]
    output: tuple[int, ...]
    form: Contract = PLAIN
    extra: tuple[tuple[int, ...], ...] = ()
    has_bias: bool = True
    is_coarse: bool = False

    @property
    def graph(self) -> Graph:
        random = np.random.default_rng(prod(self.data) + prod(self.weights))
        tensors = [Tensor("data", self.data, "float32")]
        for name, shape in (("weights", self.weights), ("bias", self.weights[:1])):
            values = random.uniform(-1, 1, shape).astype(np.float32)
            tensors.append(Tensor(name, shape, "float32", coarse(values) if self.is_coarse else values))
        tensors += [Tensor(f"extra{k}", shape, "float32") for k, shape in enumerate(self.extra)]
        extra = tuple(range(3, len(tensors)))
        node = Node("CONV_2D", (0, 1, 2 if self.has_bias else ABSENT, *extra), (len(tensors),), form=self.form)
        tensors.append(Tensor("output", self.output, "float32"))
        return Graph(tuple(tensors), (node,), (0, *extra), node.outputs)


def convolution(
    data: tuple[int, int, int, int], outputs: int, kernel: tuple[int, int] = (3, 3), **options: Any
) -> Case:
    """A convolution; the output's size follows from the window's options."""
    form = Contract(kernel=kernel, **options)
    return Case(data, (outputs, *kernel, data[3] // form.groups), (data[0], *size_of(form, data[1:3]), outputs), form)


def transposed(data: tuple[int, int, int, int], output: tuple[int, int, int], kernel: int, **options: Any) -> Case:
    """A transposed convolution to [rows, columns, channels]."""
    form = Contract(kernel=(kernel, kernel), transposed=True, **options)
    return Case(data, (output[2], kernel, kernel, data[3]), (data[0], *output), form)


def dense(rows: int, depth: int, outputs: int, form: Contract = PLAIN) -> Case:
    return Case((rows, depth), (outputs, depth), (rows, outputs), form)


def error(case: Graph, tolerance: float = TOLERANCE, precision: str = "float32", **options: Any) -> None:
    """The simulated kernels answer as the reference does, up to the rounding of sums and results."""
    random = np.random.default_rng(0)
    feeds = [random.uniform(-1, 1, case.tensors[i].shape).astype(np.float32) for i in case.inputs]
    feeds = feeds if precision == "float32" else [coarse(one) for one in feeds]
    (found,), (expected,) = run(case, feeds, precision=precision, **options), run_graph(case, feeds)
    assert np.sqrt(np.mean((found - expected) ** 2)) <= tolerance * np.sqrt(np.mean(expected**2))
