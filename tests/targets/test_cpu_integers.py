"""Contracts of integers on the CPU against numpy, on every instruction set: no element may differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.base.targets import LEVELS
from jitdelegate.ir.expr import RESULT, Arg, Cast
from jitdelegate.ir.forms import Contract, Shape
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.quantized import quantize, rescale
from jitdelegate.targets.cpu.code import machine
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.multiply.byte_pairs import BytePairs
from jitdelegate.targets.cpu.multiply.products import ByteProducts, byte_offset, folded
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.fenced import run_fenced
from tests.targets.integer_graphs import feeds_of, graph_of, to_int8, whole_range
from tests.targets.levels import INTEGERS

SAME = {"kernel": (3, 3), "padding": (1, 1, 1, 1)}
CASES: dict[str, tuple[dict[str, Any], Shape, Shape, Shape]] = {
    "matrix": ({}, (5, 64), (70, 64), (5, 70)),
    "one row": ({}, (1, 260), (33, 260), (1, 33)),
    "odd channels": ({}, (3, 21), (20, 21), (3, 20)),
    "pixels": ({}, (2, 7, 5, 20), (48, 1, 1, 20), (2, 7, 5, 48)),
    "three channels": (SAME, (1, 6, 7, 3), (8, 3, 3, 3), (1, 6, 7, 8)),
    "window": ({**SAME, "stride": (2, 2)}, (1, 9, 9, 19), (70, 3, 3, 19), (1, 5, 5, 70)),
    "no padding": ({"kernel": (2, 2)}, (1, 4, 5, 8), (16, 2, 2, 8), (1, 3, 4, 16)),
    "dilation": (
        {"kernel": (3, 2), "dilation": (2, 3), "padding": (2, 2, 1, 2)}, (1, 6, 6, 6), (5, 3, 2, 6), (1, 6, 6, 5)
    ),
    "groups": ({**SAME, "groups": 3}, (2, 4, 4, 18), (60, 3, 3, 6), (2, 4, 4, 60)),
    "transposed": (
        {"kernel": (3, 3), "stride": (2, 2), "padding": (0, 1, 0, 1), "transposed": True},
        (1, 4, 5, 12), (20, 3, 3, 12), (1, 8, 10, 20),
    ),
    "transposed, below its stride": (
        {"kernel": (2, 1), "stride": (3, 2), "transposed": True}, (1, 4, 5, 12), (20, 2, 1, 12), (1, 12, 10, 20)
    ),
    "many pixels": ({}, (1, 40, 41, 32), (64, 1, 1, 32), (1, 40, 41, 64)),
}  # fmt: skip
"""Name -> (window, data, weights, result)."""


def contract_graph(name: str, source: str, *, zero: int = 0, **further: Any) -> Graph:
    """A case on data of a type with a zero point, which is outside the image too, and a bias that makes sums wrap."""
    window, data, weights, shape = CASES[name]
    accumulator = "int64" if source == "int16" else "int32"
    form = Contract(**window, accumulator=accumulator, input_zero=zero, halo_value=zero)
    given = {"weights": whole_range(weights, "int8", 1), "bias": whole_range((weights[0],), accumulator, 2)}
    epilogue = further.pop("epilogue", RESULT)
    return graph_of(replace(form, epilogue=epilogue), Tensor("x", data, source), shape, **given, **further)


def joined(graphs: Sequence[Graph]) -> Graph:
    """One graph that does what all of them do, apart from each other."""
    tensors: list[Tensor] = []
    nodes: list[Node] = []
    ports: list[list[int]] = [[], []]
    for graph in graphs:
        first = len(tensors)
        tensors += graph.tensors
        for node in graph.nodes:
            inputs, outputs = (
                tuple(i if i == ABSENT else first + i for i in side) for side in (node.inputs, node.outputs)
            )
            nodes.append(replace(node, inputs=inputs, outputs=outputs))
        for port, side in zip(ports, (graph.inputs, graph.outputs), strict=True):
            port += (first + i for i in side)
    return Graph(tuple(tensors), tuple(nodes), *map(tuple, ports))


def check(graph: Graph, features: str, threads: int = 1) -> None:
    feeds = feeds_of(graph)
    results = execute(graph, feeds, features, threads=threads), run_graph(graph, feeds)
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("dtype, zero", [("int8", -128), ("uint8", 201), ("int16", 0)])
def test_sums_are_exact(dtype: str, zero: int, features: str) -> None:
    check(joined([contract_graph(name, dtype, zero=zero) for name in CASES]), features)


@pytest.mark.skipif("x86-64-v4-vnni" not in INTEGERS, reason="the CPU has no AVX512-VNNI")
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_code_for_avx_vnni_is_right_in_the_encoding_of_avx512(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LEVELS["x86-64-v3-vnni"], "attributes", "+avx512vnni,+avx512vl")
    machine._target_machine.cache_clear()
    try:
        check(joined([contract_graph(name, dtype, zero=9) for name in CASES]), "x86-64-v3-vnni")
    finally:
        machine._target_machine.cache_clear()


@pytest.mark.parametrize("features", [name for name, level in LEVELS.items() if level.host == "aarch64"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_levels_of_other_machines_have_code_for_every_case(dtype: str, features: str) -> None:
    generate(joined([contract_graph(name, dtype, zero=9) for name in CASES]), features)


def test_data_of_the_other_sign_than_the_instruction_takes_is_moved_by_half_a_range() -> None:
    unsigned = LEVELS["x86-64-v3-vnni"]
    assert [byte_offset(unsigned, dtype) for dtype in ("int8", "uint8")] == [128, 0]
    signed = unsigned.with_more("x86-64-v3-signed", (), "+avxvnniint8", byte_data="int8")
    assert [byte_offset(signed, dtype) for dtype in ("int8", "uint8")] == [0, -128]
    weights = np.arange(-3, 5).reshape(2, 4)
    zero = 7 + ByteProducts(signed, is_signed=False).offset
    np.testing.assert_array_equal(folded(None, weights, zero, "int32"), [-726, 1210])


@pytest.mark.parametrize("features", ["x86-64-v3-vnni", "x86-64-v4-vnni"])
def test_levels_with_vnni_sum_up_four_bytes_by_one_instruction(features: str) -> None:
    texts = {}
    generate(contract_graph("matrix", "uint8"), features, lambda stage, make: texts.update({stage: make()}))
    assert ("{vex}\tvpdpbusd" if "v3" in features else "\tvpdpbusd") in texts["assembly"]


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("outputs", [1, 20])
def test_sums_of_many_small_weights_are_exact(outputs: int, features: str) -> None:
    """They may be stored in half a byte each."""
    weights, bias = whole_range((outputs, 324), "int8", 1) >> 4, whole_range((outputs,), "int32", 2)
    form, data = Contract(accumulator="int32", input_zero=7), Tensor("x", (11, 324), "uint8")
    check(graph_of(form, data, (11, outputs), weights=weights, bias=bias), features)


def few_large(name: str, source: str) -> Graph:
    """A case in which few sums of two products are too large for an int16, where data have the ends of their range."""
    graph = contract_graph(name, source, zero=5)
    tensors, (_, weights, _) = list(graph.tensors), graph.nodes[0].inputs
    data = tensors[weights].data
    assert data is not None
    small, numbers = data >> 1, np.random.default_rng(7)
    small[numbers.random(small.shape) < 0.002] = -128
    small[numbers.random(small.shape) < 0.002] = 127
    tensors[weights] = replace(tensors[weights], data=small)
    return replace(graph, tensors=tuple(tensors))


OF_QUADS = ("matrix", "pixels", "no padding", "transposed", "many pixels")
"""Cases whose taps have whole quads of channels."""


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_sums_of_two_products_do_not_saturate(dtype: str, features: str) -> None:
    check(joined([few_large(name, dtype) for name in CASES]), features)


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("at_end", [False, True])
def test_converted_bytes_lie_within_the_callers_memory(at_end: bool, features: str) -> None:
    graph = joined([few_large(name, "int8") for name in OF_QUADS])
    feeds = feeds_of(graph)
    results = run_fenced(graph, feeds, features, at_end=at_end), run_graph(graph, feeds)
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("features", ["x86-64-v3", "x86-64-v4"])
def test_levels_without_vnni_multiply_bytes_where_few_sums_could_saturate(features: str) -> None:
    texts = dict[str, str]()
    for made in (few_large, contract_graph):
        generate(
            made("many pixels", "uint8"),
            features,
            lambda stage, make, made=made: texts.update({f"{made.__name__} {stage}": make()}),
        )
    assert "vpmaddubsw" in texts["few_large assembly"]
    assert "vpmaddwd" in texts["few_large assembly"]
    assert "vpmaddubsw" not in texts["contract_graph assembly"]


def test_two_products_fit_an_int16_unless_weights_of_one_sign_are_large() -> None:
    ends = np.array([0, 255])
    for pair in (
        (64, 64),
        (127, 1),
        (127, -128),
        (-64, -64),
        (65, 64),
        (-65, -64),
        (127, 127),
        (-128, -128),
        (0, -128),
    ):
        sums = [a * pair[0] + b * pair[1] for a in ends for b in ends]
        fits = min(sums) >= -(1 << 15) and max(sums) < 1 << 15
        for weights in ((*pair, 0, 0), (0, 0, *pair)):
            assert BytePairs.fits(np.array(weights, np.int8).reshape(1, 1, 4)).item() == fits, pair


@pytest.mark.parametrize("features", INTEGERS)
def test_sums_of_int16_are_longer_than_32_bits(features: str) -> None:
    form, depth = Contract(accumulator="int64"), 4100
    weights = np.full((3, depth), -128, np.int8)
    graph = graph_of(form, Tensor("x", (2, depth), "int16"), (2, 3), weights=weights)
    data = np.full((2, depth), -(1 << 15), np.int16)
    (found,) = execute(graph, [data], features)
    assert found.tolist() == [[depth << 22] * 3] * 2


@pytest.mark.parametrize("features", INTEGERS)
def test_an_epilogue_rounds_by_a_factor_per_channel(features: str) -> None:
    graphs = []
    for name in ("matrix", "three channels", "groups", "transposed"):
        epilogue, factors = to_int8(CASES[name][2][0])
        graphs.append(contract_graph(name, "int8", zero=3, epilogue=epilogue, constants=[factors], dtype="int8"))
    check(joined(graphs), features)


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_an_epilogue_rescales_by_multipliers_and_shifts(dtype: str, features: str) -> None:
    outputs, most = CASES["window"][2][0], 1 << (15 if dtype == "int16" else 31)
    random = np.random.default_rng(3)
    multipliers = random.integers(most // 2, most, outputs, np.int32)
    shifts = (
        random.integers(22, 26, outputs, np.int32) if dtype == "int16" else random.integers(38, 42, outputs, np.int32)
    )
    epilogue = rescale(RESULT, Arg(1), Arg(2), dtype, output_zero=-3)
    graph = contract_graph("window", dtype, epilogue=epilogue, constants=[multipliers, shifts], dtype=dtype)
    bias = graph.nodes[0].inputs[2]
    tensors = list(graph.tensors)
    small = tensors[bias].data >> (40 if dtype == "int16" else 16)  # of sums that do not wrap
    tensors[bias] = replace(tensors[bias], data=small)
    check(replace(graph, tensors=tuple(tensors)), features)


@pytest.mark.parametrize("features", INTEGERS)
def test_an_epilogue_reads_other_tensors_and_stores_any_type(features: str) -> None:
    _, _, (outputs, *_), shape = CASES["window"]
    streams = [Tensor("residual", shape, "int8"), Tensor("gate", (1, 1, 1, outputs), "uint8")]
    streams.append(Tensor("of pixels", (*shape[:3], 1), "int32"))
    rounded, factors = to_int8(outputs)
    total = Cast(rounded, "float32") * 0.5 + Cast(Arg(2), "float32") * Cast(Arg(3), "float32") * 0.001
    total = total - Cast(Arg(4), "float32") * 1e-8
    given: dict[str, Any] = {"zero": 7, "constants": [factors], "streams": streams}
    graphs = [contract_graph("window", "uint8", epilogue=total, dtype="float32", **given)]
    graphs += (
        contract_graph("window", "uint8", epilogue=quantize(total, dtype, 1), dtype=dtype, **given)
        for dtype in ("int8", "uint8", "int16")
    )
    check(joined(graphs), features)


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("at_end", [False, True])
def test_no_byte_outside_the_callers_memory_is_touched(at_end: bool, features: str) -> None:
    graph = joined([contract_graph(name, "int8") for name in ("matrix", "odd channels", "no padding", "groups")])
    feeds = feeds_of(graph)
    results = run_fenced(graph, feeds, features, at_end=at_end), run_graph(graph, feeds)
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_threads_share_the_sums() -> None:
    for name in ("many pixels", "window"):
        check(contract_graph(name, "int8", zero=1), INTEGERS[-1], threads=2)


@pytest.mark.parametrize("features", INTEGERS)
def test_one_product_reads_what_another_writes(features: str) -> None:
    """Through the arena, with a halo of the zero point."""
    epilogue, factors = to_int8(10)
    forms = [Contract(**SAME, accumulator="int32", input_zero=z, halo_value=z, epilogue=epilogue) for z in (-9, 3)]
    filters = [whole_range((10, 3, 3, channels), "int8", channels) for channels in (6, 10)]
    first, second = (
        graph_of(form, Tensor("x", (1, 7, 6, f.shape[3]), "int8"), (1, 7, 6, 10), weights=f, constants=[factors],
                 dtype="int8")
        for form, f in zip(forms, filters, strict=True)
    )  # fmt: skip
    shift = len(first.tensors)
    moved = tuple(first.outputs[0] if i == 0 else i if i < 0 else i + shift for i in second.nodes[0].inputs)
    last = second.outputs[0] + shift
    node = Node("SECOND", moved, (last,), form=second.nodes[0].form)
    check(Graph((*first.tensors, *second.tensors), (*first.nodes, node), (0,), (last,)), features)
