"""python -m jitdelegate.analyze: its verdict is the runtime's, and all that it writes can be trusted."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jitdelegate
from jitdelegate.api import delegate_warning
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import analyze
from jitdelegate.commands.analysis.survey import analyze as survey
from jitdelegate.errors import JitDelegateError
from tests.api import small_models
from tests.api.test_real_models import MODELS
from tests.commands.analysis import analyzed_models
from tests.conftest import SHARED

REAL = Path(os.environ.get("JITDELEGATE_TEST_MODELS", SHARED / "models")) / "real"
NAMES = sorted({path.stem for path in REAL.glob("*.tflite")} - {Path(name).stem for name in MODELS})
SAMPLE = random.Random(0).sample(NAMES, min(24, len(NAMES))) or [""]
"""Models that CI looks at beside those that `test_real_models.py` runs; scripts/check_models.py looks at all."""


def write(content: bytes, folder: Path) -> str:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return str(path)


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What --json prints of a model that can be analysed."""
    assert analyze.main([*arguments, "--json", "-"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")
@pytest.mark.parametrize("name", SAMPLE)
def test_the_verdict_on_a_real_model_is_what_load_does(models: Path, name: str) -> None:
    path = str(models / f"real/{name}.tflite")
    options: dict[str, Any] = {"serialization_dir": False, "num_threads": 1}
    try:
        found = survey(path, DelegateOptions(**options))
    except JitDelegateError as error:
        with pytest.raises(type(error)) as raised:
            jitdelegate.load(path, **options)
        assert str(raised.value) == str(error)
        return
    with jitdelegate.load(path, **options) as model:
        report = model.report()
    analyzed_models.assert_foretold(found, report)


def test_a_model_that_is_compiled_whole_is_one_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, write(small_models.convolution(signature=True), tmp_path), "--target", "cpu")
    (subgraph,) = found["subgraphs"]
    (node,) = subgraph["nodes"]
    assert (found["asked"], subgraph["target"], subgraph["how"]) == ("cpu", "cpu", "compiled whole")
    assert subgraph["signatures"] == ["serve"]
    assert (node["op"], node["delegated"], node["place"], node["reason"]) == ("CONV_2D", True, "cpu", "")
    assert (node["partition"], node["kernel"], node["version"], node["custom"]) == (0, "Contract", 1, False)
    assert node["multiply_adds"] == 4 * 4 * 4 * 3 * 3 * 3
    assert node["bytes"] == 4 * (8 * 8 * 3 + 4 * 27 + 4 + 4 * 4 * 4)
    image, weights, _ = node["inputs"]
    assert (image["name"], image["shape"], image["type"]) == ("image", [1, 8, 8, 3], "float32")
    assert (image["constant"], weights["constant"], weights["quantized"]) == (False, True, False)
    (partition,) = subgraph["partitions"]
    assert (partition["nodes"], partition["multiply_adds"]) == ([0], node["multiply_adds"])
    assert partition["crossing_bytes"] == 4 * (8 * 8 * 3 + 4 * 4 * 4)
    totals = subgraph["totals"]
    assert (totals["operators"], totals["delegated"], totals["litert"]) == (1, 1, 0)
    assert (totals["share_of_work_delegated"], totals["crossing_bytes"]) == (1.0, 0)
    assert totals["saved_seconds_estimate"] == partition["saved_seconds_estimate"] > 0


def test_the_documented_names_are_those_of_the_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, write(small_models.quantized_by_channel(), tmp_path), "--target", "cpu")
    documented = set((analyze.__doc__ or "").replace(",", " ").replace(":", " ").split())
    names: set[str] = set()
    pending: list[Any] = [found]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            names |= each.keys()
            pending += each.values()
        elif isinstance(each, list):
            pending += each
    assert names - documented == set()
    assert {"schema", "crossing_bytes", "why"} <= names


def test_an_integer_model_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(small_models.integers_and_floats("int8"), tmp_path)
    (subgraph,) = facts(capsys, path, "--target", "cpu")["subgraphs"]
    ways = {node["op"]: node["execution"] for node in subgraph["nodes"]}
    assert (ways["CONV_2D"], ways["TANH"]) == ("integer", "")
    work = [
        sum(node["multiply_adds"] for node in subgraph["nodes"] if node["execution"] in way)
        for way in (("integer",), ("integer", ""))
    ]
    assert subgraph["totals"]["share_of_work_in_integers"] == work[0] / work[1] > 0.9
    analyze.main([path, "--target", "cpu"])
    assert " % in integers" in capsys.readouterr().out


def test_a_model_in_partitions_says_what_crosses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = tmp_path / "options.toml"
    options.write_text('only_ops = "CONV_2D"\npartitioning = "all"')
    path = write(analyzed_models.in_partitions(), tmp_path)
    (subgraph,) = facts(capsys, path, "--target", "cpu", "--options", str(options))["subgraphs"]
    assert subgraph["loader"] == "partitions"
    assert [node["place"] for node in subgraph["nodes"]] == ["cpu", "litert", "cpu"]
    assert [node["partition"] for node in subgraph["nodes"]] == [0, 1, 2]
    assert subgraph["nodes"][1]["reason"] == "It is none of only_ops, CONV_2D."
    size = 4 * analyzed_models.ELEMENTS
    assert subgraph["totals"]["crossing_bytes"] == 2 * size
    assert [partition["place"] for partition in subgraph["partitions"]] == ["cpu", "litert", "cpu"]
    assert [partition["saved_seconds_estimate"] is None for partition in subgraph["partitions"]] == [False, True, False]
    assert subgraph["totals"]["places"]["cpu"]["partitions"] == 2
    assert 0.9 < subgraph["totals"]["share_of_work_delegated"] <= 1.0


def test_subgraphs_that_signatures_enter_have_verdicts_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = facts(capsys, write(small_models.two_signatures(), tmp_path), "--target", "cpu")
    shown = [(each["index"], each["entry"], each["signatures"], each["target"]) for each in found["subgraphs"]]
    assert shown == [(0, "main", ["double"], "cpu"), (1, "signature", ["triple"], "cpu")]


@pytest.mark.skipif(sys.platform != "linux", reason="LiteRT's interpreter takes compiled code on Linux only")
def test_loops_on_litert_show_what_is_compiled_inside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = tmp_path / "options.json"
    options.write_text('{"partitioning": "all"}')
    path = write(analyzed_models.loop(), tmp_path)
    found = facts(capsys, path, "--target", "cpu", "--options", str(options))
    main, *others = found["subgraphs"]
    assert (main["loader"], [node["place"] for node in main["nodes"]]) == ("delegate", ["cpu", "litert"])
    assert main["totals"]["crossing_bytes"] == 4 * 2 * 3
    assert [(each["index"], each["entry"]) for each in others] == [(1, "control flow"), (2, "control flow")]
    assert {node["place"] for each in others for node in each["nodes"]} >= {"cpu"}
    with pytest.warns(jitdelegate.DelegateWarning), jitdelegate.load(path, target="cpu", options=str(options)) as model:
        assert [one.place for one in model.report().operators] == [node["place"] for node in main["nodes"]]


def test_an_analysis_leaves_the_warning_to_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegate_warning, "_announced", set())
    path = write(small_models.uncompiled(), tmp_path)
    heard: list[object] = []
    stop = jitdelegate.on_message(heard.append)
    try:
        assert analyze.main([path, "--target", "cpu"]) == 0
    finally:
        stop()
    assert heard == []
    with pytest.warns(jitdelegate.DelegateWarning, match="FAKE_QUANT"):
        jitdelegate.load(path, target="cpu", serialization_dir=False).close()


def test_no_cache_is_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze.main([write(small_models.convolution(), tmp_path), "--target", "cpu"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]


def test_the_text_groups_operators_and_ends_with_suggestions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze.main([write(small_models.quantized_by_channel(), tmp_path), "--target", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "operators  0 of 1 delegated; 1 on LiteRT" in lines
    rows = [line.split(maxsplit=3) for line in lines[lines.index("suggestions") - 4 :]]
    assert rows[0] == ["operators", "where", "names", "why there"]
    assert rows[2] == ["0", "litert", "QUANTIZE", "'stored' has 4 scales, expected one."]
    assert lines[lines.index("suggestions") + 1].endswith("[quantized: operators 0]")


def test_auto_follows_load_to_the_cpu_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(small_models.convolution(), tmp_path)
    found = facts(capsys, path)
    with jitdelegate.load(path, serialization_dir=False) as model:
        assert found["subgraphs"][0]["target"] == model.report().target
        assert found["notes"] == list(model.report().notes)


HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\"'&]]>-->"


def test_names_of_the_model_move_no_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze.main([write(analyzed_models.named(HOSTILE), tmp_path), "--target", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "\\x1b[2J" in shown
    assert not {"\x1b", "\u202e"} & set(shown)


def test_json_may_go_to_a_file_beside_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "facts.json"
    assert analyze.main([write(small_models.two_outputs(), tmp_path), "--target", "cpu", "--json", str(target)]) == 0
    assert "2 of 2 delegated" in capsys.readouterr().out
    assert json.loads(target.read_text())["subgraphs"][0]["totals"]["delegated"] == 2


def test_what_cannot_be_opened_ends_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = str(tmp_path / "nowhere.tflite")
    assert analyze.main([nowhere]) == 2
    assert capsys.readouterr().err == f"{nowhere}: Could not open '{nowhere}': No such file or directory\n"
    bad = write(b"nonsense", tmp_path)
    assert analyze.main([bad]) == 1
    assert "not a .tflite file" in (told := capsys.readouterr().err) or "model" in told
    assert told.count("\n") == 1


def test_several_models_are_one_text_and_one_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / name) for name in ("first.tflite", "second.tflite")]
    for path, make in zip(paths, (small_models.two_outputs, small_models.quantized), strict=True):
        Path(path).write_bytes(make())
    target = tmp_path / "facts.json"
    assert analyze.main([*paths, "--target", "cpu", "--json", str(target)]) == 0
    found = json.loads(target.read_text())
    assert [each["model"] for each in found] == paths
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("in short")] == [
        f"in short   {each['headline']}" for each in found
    ]


def test_models_that_are_refused_are_told_of_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = (small_models.custom(), b"nonsense", small_models.two_outputs())
    paths = [str(tmp_path / f"{number}.tflite") for number in range(4)]
    for path, content in zip(paths, contents, strict=False):
        Path(path).write_bytes(content)
    data, shown = tmp_path / "facts.json", tmp_path / "page.html"
    assert analyze.main([*paths, "--target", "cpu", "--json", str(data), "--html", str(shown)]) == 2
    custom, nonsense, good, absent = json.loads(data.read_text())
    told = capsys.readouterr()
    assert told.err.splitlines() == [f"{each['model']}: {each['error']}" for each in (custom, nonsense, absent)]
    assert "Nonesuch" in custom["error"]
    assert [node["place"] for node in custom["subgraphs"][0]["nodes"]] == ["litert"]
    assert (nonsense["subgraphs"], nonsense["bytes"], absent["bytes"]) == ([], 8, 0)
    assert (good["error"], len(good["subgraphs"])) == ("", 1)
    for each in (custom, nonsense, absent):
        assert each["headline"].startswith(f"The model is refused: {each['error']}")
        assert each["headline"] in told.out
    assert shown.read_text().count("The model is refused") == 2 * 3


def test_an_output_that_cannot_be_written_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = str(tmp_path / "nowhere" / "facts.json")
    assert analyze.main([write(small_models.two_outputs(), tmp_path), "--target", "cpu", "--json", nowhere]) == 1
    assert f"could not write '{nowhere}'" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no file that is always full")
def test_a_full_disk_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze.main([write(small_models.two_outputs(), tmp_path), "--target", "cpu", "--html", "/dev/full"]) == 1
    assert capsys.readouterr().err == "could not write '/dev/full': No space left on device\n"


WRONG_ARGUMENTS = [
    [],
    ["m", "n", "--model-explorer", "data.json"],
    ["m", "--target", "tpu"],
    ["m", "--target", "cpu:sm_80"],
    ["m", "--target", "cuda:sm_1"],
    ["m", "--target", "cuda:sm_90:0"],
    ["m", "--target", "cuda:all"],
    ["m", "--options", "nowhere.json"],
]


@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS)
def test_wrong_arguments_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        analyze.main(arguments)
    assert exit.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_gpu_s_compilers_are_asked_for_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitdelegate.runtime.cuda.toolchain.installed_toolchain", lambda: "")
    assert analyze.main([write(small_models.two_outputs(), tmp_path), "--target", "cuda:sm_90"]) == 1
    told = capsys.readouterr().err
    assert told.endswith(
        "target is 'cuda:sm_90', but its compilers are not installed: install jitdelegate's extra cuda\n"
    )


def test_it_works_as_a_command_and_survives_a_reader_that_goes_away(tmp_path: Path) -> None:
    path = write(small_models.two_outputs(), tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "jitdelegate.analyze", path, "--target", "cpu"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
