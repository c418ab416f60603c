"""Which nodes are delegated: the options, what LiteRT alone knows, variables, what is worth it, and every reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.targets import LEVELS
from jitdelegate.ir.graph import Graph, Model, Node, Quant, Tensor
from jitdelegate.ops.call import Call
from jitdelegate.ops.convolution import Weighted
from jitdelegate.passes import delegation
from jitdelegate.passes.cost import (
    BESIDE,
    CALL,
    INSIDE,
    INTEGER_MULTIPLIES,
    LEAST_ELEMENTS,
    MULTIPLIES,
    ON_GPU,
    WHOLE,
    Rates,
    compiled_seconds,
    litert_seconds,
    quantized_constants,
    saved_seconds,
    tensor_bytes,
)
from jitdelegate.passes.delegation import Delegation, delegate, needs_host
from jitdelegate.passes.operator_rates import INTEGER_RATES, RATES
from jitdelegate.passes.partition import Subset, partition
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.targets import target_named
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import resource_models
from tests.passes.graphs import Builder

FREE = Rates(saved=0.5, crossing=0.0, copied=1e30)
"""Every delegated node is a gain."""


def folded(content: bytes) -> tuple[Model, Graph]:
    model = specialize_subgraph(read(content), 0, (), ())
    return model, passes.run(model.graphs[0], passes=passes.FOLD)


def delegated(content: bytes, rates: Rates = FREE, more: dict[int, str] | None = None, **options: Any) -> Delegation:
    model, graph = folded(content)
    return delegate(model, graph, 0, DelegateOptions(**options), rates, more or {})


def groups(delegation: Delegation) -> list[tuple[int, ...]]:
    return [subset.nodes for subset in delegation.delegated]


def line(*ops: str, shape: tuple[int, ...] = (2, 3)) -> bytes:
    """One operator after another."""
    model = ModelBuilder()
    value = model.input(shape, name="x")
    for number, op in enumerate(ops):
        value = model.op(op, [value], shape, name=f"{op.lower()} {number}")
    model.output(value)
    return model.finish()


SIX = line("TANH", "NEG", "TANH", "NEG", "TANH", "NEG")


def test_without_options_all_is_one_subset() -> None:
    found = delegated(SIX)
    assert (groups(found), found.reasons) == ([tuple(range(6))], {})
    assert [subset.delegated for subset in found.subsets] == [True]


def test_only_named_operators_are_delegated() -> None:
    found = delegated(SIX, only_ops="TANH")
    assert groups(found) == [(0,), (2,), (4,)]
    assert found.reasons == dict.fromkeys((1, 3, 5), "It is none of only_ops, TANH.")
    assert delegated(SIX, only_ops=["RELU", "NEG"]).reasons[0] == "It is none of only_ops, NEG, RELU."
    assert groups(delegated(SIX, only_ops="RELU")) == []


@pytest.mark.parametrize(
    ("first", "last", "expected", "words"),
    [
        (2, None, [(2, 3, 4, 5)], "2 to the last"),
        (0, 3, [(0, 1, 2, 3)], "0 to 3"),
        (2, 2, [(2,)], "2 to 2"),
        (4, 1, [], "4 to 1"),
        (6, None, [], "6 to the last"),
        (1, 2147483647, [(1, 2, 3, 4, 5)], "1 to the last"),
    ],
)
def test_only_operators_in_the_range_are_delegated(
    first: int, last: int | None, expected: list[tuple[int, ...]], words: str
) -> None:
    found = delegated(SIX, first_delegate_node_index=first, last_delegate_node_index=last)
    assert groups(found) == expected
    reason = f"It is not among the operators {words}, which may be delegated."
    inside = {position for nodes in expected for position in nodes}
    assert found.reasons == dict.fromkeys(set(range(6)) - inside, reason)


def test_the_range_counts_operators_of_the_file_not_those_that_are_left() -> None:
    model = ModelBuilder()
    halves = model.constant(np.ones(3, np.float16))
    wide = model.op("DEQUANTIZE", [halves], (3,))  # which is folded
    model.output(model.op("ADD", [model.op("TANH", [model.input((3,))], (3,)), wide], (3,)))
    found = delegated(model.finish(), first_delegate_node_index=2)
    assert groups(found) == [(1,)]
    assert list(found.reasons) == [0]


def test_quantized_activations_are_left_to_litert_where_the_caller_wishes() -> None:
    model, quant = ModelBuilder(), Quant((0.5,), (0,))
    x = model.op("TANH", [model.input((4,))], (4,))
    model.output(model.op("QUANTIZE", [x], (4,), dtype="int8", quant=quant))
    weights = model.constant(np.ones((3, 4), np.int8), quant=quant)
    model.output(model.op("FULLY_CONNECTED", [x, weights, None], (1, 3)))  # which has float activations
    _, graph = folded(model.finish())
    found = {
        each: delegation._excluded(graph, graph.nodes[each], DelegateOptions(experimental_flags=0)) for each in range(3)
    }
    assert found == {
        0: None,
        1: "It has quantized activations, which quantized_models_allowed=False leaves to LiteRT.",
        2: None,
    }
    assert delegation._excluded(graph, graph.nodes[1], DelegateOptions()) is None


def test_small_partitions_are_left_to_litert() -> None:
    content = line("TANH", "NEG", "RELU", "TANH", "NEG", "TANH", "TANH", "RELU", "NEG")
    found = delegated(content, only_ops="TANH,NEG", min_nodes_per_partition=2)
    assert groups(found) == [(0, 1), (3, 4, 5, 6)]
    assert found.reasons[8] == "Its partition of one operator has fewer than min_nodes_per_partition=2."
    assert groups(delegated(content, only_ops="TANH,NEG", min_nodes_per_partition=1)) == [(0, 1), (3, 4, 5, 6), (8,)]
    found = delegated(content, only_ops="TANH,NEG", min_nodes_per_partition=4)
    assert groups(found) == [(3, 4, 5, 6)]
    assert found.reasons[1] == "Its partition of 2 operators has fewer than min_nodes_per_partition=4."
    assert delegated(SIX, min_nodes_per_partition=7).reasons == dict.fromkeys(
        range(6), "Its partition of 6 operators has fewer than min_nodes_per_partition=7."
    )


@pytest.mark.parametrize("partitioning", ["all", "cost_model"])
def test_the_largest_partitions_are_delegated_first(partitioning: str) -> None:
    content = line("TANH", "NEG", "RELU", "TANH", "RELU", "TANH", "NEG", "TANH", "RELU", "NEG", "TANH")
    given = {"only_ops": "TANH,NEG", "partitioning": partitioning}
    for most, expected in ((1, [(5, 6, 7)]), (3, [(0, 1), (5, 6, 7), (9, 10)])):
        found = delegated(content, max_delegated_partitions=most, **given)
        assert groups(found) == expected
        assert found.reasons[3] == f"Its partition of one operator is beyond max_delegated_partitions={most}."
    assert len(groups(delegated(content, max_delegated_partitions=4, **given))) == 4
    assert groups(delegated(content, max_delegated_partitions=0, **given)) == [(5, 6, 7)]  # 1, as in TFLite


def test_what_costs_more_than_it_saves_is_left_to_litert_unless_all_is_asked_for() -> None:
    dear = Rates(saved=0.5, crossing=1.0, copied=1e30)
    found = delegated(SIX, dear, only_ops="TANH")
    assert groups(found) == []
    assert found.reasons[0] == "Its partition of one operator would take longer to reach than it saves."
    assert groups(delegated(SIX, dear, only_ops="TANH", partitioning="all")) == [(0,), (2,), (4,)]
    assert groups(delegated(SIX, dear)) == [tuple(range(6))]  # what is compiled whole crosses nothing


def test_a_dear_partition_does_not_take_a_cheap_one_along() -> None:
    model = ModelBuilder()
    value = model.op("TANH", [model.input((1, 512))], (1, 512))
    value = model.op("NEG", [value], (1, 512))
    weights = model.constant(np.ones((512, 512), np.float32))
    model.output(model.op("FULLY_CONNECTED", [value, weights, None], (1, 512)))
    content = model.finish()
    _, graph = folded(content)
    between = 0.5 * (litert_seconds(graph, graph.nodes[0]) + litert_seconds(graph, graph.nodes[2]))
    found = delegated(content, Rates(saved=1.0, crossing=between, copied=1e30), only_ops="TANH,FULLY_CONNECTED")
    assert groups(found) == [(2,)]
    assert "longer to reach" in found.reasons[0]


def test_copies_over_a_border_count() -> None:
    _, graph = folded(SIX)
    work = sum(litert_seconds(graph, node) for node in graph.nodes)
    whole = range(6)
    assert saved_seconds(graph, whole, Rates(1.0, 0.0, 1e30)) == pytest.approx(work)
    assert saved_seconds(graph, whole, Rates(1.0, 3.0, 1e30)) == pytest.approx(work - 3.0)
    assert saved_seconds(graph, whole, Rates(0.0, 0.0, 12.0)) == pytest.approx(-2 * 2 * 3 * 4 / 12.0)
    assert saved_seconds(graph, (1, 4), Rates(0.0, 0.0, 24.0)) == pytest.approx(-4.0)


def test_rates_are_those_of_the_place() -> None:
    cuda, cpu = target_named("cuda"), target_named("cpu")
    assert cuda.rates("delegate", "sm_90") is cuda.rates("partitions", "sm_90") is ON_GPU
    assert [cpu.rates(loader, "x86-64-v4") for loader in ("delegate", "partitions", "flat")] == [INSIDE, BESIDE, WHOLE]
    assert INSIDE.crossing < BESIDE.crossing < ON_GPU.crossing


def test_generic_code_saves_least() -> None:
    _, graph = folded(SIX)
    saved = {level: saved_seconds(graph, range(6), target_named("cpu").rates("delegate", level)) for level in LEVELS}
    assert saved["generic"] < saved["x86-64-v3"] <= saved["x86-64-v4"]


def test_further_nodes_are_left_with_their_reason() -> None:
    found = delegated(SIX, more={2: "No code."})
    assert groups(found) == [(0, 1), (3, 4, 5)]
    assert found.reasons == {2: "No code."}


def test_what_an_operator_that_nobody_knows_makes_has_no_shape_for_anyone() -> None:
    model = ModelBuilder()
    x = model.input((2, 3), name="x")
    first = model.op("TANH", [x], (2, 3))
    made = model.tensor((2, 3), name="made")
    model.node("Mine", [first], [made], custom_options=b"")
    later = model.op("NEG", [made], (2, 3), name="later")
    model.output(model.op("ADD", [model.op("TANH", [later], (2, 3)), x], (2, 3)), model.op("NEG", [x], (2, 3)))
    found = delegated(model.finish())
    assert groups(found) == [(0, 5)]
    assert found.reasons == {
        1: "The custom operator Mine is not supported.",
        2: "NEG: the shape of 'made' is known only to LiteRT.",
        3: "TANH: the shape of 'later' is known only to LiteRT.",
        4: "ADD: the shape of 't4' is known only to LiteRT.",
    }


def test_what_has_a_known_shape_without_being_compiled_parts_nothing() -> None:
    model = ModelBuilder()
    options = {"min": 0.0, "max": 6.0, "num_bits": 8}
    rounded = model.op("FAKE_QUANT", [model.input((2, 3))], (2, 3), options=options)
    model.output(model.op("TANH", [rounded], (2, 3)))
    found = delegated(model.finish())
    assert groups(found) == [(1,)]
    assert found.reasons == {0: "FAKE_QUANT is not supported."}


def test_types_that_cannot_cross_stay_with_litert() -> None:
    model = ModelBuilder()
    pairs = model.input((4,), "complex64", name="pairs")
    model.output(model.op("RESHAPE", [pairs, model.constant(np.array([2, 2], np.int32))], (2, 2), dtype="complex64"))
    found = delegated(model.finish())
    assert groups(found) == []
    assert found.reasons[0].startswith("RESHAPE: ")
    assert "complex64" in found.reasons[0]


@pytest.mark.parametrize("excluded", [0, 2, 5])
def test_an_operator_that_became_several_nodes_is_delegated_as_a_whole(excluded: int) -> None:
    model, graph = folded(SIX)
    origins = {1: (1,), 2: (1,), 3: (1, 3)}
    nodes = tuple(replace(node, origin=origins.get(at, (at,))) for at, node in enumerate(graph.nodes))
    found = delegate(model, replace(graph, nodes=nodes), 0, DelegateOptions(), FREE, {excluded: "No code."})
    assert groups(found) == {0: [(1, 2, 3, 4, 5)], 2: [(0,), (4, 5)], 5: [(0, 1, 2, 3, 4)]}[excluded]
    assert set(found.reasons.values()) == {"No code."}


def test_a_variable_is_in_one_place() -> None:
    content = resource_models.streaming()
    _, graph = folded(content)
    position = {node.op: at for at, node in enumerate(graph.nodes)}
    found = delegated(content, more={position["SLICE"]: "No code."})
    assert found.reasons[position["CONCATENATION"]] == "Its variable 'frames' is used by operators elsewhere."
    assert {at for nodes in groups(found) for at in nodes} == (
        set(range(len(graph.nodes))) - {position["SLICE"], position["CONCATENATION"]}
    )
    assert len(groups(delegated(content))) == 1


def test_every_node_has_a_subset_and_only_those_without_have_a_reason() -> None:
    for seed in range(30):
        model, graph = folded(partial.RandomModel(seed).finish())
        options = DelegateOptions(only_ops=partial.ONLY, max_delegated_partitions=seed % 3 or None, partitioning="all")
        found = delegate(model, graph, 0, options, FREE, {})
        inside = [at for subset in found.delegated for at in subset.nodes]
        every = [at for subset in found.subsets for at in subset.nodes]
        assert sorted(every) == list(range(len(graph.nodes)))
        assert sorted({*every} - {*inside}) == sorted(found.reasons)
        assert len(found.delegated) <= (seed % 3 or len(every))


@pytest.mark.parametrize("options", [{}, {"max_delegated_partitions": 3}, {"min_nodes_per_partition": 2}])
@pytest.mark.parametrize("partitioning", ["all", "cost_model"])
def test_thousands_of_partitions_are_weighed_in_a_few_rounds(
    options: dict[str, Any], partitioning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []
    from jitdelegate.passes import delegation

    def counted(*arguments: Any) -> Any:
        rounds.append(1)
        return partition(*arguments)

    partition: Callable[..., Any] = delegation.partition
    monkeypatch.setattr(delegation, "partition", counted)
    content = line(*(("TANH", "NEG") * 1000))
    found = delegated(content, BESIDE, only_ops="TANH", partitioning=partitioning, **options)
    assert len(rounds) < 10
    assert len(groups(found)) == (
        (3 if "max_delegated_partitions" in options else 0 if options else 1000) if partitioning == "all" else 0
    )


def reason_for_host(content: bytes, **options: Any) -> str:
    model, graph = folded(content)
    return needs_host(graph, delegate(model, graph, 0, DelegateOptions(**options), FREE, {}))


def test_partitions_that_know_nothing_of_each_other_need_no_host() -> None:
    assert reason_for_host(SIX, only_ops="TANH") == ""
    assert reason_for_host(SIX) == ""


def test_control_flow_and_variables_on_litert_need_a_host() -> None:
    assert reason_for_host(partial.loop()) == "WHILE names other subgraphs or variables."
    assert reason_for_host(partial.branch()) == "IF names other subgraphs or variables."
    expected = "UNIDIRECTIONAL_SEQUENCE_LSTM has a variable."
    assert reason_for_host(partial.remembering(), only_ops="TANH") == expected
    assert reason_for_host(partial.remembering()) == ""


def test_outputs_that_nobody_writes_need_a_host() -> None:
    model = ModelBuilder()
    x = model.input((2,), name="x")
    model.output(model.op("TANH", [x], (2,)), x)
    assert reason_for_host(model.finish()) == "The output 'x' is written by no operator."
    model = ModelBuilder()
    fixed = model.constant(np.ones(2, np.float32), name="fixed")
    model.output(model.op("TANH", [model.input((2,))], (2,)), fixed)
    assert reason_for_host(model.finish()) == "The output 'fixed' is written by no operator."


def test_texts_that_cross_need_a_host() -> None:
    model = ModelBuilder()
    words = model.input((2,), "string", name="words")
    shape = model.constant(np.array([1, 2], np.int32))
    model.output(
        model.op("TANH", [model.input((2,))], (2,)), model.op("RESHAPE", [words, shape], (1, 2), dtype="string")
    )
    assert reason_for_host(model.finish()) == "'words' is string."


def test_complex_numbers_from_litert_are_left_to_it_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    build = Builder()
    lengths, shape = build.constant([1, 8], "int32"), build.constant([2, 1, 5], "int32")
    parts = []
    for _ in range(3):
        value = build.op("RFFT2D", [build.input(2, 1, 8), lengths], (2, 1, 5), "complex64")
        for _ in range(4):
            value = build.op("RESHAPE", [value, shape], (2, 1, 5), "complex64")
        parts.append(build.op("REAL", [value], (2, 1, 5)))
    graph = build.finish(build.op("CONCATENATION", parts, (6, 1, 5), axis=0))
    cuts = []

    def counted(nodes: Sequence[Node], delegated: Collection[int]) -> list[Subset]:
        cuts.append(delegated)
        return partition(nodes, delegated)

    monkeypatch.setattr(delegation, "partition", counted)
    options = DelegateOptions(only_ops=("RESHAPE", "REAL", "CONCATENATION"))
    found = delegate(Model((graph,)), graph, 0, options, FREE, {})
    assert groups(found) == [(18,)]
    assert found.reasons[5] == "REAL: 'RFFT2D' is complex64, which does not pass to and from LiteRT."
    assert len(cuts) == 2


def test_quantized_operators_have_rates_of_their_own() -> None:
    model, quant, image, size = ModelBuilder(), Quant((0.5,), (0,)), (1, 16, 16, 64), (64, 3, 3, 64)
    options = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    for data, weights in (("float32", "float32"), ("int8", "int8"), ("float32", "int8")):
        own = None if data == "float32" else quant
        filters = model.constant(np.ones(size, weights), quant=None if weights == "float32" else quant)
        x = model.input(image, data, quant=own)
        model.output(model.op("CONV_2D", [x, filters], image, dtype=data, quant=own, options=options))
    _, graph = folded(model.finish())
    floats, integers, hybrid = (litert_seconds(graph, node) - CALL for node in graph.nodes)
    assert floats / integers == floats / hybrid == pytest.approx(INTEGER_MULTIPLIES / MULTIPLIES)
    gains = [saved_seconds(graph, (each,), WHOLE) - CALL for each in range(2)]
    alone = RATES[Weighted].saved_alone, INTEGER_RATES[Weighted].saved
    assert [gain / own for gain, own in zip(gains, (floats, integers), strict=True)] == pytest.approx(alone)


@pytest.mark.parametrize("depth", [31, 32])
def test_estimates_of_hybrid_models_take_the_weights_that_converters_quantize(depth: int) -> None:
    build = Builder()
    graph = build.finish(build.op("FULLY_CONNECTED", [build.input(64, depth), build.weights(32, depth)], (64, 32)))
    asked = quantized_constants(Call(graph, graph.nodes[0]), "hybrid")
    seconds = [compiled_seconds(graph, (0,), WHOLE, way) for way in ("", "hybrid")]
    assert (asked, seconds[0] != seconds[1]) == (([1], True) if 32 * depth >= LEAST_ELEMENTS else ([], False))


def test_packed_elements_count_as_the_bytes_that_they_take() -> None:
    assert [tensor_bytes(Tensor("x", (3, 3), dtype)) for dtype in ("int4", "int8", "float32", "string")] == [
        5,
        9,
        36,
        9,
    ]
