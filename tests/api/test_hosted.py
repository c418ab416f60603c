"""Models in LiteRT's own interpreter with compiled partitions: the results are those of LiteRT alone."""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT
from ai_edge_litert.interpreter import OpResolverType

import jitdelegate
from jitdelegate.engine import hosted_model as hosted
from jitdelegate.engine.litert_delegate import callbacks
from jitdelegate.errors import DelegateWarning, DelegationError, OptionError, ProgramError
from jitdelegate.program import read as program_file
from jitdelegate.program.program import Program
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import resource_models, small_models
from tests.api.partial_models import ROADS
from tests.child import answer_of
from tests.ops.quantized_models import LstmModel, numbers

MODELS: dict[str, Callable[[], bytes]] = {
    "alternating": partial.alternating,
    "branch": partial.branch,
    "chain": lambda: partial.chain(40),
    "convolution": small_models.convolution,
    "flattened": small_models.flattened,
    "halves": small_models.halves,
    "loop": partial.loop,
    "remembering": partial.remembering,
    "streaming": resource_models.streaming,
    "two outputs": small_models.two_outputs,
}


@pytest.fixture(autouse=True)
def a_host() -> None:
    partial.skip_without_host()


def rounds_of(content: bytes) -> list[list[np.ndarray]]:
    return partial.rounds_for(content, 6)


def kernels_of(make: Callable[[], LiteRT]) -> tuple[LiteRT, list[Any]]:
    """An interpreter, and the kernels that it got."""
    before = set(callbacks.kernels)
    interpreter = make()
    return interpreter, [callbacks.kernels[number] for number in sorted(set(callbacks.kernels) - before)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("api", list(ROADS))
@pytest.mark.parametrize("name", list(MODELS))
def test_every_road_answers_as_litert(name: str, api: str, threads: int) -> None:
    content = MODELS[name]()
    rounds = rounds_of(content)
    before = callbacks.python_invocations
    partial.assert_same(ROADS[api](content, rounds, num_threads=threads), partial.expected(content, rounds))
    assert callbacks.python_invocations == before


@pytest.mark.parametrize("name", ["loop", "branch"])
def test_control_flow_that_depends_on_data_is_litert_s_with_compiled_parts_before_it(name: str) -> None:
    content = MODELS[name]()
    with jitdelegate.load(content, options=partial.options(only_ops=None)) as model:
        assert model._opened.program.loader == "delegate"
        found = [(operator.op, operator.place) for operator in model.report().operators]
    assert found[0] == ("TANH", "cpu")
    assert ({"loop": "WHILE", "branch": "IF"}[name], "litert") in found


def test_bodies_of_loops_are_compiled_too() -> None:
    content = partial.loop()
    interpreter, kernels = kernels_of(lambda: partial.litert(content))
    assert {(kernel.subgraph, kernel.nodes) for kernel in kernels} >= {(0, (0, 1)), (2, (0, 1, 2))}
    rounds = [[np.ones((1, 4), np.float32), np.array([count], np.int32)] for count in (0, 1, 7, 0, 3)]
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))


def test_a_whole_model_is_one_partition() -> None:
    for content, count in ((small_models.convolution(), 1), (small_models.two_outputs(), 2)):
        interpreter, kernels = kernels_of(functools.partial(partial.litert, content, only_ops=None))
        assert [kernel.nodes for kernel in kernels] == [tuple(range(count))]
        rounds = rounds_of(content)
        partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_answer_as_litert(seed: int) -> None:
    made = partial.RandomModel(1000 + seed)
    content = made.finish()
    further = {
        "only_ops": partial.ONLY if made.dice.random() < 0.7 else None,
        "max_delegated_partitions": made.dice.choice((None, None, 1, 2)),
        "min_nodes_per_partition": made.dice.choice((0, 0, 2)),
        "num_threads": made.dice.choice((1, 2)),
    }
    rounds = partial.rounds_for(content)
    wanted = partial.expected(content, rounds)
    for api in ROADS:
        partial.assert_same(ROADS[api](content, rounds, **further), wanted)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "two threads": {"num_threads": 2},
    "no xnnpack": {"experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES},
    "reference kernels": {"experimental_op_resolver_type": OpResolverType.BUILTIN_REF},
    "all tensors": {"experimental_preserve_all_tensors": True},
    "no fusion": {"experimental_disable_delegate_node_fusion": True},
    "no clustering": {"experimental_disable_delegate_clustering": True},
}


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("arguments", list(ARGUMENTS))
def test_other_arguments_of_litert_s_interpreter_change_no_answer(name: str, arguments: str) -> None:
    content = MODELS[name]()
    rounds = rounds_of(content)
    found = partial.invoked(partial.litert(content, ARGUMENTS[arguments]), rounds)
    partial.assert_same(found, partial.expected(content, rounds))


def test_without_fusion_each_operator_is_a_partition_of_its_own() -> None:
    content = partial.alternating()
    interpreter, kernels = kernels_of(lambda: partial.litert(content, ARGUMENTS["no fusion"]))
    assert [kernel.nodes for kernel in kernels] == [(0,), (1,), (3,), (5,)]
    rounds = rounds_of(content)
    before = callbacks.python_invocations
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))
    assert callbacks.python_invocations == before


@pytest.mark.parametrize("name", ["alternating", "flattened", "halves"])
def test_kept_tensors_are_there_to_be_read(name: str) -> None:
    content = MODELS[name]()
    arguments = ARGUMENTS["all tensors"]
    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # XNNPACK keeps nothing
    alone = LiteRT(model_content=content, experimental_op_resolver_type=kernels, **arguments)
    pair = partial.litert(content, arguments, only_ops=None), alone
    for values in rounds_of(content):
        for interpreter in pair:
            partial.invoked(interpreter, [values])
        for detail in filter(lambda each: each["name"], alone.get_tensor_details()):  # others are LiteRT's own
            ours, theirs = (interpreter.get_tensor(detail["index"]) for interpreter in pair)
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["libjitdelegate.so", "jitdelegate"])
def test_a_delegate_made_of_texts_works_in_litert_s_interpreter(name: str, tmp_path: Path) -> None:
    content = partial.alternating()
    given = {"target": "cpu", "serialization_dir": tmp_path, "only_ops": partial.ONLY, "partitioning": "all"}
    delegate = jitdelegate.load_delegate(name, given)
    interpreter, kernels = kernels_of(lambda: LiteRT(model_content=content, experimental_delegates=[delegate]))
    assert len(kernels) == 3
    rounds = rounds_of(content)
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))
    assert len(list(tmp_path.glob("*.jitd"))) == 1


def test_a_model_from_a_path_and_by_position(tmp_path: Path) -> None:
    content = partial.alternating()
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    rounds = rounds_of(content)
    for make in (
        lambda: LiteRT(str(path), None, [partial.delegate()]),
        lambda: LiteRT(model_path=os.fspath(path), experimental_delegates=[partial.delegate()]),
    ):
        interpreter, kernels = kernels_of(make)
        assert len(kernels) == 3
        partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))


def test_a_subclass_of_litert_s_interpreter_is_helped_too() -> None:
    class Own(LiteRT):  # type: ignore[misc]
        def __init__(self, content: bytes) -> None:
            super().__init__(model_content=content, experimental_delegates=[partial.delegate()])

    content = partial.alternating()
    interpreter, kernels = kernels_of(lambda: Own(content))
    assert len(kernels) == 3
    rounds = rounds_of(content)
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))


@pytest.mark.parametrize("arguments", ["no fusion", "all tensors"])
def test_operators_that_litert_takes_one_by_one_share_its_variables(arguments: str) -> None:
    content = partial.remembering()
    rounds = partial.rounds_for(content, 4)
    interpreter = partial.litert(content, ARGUMENTS[arguments])
    for _ in range(2):
        partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))
        interpreter.reset_all_variables()


@pytest.mark.parametrize("batch, units", [(2, 17), (1, 5), (1, 3), (1, 1)])
def test_states_of_bytes_are_kept_to_the_last_byte(batch: int, units: int) -> None:
    content = LstmModel(op="LSTM", batch=batch, units=units).content()
    delegate = jitdelegate.GpuDelegate(False, target="cpu")
    pair = LiteRT(model_content=content), LiteRT(model_content=content, experimental_delegates=[delegate])
    random = np.random.default_rng(0)
    states = [index for index, tensor in enumerate(read(content).graphs[0].tensors) if tensor.is_variable]
    for each in pair:
        each.allocate_tensors()
    for _ in range(4):
        data = numbers(random, (batch, 21), "int8")
        for each in pair:
            each.set_tensor(each.get_input_details()[0]["index"], data)
            each.invoke()
        for index in (*states, pair[0].get_output_details()[0]["index"]):
            np.testing.assert_array_equal(pair[1].get_tensor(index), pair[0].get_tensor(index))


@pytest.mark.parametrize("index", [-1, 3, 1 << 40])
@pytest.mark.parametrize("side", ["inputs", "outputs", "states"])
def test_a_partition_with_other_tensors_than_litert_s_is_replaced(
    monkeypatch: pytest.MonkeyPatch, side: str, index: int
) -> None:
    damaged: list[str] = []

    def read(content: Any) -> Program:
        program = program_file.read(content)
        if not damaged and program.states:
            damaged.append(side)
            getattr(program, side)[0].index = index
        return program

    monkeypatch.setattr(hosted, "read", read)
    content = partial.remembering()
    rounds = rounds_of(content)
    partial.assert_same(partial.by_litert(content, rounds), partial.expected(content, rounds))
    assert damaged


def test_a_damaged_partition_of_a_loaded_model_is_replaced_in_the_same_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = [ProgramError("it is damaged")]

    def read(content: Any) -> Program:
        if failing:
            raise failing.pop()
        return program_file.read(content)

    monkeypatch.setattr(hosted, "read", read)
    content = partial.remembering()
    rounds, before = rounds_of(content), len(callbacks.delegations)
    with jitdelegate.load(content, options=partial.options()) as model:
        assert not failing
        assert len(callbacks.delegations) == before + 1
        partial.assert_same(partial.called(model, rounds), partial.expected(content, rounds))


@pytest.mark.parametrize("api", ["load", "interpreter"])
def test_an_interrupt_is_one_and_the_next_run_answers(monkeypatch: pytest.MonkeyPatch, api: str) -> None:
    content = partial.alternating(open_batch=True)
    made = hosted.HostedModel.kernel
    pressed = [1]

    def kernel(*arguments: Any) -> Any:
        if pressed and arguments[3][0] == (3, 4):
            pressed.clear()
            raise KeyboardInterrupt
        return made(*arguments)

    monkeypatch.setattr(hosted.HostedModel, "kernel", kernel)
    rounds = [[np.ones((3, 4), np.float32)]]
    if api == "load":
        with jitdelegate.load(content, options=partial.options()) as model:
            with pytest.raises(KeyboardInterrupt):
                model(*rounds[0])
            found = partial.called(model, rounds)
    else:
        interpreter = partial.interpreter(content)
        with pytest.raises(KeyboardInterrupt):
            partial.invoked(interpreter, rounds)
        found = partial.invoked(interpreter, rounds)
    partial.assert_same(found, partial.expected(content, rounds))


def test_a_constant_that_litert_widens_for_itself_is_read_by_both() -> None:
    model = ModelBuilder()
    x = model.input((2, 3))
    wide = model.op("DEQUANTIZE", [model.constant(np.arange(3).astype(np.float16))], (3,))
    only_ours = model.op("DEQUANTIZE", [model.constant(np.full(3, 0.5, np.float16))], (3,))
    ours = model.op("ADD", [model.op("MUL", [x, only_ours], (2, 3)), wide], (2, 3))
    model.output(model.op("SQUARED_DIFFERENCE", [ours, wide], (2, 3)))
    content = model.finish()
    interpreter, kernels = kernels_of(lambda: partial.litert(content))
    assert [kernel.nodes for kernel in kernels] == [(1, 2, 3)]
    rounds = rounds_of(content)
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))


def test_a_constant_that_two_partitions_read_is_widened_by_litert() -> None:
    model = ModelBuilder()
    wide = model.op("DEQUANTIZE", [model.constant(np.arange(3).astype(np.float16))], (3,))
    first = model.op("ADD", [model.input((2, 3)), wide], (2, 3))
    model.output(model.op("MUL", [model.op("NEG", [first], (2, 3)), wide], (2, 3)))
    content = model.finish()
    interpreter, kernels = kernels_of(lambda: partial.litert(content))
    assert [kernel.nodes for kernel in kernels] == [(1,), (3,)]
    rounds = rounds_of(content)
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))


def test_one_delegate_serves_several_interpreters_and_may_go_before_them() -> None:
    content, other = partial.loop(), partial.alternating()
    delegate = partial.delegate()
    pair = [LiteRT(model_content=each, experimental_delegates=[delegate]) for each in (content, other, content)]
    del delegate
    gc.collect()
    for interpreter, each in zip(pair, (content, other, content), strict=True):
        rounds = rounds_of(each)
        partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(each, rounds))
    rounds = rounds_of(content)
    del pair[0], interpreter
    gc.collect()
    partial.assert_same(partial.invoked(pair[1], rounds), partial.expected(content, rounds))


@pytest.mark.parametrize("make", [partial.litert, partial.interpreter])
def test_kernels_go_with_their_interpreter(make: Callable[[bytes], Any]) -> None:
    gc.collect()
    before = len(callbacks.kernels), len(callbacks.delegations)
    interpreter, kernels = kernels_of(lambda: make(partial.loop()))
    interpreter.allocate_tensors()
    assert len(callbacks.kernels) == before[0] + len(kernels) > before[0]
    del interpreter, kernels
    gc.collect()
    assert (len(callbacks.kernels), len(callbacks.delegations)) == before


def test_threads_run_interpreters_of_their_own() -> None:
    content = partial.loop()
    rounds = partial.rounds_for(content, 20)
    wanted = partial.expected(content, rounds)
    interpreters = [partial.litert(content, num_threads=2) for _ in range(4)]
    failed: list[BaseException] = []

    def work(interpreter: LiteRT) -> None:
        try:
            for _ in range(3):
                partial.assert_same(partial.invoked(interpreter, rounds), wanted)
        except BaseException as error:  # noqa: BLE001 - it belongs to the test, not to the thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=(interpreter,)) for interpreter in interpreters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def forked() -> str:
    """The exit status of a child."""
    content = partial.alternating(width=64)
    rounds = partial.rounds_for(content, 4)
    wanted = partial.expected(content, rounds)
    interpreter = partial.litert(content, num_threads=2)
    partial.assert_same(partial.invoked(interpreter, rounds), wanted)
    child = os.fork()
    if not child:
        partial.assert_same(partial.invoked(interpreter, rounds), wanted)
        os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    partial.assert_same(partial.invoked(interpreter, rounds), wanted)
    return str(status)


def test_a_forked_child_goes_on_with_the_interpreter() -> None:
    assert answer_of(forked).split()[-1] == "7"


def test_a_file_that_is_replaced_between_two_interpreters_is_read_anew(tmp_path: Path) -> None:
    path, delegate = tmp_path / "model.tflite", partial.delegate(serialization_dir=tmp_path / "cache")
    interpreters = []
    contents = (partial.loop(), partial.branch(), partial.alternating())
    for content in contents:
        (tmp_path / "new").write_bytes(content)
        os.replace(tmp_path / "new", path)
        interpreters.append(kernels_of(lambda: LiteRT(str(path), experimental_delegates=[delegate])))
    for content, (interpreter, kernels) in zip(contents, interpreters, strict=True):
        assert kernels
        rounds = rounds_of(content)
        partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))


def test_one_token_for_two_models_never_mixes_them_up(tmp_path: Path) -> None:
    for content in (partial.loop(), partial.branch(), partial.loop()):
        rounds = rounds_of(content)
        for api in ROADS:
            found = ROADS[api](content, rounds, serialization_dir=tmp_path, model_token="same")
            partial.assert_same(found, partial.expected(content, rounds))


def test_the_second_interpreter_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (partial.alternating(), partial.loop(), small_models.convolution()):
        rounds = rounds_of(content)
        first = partial.by_litert(content, rounds, serialization_dir=tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr("jitdelegate.compiler.compile.compile_model", None)
            second = partial.by_litert(content, rounds, serialization_dir=tmp_path)
        assert [[each.tobytes() for each in outputs] for outputs in first] == [
            [each.tobytes() for each in outputs] for outputs in second
        ]


def test_litert_asked_for_is_litert_alone() -> None:
    content = partial.alternating()
    interpreter, kernels = kernels_of(lambda: partial.litert(content, target="litert"))
    assert not kernels
    rounds = rounds_of(content)
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))


def test_full_delegation_that_is_not_possible_is_refused_as_the_interpreter_is_made() -> None:
    with pytest.raises(DelegationError) as caught:
        partial.litert(partial.alternating(), require_full_delegation=True)
    words = str(caught.value)
    assert "full delegation was required of the model's content" in words
    assert f"NEG: It is none of only_ops, {', '.join(partial.ONLY)}." in words
    assert "4 operations will run on compiled CPU code, and the remaining 2 operations will run" in words


ELSEWHERE = {"sys.platform": "darwin", "os.uname": lambda: os.uname_result(("Linux", "board", "6", "1", "riscv64"))}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_on_other_platforms_the_model_is_litert_s_and_a_warning_says_why(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    content = partial.alternating()
    rounds = rounds_of(content)
    monkeypatch.setattr(what, ELSEWHERE[what])
    with pytest.warns(DelegateWarning, match="stays out of this interpreter: LiteRT's structures are known on 64-bit"):
        interpreter, kernels = kernels_of(lambda: partial.litert(content))
    with pytest.raises(DelegationError, match="full delegation was required: LiteRT's structures"):
        partial.litert(content, require_full_delegation=True)
    monkeypatch.undo()
    assert not kernels
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))


def test_full_delegation_in_an_unknown_litert_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted, "refusal", lambda place: "a reason")
    with pytest.raises(DelegationError, match="full delegation was required of the model's content: a reason"):
        partial.litert(partial.alternating(), require_full_delegation=True)


def test_full_delegation_that_is_possible_is_no_hindrance() -> None:
    for content in (small_models.convolution(), partial.remembering()):
        rounds = rounds_of(content)
        found = partial.by_litert(content, rounds, require_full_delegation=True, only_ops=None)
        partial.assert_same(found, partial.expected(content, rounds))


def test_an_unknown_option_is_named_before_litert_sees_it() -> None:
    with pytest.raises(OptionError, match=r"unknown option tarjet \(did you mean target\?\)"):
        jitdelegate.load_delegate("jitdelegate", {"tarjet": "cpu"})


@pytest.mark.parametrize("arguments", [{"model_path": "/nowhere.tflite"}, {"model_content": b"no model" * 9}])
def test_what_is_no_model_is_refused_as_litert_refuses_it(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"(?i)model"):
        LiteRT(experimental_delegates=[partial.delegate()], **arguments)


def test_models_of_many_partitions_run_inside_litert() -> None:
    content = partial.chain(500)
    interpreter, kernels = kernels_of(lambda: partial.litert(content))
    assert len(kernels) == 250
    rounds = partial.rounds_for(content, 2)
    before = callbacks.python_invocations
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))
    assert callbacks.python_invocations == before


def test_custom_operators_stay_and_what_follows_them_too(models: Path) -> None:
    path = str(models / "real/selfie_segmentation.tflite")
    ours = LiteRT(path, experimental_delegates=[partial.delegate(only_ops=None)])
    theirs = LiteRT(path)
    rounds = [[np.random.default_rng(0).random(theirs.get_input_details()[0]["shape"]).astype(np.float32)]]
    for one, other in zip(*(partial.invoked(each, rounds)[0] for each in (ours, theirs)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)
