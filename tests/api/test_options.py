"""Options: the values that each takes, what they mean together, and how they come from mappings, texts and files."""

from __future__ import annotations

import inspect
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jitdelegate
from jitdelegate.base.option_file import LARGEST_FILE
from jitdelegate.base.options import ALIASES, FIELDS, PRIORITIES, DelegateOptions
from jitdelegate.base.targets import ROWS
from jitdelegate.commands import warm
from jitdelegate.engine.load_path import find_key
from jitdelegate.errors import DeviceError, OptionError
from jitdelegate.program.read import read
from jitdelegate.targets import target_named
from tests.api import small_models
from tests.child import answer_of, in_child
from tests.gpu.stub.install import install
from tests.gpu.stub.programs import library

AUTO, PRECISION, LATENCY, MEMORY = range(4)
"""TFLite's numbers of the priorities."""
VALID_ORDERS = {
    (PRECISION, AUTO, AUTO): "float32",
    (PRECISION, LATENCY, AUTO): "float32",
    (PRECISION, MEMORY, AUTO): "float32",
    (PRECISION, LATENCY, MEMORY): "float32",
    (PRECISION, MEMORY, LATENCY): "float32",
    (LATENCY, AUTO, AUTO): "float16",  # LATENCY, MEMORY, PRECISION
    (LATENCY, PRECISION, AUTO): "float16",
    (LATENCY, MEMORY, AUTO): "float16",
    (LATENCY, PRECISION, MEMORY): "float16",
    (LATENCY, MEMORY, PRECISION): "float16",
    (MEMORY, AUTO, AUTO): "float16",  # MEMORY, PRECISION, LATENCY
    (MEMORY, PRECISION, AUTO): "float16",
    (MEMORY, LATENCY, AUTO): "float16",
    (MEMORY, PRECISION, LATENCY): "float16",
    (MEMORY, LATENCY, PRECISION): "float16",
}
"""All that TFLite's GPU delegate takes, with what the place of PRECISION means once AUTO is filled in."""
ALL_ORDERS = list(itertools.product(range(4), repeat=3))

VALUES: dict[str, list[tuple[Any, Any]]] = {
    "cache_max_bytes": [
        *((1, 1), (None, None), ("123", 123), ("500M", 500 << 20), ("2 GB", 2 << 30), ("1.5KiB", 1536)),
    ],
    "cpu_features": [("generic", "generic")],
    "dequantize_outputs": [(True, True), (1, True), (False, False), (0, False)],
    "device": [(3, 3), ("3", 3), ("h100", "h100"), ("RTX 4090", "RTX 4090")],
    "experimental_flags": [
        (0, ()),
        (1, ("ENABLE_QUANT",)),
        (9, ("ENABLE_QUANT", "ENABLE_SERIALIZATION")),
        ("ENABLE_SERIALIZATION, ENABLE_QUANT", ("ENABLE_QUANT", "ENABLE_SERIALIZATION")),
        ((), ()),
        (("ENABLE_SERIALIZATION",), ("ENABLE_SERIALIZATION",)),
    ],
    "extra_outputs": [
        *((None, None), (False, None), (True, True), (7, (7,)), ("conv, 3,conv", ("conv", 3)), ("(3,)", (3,))),
        *((["b", 0, "a"], ("b", 0, "a")), (("a,b", "1"), ("a,b", "1"))),
    ],
    "first_delegate_node_index": [(2, 2), (2147483647, 2147483647)],
    "hardware_accelerators": [(1, 1), (2, 2), (3, 3)],
    "inference_preference": [
        (0, "FAST_SINGLE_ANSWER"),
        (1, "SUSTAINED_SPEED"),
        (2, "BALANCED"),
        ("BALANCED", "BALANCED"),
    ],
    "inference_priority1": [("MIN_LATENCY", "MIN_LATENCY"), (3, "MIN_MEMORY_USAGE")],
    "inference_priority2": [("MIN_LATENCY", "MIN_LATENCY"), (0, "AUTO")],
    "inference_priority3": [("AUTO", "AUTO"), (0, "AUTO")],
    "is_precision_loss_allowed": [(True, True), (1, True), (False, False), (0, False), (-1, None), (None, None)],
    "last_delegate_node_index": [(0, 0), (9, 9), (None, None), (2147483647, None)],
    "max_delegated_partitions": [(3, 3), (1, 1), (0, 1), (-7, 1), (None, None)],
    "min_nodes_per_partition": [(0, 0), (5, 5)],
    "model_token": [("net", "net"), (None, None)],
    "num_threads": [(2, 2), (None, None)],
    "only_ops": [
        (None, None),
        ("ADD", ("ADD",)),
        ("MUL, ADD,MUL", ("ADD", "MUL")),
        (["MUL", "ADD"], ("ADD", "MUL")),
        (("ADD",), ("ADD",)),
    ],
    "partitioning": [("all", "all"), ("cost_model", "cost_model")],
    "prebuilt": [
        *(("folder", ("folder",)), (None, None), (["b", "a"], ("b", "a")), (("a,b",), ("a,b",)), ([], ())),
    ],
    "precision": [("tf32", "tf32"), ("auto", "auto"), (None, "float32")],
    "precision_bound": [(0, 0.0), (1, 1.0), (0.002, 0.002)],
    "precision_inputs": [("samples.npz", "samples.npz"), (None, None)],
    "private_weights": [(True, True), (1, True), (False, False), (0, False)],
    "profile": [(True, True), (1, True), (False, False), (0, False)],
    "quantize_inputs": [(True, True), (1, True), (False, False), (0, False)],
    "quantized_execution": [("auto", "auto"), ("dynamic", "dynamic"), ("float_view", "float_view")],
    "quantized_models_allowed": [(True, True), (1, True), (False, False), (0, False), (None, True)],
    "quantized_rounding": [("litert", "litert"), ("reference", "reference")],
    "remote": [("s3://programs", "s3://programs"), (None, None), (False, False)],
    "remote_key": [("key.pem", "key.pem"), (None, None)],
    "requests_in_flight": [(1, 1), (64, 64)],
    "require_full_delegation": [(True, True), (1, True), (False, False), (0, False)],
    "serialization_dir": [("folder", "folder"), (None, None), (False, False)],
    "stream": [(7, 7), (None, None)],
    "target": [("cuda", "cuda"), ("litert", "litert")],
    "tuning": [("none", "none"), ("fast", "fast"), ("full", "full")],
}
"""Of every option: values that are taken, and what they become."""
REFUSED: dict[str, list[Any]] = {
    "cache_max_bytes": [0, -1, 1 << 64, 1.0, True, "", "M", "much", "-1", "1.5.5M", "1X", [1]],
    "cpu_features": ["sse9", "", None, 1, []],
    "dequantize_outputs": [2, -1, 1.0, None, "yes", []],
    "device": [-1, 1024, 1.0, True, None, "", " ", "-1", "1024", "9" * 5000, 10**5000, [0]],
    "experimental_flags": [-1, 16, 1.0, True, None, "QUANT", ["ENABLE_QUANT", 1], {"ENABLE_QUANT": 1}],
    "extra_outputs": [-1, 1.0, "", "a,,b", [], (), ["a", ""], [True], [1.0], 2147483648, {"a": 1}],
    "first_delegate_node_index": [-1, 2147483648, 1.0, True, None, "first", []],
    "hardware_accelerators": [0, 4, 5, 8, -1, 1.0, True, None, "CPU", []],
    "inference_preference": [-1, 3, 1.0, True, None, "balanced", ["BALANCED"]],
    "inference_priority1": [-1, 4, 1.0, True, None, "auto", "PRECISION", []],
    "inference_priority2": [-1, 4, 1.0, True, None, "auto", "PRECISION", []],
    "inference_priority3": [-1, 4, 1.0, True, None, "auto", "PRECISION", []],
    "is_precision_loss_allowed": [2, -2, 1.0, "yes", []],
    "last_delegate_node_index": [-1, 2147483648, 1.0, True, "last", []],
    "max_delegated_partitions": [2147483648, 1.0, True, "many", []],
    "min_nodes_per_partition": [-1, 2147483648, 1.0, True, None, "few", []],
    "model_token": [3, True, ["net"]],
    "num_threads": [0, 65, 1.0, True, "many", [2]],
    "only_ops": [0, True, "", "ADD,,MUL", [], (), ["ADD", 1], ["ADD MUL"], ["ADD,MUL"], "A\nB", {"ADD": 1}],
    "partitioning": ["largest", None, 1, []],
    "prebuilt": ["", True, 3, ["folder", ""], [3], {"folder": 1}],
    "precision": ["float8", True, 2, []],
    "precision_bound": [-0.1, 1.5, float("nan"), True, None, "small", []],
    "precision_inputs": ["samples.npy", "", 3, True, ["a.npz"]],
    "private_weights": [2, -1, 1.0, None, "yes", []],
    "profile": [2, -1, 1.0, None, "yes", []],
    "quantize_inputs": [2, -1, 1.0, None, "yes", []],
    "quantized_execution": ["integer", None, 1, []],
    "quantized_models_allowed": [2, -1, 1.0, "yes", []],
    "quantized_rounding": ["even", None, 1, []],
    "remote": [True, 3, "", ["s3://programs"]],
    "remote_key": [True, 3, "", ["key.pem"]],
    "requests_in_flight": [0, 65, 1.0, True, None, "many"],
    "require_full_delegation": [2, -1, 1.0, None, "yes", []],
    "serialization_dir": [True, 3, "", ["folder"]],
    "stream": [-1, 1 << 64, 1.0, True, "mine", []],
    "target": ["tpu", "", None, 1, []],
    "tuning": ["auto", None, True, 1, []],
}
"""Of every option: values that are refused."""


def _each(table: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}-{str(value)[:30]}") for name in table for value in _short(table[name])
    ]


def _short(values: list[Any]) -> list[Any]:
    """Without the number that has no text."""
    return [value for value in values if not (type(value) is int and value > 1 << 65)]


def _json_values(table: dict[str, list[Any]]) -> list[Any]:
    return [param for param in _each(table) if not isinstance(param.values[1], tuple)]


def test_the_tables_here_have_every_option() -> None:
    assert set(VALUES) == set(REFUSED) == set(DelegateOptions.__slots__)


@pytest.mark.parametrize("numbers", ALL_ORDERS)
def test_an_order_of_priorities_is_taken_or_refused_as_tflite_does(numbers: tuple[int, int, int]) -> None:
    given = {f"inference_priority{place}": number for place, number in enumerate(numbers, 1)}
    names = {name: PRIORITIES[number] for name, number in given.items()}
    if numbers in VALID_ORDERS:
        for options in (
            DelegateOptions.from_mapping(given),
            DelegateOptions.from_mapping(names),
            DelegateOptions.from_strings(given),
        ):
            assert options.precision == VALID_ORDERS[numbers]
            assert {name: getattr(options, name) for name in names} == names
        return
    for values in (given, names):
        with pytest.raises(OptionError) as error:
            DelegateOptions.from_mapping(values)
        found = "{!r}, {!r} and {!r}".format(*names.values())
        assert f"inference_priority1, inference_priority2 and inference_priority3 are {found}, expected" in str(
            error.value
        )


def test_an_order_that_tflite_refuses_is_refused_beside_a_precision_too() -> None:
    with pytest.raises(OptionError, match="'AUTO', 'AUTO' and 'AUTO', expected"):
        DelegateOptions(inference_priority1="AUTO", precision="tf32")


@pytest.mark.parametrize(
    ("order", "saves"),
    [
        *(((1, 0, 0), False), ((1, 2, 3), False), ((2, 0, 0), False), ((2, 3, 1), False), ((2, 1, 0), False)),
        *(((3, 0, 0), True), ((1, 3, 0), True), ((1, 3, 2), True), ((3, 2, 1), True), ((3, 1, 0), True)),
    ],
)
def test_memory_is_saved_where_it_comes_before_latency(order: tuple[int, int, int], saves: bool) -> None:
    given = {f"inference_priority{place}": number for place, number in enumerate(order, 1)}
    assert DelegateOptions.from_mapping(given).saves_memory == saves


@pytest.mark.parametrize("numbers", ALL_ORDERS)
def test_the_older_option_overrules_the_priorities_as_in_tflite(numbers: tuple[int, int, int]) -> None:
    given = {f"inference_priority{place}": number for place, number in enumerate(numbers, 1)}
    assert DelegateOptions.from_mapping({**given, "is_precision_loss_allowed": 0}).precision == "float32"
    assert DelegateOptions.from_mapping({**given, "is_precision_loss_allowed": 1}).precision == "float16"
    if numbers in VALID_ORDERS:
        unset = DelegateOptions.from_mapping({**given, "is_precision_loss_allowed": -1})
        assert (unset.precision, unset.is_precision_loss_allowed) == (VALID_ORDERS[numbers], None)


def test_a_precision_wins_over_priorities_and_the_older_option() -> None:
    assert DelegateOptions(precision="tf32", inference_priority1="MIN_LATENCY").precision == "tf32"
    assert DelegateOptions(precision="float32", is_precision_loss_allowed=True).precision == "float32"
    assert DelegateOptions(precision="bfloat16", is_precision_loss_allowed=False).precision == "bfloat16"


@pytest.mark.parametrize(("name", "pair"), _each(VALUES))
def test_a_value_becomes_what_it_means(name: str, pair: tuple[Any, Any]) -> None:
    value, expected = pair
    found = getattr(DelegateOptions.from_mapping({name: value}), name)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(("name", "pair"), _each(VALUES))
def test_the_text_of_a_value_becomes_the_same(name: str, pair: tuple[Any, Any]) -> None:
    value, expected = pair
    found = getattr(DelegateOptions.from_strings({name: str(value)}), name)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("take", [jitdelegate.load, jitdelegate.GpuDelegate])
def test_every_option_is_a_typed_keyword(take: Callable[..., Any]) -> None:
    found = {
        name: each
        for name, each in inspect.signature(take).parameters.items()
        if name not in ("path_or_bytes", "options")
    }
    expected = inspect.signature(DelegateOptions).parameters
    assert set(found) == set(expected) == {*FIELDS, *ALIASES}
    for name, parameter in found.items():
        assert parameter.default is None
        assert parameter.annotation == f"{expected[name].annotation.removesuffix(' | None')} | None"


def test_the_source_of_load_is_found() -> None:
    assert inspect.getsource(jitdelegate.load).startswith("def load(\n    path_or_bytes: Source,")


def test_the_options_that_the_key_leaves_out_change_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [target_named(name).find_device(DelegateOptions()) for name in ("cpu", "litert", "reference")]
    devices += target_named("cuda").devices("sm_90")
    keys = [find_key(device, DelegateOptions(), "00").parts for device in devices]
    for name, field in FIELDS.items():
        for value, _ in VALUES[name]:
            if not field.key and (name, value) != ("hardware_accelerators", 2):
                options = DelegateOptions.from_mapping({name: value})
                assert [find_key(device, options, "00").parts for device in devices] == keys, name


@pytest.mark.parametrize("part", ["partitions", "quantization", "ports"])
def test_the_options_of_a_part_of_the_key_change_that_part(part: str) -> None:
    device = target_named("cpu").find_device(DelegateOptions())
    for name in (name for name, field in FIELDS.items() if field.key == part):
        options = [DelegateOptions.from_mapping({name: value}) for value, _ in VALUES[name]]
        changed = [dict(find_key(device, one, "00").parts)[part] for one in options if one.changed]
        assert changed and all(pairs.startswith(f"{name}=") for pairs in changed)


def keywords_of(monkeypatch: pytest.MonkeyPatch, api: str, **keywords: Any) -> DelegateOptions:
    """The options that a model is opened with."""
    if api == "GpuDelegate":
        return jitdelegate.GpuDelegate(**keywords).options
    monkeypatch.setattr("jitdelegate.engine.load_path.open_model", lambda source: source)
    monkeypatch.setattr("jitdelegate.api.model.Model", lambda opened: opened)
    opened: Any = jitdelegate.load(b"", **keywords)
    found: DelegateOptions = opened.options
    return found


@pytest.mark.parametrize("api", ["load", "GpuDelegate"])
@pytest.mark.parametrize(("name", "pair"), _each(VALUES))
def test_a_keyword_is_its_option(
    name: str, pair: tuple[Any, Any], api: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    value, expected = pair
    found = getattr(keywords_of(monkeypatch, api, **{name: value}), name)
    assert (found, type(found)) == (expected, type(expected))
    assert repr(keywords_of(monkeypatch, api, **dict.fromkeys(DelegateOptions.__slots__))) == repr(DelegateOptions())


@pytest.mark.parametrize("api", ["load", "GpuDelegate"])
def test_a_keyword_that_is_no_option_is_refused_with_the_nearest_name(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keywords_of(monkeypatch, api, backend="cpu").target == "cpu"
    with pytest.raises(OptionError, match=r"unknown option precison \(did you mean precision\?\)"):
        keywords_of(monkeypatch, api, precison="float16")
    with pytest.raises(OptionError, match="expected one value"):
        keywords_of(monkeypatch, api, backend="cpu", target="cuda")


@pytest.mark.parametrize(("name", "pair"), _each(VALUES))
def test_an_option_that_differs_from_its_default_has_changed(name: str, pair: tuple[Any, Any]) -> None:
    options = DelegateOptions.from_mapping({name: pair[0]})
    assert options.changed == ((name,) if getattr(options, name) != getattr(DelegateOptions(), name) else ())


@pytest.mark.parametrize("target", ROWS)
def test_ignored_options_change_no_program(target: str) -> None:
    found = target_named(target)
    device = found.devices("sm_90")[0] if target == "cuda" else found.find_device(DelegateOptions())
    usual = find_key(device, DelegateOptions(), "00").parts
    ignored = set[str]()
    for name, values in VALUES.items():
        for options in (DelegateOptions.from_mapping({name: value}) for value, _ in values):
            if name in found.ignored(options):
                assert find_key(device, options, "00").parts == usual, name
                ignored.add(name)
    assert len(ignored) > 1


@pytest.mark.parametrize(("name", "pair"), _each(VALUES))
def test_options_can_be_copied_by_name(name: str, pair: tuple[Any, Any]) -> None:
    options = DelegateOptions.from_mapping({name: pair[0]})
    assert repr(
        DelegateOptions.from_mapping({each: getattr(options, each) for each in DelegateOptions.__slots__})
    ) == repr(options)


@pytest.mark.parametrize(("name", "value"), _each(REFUSED))
def test_a_value_of_another_kind_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(OptionError) as error:
        DelegateOptions.from_mapping({name: value})
    assert str(error.value).startswith(f"{name} is {repr(value)[:80]}")
    assert ", expected " in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("cpu_features", text) for text in ("None", "auto ", "1")),
        *(("device", text) for text in ("", "-1", "1024", "9" * 5000)),
        *(("first_delegate_node_index", text) for text in ("-1", "1.0", "True", "None", "2147483648", "9" * 5000)),
        *((f"inference_priority{place}", text) for place in (1, 2, 3) for text in ("4", "-1", "None", "auto")),
        *(("inference_preference", text) for text in ("3", "-1", "None", "True", "")),
        *(("is_precision_loss_allowed", text) for text in ("2", "-2", "yes", "1.0", "")),
        *(("last_delegate_node_index", text) for text in ("-1", "1.0", "end", "")),
        *(("max_delegated_partitions", text) for text in ("1.0", "--1", "-", "", "True", "9" * 5000)),
        *(("min_nodes_per_partition", text) for text in ("-1", "None", "")),
        *(("num_threads", text) for text in ("0", "-1", "", "two")),
        *(("only_ops", text) for text in ("", "()", "[]", "ADD,,MUL", "ADD MUL", "('ADD', '')")),
        *(("partitioning", text) for text in ("None", "True", "")),
        *(("precision", text) for text in ("half", "", "0")),
        *(("private_weights", text) for text in ("None", "yes", "-1", "2", "")),
        *(("requests_in_flight", text) for text in ("0", "-1", "", "None")),
        *(("require_full_delegation", text) for text in ("None", "yes", "-1", "2", "")),
        *(("serialization_dir", text) for text in ("",)),
        *(("stream", text) for text in ("-1", "mine", "9" * 5000)),
        *(("target", text) for text in ("None", "gpu", "")),
    ],
)
def test_a_text_that_is_no_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"^{name} is "):
        DelegateOptions.from_strings({name: text})


def test_a_list_of_operators_that_went_through_str_is_still_one() -> None:
    for value in (["MUL", "ADD"], ("MUL", "ADD"), ["ADD", "MUL"]):
        assert DelegateOptions.from_strings({"only_ops": value}).only_ops == ("ADD", "MUL")
    assert DelegateOptions.from_strings({"only_ops": ("ADD",)}).only_ops == ("ADD",)


def test_a_number_without_a_text_is_refused_all_the_same() -> None:
    with pytest.raises(OptionError, match=r"^max_delegated_partitions is a number of thousands of digits, expected"):
        DelegateOptions(max_delegated_partitions=10**5000)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(OptionError) as error:
        DelegateOptions(precision="x" * 5000)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("name", ["auto", "cuda", "cpu", "litert"])
def test_backend_is_another_name_of_target(name: str) -> None:
    assert DelegateOptions.from_mapping({"backend": name}).target == name
    assert DelegateOptions.from_strings({"backend": name}).target == name
    assert DelegateOptions.from_mapping({"backend": name, "target": name}).target == name
    assert jitdelegate.GpuDelegate(backend=name).options.target == name


@pytest.mark.parametrize(("target", "backend"), [("cpu", "cuda"), ("auto", "cuda"), ("cuda", "auto")])
def test_two_values_under_the_two_names_of_the_target_are_refused(target: str, backend: str) -> None:
    words = f"target is '{target}' but backend, another name of it, is '{backend}'"
    with pytest.raises(OptionError, match=words):
        DelegateOptions.from_mapping({"target": target, "backend": backend})
    with pytest.raises(OptionError, match=words):
        jitdelegate.load_delegate("jitdelegate", {"target": target, "backend": backend})
    with pytest.raises(OptionError, match=words):
        jitdelegate.GpuDelegate(target=target, backend=backend)


def test_quantized_models_are_allowed_by_three_names() -> None:
    for refused in (
        {"quantized_models_allowed": False},
        {"experimental_enable_quant": 0},
        {"experimental_flags": "ENABLE_SERIALIZATION"},
        {"experimental_flags": 9, "quantized_models_allowed": False},
    ):
        for options in (DelegateOptions.from_mapping(refused), DelegateOptions.from_strings(refused)):
            assert not options.quantized_models_allowed
            assert options.partition_key == "quantized_models_allowed=False"
    assert DelegateOptions(experimental_flags=0, quantized_models_allowed=True).quantized_models_allowed
    assert DelegateOptions(experimental_flags=8).changed == ("experimental_flags",)
    assert not jitdelegate.GpuDelegate(experimental_enable_quant=False).options.quantized_models_allowed
    with pytest.raises(OptionError, match="quantized_models_allowed is True but experimental_enable_quant, another"):
        DelegateOptions.from_mapping({"quantized_models_allowed": 1, "experimental_enable_quant": 0})


@pytest.mark.parametrize(("flags", "words"), [(3, "CL_ONLY, .* on OpenCL"), ("GL_ONLY", "GL_ONLY, .* on OpenGL")])
def test_flags_of_an_api_that_is_not_used_are_answered_with_a_reason(flags: int | str, words: str) -> None:
    with pytest.raises(OptionError, match=f"^experimental_flags has {words}: .* expected ENABLE_QUANT, ENABLE_SERIAL"):
        DelegateOptions(experimental_flags=flags)


def test_the_flag_of_the_cache_contradicts_no_cache() -> None:
    with pytest.raises(OptionError, match="ENABLE_SERIALIZATION, but serialization_dir is False"):
        DelegateOptions(experimental_flags=9, serialization_dir=False)


@pytest.mark.parametrize(
    ("changed", "target", "part"),
    [
        ({"quantized_rounding": "reference"}, "cpu", ("quantization", "quantized_rounding=reference")),
        ({"quantized_execution": "dynamic"}, "cpu", ("quantization", "quantized_execution=dynamic")),
        (
            {"dequantize_outputs": 1, "quantize_inputs": 1},
            "litert",
            ("ports", "dequantize_outputs=True quantize_inputs=True"),
        ),
    ],
)
def test_options_of_quantized_models_have_programs_of_their_own(
    changed: dict[str, Any], target: str, part: tuple[str, str]
) -> None:
    device = target_named(target).find_device(DelegateOptions())
    usual = find_key(device, DelegateOptions(), "00").parts
    assert set(find_key(device, DelegateOptions.from_mapping(changed), "00").parts) - set(usual) == {part}


@pytest.mark.parametrize("value", ["tpu", None, 1, []])
def test_a_wrong_backend_is_refused_by_the_name_it_was_given(value: Any) -> None:
    with pytest.raises(OptionError, match=r"^backend is .* expected one of auto, cpu, cuda, litert"):
        DelegateOptions.from_mapping({"backend": value})


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("precison", "precision"),
        ("serialisation_dir", "serialization_dir"),
        ("max_delegate_partitions", "max_delegated_partitions"),
        ("inference_priority", "inference_priority"),
        ("back_end", "backend"),
    ],
)
def test_an_unknown_option_comes_with_the_nearest_name(name: str, near: str) -> None:
    with pytest.raises(OptionError, match=rf"unknown option {name} \(did you mean {near}.*\?\); options are backend, "):
        DelegateOptions.from_mapping({name: 1})


def test_an_unknown_option_that_is_near_to_none_comes_with_all() -> None:
    with pytest.raises(OptionError, match=r"unknown option zzz, 7; options are backend, cache_max_bytes, .*, tuning$"):
        DelegateOptions.from_mapping({"zzz": 1, 7: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({}, ""),
        ({"max_delegated_partitions": 1, "only_ops": "MUL,ADD"}, "max_delegated_partitions=1 only_ops=ADD,MUL"),
        (
            {"only_ops": ["ADD", "MUL", "ADD"], "max_delegated_partitions": 0},
            "max_delegated_partitions=1 only_ops=ADD,MUL",
        ),
        ({"min_nodes_per_partition": 4, "partitioning": "all"}, "min_nodes_per_partition=4 partitioning=all"),
        (
            {"last_delegate_node_index": 0, "first_delegate_node_index": 3},
            "first_delegate_node_index=3 last_delegate_node_index=0",
        ),
        ({"last_delegate_node_index": 2147483647, "first_delegate_node_index": 0, "min_nodes_per_partition": 0}, ""),
        ({"require_full_delegation": True, "target": "cuda", "precision": "tf32", "inference_preference": 1}, ""),
    ],
)
def test_the_partition_key_names_what_changes_the_delegated_operators(changed: dict[str, Any], key: str) -> None:
    assert DelegateOptions.from_mapping(changed).partition_key == key


SETTINGS = {"target": "cpu", "num_threads": 1, "is_precision_loss_allowed": True, "only_ops": ["MUL", "ADD"]}
TOML = 'target = "cpu"\nnum_threads = 1\nis_precision_loss_allowed = true\nonly_ops = ["MUL", "ADD"]\n'


def _file(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("options.json", json.dumps(SETTINGS)),
        ("options.JSON", json.dumps({"jitdelegate": SETTINGS, "other": {"target": "tpu"}})),
        ("options.json", json.dumps({"gpu_options": SETTINGS})),
        ("options.toml", TOML),
        ("options.toml", f"[other]\nspeed = 3\n[jitdelegate]\n{TOML}"),
        ("options.toml", f"[gpu_options]\n{TOML}"),
        ("options.toml", TOML.replace("target", "backend")),
    ],
)
def test_options_come_from_a_file(name: str, text: str, tmp_path: Path) -> None:
    path = _file(tmp_path, name, text)
    expected = repr(DelegateOptions.from_mapping(SETTINGS))
    assert repr(DelegateOptions.from_file(path)) == expected
    assert repr(DelegateOptions.from_file(str(path))) == expected
    assert repr(jitdelegate.GpuDelegate.from_file(path).options) == expected
    assert repr(jitdelegate.load_delegate("jitdelegate", options=path).options) == expected
    assert repr(jitdelegate.load_delegate("jitdelegate", options=str(path)).options) == expected


def test_an_empty_file_of_options_leaves_all_as_it_is(tmp_path: Path) -> None:
    assert repr(DelegateOptions.from_file(_file(tmp_path, "options.toml", ""))) == repr(DelegateOptions())
    assert repr(DelegateOptions.from_file(_file(tmp_path, "options.json", "{}"))) == repr(DelegateOptions())


@pytest.mark.parametrize(("name", "pair"), [one for one in _each(VALUES) if not isinstance(one.values[1][0], tuple)])
def test_a_json_file_takes_each_value_of_each_option(name: str, pair: tuple[Any, Any], tmp_path: Path) -> None:
    path = _file(tmp_path, "options.json", json.dumps({name: pair[0]}))
    assert getattr(DelegateOptions.from_file(path), name) == pair[1]


@pytest.mark.parametrize(("name", "pair"), _each(VALUES))
def test_a_file_and_a_mapping_take_the_text_of_each_value(name: str, pair: tuple[Any, Any], tmp_path: Path) -> None:
    path = _file(tmp_path, "options.json", json.dumps({name: str(pair[0])}))
    assert getattr(DelegateOptions.from_file(path), name) == pair[1]
    for further in (path, {name: str(pair[0])}):
        assert getattr(DelegateOptions.from_keywords({}, further), name) == pair[1]


@pytest.mark.parametrize(("name", "value"), _json_values(REFUSED))
def test_a_value_of_another_kind_in_a_file_is_refused_with_file_and_name(name: str, value: Any, tmp_path: Path) -> None:
    path = _file(tmp_path, "options.json", json.dumps({name: value}))
    with pytest.raises(OptionError) as error:
        DelegateOptions.from_file(path)
    assert str(error.value).startswith(f"{path}: {name} is {repr(value)[:80]}")
    assert ", expected " in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("options.json", "{", "it cannot be parsed as JSON: "),
        ("options.json", "", "it cannot be parsed as JSON: "),
        ("options.json", "[" * 100000, "it cannot be parsed as JSON: "),
        ("options.json", b"\xff\xfe\xff", "it cannot be parsed as JSON: "),
        ("options.json", '{"device": ' + "9" * 5000 + "}", "it cannot be parsed as JSON: "),
        ("options.json", '{"device": 1, "device": 2}', "it cannot be parsed as JSON: 'device' is defined twice"),
        ("options.json", "[1]", "the file of options holds a list, expected a table"),
        ("options.json", "null", "the file of options holds a NoneType, expected a table"),
        ("options.json", '{"speed": 1}', "unknown option speed; options are"),
        ("options.json", '{"precison": 1}', r"unknown option precison \(did you mean precision\?\)"),
        ("options.json", '{"jitdelegate": 1}', "unknown option jitdelegate; options are"),
        ("options.json", '{"jitdelegate": {}, "device": 1}', "beside the table jitdelegate there is device, expected"),
        ("options.json", '{"jitdelegate": {}, "gpu_options": {}}', "beside the table jitdelegate there is gpu_options"),
        ("options.json", '{"target": "cpu", "backend": "cuda"}', "target is 'cpu' but backend"),
        ("options.json", '{"inference_priority1": 0}', "'AUTO', 'AUTO' and 'AUTO', expected"),
        ("options.json", " " * (LARGEST_FILE + 1), f"longer than the expected {LARGEST_FILE} bytes"),
        ("options.toml", "device = ", "it cannot be parsed as TOML: "),
        ("options.toml", "device = 1\ndevice = 2", "it cannot be parsed as TOML: "),
        ("options.toml", b"# \xff", "it cannot be parsed as TOML: "),
        ("options.toml", "a = " + "[" * 100000, "it cannot be parsed as TOML: "),
        ("options.toml", "device = 1979-05-27", r"device is datetime.date\(1979, 5, 27\), expected a whole number"),
        ("options.toml", "device = 0.0", "device is 0.0, expected a whole number"),
        ("options.yaml", "device: 1", "the suffix of a file of options is '.yaml', expected .json or .toml"),
        ("options", "device: 1", "the suffix of a file of options is '', expected .json or .toml"),
    ],
)
def test_a_file_that_does_not_hold_options_is_refused_by_name(
    name: str, text: str | bytes, words: str, tmp_path: Path
) -> None:
    path = _file(tmp_path, name, text)
    for take in (DelegateOptions.from_file, lambda path: jitdelegate.load(b"", options=path)):
        with pytest.raises(OptionError, match=words) as error:
            take(path)
        assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("name", ["nowhere.json", "nowhere/options.toml", ".", "a\0b.json"])
def test_a_file_that_cannot_be_read_is_refused_by_name(name: str, tmp_path: Path) -> None:
    path = os.path.join(tmp_path, name)
    with pytest.raises(OptionError) as error:
        DelegateOptions.from_file(path)
    assert str(error.value).startswith(f"{path}: the file of options cannot be read: ")


def test_a_model_is_loaded_with_a_file_of_options(tmp_path: Path) -> None:
    settings = {"serialization_dir": str(tmp_path / "cache"), "model_token": "net", "num_threads": 1, "backend": "cpu"}
    path = _file(tmp_path, "options.json", json.dumps({**settings, "cpu_features": "generic"}))
    report = jitdelegate.load(small_models.convolution(), options=path).report()
    assert report.cache.path.startswith(str(tmp_path / "cache" / "net-"))
    assert (report.target, report.threads, report.features) == ("cpu", 1, "generic")


def test_arguments_of_load_win_over_further_options(tmp_path: Path) -> None:
    settings = {"serialization_dir": str(tmp_path / "cache"), "model_token": "net", "backend": "litert"}
    path = _file(tmp_path, "options.json", json.dumps(settings))
    for options in (path, settings):
        model = jitdelegate.load(small_models.convolution(), target="cpu", model_token="other", options=options)
        assert model.report().target == "cpu"
        assert model.report().cache.path.startswith(str(tmp_path / "cache" / "other-"))


def test_options_of_another_kind_are_refused() -> None:
    for options in ([], ["speed"], 3, b"options.json"):
        with pytest.raises(OptionError, match="expected a mapping from names to values, or a file's path"):
            jitdelegate.load(small_models.convolution(), options=options)  # type: ignore[arg-type]


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(_file(tmp_path, "model.tflite", small_models.convolution()))


def test_warming_takes_a_file_of_options_and_its_own_arguments_win(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"serialization_dir": str(tmp_path / "cache"), "model_token": "net", "cpu_features": "generic"}
    path = str(_file(tmp_path, "options.json", json.dumps({**settings, "target": "litert"})))
    assert warm.main([model, "--options", path, "--target", "cpu", "--model-token", "other", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["target"] == "cpu"
    assert result["path"].startswith(str(tmp_path / "cache" / "other-"))
    assert warm.main([model, "--options", path, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["target"] == "litert"
    assert result["path"].startswith(str(tmp_path / "cache" / "net-"))


def test_warming_for_a_gpu_that_is_not_here_takes_a_file_of_options(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    settings = {"serialization_dir": str(tmp_path / "cache"), "target": "litert", "precision": "float16"}
    path = str(_file(tmp_path, "options.json", json.dumps(settings)))
    for further, precision in ((), "float16"), (("--precision", "tf32"), "tf32"):
        assert warm.main([model, "--options", path, "--target", "cuda:sm_90", "--json", *further]) == 0
        (result,) = json.loads(capsys.readouterr().out)
        assert result["target"] == "cuda:sm_90"
        assert read(Path(result["path"]).read_bytes()).part("precision") == precision


def test_warming_refuses_a_wrong_file_of_options(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(_file(tmp_path, "options.toml", "speed = 1"))
    with pytest.raises(SystemExit) as exit:
        warm.main([model, "--options", path])
    assert exit.value.code == 2
    assert f"argument --options: {path}: unknown option speed" in capsys.readouterr().err


def test_a_gpu_that_is_not_there_is_told_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, library(devices=2))
    with pytest.raises(DeviceError, match="device is 'H100', but the devices are named 'Stub 9000', 'Stub 9000'"):
        jitdelegate.load(small_models.convolution(), target="cuda", serialization_dir=False, options={"device": "H100"})
    model = jitdelegate.load(small_models.convolution(), serialization_dir=False, options={"device": "H100"})
    assert any("device is 'H100'" in note for note in model.report().notes)


def limit_of_the_environment() -> str:
    return " ".join(str(DelegateOptions(cache_max_bytes=given).cache_max_bytes) for given in (None, 5, "1K"))


def test_the_environment_limits_the_cache_where_the_option_does_not() -> None:
    assert answer_of(limit_of_the_environment, JITDELEGATE_CACHE_MAX_BYTES="3K") == "3072 5 1024"
    assert answer_of(limit_of_the_environment, JITDELEGATE_CACHE_MAX_BYTES="") == "None 5 1024"
    done = in_child(limit_of_the_environment, JITDELEGATE_CACHE_MAX_BYTES="much")
    assert "JITDELEGATE_CACHE_MAX_BYTES is 'much', expected None, a number of bytes" in done.stderr
