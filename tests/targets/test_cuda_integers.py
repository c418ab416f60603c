"""Integers on CUDA: every form against the reference, element for element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, Cast, Const, Expr
from jitdelegate.ir.forms import Form, Pool, Reduce, Resize
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ir.quantized import Table, quantize, rescale
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.cuda_execute import assert_compiles_everywhere, ptx_of, run, templates_of
from tests.targets.elementwise_graphs import of_elements
from tests.targets.integer_graphs import feeds_of, graph_of

FACTOR, ZERO = Const(float(np.float32(0.00013102272))), 100.0
MEAN = quantize(Cast(Arg(0), "float32") * FACTOR + ZERO, "int8", low=-90)
"""XNNPACK's mean: the product is rounded before the zero point is added."""


def check(graph: Graph, feeds: Sequence[np.ndarray] | None = None, **options: object) -> None:
    """The simulated kernels answer exactly as the reference does; whole ranges of the types are fed by default."""
    feeds = feeds_of(graph) if feeds is None else feeds
    for found, wanted in zip(run(graph, feeds, **options), run_graph(graph, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)


def of_form(form: Form, shapes: Sequence[tuple[int, ...]], dtype: str, output: tuple[int, ...], target: str) -> Graph:
    """One node that reads tensors of these shapes and one type."""
    tensors = *(Tensor(f"x{k}", shape, dtype) for k, shape in enumerate(shapes)), Tensor("y", output, target)
    operands = tuple(range(len(shapes)))
    return Graph(tensors, (Node("TEST", operands, (len(shapes),), form=form),), operands, (len(shapes),))


def test_a_product_is_rounded_before_the_zero_point_is_added() -> None:
    graph = of_elements(MEAN, ["int32"], 5)
    sums = np.array([-1011275, -751778, 377797, 721249, 927320], np.int32)
    fused = np.rint((sums * float(np.float32(0.00013102272)) + ZERO).astype(np.float32)).clip(-90, 127)
    assert (run_graph(graph, [sums])[0] != fused).sum() >= 2, "the numbers tell one rounding from two"
    check(graph, [sums])
    (template,) = templates_of(graph)
    assert "mul.rn.f32" in ptx_of(template, "sm_90")
    assert "mul.f32" not in ptx_of(template, "sm_90")
    assert "max.f32" in ptx_of(template, "sm_90")  # one instruction, not a comparison and a choice


HALVES = np.array([0.5, 1.5, -0.5, -2.5, 0.49999997, -0.49999997, 126.5, 1e9, -np.inf, np.inf], np.float64)


@pytest.mark.parametrize("rounding", ["even", "away"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_quantized_once(dtype: str, rounding: str) -> None:
    value = Cast(Arg(0), "float64") * 0.999 if dtype == "float64" else Arg(0)
    for target, zero, low in ("int8", 3, -120), ("uint8", 128, 7), ("int16", 0, -32768):
        expr = quantize(value, target, zero, low, rounding=rounding)
        check(of_elements(expr, ["float32"], 10), [(HALVES / (0.999 if dtype == "float64" else 1)).astype(np.float32)])


def test_nan_becomes_a_number_between_the_limits() -> None:
    (found,) = run(of_elements(quantize(Arg(0), "int8", low=5, high=7), ["float32"], 3), [np.full(3, np.nan)])
    assert all(5 <= number <= 7 for number in found.tolist())


POOLS = {
    "compiled in": ((2, 7, 6, 20), (3, 3), (2, 2), (1, 1, 0, 1)),
    "odd channels": ((1, 5, 5, 3), (2, 2), (1, 1), (1, 0, 0, 1)),
    "walked": ((1, 6, 7, 8), (5, 4), (1, 1), (2, 2, 2, 1)),
    "shared by threads": ((1, 12, 12, 5), (12, 12), (1, 1), (0, 0, 0, 0)),
}


@pytest.mark.parametrize("halo", [None, -100])
@pytest.mark.parametrize(
    "kind, dtype", [("max", "int8"), ("max", "int16"), ("mean", "int8"), ("mean", "uint8"), ("mean", "int16")]
)
@pytest.mark.parametrize("case", POOLS)
def test_a_pool_is_as_the_reference_has_it(case: str, kind: str, dtype: str, halo: int | None) -> None:
    shape, kernel, stride, padding = POOLS[case]
    size = [(n + sum(padding[2 * a : 2 * a + 2]) - kernel[a]) // stride[a] + 1 for a, n in enumerate(shape[1:3])]
    halo = halo if halo is None or dtype != "uint8" else 77
    form = Pool(
        kind=kind,
        kernel=kernel,
        stride=stride,
        padding=padding,
        halo_value=halo,
        input_zero=-7 if kind == "mean" else 0,
        accumulator="int32",
        epilogue=rescale(RESULT, 1518500250, 31, dtype, output_zero=3),
    )
    check(graph_of(form, Tensor("x", shape, dtype), (shape[0], *size, shape[3]), dtype=dtype))


@pytest.mark.parametrize(
    "kind, dtype, accumulator",
    [("sum", "int8", "int32"), ("sum", "uint8", "int32"), ("sum", "int16", "int64"), ("max", "int8", ""),
     ("min", "uint8", ""), ("max", "int16", "")],
)  # fmt: skip
@pytest.mark.parametrize(
    "shape, axes, left", [((2, 7, 7, 24), (1, 2), (2, 24)), ((5, 33), (1,), (5,)), ((1, 70_000), (1,), (1,))]
)
def test_a_reduction_is_as_the_reference_has_it(
    kind: str, dtype: str, accumulator: str, shape: tuple[int, ...], axes: tuple[int, ...], left: tuple[int, ...]
) -> None:
    check(of_form(Reduce(kind=kind, axes=axes, accumulator=accumulator), [shape], dtype, left, accumulator or dtype))


def test_a_mean_over_pixels_is_quantized() -> None:
    expr = quantize(Cast(RESULT, "float32") * 0.0123 + 5.0, "int8", low=-90)
    check(of_form(Reduce(expr, kind="sum", axes=(1, 2), accumulator="int32"), [(2, 7, 7, 24)], "int8", (2, 24), "int8"))


@pytest.mark.parametrize(
    "weights, dtype",
    [("float32", "uint8"), ("fixed10", "int8"), ("fixed10", "int16"), ("fixed11", "int8"), ("fixed11", "uint8")],
)
@pytest.mark.parametrize("half_pixel_centers", [False, True])
def test_images_are_resampled_as_the_reference_does(weights: str, dtype: str, half_pixel_centers: bool) -> None:
    for kind, size in ("bilinear", (9, 13)), ("bilinear", (3, 2)), ("nearest", (9, 13)):
        form = Resize(kind=kind, half_pixel_centers=half_pixel_centers, weights=weights)
        check(of_form(form, [(2, 5, 6, 12)], dtype, (2, *size, 12), dtype))


def added(left: str, right: str) -> Expr:
    """XNNPACK's addition: two products of integers, one shift."""
    total = Cast(Arg(0), "int32") * 1234567 + Cast(Arg(1), "int32") * -765432 + 5555
    return rescale(total, 1 << 8, 28, left, output_zero=-3, rounding="single")


ELEMENTWISE = {
    "add": (added("int8", "int8"), ["int8", "int8"]),
    "multiply": (quantize(Cast(Cast(Arg(0), "int32") * Cast(Arg(1), "int32"), "float32") * 0.011, "uint8", 3),
                 ["uint8", "uint8"]),
    "dequantize": ((Cast(Arg(0), "float32") - -7.0) * 0.0123, ["int8"]),
    "table": (Table(Arg(0), tuple((k * 77) % 256 - 128 for k in range(256)), "int8"), ["int8"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_work_on_vectors_is_as_the_reference_has_it(name: str) -> None:
    check(of_elements(*ELEMENTWISE[name], 1003))


def test_they_compile_everywhere_without_spills() -> None:
    pool = Pool(MEAN, kind="mean", kernel=(3, 3), accumulator="int32", input_zero=4)
    graphs = [
        graph_of(pool, Tensor("x", (1, 9, 9, 16), "int8"), (1, 7, 7, 16), dtype="int8"),
        of_form(Reduce(MEAN, kind="sum", axes=(1, 2), accumulator="int32"), [(2, 7, 7, 24)], "int8", (2, 24), "int8"),
        of_form(Reduce(kind="max", axes=(1,)), [(5, 64)], "int16", (5,), "int16"),
        of_form(Resize(weights="float32"), [(1, 9, 9, 32)], "uint8", (1, 30, 30, 32), "uint8"),
        of_form(Resize(weights="fixed10"), [(1, 9, 9, 32)], "int16", (1, 30, 30, 32), "int16"),
        of_form(Resize(weights="fixed11"), [(1, 9, 9, 32)], "int8", (1, 30, 30, 32), "int8"),
        *(of_elements(*one, 1003) for one in ELEMENTWISE.values()),
        of_elements(quantize(Arg(0), "int8"), ["float32"], 1003),
    ]
    assert_compiles_everywhere([template for graph in graphs for template in templates_of(graph)])
