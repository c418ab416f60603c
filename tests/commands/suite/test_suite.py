"""benchmark --suite: rows, means, files and marks, with fake runtimes and a clock that they move."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import benchmark, benchmark_suite
from jitdelegate.commands.measurement import timing
from jitdelegate.commands.measurement.entry import Entry
from jitdelegate.commands.measurement.side import Side
from jitdelegate.commands.suite import figures, machine_state
from jitdelegate.commands.suite.job import Job, Measured, measure
from jitdelegate.commands.suite.machine_state import Calibration
from jitdelegate.commands.suite.plot import LEFT, RIGHT
from jitdelegate.errors import DeviceError
from tests.api import small_models
from tests.commands.suite.fake_sides import FakeSide

SECONDS = {"jitdelegate": 0.001, "litert": 0.002, "openvino": 0.004}
LOOP = 0.002


class Machine:
    """Time that passes only while something runs, and the model that is measured."""

    def __init__(self, stat: Path) -> None:
        self.now, self.model, self.slowdown, self.others = 0.0, "", dict[str, float](), dict[str, float]()
        self._stat, self._busy = stat, 0.0
        self.work(0.0)

    def work(self, seconds: float) -> None:
        """Run for so long; others run besides, by the model."""
        self.now += seconds
        self._busy += seconds * self.others.get(self.model, 0.0)
        self._stat.write_text(f"cpu  {round(self._busy * 100)} 0 0 999 0 0 0 0 0 0\ncpu0 0\n")

    def run_loop(self) -> None:
        """The calibrating loop."""
        self.work(LOOP * self.slowdown.get(self.model, 1.0))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """With fake sides; "broken.tflite" is nothing for OpenVINO."""
    made = Machine(tmp_path / "stat")
    clock = SimpleNamespace(perf_counter=lambda: made.now, process_time=lambda: 0.0)
    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(timing, "SETTLE", 0.0)
    monkeypatch.setattr(machine_state, "time", clock)
    monkeypatch.setattr(machine_state, "STAT", tmp_path / "stat")
    monkeypatch.setattr(machine_state.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(Calibration, "run", lambda self: made.run_loop())
    monkeypatch.setattr(benchmark_suite, "is_installed", lambda name: name == "openvino")
    monkeypatch.setattr(benchmark_suite, "multiply_speed", lambda kind: 1e9)
    monkeypatch.setattr(benchmark_suite, "read_speed", lambda threads: 1e9)

    def open_side(name: str, entry: Entry, options: DelegateOptions, threads: int) -> Side:
        if (name, made.model) == ("openvino", "broken.tflite"):
            raise DeviceError("OpenVINO cannot run this model: it is broken")
        return FakeSide(name, entry, lambda: made.work(SECONDS[name]))

    def measured(job: Job) -> Measured:
        made.model = Path(job.model).name
        return measure(job, open_side)

    monkeypatch.setattr(benchmark_suite, "measure_in_process", measured)
    monkeypatch.setattr("jitdelegate.commands.suite.job._profile", lambda *_: None)
    return made


@pytest.fixture
def suite(tmp_path: Path) -> Callable[..., int]:
    """The command, on a folder of models with these names."""

    def run(*names: str, arguments: tuple[str, ...] = ()) -> int:
        folder = tmp_path / "models"
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / name).write_bytes(small_models.convolution())
        return benchmark.main(["--suite", str(folder), "--min_secs=0.5", "--num-runs", "4", *arguments])

    return run


def rows_of(text: str) -> list[list[str]]:
    """The first words of the lines of rows: model, threads, side."""
    return [line.split()[:3] for line in text.splitlines() if re.match(r"\S+\.tflite ", line)]


def test_each_side_of_each_model_is_a_line(
    machine: Machine, suite: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    assert suite("a.tflite", "deep/broken.tflite", arguments=("--json", str(out))) == 0
    text = capsys.readouterr().out
    names = ("a.tflite", "deep/broken.tflite")
    expected = [[name, count, side] for name in names for count in "12" for side in SECONDS]
    assert rows_of(text) == expected
    assert "ONNX Runtime is not installed: pip install onnxruntime\n" in text
    assert text.count("OpenVINO cannot run this model: it is broken") == 2
    assert "not measured: 2 sides of rows" in text
    assert "disturbed" not in text
    rows = json.loads(out.read_text())["rows"]
    assert [(row["model"], row["threads"]) for row in rows] == [(name, count) for name in names for count in (1, 2)]
    assert rows[0]["better"] == "litert"
    assert rows[0]["against_better"]["ratio"] == pytest.approx(2.0)
    assert rows[0]["sides"]["openvino"]["ratio"] == pytest.approx(4.0)
    assert rows[0]["sides"]["jitdelegate"]["ms"] == pytest.approx(1.0)
    assert rows[2]["sides"]["openvino"] == {"reason": "OpenVINO cannot run this model: it is broken"}


def test_means_are_of_each_side_and_of_small_and_large_models_apart(
    machine: Machine, suite: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SECONDS, "jitdelegate", 0.00005)
    assert suite("a.tflite", "broken.tflite", arguments=("--threads", "1")) == 0
    text = capsys.readouterr().out
    means = [line.split() for line in text.partition("their time over ours")[2].splitlines()]
    assert [each for each in means if each[:2] == ["1", "openvino"]] == [
        [*("1", "openvino", "all"), "1", "80.000", "80.000", "80.000", "a.tflite"],
        [*("1", "openvino", "under", "0.1", "ms"), "1", "80.000", "80.000", "80.000", "a.tflite"],
    ]
    assert [each[-5] for each in means if each[:4] == ["1", "the", "better", "one"]] == ["2", "2"]


@pytest.mark.parametrize(
    ("slowdown", "others", "sign"),
    [
        (1.5, 0.0, "the calibrating loop took 50% longer than at best"),
        (1.0, 0.4, "others took 20% of the CPUs"),
    ],
)
def test_rows_of_a_disturbed_machine_are_marked(
    machine: Machine,
    suite: Callable[..., int],
    slowdown: float,
    others: float,
    sign: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    machine.slowdown["b.tflite"], machine.others["b.tflite"] = slowdown, others
    svg = ("--threads=1", "--svg", str(tmp_path / "s.svg"))
    assert suite("a.tflite", "b.tflite", "c.tflite", arguments=svg) == 0
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines() if ".tflite *" in line] == ["b.tflite"] * 3
    assert text.endswith(
        f"disturbed, and marked *: 1 of 3 rows; measure them again on a quiet machine\n  b.tflite, threads 1: {sign}\n"
    )
    dots = ElementTree.fromstring((tmp_path / "s-dark.svg").read_text()).findall("{*}circle")
    assert ["opacity" in dot.attrib for dot in dots] == [False] * 4 + [True] * 2 + [False] * 2


def test_rounds_that_differ_are_a_sign_too(
    machine: Machine, suite: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = iter(range(1 << 20))
    monkeypatch.setattr(FakeSide, "_run", lambda self: machine.work(0.001 * (1 + next(runs) % 5)))
    assert suite("a.tflite", arguments=("--threads", "1")) == 0
    assert "a.tflite, threads 1: half of our rounds spread over " in capsys.readouterr().out


def test_the_picture_has_a_dot_for_each_ratio(
    machine: Machine, suite: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite("a.tflite", "broken.tflite", arguments=("--svg", str(tmp_path / "s.svg"), "--threads", "1")) == 0
    plain = set[str]()
    for scheme in ("light", "dark"):
        text = (tmp_path / f"s-{scheme}.svg").read_text()
        plain.add(re.sub(r"#[0-9a-f]{6}", "", text))
        dots = ElementTree.fromstring(text).findall("{*}circle")
        # of the legend; litert 2, openvino 4, and litert 2 again on an axis from 1/2 to 4
        assert [float(dot.attrib["cx"]) for dot in dots[2:]] == pytest.approx(
            [LEFT + (RIGHT - LEFT) * part for part in (2 / 3, 1, 2 / 3)], abs=0.1
        )
    assert len(plain) == 1


def test_shares_are_of_the_time_that_the_machine_needs_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "multiply_speed", {"float32": 1e9, "int8": 4e9}.__getitem__)
    monkeypatch.setattr(figures, "read_speed", {2: 1e9}.__getitem__)
    kernels = [
        {"kind": "CONV_2D", "number": 0, "seconds": 0.002, "work": {"float32": 2_000_000}, "nbytes": 1_000_000},
        {"kind": "FULLY_CONNECTED", "number": 1, "seconds": 0.004, "work": {"int8": 8_000_000}, "nbytes": 0},
    ]
    measured = Measured({"jitdelegate": (0.01,)}, calibration=(1.0, 1.0), kernels=kernels)
    row = figures.row_of("a", Job("a", 2, ("jitdelegate",), {}, 1, 0.0, 1.0), measured)
    assert (row["peak_share"], row["memory_share"]) == pytest.approx((0.2, 0.1))
    assert [each["number"] for each in row["kernels"]] == [1, 0]
    assert [each["peak_share"] for each in row["kernels"]] == pytest.approx([0.25, 0.5])
    assert [each["memory_share"] for each in row["kernels"]] == pytest.approx([0.0, 0.5])


def test_what_was_measured_before_an_interruption_is_written(
    machine: Machine, suite: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    measured = benchmark_suite.measure_in_process

    def interrupted(job: Job) -> Measured:
        if "b.tflite" in job.model:
            raise KeyboardInterrupt
        return measured(job)

    monkeypatch.setattr(benchmark_suite, "measure_in_process", interrupted)
    with pytest.raises(KeyboardInterrupt):
        suite("a.tflite", "b.tflite", arguments=("--json", str(out)))
    assert [row["model"] for row in json.loads(out.read_text())["rows"]] == ["a.tflite"] * 2


@pytest.mark.parametrize("text", ["", "cpu  one\n"])
def test_a_system_that_does_not_tell_of_others_is_not_judged(text: str, machine: Machine) -> None:
    machine_state.STAT.write_text(text)
    others = machine_state.Others()
    assert others.share() is None


def test_a_model_without_an_onnx_file_has_no_times_of_onnx_runtime(
    machine: Machine,
    suite: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(benchmark_suite, "is_installed", lambda name: True)
    monkeypatch.setitem(SECONDS, "onnxruntime", 0.003)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.onnx").touch()
    assert suite("a.tflite", "b.tflite", arguments=("--threads", "1")) == 0
    text = capsys.readouterr().out
    assert [row[0] for row in rows_of(text) if row[2] == "onnxruntime"] == ["a.tflite"]
    assert text.startswith("ONNX Runtime has no times for 1 of 2 models, which have no .onnx file\n")


def test_a_file_that_cannot_be_written_and_a_folder_without_models(
    machine: Machine, suite: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").mkdir()
    assert suite() == 2
    assert capsys.readouterr().err == f"there is nothing to measure, no .tflite file in '{tmp_path / 'models'}'\n"
    assert suite("a.tflite", arguments=("--threads", "1", "--json", "/nowhere/out.json")) == 1
    assert capsys.readouterr().err == "could not write '/nowhere/out.json': No such file or directory\n"


@pytest.mark.parametrize("arguments", [["--threads", "0"], ["--num_runs=-1"], ["--trace=t.json"]])
def test_wrong_arguments_exit_with_2(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        benchmark.main(["--suite", str(tmp_path), *arguments])
    assert end.value.code == 2
