"""The script that plants bugs in kernels: what becomes of mutants, and a sample of all kinds in all families."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from jitdelegate.ir.forms import Softmax
from scripts import kernel_uses, mutate_kernels
from scripts.kernel_uses import RUNS, Fed, families
from tests.gpu.mutate import MUTATIONS
from tests.targets.cuda_execute import all_families
from tests.targets.cuda_graphs import graph_of

SHAPE = (3, 300)
CHANGE_NOTHING = {"attention_ffma, bar.sync is missing", "scatter, a bound is one off"}
"""Alive ones for which `tests/gpu/README.md` has a reason."""


@pytest.fixture
def one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script has no other graph than rows that are longer than a warp."""
    monkeypatch.setattr(kernel_uses, "graphs", lambda: [Fed(graph_of(Softmax(), [SHAPE], SHAPE))])
    monkeypatch.setattr(kernel_uses, "PRECISIONS", ("float32",))


@pytest.mark.usefixtures("one_graph")
def test_each_mutant_is_tried_once_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(tmp_path / "results"), "--most", "1"]
    status = mutate_kernels.main(arguments)
    found = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    table = capsys.readouterr().out
    assert {one["family"] for one in found} == {"normalize"}
    assert {"a lane is another", "launches are not waited for"} < {one["kind"] for one in found}
    counts = [sum(one["outcome"] == outcome for one in found) for outcome in ("killed", "alive", "equal", "idle")]
    assert sum(counts) == len(found)
    assert f"| all | {counts[0]} | {counts[0] + counts[1]} | {counts[2]} | {counts[3]} |" in table
    assert status == (counts[0] < mutate_kernels.LEAST_KILLED * (counts[0] + counts[1]))
    assert mutate_kernels.main(arguments) == status
    assert len((tmp_path / "results").read_text().splitlines()) == len(found)
    assert capsys.readouterr().out == table


@pytest.mark.usefixtures("one_graph")
def test_a_family_that_no_graph_has_is_no_success(tmp_path: Path) -> None:
    assert mutate_kernels.main([str(tmp_path / "results"), "--only", "no such family"]) == 1


@pytest.mark.usefixtures("one_graph")
def test_results_that_differ_kill() -> None:
    ((key, settings),) = [item for item in families()["normalize"].items() if item[0][0] == "sm_90"]
    subject = mutate_kernels.Subject(*key, settings)
    assert subject.killed_by(subject.text) == ""
    subject.known[settings[0], RUNS[0]] = [np.zeros(SHAPE, np.float32)]
    assert subject.killed_by(subject.text) == "wrong"


def test_a_sample_of_every_family_and_kind_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant of each family, and one of each kind."""
    monkeypatch.setattr(kernel_uses, "graphs", kernel_uses.graphs_of_tests)
    monkeypatch.setattr(kernel_uses, "CHOICES", {"any": kernel_uses.CHOICES["any"]})
    monkeypatch.setattr(kernel_uses, "ARCHITECTURES", ("sm_75", "sm_90"))
    found, kinds, outcomes = families(), set[str](), dict[str, str]()
    assert set(found) == all_families()
    for family, used in found.items():
        sample = list(mutate_kernels.sampled(family, used, most=1, seed=0))
        new = [one for one in sample if one[0] not in kinds]
        for kind, subject, place in [*new, *random.Random(family).sample(sample, len(sample))][: max(1, len(new))]:
            kinds.add(kind)
            outcomes[f"{family}, {kind}"] = subject.outcome(kind, place)["outcome"]
    killed, alive = ([name for name, one in outcomes.items() if one == each] for each in ("killed", "alive"))
    unexplained = set(alive) - CHANGE_NOTHING
    assert len(killed) >= mutate_kernels.LEAST_KILLED * (len(killed) + len(unexplained)), alive
    assert kinds == set(MUTATIONS)
