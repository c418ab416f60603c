"""The reference target's sums of integers against loops over plain Python integers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from jitdelegate.ir.forms import Contract, Depthwise, Pool, Reduce, Window
from jitdelegate.ir.graph import Graph, Node, Tensor
from tests.targets.integer_graphs import feeds_of, graph_of, to_int8, whole_range
from tests.targets.reference_execute import execute

WINDOW = {"kernel": (3, 2), "stride": (2, 1), "dilation": (1, 2), "padding": (1, 1, 1, 0), "halo_value": -100}
"""A window over 5 rows and 6 columns gives 3 rows and 5 columns."""
INT8 = {**WINDOW, "accumulator": "int32", "input_zero": -7}
INT16 = {**WINDOW, "accumulator": "int64", "input_zero": 0, "halo_value": 5}


def seen(form: Window, data: np.ndarray, y: int, x: int) -> Iterator[tuple[int, int, list[int] | None]]:
    """(ky, kx, the pixel's elements as they are stored; None outside) under the window at output (y, x)."""
    for ky, kx in np.ndindex(*form.kernel):
        row = y * form.stride[0] - form.padding[0] + ky * form.dilation[0]
        column = x * form.stride[1] - form.padding[2] + kx * form.dilation[1]
        inside = 0 <= row < data.shape[1] and 0 <= column < data.shape[2]
        yield ky, kx, data[0, row, column].tolist() if inside else None


def wrapped(total: int, bits: int) -> int:
    return (total + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def products(form: Contract | Depthwise, data: np.ndarray, weights: np.ndarray, bias: np.ndarray, o: int) -> list[int]:
    """Output channel `o`, pixel by pixel."""
    found, halo = [], [int(form.halo_value or 0)] * data.shape[3]
    for y, x in np.ndindex(3, 5):
        total = int(bias[o])
        for ky, kx, pixel in seen(form, data, y, x):
            values = [value - form.input_zero for value in (pixel or halo)]
            if isinstance(form, Depthwise):
                total += values[o // form.multiplier] * int(weights[0, ky, kx, o])
            else:
                size = weights.shape[3]
                part = values[o // (len(weights) // form.groups) * size :][:size]
                total += sum(a * (int(b) - form.filter_zero) for a, b in zip(part, weights[o, ky, kx], strict=True))
        found.append(wrapped(total, 64 if form.accumulator == "int64" else 32))
    return found


@pytest.mark.parametrize(
    "form, dtype, weights",
    [
        (Contract(**INT8), "int8", (4, 3, 2, 6)),
        (Contract(**INT8, groups=2), "int8", (4, 3, 2, 3)),
        (Contract(**INT8, filter_zero=-128), "int8", (4, 3, 2, 6)),
        (Contract(**INT16), "int16", (4, 3, 2, 6)),
        (Depthwise(**INT8, multiplier=2), "int8", (1, 3, 2, 12)),
    ],
    ids=["int8", "groups", "weights from -128", "int16", "depthwise"],
)
def test_products_are_summed_exactly_and_wrap(form: Contract | Depthwise, dtype: str, weights: tuple[int, ...]) -> None:
    filters = whole_range(weights, "int8", 1)
    outputs = weights[3] if isinstance(form, Depthwise) else weights[0]
    bias = whole_range((outputs,), form.accumulator, 2)
    graph = graph_of(form, Tensor("x", (1, 5, 6, 6), dtype), (1, 3, 5, outputs), weights=filters, bias=bias)
    (data,) = feeds_of(graph)
    (found,) = execute(graph, [data])
    for o in range(outputs):
        assert found[0, :, :, o].ravel().tolist() == products(form, data, filters, bias, o)


def test_a_sum_is_rounded_in_the_epilogue() -> None:
    epilogue, factors = to_int8(4)
    form = Contract(**INT8, epilogue=epilogue)
    shape, filters, bias = (1, 3, 5, 4), whole_range((4, 3, 2, 6), "int8", 1), whole_range((4,), "int16", 2)
    data = Tensor("x", (1, 5, 6, 6), "int8")
    bias = bias.astype(np.int32)
    graph = graph_of(form, data, shape, weights=filters, bias=bias, constants=[factors], dtype="int8")
    feeds = feeds_of(graph)
    (found,) = execute(graph, feeds)
    for o in range(4):
        sums = np.array(products(form, *feeds, filters, bias, o), np.int32).astype(np.float32)
        expected = np.clip(np.rint(sums * factors[o]) + 3, -120, 127)
        assert found[0, :, :, o].ravel().tolist() == expected.tolist()


@pytest.mark.parametrize("halo_value", [None, -100])
@pytest.mark.parametrize("kind", ["max", "mean"])
def test_pools_look_at_whole_numbers(kind: str, halo_value: int | None) -> None:
    form = Pool(kind=kind, **{**INT8, "halo_value": halo_value, "input_zero": 0})
    graph = graph_of(form, Tensor("x", (1, 5, 6, 2), "int8"), (1, 3, 5, 2))
    (data,) = feeds_of(graph)
    (found,) = execute(graph, [data])
    assert found.dtype == ("int8" if kind == "max" else "int32")
    for y, x in np.ndindex(3, 5):
        pixels = [pixel or [halo_value] * 2 for *_, pixel in seen(form, data, y, x)]
        inside = [pixel for pixel in pixels if pixel != [None] * 2]
        for c, values in enumerate(zip(*inside, strict=True)):
            count, total = len(values), sum(values)
            mean = (2 * abs(total) + count) // (2 * count) * (1 if total >= 0 else -1)
            assert found[0, y, x, c] == (max(values) if kind == "max" else mean)


def test_a_mean_is_rounded_away_from_zero() -> None:
    form = Pool(kind="mean", accumulator="int32", kernel=(1, 4), stride=(1, 4))
    data = np.array([[1, 1, 0, 0], [-1, -1, 0, 0], [1, 0, 0, 0], [-1, 0, -4, -1]], np.int8)
    (found,) = execute(graph_of(form, Tensor("x", (1, 1, 16, 1), "int8"), (1, 1, 4, 1)), [data.reshape(1, 1, 16, 1)])
    assert found.ravel().tolist() == [1, -1, 0, -2]


@pytest.mark.parametrize("dtype, accumulator", [("int8", "int32"), ("uint8", "int32"), ("int16", "int64")])
def test_sums_of_narrow_integers_are_wider(dtype: str, accumulator: str) -> None:
    form = Reduce(kind="sum", axes=(1,), accumulator=accumulator)
    tensors = (Tensor("x", (3, 700), dtype), Tensor("y", (3,), accumulator))
    (data,) = feeds_of(graph := Graph(tensors, (Node("SUM", (0,), (1,), form=form),), (0,), (1,)))
    (found,) = execute(graph, [data])
    assert found.tolist() == [sum(row) for row in data.tolist()]
