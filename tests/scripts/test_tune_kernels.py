"""The sweep of kernels: what is prepared, a run on the stub driver, and constants that are found again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.ir.graph import Graph
from jitdelegate.program.write import write
from jitdelegate.runtime.cache.tuned import parse_table
from jitdelegate.targets.cuda.code.choices import Choices
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.compile.template_store import TemplateStore
from jitdelegate.targets.cuda.generate import Builder
from jitdelegate.targets.cuda.multiply import mma_tile
from jitdelegate.targets.cuda.products import mma
from jitdelegate.targets.cuda.stopwatch import TIMES
from jitdelegate.targets.cuda.tuning import ROUNDS, problems_of
from scripts.gpu_check.gpu import gpu
from scripts.tune_kernels.__main__ import main
from scripts.tune_kernels.fit import Sample, errors, fitted, report, samples_of
from scripts.tune_kernels.models import MODELS, Model, line_of
from scripts.tune_kernels.prepare import problems_in
from scripts.tune_kernels.run import Times, read_times
from scripts.tune_kernels.sweep import Candidate, Problem, Sweep, kinds_in, read_sweep, write_sweep
from tests.cuda_stub.cubins import cubin
from tests.cuda_stub.install import install
from tests.cuda_stub.library import Library
from tests.cuda_stub.programs import KINDS, library, scale_and_shift
from tests.targets.tuned_graphs import convolution, depthwise, fully_connected, product

GPU = GPUS["sm_90"]
OLDER = GPUS["sm_80"]
"""One that adds up parts of K by a second launch."""
CLOCK, LAUNCH = 1.7e9, 1.1e-6


def model_of(problem: str) -> Model:
    return next(model for model in MODELS if problem.split()[0] in model.families)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("make", [convolution, fully_connected, depthwise, product])
def test_models_predict_from_lines_what_the_planner_does(make: Callable[[], Graph], precision: str) -> None:
    ((asked),) = problems_of(make(), GPU, precision, Choices())
    model, found = model_of(asked.problem), {}
    for name, planned in asked.plans().items():
        line = line_of(asked.problem, name, [launch.moved for launch in planned.launches if launch.moved])
        found[name] = model.cycles(line, GPU)
        if len(planned.launches) == 1:
            assert found[name] == pytest.approx(planned.launches[0].cycles)
    if planned.launches[0].moved == ():  # else the order is that of rules
        assert sorted(found, key=lambda name: found[name]) == list(asked.question.ranked)


def test_all_constants_are_there() -> None:
    assert all(getattr(*constant) > 0 for model in MODELS for constant in model.constants)


def made_up() -> Times:
    """Times of a GPU whose kernels take what the model says by other constants."""
    found = Times(OLDER.kind, "Stub 9000", CLOCK, LAUNCH)
    for rows, columns, depth in ((64, 32, 64), (196, 512, 256), (3136, 64, 128)):
        problem = f"contract_mma float16 float16,float32,float16 M{rows} N{columns} K{depth} G1 T1 P1 S1 W8 D1 E0"
        names = [f"{'-'.join(map(str, tile))}/{split}" for tile in TILES for split in (1, 4)]
        found.seconds[problem] = {name: seconds(problem, name) for name in names}
    return found


TILES = ((128, 128, 2, 2, 1, 64, 4), (64, 64, 2, 2, 1, 128, 3), (32, 32, 1, 1, 4, 256, 3), (16, 32, 1, 1, 8, 256, 4))


def seconds(problem: str, name: str) -> float:
    line = line_of(problem, name)
    return Sample(("", problem), line, OLDER, CLOCK, LAUNCH, 0.0).predicted(model_of(problem))


def test_constants_are_found_again_and_the_modules_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(mma_tile, "TURN_CYCLES", 420)
        patch.setattr(mma, "COMBINE_CYCLES", 1500)
        times = made_up()
    model = model_of("contract_mma")
    samples = samples_of([times], model)
    before, values = errors(samples, model), fitted(samples, model)
    assert before.factor > 1.05
    assert (mma_tile.TURN_CYCLES, mma.COMBINE_CYCLES) == (180, 3500)
    assert values[mma_tile, "TURN_CYCLES"] == pytest.approx(420, rel=0.05)
    assert values[mma, "COMBINE_CYCLES"] == pytest.approx(1500, rel=0.05)
    first, *_ = report([times])
    assert first.startswith("contract_mma: 24 times, off by a factor of 1.")
    assert "fitted 1.0" in first and first.endswith("of the fastest, fitted 1.000")


def test_a_model_that_is_right_is_left_alone() -> None:
    model = model_of("contract_mma")
    samples = samples_of([made_up()], model)
    assert errors(samples, model) == errors(samples[::-1], model)
    assert errors(samples, model).factor == pytest.approx(1)
    assert fitted(samples, model)[mma_tile, "TURN_CYCLES"] == 180
    slower = [replace(sample, seconds=2 * sample.seconds) for sample in samples]
    assert errors(slower, model).factor == pytest.approx(2)
    assert errors(slower, model).lost == pytest.approx(1)


class ThisProcess:
    """A child that is none, and dies of what fails."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def close(self) -> None:
        """Nothing."""


def sweep(folder: Path) -> None:
    """Three problems, whose candidates are kernels of the stub; one kernel is not what the driver loads."""
    names = ["a", "b", "broken"]
    launch = {"kernel": 0, "grid": (1, 1, 1), "block": (32, 1, 1), "kinds": "aawi", "values": (0, 0, 0, 6)}
    ways = {name: Candidate(256, 64, [name], [launch], [(1, 2, 3)]) for name in names}
    problems = [
        Problem("first M1", 2.0, {"one": ways["a"], "two": ways["b"]}),
        Problem("second M1", 1.0, {"one": ways["a"], "three": ways["broken"]}),
        Problem("third M1", 0.5, {"two": ways["b"], "one": ways["a"]}),
    ]
    code = {name: cubin(name if name != "broken" else "other") for name in names}
    write_sweep(Sweep("sm_90:132", problems, code, write(scale_and_shift())), folder)


def test_a_sweep_is_measured_in_parts_and_written_as_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = Library(lambda *arguments: None, {**KINDS, **dict.fromkeys("ab", "aawi")})
    stub.milliseconds["a"] = 1.0
    install(monkeypatch, stub)
    monkeypatch.setattr("scripts.tune_kernels.run.Child", ThisProcess)
    gpu.cache_clear()
    sweep(tmp_path / "sweep")
    arguments = ["run", str(tmp_path / "sweep"), "--output", str(tmp_path / "out")]
    now = count()
    monkeypatch.setattr("scripts.tune_kernels.run.now", lambda: float(next(now)))
    assert main([*arguments, "--seconds", "3"]) == 0
    assert "Stub 9000: 1 problems measured, in 1 another candidate is the fastest" in capsys.readouterr().out
    assert main([*arguments, "--seconds", "90"]) == 1
    assert "second M1: " in capsys.readouterr().err
    found = read_times(tmp_path / "out" / "sm_90-132-times.json")
    assert list(found.seconds) == ["first M1", "third M1"]
    assert found.moved["first M1"] == {"one": [[1, 2, 3]], "two": [[1, 2, 3]]}
    once = (ROUNDS + 1) * TIMES
    assert (stub.launches["a"], stub.launches["b"]) == (2 * once + TIMES, 2 * once)  # and the one beside the broken one
    table = parse_table((tmp_path / "out" / "sm_90-132.tuned").read_bytes())
    assert {problem: winner.candidate for problem, winner in table.items()} == {"first M1": "two", "third M1": "two"}
    assert (table["first M1"].before, table["first M1"].microseconds) == (2050.0, 1050.0)
    gpu.cache_clear()
    assert stub.leaks() == []


def test_a_sweep_for_another_gpu_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, library(multiprocessors=114))
    monkeypatch.setattr("scripts.tune_kernels.run.Child", ThisProcess)
    gpu.cache_clear()
    sweep(tmp_path)
    assert main(["run", str(tmp_path), "--output", str(tmp_path)]) == 1
    assert "is for sm_90:132: prepare it with --kinds sm_90:114" in capsys.readouterr().err
    gpu.cache_clear()


def test_what_is_prepared_can_be_run(tmp_path: Path) -> None:
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    (found,) = problems_in(fully_connected(), GPU, "float16", Builder(GPU, TemplateStore(None)), code := {}, {})
    name, first = next(iter(found.candidates.items()))
    kept = Sweep(GPU.kind, [found], code, b"")
    assert write_sweep(kept, tmp_path) < 1 << 18 and kinds_in(tmp_path) == [GPU.kind]
    again = read_sweep(tmp_path, GPU.kind)
    assert again.problems[0].text == found.text and list(again.problems[0].candidates) == list(found.candidates)
    program = again.program(again.problems[0].candidates[name])
    assert bytes(program.code) == b"".join(code[kernel] for kernel in first.kernels)
    assert [launch.values for launch in program.launches] == [launch["values"] for launch in first.launches]
