"""The option `profile`: the report has a time per kernel, wherever the model runs. No test looks at how long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.api.report import Report
from jitdelegate.base.options import DelegateOptions
from jitdelegate.engine.load_path import find_key
from jitdelegate.targets import target_named
from tests.api import partial_models as partial
from tests.api import small_models

LOADERS = ("delegate", "partitions")


def kernels_of(report: Report) -> list[tuple[str, tuple[int, ...], bool]]:
    """Form, operators, and whether there is a time."""
    return [(each.form, each.operators, each.seconds is not None) for each in report.kernel_times]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("features", ["auto", "generic"])
def test_every_kernel_has_a_time_once_the_model_ran(features: str, threads: int) -> None:
    options = {"profile": True, "cpu_features": features, "num_threads": threads}
    with jitdelegate.load(small_models.two_outputs(), serialization_dir=False, options=options) as model:
        before = kernels_of(model.report())
        assert before and not any(timed for _, _, timed in before)
        rounds = partial.rounds_for(small_models.two_outputs())
        partial.assert_same(partial.called(model, rounds), partial.expected(small_models.two_outputs(), rounds))
        report = model.report()
    assert kernels_of(report) == [(form, operators, True) for form, operators, _ in before]
    assert {index for each in report.kernel_times for index in each.operators} == {0, 1}
    assert all(each.seconds is not None and each.seconds >= 0 for each in report.kernel_times)


def test_a_program_from_the_cache_is_timed_too_and_is_another_than_the_plain_one(tmp_path: Path) -> None:
    for outcome in ("miss", "hit"):
        with jitdelegate.load(
            small_models.convolution(), serialization_dir=tmp_path, options={"profile": True}
        ) as model:
            model(bytes(768))
            report = model.report()
        assert report.cache.outcome == outcome
        assert all(timed for _, _, timed in kernels_of(report))
    with jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path) as model:
        model(bytes(768))
        assert model.report().cache.outcome == "miss"
        assert model.report().kernel_times == ()


def test_only_cpu_programs_have_the_option_in_their_key() -> None:
    plain, profiled = DelegateOptions(), DelegateOptions(profile=True)
    (gpu,) = target_named("cuda").devices("sm_90")
    cpu = target_named("cpu").find_device(plain)
    assert find_key(cpu, plain, "0").parts != find_key(cpu, profiled, "0").parts
    assert find_key(gpu, plain, "0").parts == find_key(gpu, profiled, "0").parts


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_partitions_are_timed_beside_and_inside_litert(
    loader: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loader == "delegate":
        partial.skip_without_host()
    partial.choose_loader(monkeypatch, loader)
    content = partial.alternating()
    options = partial.options(profile=True, num_threads=threads)
    with jitdelegate.load(content, options=options) as model:
        assert model._opened.program.loader == loader
        before = kernels_of(model.report())
        partial.called(model, partial.rounds_for(content))
        report = model.report()
    assert kernels_of(report) == [(form, operators, True) for form, operators, _ in before]
    compiled = {operator.index for operator in report.operators if operator.place == "cpu"}
    assert {index for each in report.kernel_times for index in each.operators} == compiled


def test_litert_s_interpreter_reports_the_times_of_its_partitions() -> None:
    partial.skip_without_host()
    content = partial.alternating()
    delegate = partial.delegate(profile=True)
    interpreter = LiteRT(model_content=content, experimental_delegates=[delegate])
    partial.invoked(interpreter, partial.rounds_for(content))
    report = delegate.report()
    assert report is not None and len(report.kernel_times) == report.kernels
    assert all(timed for _, _, timed in kernels_of(report))


def test_printing_lists_the_kernels_with_their_operators() -> None:
    with jitdelegate.load(small_models.convolution(), serialization_dir=False, options={"profile": True}) as model:
        assert "not run" in str(model.report())
        model(bytes(768))
        report = model.report()
    lines = str(report).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("kernels"))
    assert len(lines) - start == len(report.kernel_times)
    assert any(line.endswith("0 CONV_2D") and " us" in line for line in lines[start:])
    found: list[dict[str, Any]] = json.loads(json.dumps(report.to_dict()))["kernel_times"]
    assert [each["name"] for each in found] == [each.name for each in report.kernel_times]
    assert "seconds=" in repr(report.kernel_times[0])


@pytest.mark.parametrize("loader", LOADERS)
def test_a_closed_model_has_no_times_any_more(loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partial.choose_loader(monkeypatch, loader)
    whole = jitdelegate.load(small_models.convolution(), serialization_dir=False, options={"profile": True})
    parted = jitdelegate.load(partial.alternating(), options=partial.options(profile=True))
    for model in (whole, parted):
        kernels = len(model.report().kernel_times)
        model.close()
        assert [timed for _, _, timed in kernels_of(model.report())] == [False] * kernels


def test_a_model_on_litert_has_no_kernels_to_time() -> None:
    with jitdelegate.load(small_models.convolution(), target="litert", options={"profile": True}) as model:
        model(np.zeros((1, 8, 8, 3), np.float32))
        assert model.report().kernel_times == ()
