"""Shapes follow from the inputs, what is known becomes a constant, and faults are left for the check."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.graph import DimensionMetadata, Graph, Model, Node, Quant, Sparsity, Tensor
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.passes import FOLD, infer_shapes, run
from jitdelegate.passes.support import port_problem, unsupported
from tests.passes.graphs import UNIT, Builder, ops


def folded(graph: Graph) -> np.ndarray:
    """The one output, which has become a constant."""
    result = run(graph, passes=FOLD)
    assert ops(result) == []
    data = result.tensors[result.outputs[0]].data
    assert data is not None
    assert not data.flags.writeable
    return data


def test_half_precision_weights_are_widened() -> None:
    build = Builder()
    half = build.constant([1.5, -2], "float16")
    assert folded(build.finish(build.op("DEQUANTIZE", [half], (2,)))).tolist() == [1.5, -2]


def test_weights_quantized_per_channel_become_real_numbers() -> None:
    stored = np.array([[1, 2], [3, 4]], np.int8)
    source = Tensor("w", (2, 2), "int8", stored, Quant((0.5, 2.0), (0, 1), axis=1))
    node = Node("DEQUANTIZE", (0,), (1,))
    graph = Graph((source, Tensor("real", (2, 2), "float32")), (node,), (), (1,))
    assert folded(graph).tolist() == [[0.5, 2], [1.5, 6]]


def sparse(indices: tuple[int, ...], segments: tuple[int, ...] = (0, 1, 2)) -> Graph:
    """A 4x4 matrix of 2x2 blocks: block row 0 holds one block, block row 1 the other."""
    dimensions = (
        DimensionMetadata(False, 2),
        DimensionMetadata(True, 0, segments, indices),
        DimensionMetadata(False, 2),
        DimensionMetadata(False, 2),
    )
    sparsity = Sparsity((0, 1, 2, 3), (0, 1), dimensions)
    source = Tensor("w", (4, 4), "float32", np.arange(1, 9, dtype=np.float32), sparsity=sparsity)
    return Graph((source, Tensor("dense", (4, 4), "float32")), (Node("DENSIFY", (0,), (1,), origin=(0,)),), (), (1,))


def test_a_sparse_constant_in_blocks_becomes_dense() -> None:
    expected = [[0, 0, 1, 2], [0, 0, 3, 4], [5, 6, 0, 0], [7, 8, 0, 0]]
    assert folded(sparse((1, 0))).tolist() == expected


@pytest.mark.parametrize(
    ("indices", "segments"),
    [((1, 2), (0, 1, 2)), ((1, -1), (0, 1, 2)), ((1, 0), (0, 2)), ((1, 0), (1, 1, 2)), ((1, 0), (0, 3, 2))],
)
def test_a_sparse_constant_with_places_out_of_range_is_refused(
    indices: tuple[int, ...], segments: tuple[int, ...]
) -> None:
    graph = infer_shapes(sparse(indices, segments))
    assert ops(graph) == ["DENSIFY"]
    reasons = unsupported(Model((graph,)), graph)
    assert (0, "DENSIFY: the segments and indices of dimension 1 do not fit.") in reasons


def test_shape_arithmetic_folds_away_and_leaves_a_static_reshape() -> None:
    build = Builder()
    x = build.input(2, 3, 4)
    shape = build.op("SHAPE", [x], (3,), "int32")
    ends = [build.constant([k], "int32") for k in (0, 1, 1)]
    batch = build.op("STRIDED_SLICE", [shape, *ends], (), "int32", shrink_axis_mask=1)
    product = build.op("MUL", [batch, build.constant(2, "int32")], (), "int32")
    packed = build.op("PACK", [product, build.constant(-1, "int32")], (2,), "int32", axis=0, values_count=2)
    graph = run(build.finish(build.op("RESHAPE", [x, packed], (4, 6))), passes=FOLD)
    assert ops(graph) == ["RESHAPE"]
    assert unsupported(Model((graph,)), graph) == []


def test_shapes_follow_from_the_inputs_whatever_the_file_says() -> None:
    build = Builder()
    x = build.input(5, 3, 4)
    flat = build.op("RESHAPE", [x, build.constant([-1, 4], "int32")], (1, 4))
    graph = infer_shapes(build.finish(build.op("RELU", [flat], (1, 4))))
    assert [tensor.shape for tensor in graph.tensors] == [(5, 3, 4), (2,), (15, 4), (15, 4)]


def test_a_size_that_the_file_leaves_open_stays_open() -> None:
    build = Builder()
    graph = build.finish(build.op("RELU", [build.input(5, 4)], (1, 4)), build.op("EXP", [0], (1, 4)))
    tensors = (graph.tensors[0], replace(graph.tensors[1], shape_signature=(-1, 4)), graph.tensors[2])
    inferred = infer_shapes(replace(graph, tensors=tensors))
    assert [tensor.shape_signature for tensor in inferred.tensors[1:]] == [(-1, 4), (5, 4)]


def test_a_rank_that_the_file_does_not_know_is_found_out() -> None:
    build = Builder()
    graph = build.finish(build.op("RELU", [build.input(5, 4)], ()))
    tensors = (graph.tensors[0], replace(graph.tensors[1], has_rank=False))
    graph = infer_shapes(replace(graph, tensors=tensors))
    assert (graph.tensors[1].shape, graph.tensors[1].has_rank) == ((5, 4), True)
    assert unsupported(Model((graph,)), graph) == []


def test_nothing_follows_from_the_shape_of_what_an_unknown_operator_writes() -> None:
    build = Builder()
    unknown = build.op("ARG_SORT", [build.input(5, 4)], (1, 4))
    build.op("SHAPE", [unknown], (2,), dtype="int32")
    graph = infer_shapes(build.finish(build.op("RELU", [unknown], (1, 2))))
    assert [tensor.shape for tensor in graph.tensors] == [(5, 4), (1, 4), (2,), (1, 2)]
    assert [node.op for node in graph.nodes] == ["ARG_SORT", "SHAPE", "RELU"]


def test_shapes_go_through_operators_that_keep_them() -> None:
    build = Builder()
    rough = build.op("FAKE_QUANT", [build.input(5, 4)], (1, 4))
    graph = infer_shapes(build.finish(build.op("RELU", [rough], (1, 4))))
    assert [tensor.shape for tensor in graph.tensors] == [(5, 4), (5, 4), (5, 4)]


def test_an_output_without_elements_is_a_constant() -> None:
    build = Builder()
    filters = build.weights(4, 3, 3, 4), build.weights(4)
    options = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
    graph = build.finish(build.op("CONV_2D", [build.input(1, 1, 6, 4), *filters], (1, 4, 4, 4), **options))
    graph = run(graph, passes=FOLD)
    assert not graph.nodes
    assert graph.tensors[graph.outputs[0]].data.shape == (1, 0, 4, 4)
    assert unsupported(Model((graph,)), graph) == []


def test_a_constant_of_absurd_size_is_not_made() -> None:
    build = Builder()
    shape = build.constant([1 << 20, 1 << 20], "int32")
    graph = build.finish(build.op("FILL", [shape, build.constant(1.0)], (1 << 20, 1 << 20)))
    assert ops(infer_shapes(graph)) == ["FILL"]


def test_constants_that_are_absurd_together_are_not_all_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["jitdelegate.passes.infer_shapes"], "MAX_FOLDED", 2500)
    build = Builder()
    shape = build.constant([10, 100], "int32")
    made = [build.op("FILL", [shape, build.constant(float(k))], (10, 100)) for k in range(3)]
    assert ops(infer_shapes(build.finish(*made))) == ["FILL"]


def test_reasons_name_the_operators_of_the_file() -> None:
    build = Builder()
    x = build.input(1, 4)
    build.op("DEQUANTIZE", [build.constant([1], "float16")], (1,))
    graph = run(build.finish(build.op("ARG_SORT", [x], (1, 4))), passes=FOLD)
    assert unsupported(Model((graph,)), graph) == [(1, "ARG_SORT is not supported.")]


def with_input(dtype: str, quant: Quant | None = None) -> Graph:
    build = Builder()
    graph = build.finish(build.op("RELU", [build.input(1, 4)], (1, 4)))
    return replace(graph, tensors=(replace(graph.tensors[0], dtype=dtype, quant=quant), *graph.tensors[1:]))


@pytest.mark.parametrize("dtype", ["complex64", "string", "int4"])
def test_inputs_that_kernels_do_not_move_keep_a_graph_in_partitions(dtype: str) -> None:
    reason = port_problem(with_input(dtype, Quant((0.5,), (0,)) if dtype == "int4" else None))
    assert reason and reason.startswith(
        f"'input' is {dtype}; inputs and outputs have to be float32, int32, int64, bool, int8, "
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_quantized_values_enter_a_graph_as_they_are_stored(dtype: str) -> None:
    assert port_problem(with_input(dtype, Quant((0.5, 2.0, 1.0, 3.0), (0, 0, 0, 0), axis=1))) is None


def test_two_shapes_broadcast_when_the_model_is_compiled() -> None:
    build = Builder()
    sides = [build.constant([4, 1], "int32"), build.constant([2, 1, 3], "int32")]
    asked = build.op("BROADCAST_ARGS", sides, (3,), dtype="int32")
    graph = infer_shapes(build.finish(build.op("BROADCAST_TO", [build.input(4, 3), asked], (1, 1, 1))))
    assert graph.tensors[graph.outputs[0]].shape == (2, 4, 3)


def all_constant(name: str, *arrays: np.ndarray, **attrs: Any) -> Graph:
    """One operator on constants."""
    return Case(arrays, attrs).graph(OPS[name])


def test_what_sparse_and_quantized_constants_stand_for_is_not_computed_with() -> None:
    graph = all_constant("RELU", np.ones((2, 3), np.float32))
    stored = replace(graph.tensors[0], data=np.ones(2, np.float32), sparsity=Sparsity((0, 1), (), ()))
    assert ops(infer_shapes(replace(graph, tensors=(stored, *graph.tensors[1:])))) == ["RELU"]
    graph = all_constant("PAD", np.ones((2,), np.int8), np.array([[1, 1]], np.int32))
    stored = replace(graph.tensors[0], quant=Quant((0.5,), (7,)))
    assert ops(infer_shapes(replace(graph, tensors=(stored, *graph.tensors[1:])))) == ["PAD"]


@pytest.mark.parametrize("limits", [(0, (1 << 31) - 1, 1), (0, -(1 << 31), -1), (-3e38, 3e38, 1e38), (0, 3e38, 1e-38)])
def test_a_range_of_absurd_length_is_not_made(limits: tuple[float, float, float]) -> None:
    dtype = "float32" if max(limits) > 1e30 else "int32"
    build = Builder()
    graph = build.finish(build.op("RANGE", [build.constant(number, dtype) for number in limits], (1,), dtype))
    inferred = infer_shapes(graph)
    assert ops(inferred) == ["RANGE"]
    assert len(unsupported(Model((graph,)), inferred)) == 1


def test_a_range_may_go_from_end_to_end_of_its_type() -> None:
    build = Builder()
    numbers = [build.constant(number, "int64") for number in (-(1 << 63), (1 << 63) - 1, 1 << 62)]
    assert folded(build.finish(build.op("RANGE", numbers, (1,), "int64"))).tolist() == [
        -(1 << 63),
        -(1 << 62),
        0,
        1 << 62,
    ]


def test_windows_over_constants_are_left_to_the_run() -> None:
    build = Builder()
    image, window = build.weights(1, 4, 4, 4), {"filter_height": 1 << 14, "filter_width": 1 << 14}
    graph = build.finish(build.op("MAX_POOL_2D", [image], (1, 4, 4, 4), **UNIT | window))
    assert ops(infer_shapes(graph)) == ["MAX_POOL_2D"]


def test_places_outside_are_left_to_the_run() -> None:
    places, updates, shape = np.array([[1], [-1], [9]], np.int32), np.ones(3, np.float32), np.array([4], np.int32)
    assert ops(infer_shapes(all_constant("SCATTER_ND", places % 3, updates, shape))) == []
    graph = Builder()
    operands = [graph.constant(places, "int32"), graph.constant(updates), graph.constant(shape, "int32")]
    assert ops(infer_shapes(graph.finish(graph.op("SCATTER_ND", operands, (4,))))) == ["SCATTER_ND"]


def test_a_running_sum_without_the_element_itself_is_not_a_difference() -> None:
    build = Builder()
    operands = [build.constant([1, 1e30, 3]), build.constant(0, "int32")]
    assert folded(build.finish(build.op("CUMSUM", operands, (3,), exclusive=True))).tolist() == [0, 1, np.float32(1e30)]
