"""python -m jitdelegate.benchmark: benchmark_model's lines and flags, counts, tables and files."""

from __future__ import annotations

import contextlib
import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import jitdelegate
from jitdelegate.base import tables
from jitdelegate.commands import analyze, benchmark, diff, warm
from jitdelegate.commands.measurement.statistics import Statistics
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models, small_models
from tests.gpu.stub import compiler as stub_compiler
from tests.gpu.stub.compiler import Compiler
from tests.gpu.stub.library import OUT_OF_MEMORY, Library

SHORT = ["--num_runs=4", "--min_secs=0", "--warmup_min_secs=0", "--startup_runs=0", "--num_threads=1"]
NUMBER = r"[-+.e\d]+"


def test_the_lines_are_benchmark_model_s(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main([f"--graph={model}", "--warmup-runs", "2", "--report_peak_memory_footprint", *SHORT]) == 0
    text = capsys.readouterr().out
    patterns = (
        r"STARTING!",
        r"Log parameter values verbosely: \[0\]",
        r"Min num runs: \[4\]",
        rf"Graph: \[{re.escape(model)}\]",
        rf"Loaded model {re.escape(model)}",
        r"Explicitly applied jitdelegate delegate, and the model graph will be completely executed by the delegate\.",
        rf"The input model file size \(MB\): {NUMBER}",
        rf"Initialized session in {NUMBER}ms\.",
        r"Running benchmark for at least 2 iterations and at least 0 seconds but terminate if exceeding 150 seconds\.",
        r"count=2 [^\n]+",
        r"Running benchmark for at least 4 iterations and at least 0 seconds but terminate if exceeding 150 seconds\.",
        r"count=4 [^\n]+",
        rf"Inference timings in us: Init: \d+, First inference: \d+, Warmup \(avg\): {NUMBER}, "
        rf"Inference \(avg\): {NUMBER}",
        rf"Memory footprint delta from the start of the tool \(MB\): init={NUMBER} overall={NUMBER}",
        rf"Overall peak memory footprint \(MB\) via periodic monitoring: {NUMBER}",
    )
    assert re.search(r"\n(?:.*\n)*?".join(patterns), text), text


def test_dry_run_runs_nothing(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main([model, "--dry_run", *SHORT]) == 0
    assert capsys.readouterr().out.count("count=0\n") == 2


@pytest.mark.filterwarnings("default")
def test_a_gpu_that_fails_is_told_of(
    tmp_path: Path, compiler: Compiler, gpu: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler.output, path = stub_compiler.OUTPUT, tmp_path / "model.tflite"
    path.write_bytes(stub_compiler.scale_and_shift_model())
    gpu.fail("cuGraphLaunch", OUT_OF_MEMORY)
    assert benchmark.main([str(path), f"--result_json={tmp_path / 'r.json'}", *SHORT]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["accelerators"] == ["cpu"]
    assert "model.tflite' runs on the CPU: cuGraphLaunch failed with" in capsys.readouterr().err


def test_statistics_are_in_the_words_of_benchmark_model() -> None:
    micro = 1e-6
    seconds = tuple(micro * (each + 0.01) for each in (40, 10, 30, 20))
    assert Statistics(seconds).line() == "count=4 first=40 curr=20 min=10 max=40 avg=25 std=11 p5=12 median=25 p95=38"
    assert Statistics(seconds[:1]).line() == "count=1 curr=40"
    assert Statistics(()).line() == "count=0"
    assert Statistics(seconds).to_dict()["p99_us"] == pytest.approx(39.71)


def test_the_profile_counts_every_kernel_and_operator(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "partial.tflite").write_bytes(partial_models.alternating())
    options = tmp_path / "options.json"
    options.write_text(json.dumps({"partitioning": "all", "only_ops": partial_models.ONLY}))
    for path in (model, str(tmp_path / "partial.tflite")):
        files = [f"--{name}={tmp_path / name}" for name in ("result_json", "trace", "op_profiling_output_file")]
        arguments = [
            path,
            "--enable_op_profiling=true",
            "--op_profiling_output_mode=csv",
            *files,
            f"--options={options}",
        ]
        assert benchmark.main([*arguments, *SHORT]) == 0
        report = jitdelegate.load(path, profile=True, num_threads=1, options=options).report()
        facts = json.loads((tmp_path / "result_json").read_text())
        kernels = [node for node in facts["profile"] if node["type"] != "LITERT"]
        assert len(kernels) == len(report.kernel_times)
        covered = {index for node in facts["profile"] for index in node["operators"]}
        assert covered == {one.index for one in report.operators}
        rows = list(csv.reader((tmp_path / "op_profiling_output_file").open(), skipinitialspace=True))
        assert [f"Number of nodes executed: {len(facts['profile'])}"] in rows
        assert [row[0] for row in rows[2 : 2 + len(facts["profile"])]] == [node["type"] for node in facts["profile"]]
        events = json.loads((tmp_path / "trace").read_text())["traceEvents"]
        names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        assert sum(names.get(event["tid"]) == "runs" and event["ph"] == "X" for event in events) == 4
        of_kernels = [event for event in events if "kernels" in names.get(event["tid"], "") and event["ph"] == "X"]
        assert len(of_kernels) == 4 * len(facts["profile"])
        assert facts["latency"]["num_runs"] == 4
    text = capsys.readouterr().out
    assert re.search(r"partially executed by the delegate w/ \d delegate kernels\.", text)


def test_sides_take_turns_and_starts_are_cold_and_warm(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.json"
    arguments = [model, "--compare=litert,reference", f"--result_json={out}", *SHORT, "--startup_runs=1"]
    assert benchmark.main(arguments) == 0
    facts = json.loads(out.read_text())
    assert {name: each["count"] for name, each in facts["sides"].items()} == dict.fromkeys(
        ("jitdelegate", "litert", "reference"), 4
    )
    assert [*facts["starts"]] == ["cold", "warm", "litert"]
    assert {name: each["cache"] for name, each in facts["starts"].items()} == {
        "cold": "miss",
        "warm": "hit",
        "litert": "",
    }
    text = capsys.readouterr().out
    assert re.search(r"\nmicroseconds a run +jitdelegate +litert +reference\n", text)
    assert re.search(r"\nnumber of runs +4 +4 +4\n(.*\n)*p99 ", text)


def test_openvino_that_is_not_there_is_one_sentence(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    assert benchmark.main([model, "--compare=openvino", *SHORT]) == 1
    assert capsys.readouterr().err == "OpenVINO is not installed: pip install openvino\n"


def test_inputs_have_benchmark_model_s_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out, values = tmp_path / "m.tflite", tmp_path / "out.bin", tmp_path / "values.bin"
    model.write_bytes(small_models.moved("int32"))
    (info,) = jitdelegate.load(str(model), serialization_dir=False).inputs
    shape = ",".join(map(str, info.shape))
    arguments = [str(model), "--input_layer=a:b", f"--input_layer_shape={shape}", f"--output_filepath={out}", *SHORT]
    content = np.arange(np.prod(info.shape), dtype=np.int32).tobytes()
    values.write_bytes(content)
    assert benchmark.main([*arguments, f"--input_layer_value_files=a::b:{values}"]) == 0
    assert sorted(out.read_bytes()) == sorted(content)
    arguments[1] = "--input_layer=a"
    assert benchmark.main([*arguments, "--input_layer_value_range=a,7,7"]) == 0
    assert {*np.frombuffer(out.read_bytes(), np.int32)} == {7}
    for wrong, told in (
        ("--input_layer_value_range=a,7,6", "7 is above 6"),
        ("--input_layer_value_range=b,6,7", "names 'b', but --input_layer names ['a']"),
        ("--input_layer=a,b", "--input_layer names 2 inputs"),
        ("--input_layer_value_files=a:/nowhere.bin", "could not read '/nowhere.bin'"),
    ):
        assert benchmark.main([*arguments, wrong]) == 2
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["/nowhere.tflite"], ["m", "--graph=n"], ["--use_gpu=maybe"], ["--compare=tpu"]),
        *(["--num_runs=x"], ["--num_runs=-3"], ["--max_secs=-1"], ["--min_secs=nan"]),
    ],
)
def test_wrong_arguments_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        benchmark.main(arguments)
    assert end.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_directory_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark.main([str(tmp_path)])
    assert f"Could not open '{tmp_path}': it is no file" in capsys.readouterr().err


def test_there_is_at_least_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(small_models.two_outputs())
    assert benchmark.main([str(model), *SHORT, "--num_runs=0", "--max_secs=0"]) == 0
    assert "count=1 " in capsys.readouterr().out


def test_control_characters_of_a_model_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, model, evil = tmp_path / "model.tflite", ModelBuilder(), "\x1b]0;mine\x07"
    x = model.input((1, 4), name=f"x{evil}")
    y = model.op("TANH", [x], (1, 4))
    model.output(y)
    model.signature(f"s{evil}", {f"a{evil}": x}, {"b": y})
    path.write_bytes(model.finish())
    for main, arguments in (
        (benchmark.main, ["--list_signatures"]),
        (benchmark.main, [f"--signature_to_run_for=s{evil}", *SHORT]),
        (benchmark.main, [f"--signature_to_run_for=no{evil}", *SHORT]),
        (diff.main, ["--num_runs=1"]),
        (analyze.main, []),
        (warm.main, [f"--serialization-dir={tmp_path}/programs"]),
    ):
        with contextlib.suppress(SystemExit):  # of argparse
            main([str(path), *arguments])
        output = capsys.readouterr()
        assert "\x1b" not in output.out + output.err and "\x07" not in output.out + output.err, arguments
    tables.complain(f"x{evil}\ty\nz")
    assert capsys.readouterr().err == "x\\x1b]0;mine\\x07\ty\nz\n"


def test_signatures_are_listed_and_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(small_models.two_signatures())
    assert benchmark.main([str(model), "--list_signatures"]) == 0
    keys = re.findall("-> Signature Key: (.*)", capsys.readouterr().out)
    assert len(keys) == 2
    for key in keys:
        assert benchmark.main([str(model), f"--signature_to_run_for={key}", "--compare=litert", *SHORT]) == 0
        assert f"Using signature: {key}" in capsys.readouterr().out
