"""The command that measures: its suites, its table, sides that take turns, and what decoders are."""

from __future__ import annotations

import json
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from jitdelegate.commands.measurement.column import Column
from jitdelegate.ir.graph import Graph, Model, Node, Signature, Tensor
from jitdelegate.targets.cpu.code.kernel import Job
from jitdelegate.targets.cpu.code.kernel import Step as CodeStep
from scripts.bench import schedule
from scripts.bench.__main__ import SUITES, main
from scripts.bench.decoders import Step, steps
from scripts.bench.rounds import in_turns, interleaved, mean_speeds
from scripts.bench.suite import Suite
from scripts.bench.weight_bytes import weight_bytes

ROOT = Path(__file__).resolve().parents[2]

CACHES = {"kv_cache_k_0": ((1, 8, 2, 4), "float32"), "kv_cache_v_0": ((1, 8, 2, 4), "float32")}
LOGITS = {"logits": ((1, 1, 16), "float32")}


def reader(count: int, **more: tuple[tuple[int, ...], str]) -> dict[str, tuple[tuple[int, ...], str]]:
    """The inputs of a signature that reads `count` tokens."""
    return {**CACHES, "tokens": ((1, count), "int32"), "input_pos": ((count,), "int32"), **more}


def test_the_longest_prefill_and_the_decoder_are_found() -> None:
    signatures = {
        "prefill_2": (reader(2), CACHES),
        "decode": (reader(1), {**CACHES, **LOGITS}),
        "prefill_4": (reader(4), CACHES),
        "encode": ({"x": ((1, 4), "float32")}, LOGITS),
    }
    prefill, decode = steps(signatures)
    assert (prefill.key, prefill.count, prefill.logits) == ("prefill_4", 4, "")
    assert (decode.key, decode.logits, decode.numbers, dict(decode.caches)) == ("decode", "logits", 16, CACHES)
    with pytest.raises(ValueError, match="no signature takes one token"):
        steps({"prefill_4": signatures["prefill_4"]})


def test_a_mask_lets_tokens_see_themselves_and_what_came_before() -> None:
    step = Step.of("prefill", reader(2, mask=((1, 1, 2, 8), "float32")), CACHES)
    assert step is not None
    given = step.inputs([5, 6], 3)
    np.testing.assert_array_equal(given["tokens"], [[5, 6]])
    np.testing.assert_array_equal(given["input_pos"], [3, 4])
    np.testing.assert_array_equal(given["mask"][0, 0] == 0, np.tri(2, 8, 3, dtype=bool))


def test_every_module_of_a_suite_is_a_row_of_the_command_and_of_contributing() -> None:
    modules = {path.stem for path in (ROOT / "scripts" / "bench").glob("*.py") if "SUITE = " in path.read_text()}
    assert modules == set(SUITES)
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert [name for name in SUITES if f"`python -m scripts.bench {name}`" not in contributing] == []


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_says_what_it_measures(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module(f"scripts.bench.{name}")
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert module.__doc__.splitlines()[0] in capsys.readouterr().out
    assert isinstance(module.SUITE, Suite)
    assert len({column.key for column in module.SUITE.columns}) == len(module.SUITE.columns)


def test_a_model_is_compared_and_its_row_printed_as_text_and_as_json(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["latency", str(Path(model).parent), "--threads", "1", "--rounds", "2"]
    assert main(arguments) == 0
    head, line, mean = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["model", "threads", "ours", "ms"]
    assert (len(head.split()) - 2, line.split()[:2]) == (len(line.split()), ["model.tflite", "1"])
    assert mean.startswith("threads 1: geometric mean ")
    assert main([*arguments, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["model"], row["target"]) == ("model.tflite", "cpu")


def test_twins_are_compared_without_further_models(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantized", "--twin", model, model, "--rounds", "2", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["kind"], row["threads"]) == ("twin", 1)


def test_a_path_without_a_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["latency", str(tmp_path)])
    assert f"there is nothing to measure, no .tflite file: {tmp_path}" in capsys.readouterr().err


def test_every_round_runs_every_side_once_in_changing_order() -> None:
    ran: list[str] = []
    sides = {name: (lambda name=name: ran.append(name)) for name in "abc"}
    assert len(list(in_turns(sides, 8))) == 8
    rounds = ["".join(ran[k : k + 3]) for k in range(0, 24, 3)]
    assert {"".join(sorted(one)) for one in rounds} == {"abc"}
    assert len(set(rounds)) > 1
    ran.clear()
    list(in_turns(sides, 2, shuffled=False))
    assert "".join(ran) == "abcabc"


def test_rounds_to_warm_up_are_run_and_not_counted() -> None:
    ran: Counter[str] = Counter()
    sides = {name: (lambda name=name: ran.update(name)) for name in "ab"}
    times = interleaved(sides, 4, 3, warm_up=2, settled=False)
    assert {name: len(row) for name, row in times.items()} == {"a": 4, "b": 4}
    assert ran == {"a": 18, "b": 18}


def test_a_row_lies_below_the_titles_and_what_it_lacks_is_empty() -> None:
    suite = Suite((Column("model", "<8"), Column("ms", "7.2f", "ours ms"), Column("share", "5.0%")), lambda _: iter(()))
    assert suite.head() == "model     ours ms  share"
    assert suite.line({"model": "a", "ms": 1.234, "share": 0.5}) == "a            1.23    50%"
    assert suite.line({"model": "a", "share": "none"}) == "a                   none"


def test_means_are_taken_by_group() -> None:
    rows = [{"threads": 2, "speed": 2.0}, {"threads": 1, "speed": 4.0}, {"threads": 2, "speed": 8.0}]
    assert list(mean_speeds(rows, "threads")) == [
        "threads 1: geometric mean 4.000 of 1 rows, least 4.000",
        "threads 2: geometric mean 4.000 of 2 rows, least 2.000",
    ]


def test_weights_are_counted_once_and_without_tables_of_rows() -> None:
    table, shared, own = (np.zeros(shape, np.float32) for shape in ((100, 4), (4, 4), (3, 4)))
    tensors = (
        Tensor("token", (1,), "int32"),
        *(Tensor("", data.shape, "float32", data) for data in (table, shared, shared, own)),
        *(Tensor("", (1, size), "float32") for size in (4, 4, 4, 3)),
    )
    nodes = (
        Node("GATHER", (1, 0), (5,)),
        *(Node("FULLY_CONNECTED", (x, w, -1), (y,)) for x, w, y in ((5, 2, 6), (6, 3, 7), (7, 4, 8))),
    )
    graph = Graph(tensors, nodes, (0,), (8,))
    model = Model((graph,), (Signature("decode", 0, {"token": 0}, {"logits": 8}),))
    assert weight_bytes(model, "decode") == shared.nbytes + own.nbytes


@pytest.mark.parametrize(
    ("jobs", "threads", "run"),
    [
        ([Job("f", 8)], 2, 4.0),
        ([Job("f", 8)], 3, 3.0),
        ([Job("f", 8)], 16, 1.0),
        ([Job("f", 2, worth=6.0), Job("g", 2, worth=2.0)], 4, 3.0),
        ([Job("f", 8, worth=8.0), Job("halo", 4)], 8, 1.0),
        ([Job("f", 8, worth=1.0)], 8, 8.0),
    ],
)
def test_simulated_threads_share_the_chunks_of_steps_that_are_worth_it(
    jobs: list[Job], threads: int, run: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of eight seconds; a step of little work is the calling thread's."""
    for name in ("CLAIM_SECONDS", "MEETING_SECONDS"):
        monkeypatch.setattr(schedule, name, 0.0)
    found = schedule.simulated([CodeStep("Contract", jobs)], [8.0], threads)
    assert found.run == pytest.approx(run)
    assert found.serial + found.uneven == pytest.approx(run * threads - 8)
