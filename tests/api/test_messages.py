"""What users hear of operators that are left to LiteRT: LiteRT's words, once per model, at their own line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.api import delegate_warning as messages
from jitdelegate.api.delegate_warning import on_message
from jitdelegate.base.targets import ROWS
from jitdelegate.commands import warm
from jitdelegate.engine.delegate_message import DelegateMessage
from jitdelegate.errors import DelegateWarning, DelegationError, TensorError
from jitdelegate.program.program import CUSTOM, Operator
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import resource_models, small_models
from tests.api.partial_models import ONLY

HEAD = "Following operations are not supported by CPU delegate:"


def run_once(interpreter: Any) -> Any:
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
    interpreter.invoke()
    return interpreter


LOADS: dict[str, Callable[..., Any]] = {
    "load": lambda content, **further: jitdelegate.load(content, options=partial.options(**further)),
    "interpreter": lambda content, **further: run_once(partial.interpreter(content, **further)),
    "litert": lambda content, **further: partial.litert(content, **further),
}
"""Each until a message about a model of fixed sizes is due."""


@pytest.fixture(autouse=True)
def nothing_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a fresh process."""
    monkeypatch.setattr(messages, "_announced", set())
    monkeypatch.setattr(messages, "_callbacks", [])


@pytest.fixture
def heard() -> Iterator[list[DelegateMessage]]:
    """The messages of all models that are opened meanwhile."""
    found: list[DelegateMessage] = []
    end = on_message(found.append)
    yield found
    end()


def warnings_of(action: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        action()
    return [each for each in found if issubclass(each.category, DelegateWarning)]


def left(index: int, op: str, reason: str, code: int = 0) -> Operator:
    return Operator(index=index, op=op, place="litert", reason=reason, code=code)


def test_a_message_has_litert_s_words_names_reasons_and_counts() -> None:
    operators = [
        Operator(index=0, op="CONV_2D", place="cuda"),
        left(1, "WHERE", "WHERE: its size is known as it runs only."),
        left(2, "WHERE", "WHERE: its size is known as it runs only."),
        left(3, "ADD", "It is none of only_ops, MUL."),
        Operator(index=4, op="RESHAPE", place="folded"),
    ]
    message = DelegateMessage("'net.tflite'", "cuda", operators)
    assert message.text == (
        "Following operations are not supported by GPU delegate:\n"
        "WHERE: its size is known as it runs only.\n"
        "ADD: It is none of only_ops, MUL.\n"
        "2 operations will run on the GPU, and the remaining 3 operations will run on the CPU."
    )
    assert (message.delegated, message.remaining) == (2, 3)
    assert [operator.index for operator in message.undelegated] == [1, 2, 3]
    assert repr(message) == "DelegateMessage('net.tflite': 2 of 5 delegated)"


def test_a_message_says_where_cpu_code_runs() -> None:
    operators = [Operator(index=0, op="TANH", place="cpu"), left(1, "NEG", "NEG is not supported.")]
    assert DelegateMessage("m", "cpu", operators).text.endswith(
        "\n1 operations will run on compiled CPU code, and the remaining 1 operations will run on LiteRT's CPU kernels."
    )


def test_a_message_of_a_model_of_which_nothing_is_delegated() -> None:
    message = DelegateMessage("m", "cpu", [left(0, "A", "A is not supported."), left(1, "B", "Why not.")])
    assert message.text == (
        f"{HEAD}\nA: A is not supported.\nB: Why not.\n"
        "No operations will run on compiled CPU code, and all 2 operations will run on LiteRT's CPU kernels."
    )


@pytest.mark.parametrize("target", ROWS)
def test_only_messages_about_a_gpu_name_one(target: str) -> None:
    for operators in ([left(0, "A", "no.")], [left(0, "A", "no."), Operator(index=1, op="B", place=target)]):
        assert ("GPU" in DelegateMessage("m", target, operators).text) == (target == "cuda")


@pytest.mark.parametrize("target", ["auto", "cpu", "litert", "reference"])
def test_a_refusal_to_delegate_in_part_names_no_gpu(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitdelegate.targets.DEVICES", os.devnull)  # where no GPU is
    with pytest.raises(DelegationError) as error:
        jitdelegate.load(
            small_models.uncompiled(), target=target, require_full_delegation=True, serialization_dir=False
        )
    assert "FAKE_QUANT" in str(error.value)
    assert "GPU" not in str(error.value)


def names_in(found: list[warnings.WarningMessage]) -> list[str]:
    """What each message says behind the model's own name."""
    return [str(each.message).partition(f": {HEAD}")[0].removeprefix("the model's content") for each in found]


@pytest.mark.parametrize("width", [12, 24])
def test_a_placeholder_of_a_shape_is_no_reason_to_warn(width: int) -> None:
    """LiteRT refuses the file's shape [1, 1], which cannot be compiled either."""
    content, value = small_models.rows_of_a_dozen(), np.ones((1, width), np.float32)
    options = {"target": "cpu", "serialization_dir": False}
    interpreter = jitdelegate.Interpreter(
        model_content=content, experimental_delegates=[jitdelegate.GpuDelegate(**options)]
    )

    def resized_and_run() -> None:
        interpreter.resize_tensor_input(0, value.shape)
        run_once(interpreter)

    assert not warnings_of(resized_and_run)
    assert interpreter.report().target == "cpu"
    models = []
    assert not warnings_of(lambda: models.append(jitdelegate.load(content, options=options)))
    assert not warnings_of(lambda: models[0](value))
    assert ": cpu, cache off. It took " in models[0].report().notes[-1]


@pytest.mark.parametrize("loader", partial.LOADERS)
@pytest.mark.parametrize("api", ["load", "interpreter"])
def test_a_model_of_open_sizes_warns_at_its_first_run(api: str, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partial.choose_loader(monkeypatch, loader)
    content = partial.alternating(open_batch=True)
    opened: list[Any] = []
    if api == "load":
        assert not warnings_of(lambda: opened.append(jitdelegate.load(content, options=partial.options())))
        found = warnings_of(lambda: [opened[0](np.zeros((batch, 4), np.float32)) for batch in (3, 3, 1, 2)])
    else:
        assert not warnings_of(lambda: opened.append(partial.interpreter(content)))
        assert not warnings_of(opened[0].allocate_tensors)
        opened[0].resize_tensor_input(0, [3, 4])
        assert not warnings_of(opened[0].allocate_tensors)
        found = warnings_of(lambda: [opened[0].invoke() for _ in range(3)])
    assert names_in(found) == [""]


def test_a_signature_on_litert_warns_at_its_first_run() -> None:
    interpreter = partial.interpreter(signatures())
    runners: list[Any] = []
    assert not warnings_of(lambda: runners.append(interpreter.get_signature_runner("second")))
    found = warnings_of(lambda: [runners[0](x=np.zeros((1, 4), np.float32)) for _ in range(2)])
    assert names_in(found) == [", signature 'second'"]


def rounded() -> bytes:
    """A model with a signature of which nothing is compiled."""
    model = ModelBuilder()
    x = model.input((1, 4), name="x")
    y = model.op("FAKE_QUANT", [x], (1, 4), options={"min": 0.0, "max": 255.0, "num_bits": 8})
    model.output(y)
    model.signature("serve", {"x": x}, {"y": y})
    return model.finish()


@pytest.mark.parametrize("way", ["invoke", "signature"])
def test_a_model_of_which_nothing_is_compiled_warns_at_its_first_run(way: str) -> None:
    opened: list[Any] = []
    assert not warnings_of(lambda: opened.append(jitdelegate.Interpreter(model_content=rounded())))
    if way == "invoke":
        assert not warnings_of(opened[0].allocate_tensors)
        run = opened[0].invoke
    else:
        runner = opened[0].get_signature_runner("serve")
        run = lambda: runner(x=np.zeros((1, 4), np.float32))  # noqa: E731
    assert len(warnings_of(lambda: [run() for _ in range(3)])) == 1


@pytest.mark.parametrize("is_open", [False, True])
def test_warming_prints_one_plain_line(is_open: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(partial.alternating(open_batch=is_open))
    options = tmp_path / "options.json"
    options.write_text(json.dumps({**partial.options(), "serialization_dir": str(tmp_path / "cache")}))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert warm.main(["--options", str(options), str(path)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    shapes = ", for inputs of [1, 4]" if is_open else ""
    assert line.startswith(f"{str(path)!r}{shapes}: {HEAD} NEG: It is none of only_ops, ADD, CAST,")
    assert line.endswith(" LiteRT's CPU kernels.")


def test_custom_operators_are_named_in_the_old_numbered_form_once() -> None:
    operators = [left(0, "Mine", "no.", CUSTOM), left(1, "Yours", "no.", CUSTOM), left(2, "ADD", "no.", 0)]
    assert DelegateMessage("m", "litert", operators).text.splitlines()[-1] == (
        "WARNING: op code #32 cannot be handled by this delegate."
    )
    assert DelegateMessage("m", "litert", operators).text.count("WARNING") == 1
    assert "WARNING" not in DelegateMessage("m", "litert", operators[2:]).text


def test_a_message_of_many_reasons_shows_some_of_each_operator_and_says_where_the_rest_is() -> None:
    operators = [left(k, "ADD", f"ADD: the scale of 'sum{k}' is 0.") for k in range(300)]
    operators += [left(300, "WHERE", "WHERE: why not."), left(301, "Mine", "no.", CUSTOM)]
    message = DelegateMessage("m", "cpu", operators)
    lines = message.text.splitlines()
    assert len(message.lines) == 302
    assert len(lines) <= 20
    assert lines[1] == "ADD: the scale of 'sum0' is 0."
    assert {"WHERE: why not.", "Mine: no."} <= set(lines)
    assert "and 287 more reasons, which report() and jitdelegate.on_message list." in lines


def test_a_message_has_causes_first_and_counts_what_follows_from_them() -> None:
    ops = ("ADD", "EXP", "MUL", "SUB", "ABS", "NEG", "COS")
    operators = [
        left(k, op, f"{op}: the shape of 'value{k}' is known only to LiteRT.") for k, op in enumerate(ops * 20)
    ]
    operators.insert(0, left(141, "TANH", "Its partition of one operator would take longer to reach than it saves."))
    operators.insert(2, left(140, "WHERE", "WHERE: its size is known as it runs only."))
    message = DelegateMessage("m", "cpu", operators)
    assert message.text.splitlines()[1:-1] == [
        "WHERE: its size is known as it runs only.",
        "TANH: Its partition of one operator would take longer to reach than it saves.",
        "and 140 operations behind these, with inputs whose shapes LiteRT finds out as it runs: "
        "ADD, EXP, MUL, SUB, ABS, 2 others.",
    ]
    assert message.lines[0].startswith("WHERE")
    assert message.lines[-1] == "COS: the shape of 'value139' is known only to LiteRT."
    alone = DelegateMessage("m", "cpu", [each for each in operators if each.op == "ADD"])
    assert alone.text.splitlines()[1] == "ADD: the shape of 'value0' is known only to LiteRT."


def unique() -> bytes:
    """f32[6] -> UNIQUE -> RELU -> a window that would not fit into the file's shape -> MEAN, with long names."""
    model = ModelBuilder()
    found, places = model.tensor((1,), name=f"begin{'/layer' * 90}/end"), model.tensor((1,), "int32")
    model.node("UNIQUE", [model.input((6,))], [found, places], options={"idx_out_type": "INT32"})
    image = model.op(
        "RESHAPE", [model.op("RELU", [found], (1,)), model.constant(np.array([1, -1, 1, 1], np.int32))], (1,) * 4
    )
    window = {"padding": "VALID", "stride_w": 1, "stride_h": 1, "filter_width": 1, "filter_height": 2}
    pooled = model.op("MAX_POOL_2D", [image], (1, 1, 1, 1), options=window)
    model.output(model.op("MEAN", [pooled, model.constant(np.array([1], np.int32))], (1, 1, 1)), places)
    return model.finish()


@pytest.mark.parametrize("api", ["load", "litert"])
def test_a_warning_of_one_operator_says_one_reason(api: str, heard: list[DelegateMessage]) -> None:
    (found,) = warnings_of(lambda: LOADS[api](unique(), only_ops=None))
    assert str(found.message).splitlines()[1:] == [
        "UNIQUE: UNIQUE is not supported.",
        "and 4 operations behind these, with inputs whose shapes LiteRT finds out as it runs: "
        "RELU, RESHAPE, MAX_POOL_2D, MEAN.",
        "No operations will run on compiled CPU code, and all 5 operations will run on LiteRT's CPU kernels.",
    ]
    assert all(len(line) < 130 for line in heard[0].lines)
    assert "begin/layer" in heard[0].lines[1]
    assert "/layer/end' is known only to LiteRT." in heard[0].lines[1]


def test_a_report_has_one_line_for_what_follows_from_a_cause() -> None:
    with jitdelegate.load(unique(), options=partial.options(only_ops=None)) as model:
        lines = [line.split() for line in str(model.report()).splitlines() if " litert " in line]
    assert [line[0] for line in lines] == ["0", "1-4"]
    assert " ".join(lines[1]).endswith("MEAN: The shape of what is read is known only to LiteRT.")


@pytest.mark.parametrize("way", ["load", "interpreter", "signature"])
def test_a_failed_resize_tells_of_its_own_shapes(way: str) -> None:
    model = ModelBuilder()
    x = model.input((1, 6), name="x", shape_signature=(-1, -1))
    y = model.op("ADD", [model.op("TANH", [x], (1, 6)), model.constant(np.ones(6, np.float32))], (1, 6))
    model.output(y)
    model.signature("serve", {"x": x}, {"y": y})
    content = model.finish()
    interpreter = jitdelegate.Interpreter(model_content=content)
    loaded = jitdelegate.load(content, serialization_dir=False)
    runner = interpreter.get_signature_runner("serve")

    def resized(value: np.ndarray) -> None:
        interpreter.resize_tensor_input(0, value.shape)
        interpreter.allocate_tensors()

    ways: dict[str, Callable[[np.ndarray], object]] = {
        "load": loaded,
        "interpreter": resized,
        "signature": lambda value: runner(x=value),
    }
    for size in (7, 8, 8, 9):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(RuntimeError) as error:
                ways[way](np.zeros((1, size), np.float32))
        assert str(error.value).startswith(f"'x' of [1, {size}] does not fit, the model has [1, 6]: operator 1, ADD:")
        assert str(error.value).count("[1, ") == str(error.value).count(f"[1, {size}]") + 1
    ways[way](np.zeros((2, 6), np.float32))


def test_each_signature_that_leaves_operators_to_litert_warns_when_it_is_opened() -> None:
    with jitdelegate.load(signatures(), options=partial.options()) as model:
        found = warnings_of(model.prepare)
        assert not warnings_of(model.prepare)
    (second,) = (str(each.message) for each in found)
    assert second.startswith("the model's content, signature 'second': ")
    assert second.endswith("and the remaining 1 operations will run on LiteRT's CPU kernels.")


def signatures() -> bytes:
    """Signature "first" is compiled; NEG of "second" is left to LiteRT."""
    model = ModelBuilder()
    further = model.subgraph("further")
    for number, graph in enumerate((model, further)):
        x = graph.input((1, 4), name=f"x{number}")
        y = graph.op("TANH", [graph.op("NEG", [x], (1, 4))] if number else [x], (1, 4))
        graph.output(y)
        model.signature("second" if number else "first", {"x": x}, {"y": y}, number)
    return model.finish()


@pytest.mark.parametrize("api", list(LOADS))
def test_a_model_in_part_on_litert_warns_once_at_the_caller_s_line(api: str) -> None:
    content = partial.alternating()
    found = warnings_of(lambda: [LOADS[api](content) for _ in range(3)])
    assert [str(each.message) for each in found] == [
        f"the model's content: {HEAD}\nNEG: It is none of only_ops, {', '.join(ONLY)}.\n"
        "4 operations will run on compiled CPU code, and the remaining 2 operations will run on LiteRT's CPU kernels."
    ]
    assert {each.category for each in found} == {DelegateWarning}
    assert Path(found[0].filename) == Path(partial.__file__ if api == "litert" else __file__)


def test_a_file_is_named_in_its_warning(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(partial.alternating())
    (found,) = warnings_of(lambda: jitdelegate.load(path, options=partial.options()))
    assert str(found.message).startswith(f"{str(path)!r}: {HEAD}\n")


def test_each_model_is_announced_whatever_the_interface() -> None:
    found = warnings_of(
        lambda: [LOADS[api](content) for content in (partial.alternating(), partial.chain(4)) for api in LOADS]
    )
    assert [str(each.message).count("\n") for each in found] == [2, 2]
    assert len({str(each.message) for each in found}) == 2


@pytest.mark.parametrize("api", list(LOADS))
def test_callbacks_get_the_facts_of_the_report(api: str, heard: list[DelegateMessage]) -> None:
    content = partial.alternating()
    opened = LOADS[api](content)
    (message,) = heard
    assert message.target == "cpu"
    facts = [(each.index, each.op, each.place, each.reason) for each in message.operators]
    report = opened.report() if api != "litert" else LOADS["load"](content).report()
    assert facts == [(each.index, each.op, each.place, each.reason) for each in report.operators]
    assert [each.place for each in message.operators] == ["cpu", "cpu", "litert", "cpu", "litert", "cpu"]


@pytest.mark.parametrize("api", list(LOADS))
def test_a_second_start_from_the_cache_says_the_same(
    api: str, tmp_path: Path, heard: list[DelegateMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        monkeypatch.setattr(messages, "_announced", set())
        LOADS[api](partial.loop(), serialization_dir=tmp_path)
    first, second = heard
    assert first.text == second.text
    assert "WHILE: WHILE is not supported." in first.lines


def test_every_line_has_a_reason(heard: list[DelegateMessage]) -> None:
    for content in (partial.loop(), partial.branch(), small_models.quantized(), small_models.uncompiled()):
        jitdelegate.load(content, options=partial.options())
    assert len(heard) == 4
    assert all(line.split(": ", 1)[1].endswith(".") for message in heard for line in message.lines)


@pytest.mark.parametrize("api", list(LOADS))
def test_nothing_is_said_where_all_is_delegated(api: str, heard: list[DelegateMessage]) -> None:
    for content in (small_models.convolution(), partial.remembering()):
        assert not warnings_of(lambda content=content: LOADS[api](content, only_ops=None))  # type: ignore[misc]
    assert not heard


@pytest.mark.parametrize("api", list(LOADS))
def test_nothing_is_said_where_litert_was_asked_for(api: str, heard: list[DelegateMessage]) -> None:
    assert not warnings_of(lambda: LOADS[api](partial.alternating(), target="litert"))
    assert not heard


def test_other_shapes_of_a_model_are_not_announced_again(heard: list[DelegateMessage]) -> None:
    model = jitdelegate.load(partial.alternating(open_batch=True), options=partial.options())
    model(np.zeros((3, 4), np.float32))
    assert len(heard) == 1


def test_callbacks_end_when_they_are_told_to_and_only_they() -> None:
    first: list[DelegateMessage] = []
    second: list[DelegateMessage] = []
    end = on_message(first.append)
    on_message(second.append)
    jitdelegate.load(partial.chain(4), options=partial.options())
    end()
    end()  # harmless
    jitdelegate.load(partial.chain(6), options=partial.options())
    assert (len(first), len(second)) == (1, 2)


def test_a_callback_may_end_itself() -> None:
    found: list[str] = []

    def once(message: DelegateMessage) -> None:
        found.append(message.model)
        end()

    end = on_message(once)
    last: list[DelegateMessage] = []
    on_message(last.append)
    for count in (4, 6):
        jitdelegate.load(partial.chain(count), options=partial.options())
    assert (len(found), len(last)) == (1, 2)


@pytest.mark.parametrize("api", list(LOADS))
def test_what_a_callback_raises_reaches_whoever_opens_the_model(api: str) -> None:
    def refuse(message: DelegateMessage) -> None:
        raise LookupError(message.model)

    on_message(refuse)
    with pytest.raises(LookupError, match="the model's content"):
        LOADS[api](partial.chain(4))


@pytest.mark.parametrize("api", list(LOADS))
def test_warnings_can_be_made_errors_and_be_silenced(api: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DelegateWarning)
        with pytest.raises(DelegateWarning, match="NEG: It is none of only_ops"):
            LOADS[api](partial.chain(4))
        warnings.simplefilter("ignore", DelegateWarning)
        LOADS[api](partial.chain(6))


@pytest.mark.parametrize("api", ["litert", "interpreter", "load"])
def test_the_warning_shows_the_line_of_a_script(tmp_path: Path, api: str) -> None:
    if api == "litert":
        partial.skip_without_host()
    script, model = Path(__file__).with_name("warning_script.py"), tmp_path / "net.tflite"
    model.write_bytes(partial.chain(4))
    (line,) = (number for number, text in enumerate(script.read_text().splitlines(), 1) if f"# {api}'s line" in text)
    command = [sys.executable, str(script), str(model), api]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["", *sys.path])}
    child = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    assert f"{script}:{line}: DelegateWarning: {str(model)!r}: {HEAD}\n" in child.stderr
    assert child.stderr.count("DelegateWarning") == 1


def test_litert_without_a_delegate_hears_nothing() -> None:
    assert not warnings_of(lambda: LiteRT(model_content=partial.alternating()).allocate_tensors())


def test_operators_that_would_have_vanished_have_a_reason_too() -> None:
    options = {"target": "cpu", "max_delegated_partitions": 1, "last_delegate_node_index": 11, "only_ops": "ADD"}
    report = jitdelegate.load(resource_models.streaming(), serialization_dir=False, options=options).report()
    assert {operator.place for operator in report.operators} == {"litert"}
    reasons = {operator.op: operator.reason for operator in report.operators}
    assert reasons["CALL_ONCE"] == reasons["VAR_HANDLE"] == "Nothing is compiled that it is needed for."
    assert all(operator.reason for operator in report.operators)


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_errors_about_inputs_and_outputs_shorten_long_names(target: str) -> None:
    name = "model/" + "a_layer_of_the_model/" * 30
    model = ModelBuilder()
    x, tokens = model.input((1, 4), name=f"{name}x"), model.input((1, 4), "int32", name=f"{name}tokens")
    model.output(
        model.op("NEG", [x], (1, 4), name=f"{name}y"), model.op("ADD", [tokens, tokens], (1, 4), name=f"{name}z")
    )
    values, numbers = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.int32)
    with jitdelegate.load(model.finish(), target=target, serialization_dir=False) as loaded:
        runs: list[Callable[[], Any]] = [
            lambda: loaded(values[:, :3], numbers),
            lambda: loaded(None, numbers),
            lambda: loaded(values, numbers.astype(np.int64) + 2**40),
            lambda: loaded(values),
            lambda: loaded.run(
                {f"{name}x": values, f"{name}tokens": numbers}, out={f"{name}y": np.zeros((1, 5), np.float32)}
            ),
        ]
        for run in runs:
            with pytest.raises(TensorError) as caught:
                run()
            assert len(str(caught.value)) < 300, caught.value
