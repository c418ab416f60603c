"""The report: what it knows, as a table and as plain data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.api.report import CacheReport, Report
from jitdelegate.program.program import Operator
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import small_models


def test_a_compiled_model_is_fully_delegated(tmp_path: Path) -> None:
    report = jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path, num_threads=2).report()
    assert report.fully_delegated
    assert [(one.index, one.op, one.place, one.reason) for one in report.operators] == [(0, "CONV_2D", "cpu", "")]
    assert (report.target, report.threads, report.delegated) == ("cpu", 2, 1)
    assert report.kernels >= 1


def test_the_reasons_for_litert_are_per_operator() -> None:
    report = jitdelegate.load(small_models.uncompiled(), serialization_dir=False).report()
    assert not report.fully_delegated
    assert report.delegated == 0
    (operator,) = report.operators
    assert (operator.op, operator.place) == ("FAKE_QUANT", "litert")
    assert operator.reason == "FAKE_QUANT is not supported."


def test_the_stages_are_timed_and_the_cache_counted(tmp_path: Path) -> None:
    cold = jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path / "cache").report()
    assert {"fingerprint", "read", "passes", "generate", "write", "cache", "open"} <= set(cold.seconds)
    warm = jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path / "cache").report()
    assert list(warm.seconds) == ["fingerprint", "cache", "open"]
    assert warm.cache.counters["hits"] == cold.cache.counters["hits"] + 1
    assert warm.cache.path == cold.cache.path
    assert Path(warm.cache.path).is_file()


def test_the_plain_data_go_through_json(tmp_path: Path) -> None:
    report = jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path).report()
    data = json.loads(json.dumps(report.to_dict()))
    assert data["fully_delegated"] is True
    assert data["operators"] == [{"index": 0, "op": "CONV_2D", "place": "cpu", "reason": "", "execution": ""}]
    assert data["cache"]["outcome"] == "miss"


def test_a_directory_that_cannot_be_used_is_told_once_and_holds_no_entry(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path / "file").report()
    assert str(report).count("is not a directory") == 1
    assert report.cache.path == ""


def test_an_entry_that_could_not_be_written_has_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("jitdelegate.runtime.cache.directory.CacheDirectory.write", full)
    report = jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path / "cache").report()
    assert (report.cache.path, report.cache.outcome) == ("", "miss")
    assert "the disk is full" in report.cache.write_failure


def test_neighbours_share_a_line_only_where_place_reason_and_execution_agree() -> None:
    operators = [
        Operator(index=index, op=op, place=place, reason=reason, execution=execution)
        for index, (op, place, reason, execution) in enumerate(
            [
                ("ADD", "cpu", "", ""),
                ("MUL", "cpu", "", ""),
                ("RESHAPE", "folded", "", ""),
                ("X", "litert", "a", ""),
                ("Y", "litert", "b", ""),
                ("ADD", "cpu", "", "integer"),
                ("MUL", "cpu", "", "integer"),
                ("CONV_2D", "cpu", "", "float_view"),
            ]
        )
    ]
    cache = CacheReport(outcome="off", reason="", path="", write_failure="", counters={})
    report = Report(
        target="cpu", features="", threads=1, kernels=1, operators=operators, cache=cache, seconds={}, notes=[]
    )
    assert [line.split() for line in str(report).splitlines()[3:]] == [
        ["0-1", "cpu", "ADD,", "MUL"],
        ["2", "folded", "RESHAPE"],
        ["3", "litert", "X:", "a"],
        ["4", "litert", "Y:", "b"],
        ["5-6", "cpu", "ADD,", "MUL", "(integer)"],
        ["7", "cpu", "CONV_2D", "(float_view)"],
    ]


def test_objects_show_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution())
    model = jitdelegate.load(path, serialization_dir=False)
    assert repr(model) == (
        f"Model('{path}' on cpu: TensorInfo('image', float32[1, 8, 8, 3]) "
        "-> TensorInfo('features', float32[1, 4, 4, 4]))"
    )
    assert repr(model.report()) == "Report(cpu, 1 of 1 operators delegated, cache off)"
    delegate = jitdelegate.GpuDelegate(serialization_dir=False, target="litert")
    assert "GpuDelegate(DelegateOptions(" in repr(delegate) and "target='litert'" in repr(delegate)
    interpreter = jitdelegate.Interpreter(path, experimental_delegates=[delegate])
    assert repr(interpreter) == f"Interpreter('{path}' on litert)"


def two_halves() -> bytes:
    """Signature "double" is compiled; of "rounded", on a subgraph of its own, one operator is LiteRT's."""
    model = ModelBuilder()
    second = model.subgraph("second")
    for number, (key, graph) in enumerate((("double", model), ("rounded", second))):
        value = graph.input((4,), name=key)
        result = graph.op("ADD", [value, value], (4,))
        if graph is second:
            options = {"min": 0.0, "max": 255.0, "num_bits": 8}
            result = graph.op("TANH", [graph.op("FAKE_QUANT", [result], (4,), options=options)], (4,))
        graph.output(result)
        model.signature(key, {"x": value}, {"y": result}, number)
    return model.finish()


def test_a_report_covers_every_signature() -> None:
    with jitdelegate.load(two_halves(), target="cpu", serialization_dir=False) as model:
        (second,) = model.report().subgraphs
        assert (second.number, second.signatures, second.is_open) == (1, ("rounded",), False)
        assert "signature 'rounded': not opened before it runs" in str(model.report())
        assert model.report().fully_delegated
        model.prepare()
        (second,) = model.report().subgraphs
        assert [(one.op, one.place) for one in second.operators][1] == ("FAKE_QUANT", "litert")
        assert not model.report().fully_delegated
        data = json.loads(json.dumps(model.report().to_dict()))["subgraphs"]
        assert [(one["signatures"], len(one["operators"])) for one in data] == [(["rounded"], 3)]
        assert f"{second.delegated} of 3 operators delegated" in str(model.report())
        assert "FAKE_QUANT is not supported." in str(model.report())


def test_litert_s_interpreter_reports_every_signature_too() -> None:
    partial.skip_without_host()
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=False)
    interpreter = LiteRT(model_content=two_halves(), experimental_delegates=[delegate])
    report = delegate.report()
    assert interpreter.num_subgraphs() == 2
    assert report is not None
    assert [(one.number, one.signatures, len(one.operators)) for one in report.subgraphs] == [(1, ("rounded",), 3)]


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        ({"target": "cpu"}, ()),
        ({"target": "cpu", "precision": "float32", "num_threads": 1, "cpu_features": "generic"}, ()),
        ({"target": "cpu", "precision": "float16"}, ("precision",)),
        ({"target": "auto", "stream": 7, "device": "H100", "precision": "tf32"}, ("device", "precision", "stream")),
        ({"target": "cpu", "inference_priority1": "MIN_LATENCY"}, ("inference_priority1",)),
        ({"target": "cpu", "inference_priority2": "MIN_MEMORY_USAGE"}, ()),
        ({"target": "reference", "profile": True, "cpu_features": "generic"}, ("cpu_features", "profile")),
        ({"target": "litert", "only_ops": "ADD", "num_threads": 2}, ("only_ops",)),
        ({"target": "cpu", "only_ops": "ADD"}, ()),
    ],
)
@pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")
def test_options_that_the_target_ignores_are_named(options: dict[str, Any], ignored: tuple[str, ...]) -> None:
    report = jitdelegate.load(small_models.convolution(), serialization_dir=False, **options).report()
    assert report.ignored_options == ignored
    assert report.to_dict()["ignored_options"] == list(ignored)
    line = f"\nignored    the option{'s' if len(ignored) > 1 else ''} {', '.join(ignored)}\n"
    assert (line in str(report)) == bool(ignored)
    assert ("ignored" in str(report)) == bool(ignored)


def test_printing_gives_a_table_with_target_cache_stages_and_reasons() -> None:
    text = str(jitdelegate.load(small_models.uncompiled(), serialization_dir=False).report())
    assert "litert" in text
    assert "0 of 1 delegated" in text
    assert "off" in text
    assert "fingerprint" in text
    assert "FAKE_QUANT is not supported." in text
