"""Arguments of all commands: files that are not there, and flags of LiteRT's tools that change nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cache_tools.__main__ as cache_tools
from jitdelegate.commands import analyze, benchmark, demo, diff, replay, warm
from jitdelegate.commands.run_arguments import PASSED_OVER
from tests.api import small_models

SHORT = ["--num_runs=2", "--min_secs=0", "--warmup_min_secs=0", "--startup_runs=0", "--num_threads=1"]
Main = Callable[[list[str]], int]
ON_A_FILE: list[tuple[Main, list[str]]] = [
    *((command.main, []) for command in (warm, analyze, benchmark, diff, demo, replay)),
    (warm.main, ["--target", "cuda:sm_90"]),
    *((cache_tools.main, [name]) for name in ("ls", "show", "verify", "stats", "repair", "import", "rm", "explain")),
    (cache_tools.main, ["export", "out.tar"]),
]


def status(main: Main, arguments: list[str]) -> object:
    try:
        return main(arguments)
    except SystemExit as end:  # of argparse
        return end.code


@pytest.mark.parametrize(("main", "arguments"), ON_A_FILE)
def test_a_file_that_is_not_there_exits_with_2(
    main: Main, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = str(tmp_path / "nowhere.tflite")
    given = [*arguments, nowhere, nowhere] if arguments == ["explain"] else [*arguments, nowhere]
    assert status(main, given) == 2
    told = capsys.readouterr()
    assert nowhere in told.err
    assert "[Errno" not in told.err + told.out
    assert "Traceback" not in told.err


def test_files_that_are_not_there_stop_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, nowhere, bad = (str(tmp_path / name) for name in ("good.tflite", "nowhere.tflite", "bad.tflite"))
    Path(good).write_bytes(small_models.two_outputs())
    Path(bad).write_bytes(b"nonsense")
    assert warm.main([nowhere, bad, good, f"--serialization-dir={tmp_path / 'cache'}"]) == 2
    assert f"{good}: compiled" in capsys.readouterr().out
    assert analyze.main([nowhere, bad, good, "--target=cpu"]) == 2
    assert "2 of 2 delegated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"nonsense", "it is no .npz file"),
        (b"", "it is no .npz file"),
        (b"PK\x03\x04" + bytes(40), "it is no .npz file"),
    ],
)
def test_replay_says_in_words_what_is_no_kernel(
    content: bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernel.npz"
    path.write_bytes(content)
    assert replay.main([str(path)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"{path} holds no graph: ") and told in shown and shown.count("\n") == 1
    assert "pickle" not in shown


def test_replay_of_a_folder_without_kernels_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path}: it has no .npz files, expected a folder of a dump's kernels\n"


@pytest.mark.parametrize("arguments", [["--seed=-1"], ["--runs=-1"], ["--runs=x"]])
def test_replay_and_diff_refuse_numbers_below_0(arguments: list[str], tmp_path: Path) -> None:
    assert status(replay.main, [str(tmp_path), *arguments]) == 2
    if arguments[0].startswith("--seed"):
        (tmp_path / "m.tflite").write_bytes(small_models.two_outputs())
        assert status(diff.main, [str(tmp_path / "m.tflite"), *arguments]) == 2


def test_flags_of_benchmark_model_that_change_nothing_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(small_models.two_outputs())
    given = ["--use_xnnpack", "--use_nnapi=false", "--external_delegate_path", "/a.so", "--print_preinvoke_state=1"]
    given += ["--use-caching", "--cpu_mask=f0", "--model_runtime_info_output_file=/nowhere/x"]
    assert benchmark.main([str(model), *given, *SHORT]) == 0
    names = "--cpu_mask, --external_delegate_path, --model_runtime_info_output_file, --print_preinvoke_state, "
    names += "--use_caching, --use_nnapi, --use_xnnpack"
    assert capsys.readouterr().err == f"without effect here: {names}\n"
    assert diff.main([str(model), "--use_xnnpack=true", "--num_runs=1"]) == 0
    assert capsys.readouterr().err == "without effect here: --use_xnnpack\n"
    with pytest.raises(SystemExit):
        benchmark.main([str(model), "--use_xnnpack=perhaps"])


def test_every_known_flag_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(small_models.two_outputs())
    assert benchmark.main([str(model), *(f"--{name}=1" for name in PASSED_OVER), *SHORT]) == 0
    assert capsys.readouterr().err.count("--") == len(PASSED_OVER)


def test_flags_about_nodes_and_precision_are_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, facts = tmp_path / "m.tflite", tmp_path / "facts.json"
    model.write_bytes(small_models.two_outputs())
    ranges = ["--first_delegate_node_index=1", "--last_delegate_node_index=0", "--allow_fp16", "--benchmark_name=mine"]
    assert benchmark.main([str(model), *ranges, f"--result_json={facts}", *SHORT]) == 0
    told = capsys.readouterr()
    assert "will not be executed by the delegate" in told.out
    assert "Allow fp16: [1]\n" in told.out
    assert "Benchmark name: [mine]\n" in told.out
    assert told.err == ""


def test_the_result_file_is_benchmark_model_s_proto(tmp_path: Path) -> None:
    model, path = tmp_path / "m.tflite", tmp_path / "result.pb"
    model.write_bytes(small_models.two_outputs())
    assert benchmark.main([str(model), f"--result_file_path={path}", "--benchmark_name=mine", *SHORT]) == 0
    result = dict(fields(path.read_bytes()))
    assert result[1] == b"mine"
    latency, memory, rest = (dict(fields(result[number])) for number in (2, 3, 4))
    assert [*latency] == [*range(1, 11)]
    assert latency[2] <= latency[5] <= latency[3]
    assert [*memory] == [1, 2, 3]
    assert (rest[1], rest[2]) == (pytest.approx(model.stat().st_size / 1e6), 2)
    assert [*rest] == [1, 2, 3, 4]


def fields(content: bytes) -> Iterator[tuple[int, float | int | bytes]]:
    """(number, value) of a message's fields; numbers of one byte and floats only."""
    at = 0
    while at < len(content):
        number, kind, at = content[at] >> 3, content[at] & 7, at + 1
        if kind == 5:
            yield number, struct.unpack_from("<f", content, at)[0]
            at += 4
            continue
        value = shift = 0
        while True:
            value |= (content[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if content[at - 1] < 128:
                break
        if kind == 2:
            yield number, content[at : at + value]
            at += value
        else:
            yield number, value
