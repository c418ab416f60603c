"""Models in partitions, some compiled and some on LiteRT: results are LiteRT's, whatever crosses between them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.api.report import Report
from jitdelegate.errors import DelegationError, DeviceError
from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import resource_models, small_models
from tests.api.partial_models import ONLY, ROADS
from tests.entries import overwrite

APIS = ("load", "interpreter")


@pytest.fixture(autouse=True)
def in_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    partial.choose_loader(monkeypatch, "partitions")


def loaded(content: bytes, **further: object) -> jitdelegate.Model:
    model = jitdelegate.load(content, options=partial.options(**further))
    assert model._opened.program.loader == "partitions"
    return model


def places(report: Report) -> list[str]:
    return [operator.place for operator in report.operators]


def assert_answers(content: bytes, count: int = 3, **further: object) -> None:
    """Both interfaces answer as LiteRT, with one thread and with two."""
    loaded(content, **further).close()
    rounds = partial.rounds_for(content, count)
    wanted = partial.expected(content, rounds)
    for api in APIS:
        for threads in (1, 2):
            partial.assert_same(ROADS[api](content, rounds, num_threads=threads, **further), wanted)


def test_a_model_in_five_partitions_answers_as_litert() -> None:
    content = partial.alternating()
    model = loaded(content)
    assert places(model.report()) == ["cpu", "cpu", "litert", "cpu", "litert", "cpu"]
    assert [partition.place for partition in model._opened.program.partitions] == [
        "cpu",
        "litert",
        "cpu",
        "litert",
        "cpu",
    ]
    assert_answers(content)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_answer_as_litert(seed: int) -> None:
    made = partial.RandomModel(seed)
    content = made.finish()
    only = ONLY if made.dice.random() < 0.7 else None
    most = made.dice.choice((None, None, 1, 2))
    rounds = partial.rounds_for(content)
    wanted = partial.expected(content, rounds)
    for api in APIS:
        threads = made.dice.choice((1, 2))
        found = ROADS[api](content, rounds, num_threads=threads, only_ops=only, max_delegated_partitions=most)
        partial.assert_same(found, wanted)


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 3)])
def test_every_type_crosses_in_both_directions(dtype: str, shape: tuple[int, ...]) -> None:
    model = ModelBuilder()
    ways = {"in_data_type": "FLOAT32", "out_data_type": dtype.upper()}
    value = model.op("RELU", [model.input(shape)], shape)
    crossing = model.op("CAST", [value], shape, dtype=dtype, options=ways)
    again = (
        model.op("ZEROS_LIKE", [crossing], shape, dtype=dtype) if dtype in ("float32", "int32", "int64") else crossing
    )
    back = {"in_data_type": dtype.upper(), "out_data_type": "FLOAT32"}
    model.output(model.op("CAST", [crossing], shape, options=back), again)
    content = model.finish()
    for only in (("RELU",), ("CAST",), ("RELU", "ZEROS_LIKE")):
        rounds = partial.rounds_for(content)
        wanted = partial.expected(content, rounds)
        for api in APIS:
            partial.assert_same(ROADS[api](content, rounds, only_ops=only), wanted)


def test_a_scalar_goes_back_and_forth() -> None:
    model = ModelBuilder()
    x = model.input((2, 3))
    total = model.op("SUM", [x, model.constant(np.array([0, 1], np.int32))], (), options={"keep_dims": False})
    soft = model.op("TANH", [total], ())
    less = model.op("LESS", [model.op("NEG", [soft], ()), total], (), dtype="bool")
    model.output(model.op("MUL", [model.op("NEG", [x], (2, 3)), soft], (2, 3)), less, total)
    assert_answers(model.finish())


def test_an_input_is_an_output_and_goes_to_several_partitions() -> None:
    model = ModelBuilder()
    x, y = model.input((2, 3), name="x"), model.input((2, 3), name="y")
    first = model.op("NEG", [model.op("TANH", [x], (2, 3))], (2, 3))
    second = model.op("NEG", [model.op("MUL", [first, x], (2, 3))], (2, 3))
    model.output(second, model.op("ADD", [x, second], (2, 3)), first)
    assert_answers(model.finish())
    model.output(y, x)
    rounds = partial.rounds_for(model.finish())
    wanted = partial.expected(model.finish(), rounds)
    for api in APIS:
        partial.assert_same(ROADS[api](model.finish(), rounds), wanted)


def test_one_tensor_is_two_outputs() -> None:
    model = ModelBuilder()
    soft = model.op("TANH", [model.input((2, 3))], (2, 3))
    less = model.op("NEG", [soft], (2, 3))
    last = model.op("TANH", [less], (2, 3))
    model.output(less, last, less, soft, last, soft)
    assert_answers(model.finish())


def test_a_result_that_is_known_when_compiling_is_an_output() -> None:
    model = ModelBuilder()
    fixed = model.constant(np.full((2,), 7, np.float32))
    soft = model.op("NEG", [model.op("TANH", [model.input((2,))], (2,))], (2,))
    model.output(model.op("TANH", [soft], (2,)), fixed, model.op("ADD", [fixed, fixed], (2,)))
    content = model.finish()
    rounds = partial.rounds_for(content)
    for api in APIS:
        partial.assert_same(ROADS[api](content, rounds), partial.expected(content, rounds))


def test_a_model_of_which_nothing_that_counts_can_be_compiled_runs_whole_on_litert() -> None:
    model = ModelBuilder()
    x = model.input((2, 3))
    model.op("TANH", [x], (2, 3))  # which nobody reads
    model.output(model.op("NEG", [x], (2, 3)))
    content = model.finish()
    with jitdelegate.load(content, options=partial.options()) as found:
        assert found.report().target == "litert"
        rounds = partial.rounds_for(content)
        partial.assert_same(partial.called(found, rounds), partial.expected(content, rounds))


def test_what_is_compiled_whole_is_so_whatever_the_options_say_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    content = small_models.convolution()
    with jitdelegate.load(content, options=partial.options(only_ops=None, max_delegated_partitions=1)) as model:
        assert model._opened.program.loader == "partitions"
        assert places(model.report()) == ["cpu"]
        assert not model.report().notes


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("litert", ["TANH,ADD", "DEQUANTIZE,QUANTIZE"])
def test_quantized_values_are_read_and_written_on_both_sides(litert: str, api: str) -> None:
    content = partial.stored()
    only = sorted({"DEQUANTIZE", "TANH", "MUL", "ADD", "QUANTIZE"} - set(litert.split(",")))
    model = loaded(content, only_ops=only)
    assert {each.op for each in model.report().operators if each.place == "litert"} == set(litert.split(","))
    assert [each.quantization.scales for each in (model.inputs[0], model.outputs[1]) if each.quantization] == [
        pytest.approx((0.05,)),
        pytest.approx((0.1,)),
    ]
    rounds = partial.rounds_for(content)
    for ours, theirs in zip(ROADS[api](content, rounds, only_ops=only), partial.expected(content, rounds), strict=True):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
        assert np.abs(ours[1].astype(int) - theirs[1]).max() <= 1  # a sum right between two steps


def test_a_result_whose_size_only_the_values_say_has_the_size_of_every_run() -> None:
    model = ModelBuilder()
    soft = model.op("TANH", [model.input((2, 3))], (2, 3))
    above = model.op("GREATER", [soft, model.constant(np.float32(0))], (2, 3), dtype="bool")
    model.output(model.op("WHERE", [above], (0, 2), dtype="int64"), soft)
    content = model.finish()
    signs = ([1, 1, 1, 1, 1, 1], [-1, 1, -1, 1, 1, -1], [-1, -1, -1, -1, 1, -1], [1, 1, -1, 1, 1, -1])
    rounds = [[np.array(each, np.float32).reshape(2, 3)] for each in signs]
    wanted = partial.expected(content, rounds)
    assert len({each[0].shape for each in wanted}) > 2
    for api in APIS:
        partial.assert_same(ROADS[api](content, rounds), wanted)


def test_texts_never_reach_compiled_code(models: Path) -> None:
    path = models / "fixtures/string_input_model_with_signature.bin.tflite"
    model = jitdelegate.load(path, options=partial.options(only_ops=None))
    assert model([[b"a", b"b", b"c"]]).tolist() == [[b"a", b"b", b"c"]]


def test_the_same_weights_in_several_partitions_are_the_same() -> None:
    model, dice = ModelBuilder(), np.random.default_rng(0)
    weights = model.constant(dice.normal(size=(4, 4)).astype(np.float32))
    value = model.input((1, 4))
    for _ in range(3):
        value = model.op("NEG", [model.op("FULLY_CONNECTED", [value, weights, None], (1, 4))], (1, 4))
    model.output(model.op("TANH", [value], (1, 4)))
    assert_answers(model.finish())


def test_a_chain_of_hundreds_of_partitions_answers_as_litert() -> None:
    content = partial.chain(200)
    model = loaded(content)
    assert len(model._opened.program.partitions) == 200
    rounds = partial.rounds_for(content, 2)
    partial.assert_same(partial.called(model, rounds), partial.expected(content, rounds))


@pytest.mark.parametrize("loader", partial.LOADERS)
@pytest.mark.parametrize("api", APIS)
def test_open_sizes_may_be_any_and_change_back(monkeypatch: pytest.MonkeyPatch, api: str, loader: str) -> None:
    monkeypatch.undo()
    partial.choose_loader(monkeypatch, loader)
    content = partial.alternating(open_batch=True)
    dice = np.random.default_rng(2)
    rounds = [[dice.normal(size=(batch, 4)).astype(np.float32)] for batch in (1, 3, 7, 1, 3, 2, 5, 4, 9, 8, 11, 1, 7)]
    partial.assert_same(ROADS[api](content, rounds), partial.expected(content, rounds))


@pytest.mark.parametrize("loader", partial.LOADERS)
@pytest.mark.parametrize("api", APIS)
def test_no_elements_at_all_are_no_error(monkeypatch: pytest.MonkeyPatch, api: str, loader: str) -> None:
    monkeypatch.undo()
    partial.choose_loader(monkeypatch, loader)
    content = partial.alternating(open_batch=True)
    rounds = [[np.zeros((0, 4), np.float32)], [np.ones((2, 4), np.float32)], [np.zeros((0, 4), np.float32)]]
    partial.assert_same(ROADS[api](content, rounds), partial.expected(content, rounds))


def two_subgraphs(left: str) -> bytes:
    """Signature "first" has TANH alone, "second" TANH, `left` and MUL, of any number of rows."""
    model = ModelBuilder()
    second = model.subgraph("second")
    for key, graph in (("first", model), ("second", second)):
        x = graph.input((1, 4), name=f"{key} x", shape_signature=(-1, 4))
        y = graph.op("TANH", [x], (1, 4), name=f"{key} y")
        if graph is second:
            y = graph.op("MUL", [graph.op(left, [y], (1, 4)), x], (1, 4), name=f"{key} z")
        graph.output(y)
        model.signature(key, {"x": x}, {"y": y}, int(graph is second))
    return model.finish()


@pytest.mark.parametrize("loader", partial.LOADERS)
def test_signatures_run_in_partitions_too(monkeypatch: pytest.MonkeyPatch, loader: str) -> None:
    monkeypatch.undo()
    partial.choose_loader(monkeypatch, loader)
    content, dice = two_subgraphs("NEG"), np.random.default_rng(4)
    theirs = LiteRT(model_content=content)
    ours = partial.interpreter(content)
    with jitdelegate.load(content, options=partial.options()) as model:
        for key in ("second", "first", "second"):
            for batch in (1, 4, 1, 6, 2):
                x = dice.normal(size=(batch, 4)).astype(np.float32)
                wanted = theirs.get_signature_runner(key)(x=x)["y"]
                np.testing.assert_allclose(np.asarray(model.run({"x": x}, key)["y"]), wanted, rtol=1e-5)
                np.testing.assert_allclose(ours.get_signature_runner(key)(x=x)["y"], wanted, rtol=1e-5)
        assert [one.signatures for one in model.report().subgraphs] == [("second",)]
        assert not any("another way" in note for note in model.report().notes)


@pytest.mark.parametrize("api", APIS)
def test_variables_keep_their_values_until_they_are_reset(api: str) -> None:
    content = partial.remembering()
    rounds = partial.rounds_for(content, 6)
    wanted = partial.expected(content, rounds)
    first, again = partial.expected(content, [rounds[0]] * 2)
    assert not np.allclose(first[0], again[0])
    partial.assert_same(ROADS[api](content, rounds), wanted)
    assert loaded(content).report().operators[1].place == "cpu"


def test_a_reset_model_answers_as_at_first() -> None:
    content = partial.remembering()
    rounds = partial.rounds_for(content, 3)
    model, theirs = loaded(content), LiteRT(model_content=content)
    ours = partial.interpreter(content)
    for _ in range(2):
        wanted = partial.invoked(theirs, rounds)
        partial.assert_same(partial.called(model, rounds), wanted)
        partial.assert_same(partial.invoked(ours, rounds), wanted)
        model.reset_all_variables()
        ours.reset_all_variables()
        theirs.reset_all_variables()


def test_resource_variables_in_one_compiled_partition_keep_their_values() -> None:
    content = resource_models.streaming()
    model = loaded(content, only_ops=None)
    rounds = partial.rounds_for(content, 5)
    wanted = partial.expected(content, rounds)
    partial.assert_same(partial.called(model, rounds), wanted)
    model.reset_all_variables()
    partial.assert_same(partial.called(model, rounds), wanted)
    partial.assert_same(partial.by_interpreter(content, rounds, only_ops=None), wanted)


def test_views_of_inputs_and_outputs_are_what_is_computed_on() -> None:
    content = partial.alternating()
    interpreter = partial.interpreter(content)
    interpreter.allocate_tensors()
    given = interpreter.tensor(interpreter.get_input_details()[0]["index"])
    results = [interpreter.tensor(detail["index"]) for detail in interpreter.get_output_details()]
    for values in partial.rounds_for(content, 3):
        given()[:] = values[0]
        interpreter.invoke()
        partial.assert_same([[result() for result in results]], partial.expected(content, [values]))


def test_results_of_one_run_outlive_the_next() -> None:
    content = partial.alternating()
    model = loaded(content)
    rounds = partial.rounds_for(content, 2)
    first = model(*rounds[0])
    model(*rounds[1])
    partial.assert_same([[np.asarray(each) for each in first]], partial.expected(content, rounds[:1]))


def test_a_closed_model_refuses_to_run() -> None:
    model = loaded(partial.alternating())
    model.close()
    with pytest.raises(DeviceError, match="closed"):
        model(np.zeros((1, 4), np.float32))


@pytest.mark.parametrize("loader", partial.LOADERS)
@pytest.mark.parametrize("content", [partial.alternating(), partial.remembering(), partial.loop()])
def test_the_second_start_compiles_nothing_and_answers_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes, loader: str
) -> None:
    monkeypatch.undo()
    partial.choose_loader(monkeypatch, loader)
    rounds = partial.rounds_for(content)
    first = partial.by_load(content, rounds, serialization_dir=tmp_path)
    monkeypatch.setattr("jitdelegate.compiler.compile.compile_model", None)
    with jitdelegate.load(content, options=partial.options(serialization_dir=tmp_path)) as model:
        assert model.report().cache.outcome == "hit"
        second = partial.called(model, rounds)
    partial.assert_same(partial.by_interpreter(content, rounds, serialization_dir=tmp_path), first)
    assert [[each.tobytes() for each in outputs] for outputs in first] == [
        [each.tobytes() for each in outputs] for outputs in second
    ]


def weighty() -> bytes:
    """Weights in two compiled partitions and in one of LiteRT's."""
    model, dice = ModelBuilder(), np.random.default_rng(7)
    value = model.input((1, 16))
    for width, rows in ((64, 16), (16, 64)):
        weights = model.constant(dice.normal(size=(width, rows)).astype(np.float32))
        value = model.op("TANH", [model.op("FULLY_CONNECTED", [value, weights, None], (1, width))], (1, width))
        value = model.op("SQUARED_DIFFERENCE", [value, model.constant(dice.random(width, np.float32))], (1, width))
    model.output(model.op("TANH", [value], (1, 16)))
    return model.finish()


def entry(cache: Path) -> Path:
    (found,) = cache.glob("*.jitd")
    return found


@pytest.mark.parametrize("loader", partial.LOADERS)
@pytest.mark.parametrize("api", APIS)
def test_damaged_and_cut_files_are_never_answered_wrongly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: str, loader: str
) -> None:
    monkeypatch.undo()
    partial.choose_loader(monkeypatch, loader)
    content, dice = weighty(), random.Random(1)
    rounds = partial.rounds_for(content, 1)

    def answer() -> list[bytes]:
        (outputs,) = ROADS[api](content, rounds, serialization_dir=tmp_path, num_threads=1)
        return [each.tobytes() for each in outputs]

    expected = answer()
    good = entry(tmp_path).read_bytes()
    healed = 0
    for turn in range(20):
        bad = bytearray(good)
        if turn % 5 == 0:
            del bad[dice.randrange(len(bad)) :]
        else:
            bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        overwrite(entry(tmp_path), bad)
        assert answer() == expected
        healed += entry(tmp_path).read_bytes() == good
        overwrite(entry(tmp_path), good)
    assert healed >= 13  # the rest fell between partitions, where nobody reads


def test_damage_in_every_partition_is_healed(tmp_path: Path) -> None:
    content = weighty()
    rounds = partial.rounds_for(content, 1)
    with loaded(content, serialization_dir=tmp_path) as model:
        first = partial.called(model, rounds)
        partitions = model._opened.program.partitions
    good = entry(tmp_path).read_bytes()
    assert [partition.place for partition in partitions] == ["cpu", "litert"] * 2 + ["cpu"]
    with loaded(content, serialization_dir=tmp_path) as model:
        start = len(good) - len(model._opened.program.weights)
    for partition in partitions:
        for place in (
            partition.offset,
            partition.offset + partition.nbytes // 2,
            partition.offset + partition.nbytes - 1,
        ):
            bad = bytearray(good)
            bad[start + place] ^= 16
            overwrite(entry(tmp_path), bad)
            with loaded(content, serialization_dir=tmp_path) as model:
                partial.assert_same(partial.called(model, rounds), first)
                assert model.report().cache.outcome == "miss"
                assert "damaged" in model.report().cache.reason
            assert entry(tmp_path).read_bytes() == good


@pytest.mark.parametrize("api", APIS)
def test_full_delegation_is_refused_with_every_operator_and_reason(api: str) -> None:
    content = partial.alternating()
    with pytest.raises(DelegationError) as caught:
        ROADS[api](content, [], require_full_delegation=True)
    words = str(caught.value)
    assert words.startswith("full delegation was required of the model's content. Following operations are not")
    assert f"\nNEG: It is none of only_ops, {', '.join(ONLY)}.\n" in words
    assert words.endswith(
        "\n4 operations will run on compiled CPU code, and the remaining 2 operations will run on LiteRT's CPU kernels."
    )


@pytest.mark.parametrize("further", [{}, {"min_nodes_per_partition": 1}])
def test_full_delegation_is_refused_where_code_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, further: dict[str, int]
) -> None:
    def refuse(*_: object) -> None:
        raise DeviceError("no executable memory")

    monkeypatch.setattr("jitdelegate.runtime.cpu.session.Session", refuse)
    options = {"serialization_dir": False, **further}
    with jitdelegate.load(small_models.convolution(), options=options) as model:
        assert model.report().target == "litert"
    with pytest.raises(DelegationError, match="no executable memory"):
        jitdelegate.load(small_models.convolution(), options={**options, "require_full_delegation": True})


@pytest.mark.parametrize("api", APIS)
def test_full_delegation_is_no_hindrance_where_all_is_delegated(api: str) -> None:
    for content in (small_models.convolution(), partial.remembering(), resource_models.streaming()):
        rounds = partial.rounds_for(content)
        found = ROADS[api](content, rounds, require_full_delegation=True, only_ops=None)
        partial.assert_same(found, partial.expected(content, rounds))


@pytest.mark.parametrize("place", ["cpu", "litert"])
def test_a_hybrid_layer_is_compiled_or_stays_on_litert_by_itself(place: str) -> None:
    model, dice = ModelBuilder(), np.random.default_rng(9)
    soft = model.op("TANH", [model.input((1, 32))], (1, 32))
    weights = model.constant(dice.integers(-127, 128, (8, 32)).astype(np.int8), quant=Quant((0.02,), (0,)))
    dense = model.op("FULLY_CONNECTED", [soft, weights, None], (1, 8), version=3)
    model.output(model.op("TANH", [dense], (1, 8)), soft)
    content, only = model.finish(), ("TANH", "FULLY_CONNECTED") if place == "cpu" else ("TANH",)
    options = {"only_ops": only, "quantized_execution": "dynamic"}  # which is what XNNPACK does
    assert places(loaded(content, **options).report()) == ["cpu", place, "cpu"]
    rounds = partial.rounds_for(content)
    wanted = partial.invoked(LiteRT(model_content=content), rounds)
    for api in APIS:
        for ours, theirs in zip(ROADS[api](content, rounds, **options), wanted, strict=True):
            np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)
