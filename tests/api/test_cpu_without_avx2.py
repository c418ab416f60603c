"""A CPU without AVX2: "auto" leaves models to LiteRT, which is faster there than generic code, and says so.

The machine is a real one that claims to know no AVX2.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.api import delegate_warning
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import warm
from jitdelegate.commands.analysis.survey import analyze
from jitdelegate.compiler import entry
from jitdelegate.engine.load_path import resolve_target
from jitdelegate.errors import CompilerFailedError, DelegationError
from jitdelegate.targets import host
from jitdelegate.targets.cuda.target import CudaDevice, CudaTarget
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import small_models

IMAGE = np.random.default_rng(1).standard_normal((1, 8, 8, 3)).astype(np.float32)
NOTE = "not on the CPU: generic code is slower than LiteRT's kernels; the target 'cpu' compiles it"
REASON = "Generic code is slower than LiteRT's kernels."
ASKED = "LiteRT was asked for."


@pytest.fixture(autouse=True)
def no_avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_known", ("generic",))
    monkeypatch.setattr(delegate_warning, "_announced", set())


def load(content: bytes, folder: Path, **options: Any) -> jitdelegate.Model:
    return jitdelegate.load(content, options={"serialization_dir": str(folder), "num_threads": 1, **options})


def reasons(report: jitdelegate.Report) -> set[str]:
    return {operator.reason for operator in report.operators}


def expected(content: bytes, value: np.ndarray) -> np.ndarray:
    interpreter = LiteRT(model_content=content, num_threads=1)
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], value.shape)
    return partial.invoked(interpreter, [[value]])[0][0]


@pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")
def test_auto_leaves_a_model_to_litert_and_says_so_in_one_sentence(tmp_path: Path) -> None:
    content = small_models.convolution()
    for outcome in ("miss", "hit"):
        with load(content, tmp_path) as model:
            report = model.report()
            assert (report.target, report.delegated, report.cache.outcome) == ("litert", 0, outcome)
            assert [note for note in report.notes if "CPU" in note] == [NOTE]
            assert reasons(report) == {REASON}
            np.testing.assert_array_equal(model(IMAGE), expected(content, IMAGE))


@pytest.mark.parametrize("options", [{"target": "cpu"}, {"cpu_features": "generic"}])
def test_who_asks_for_generic_code_gets_it(options: dict[str, Any], tmp_path: Path) -> None:
    content = small_models.convolution()
    with load(content, tmp_path, **options) as model:
        report = model.report()
        assert (report.target, report.features, report.fully_delegated) == ("cpu", "generic", True)
        assert not [note for note in report.notes if "CPU" in note]
        np.testing.assert_allclose(model(IMAGE), expected(content, IMAGE), atol=1e-5)


@pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")
def test_litert_by_choice_and_by_request_have_programs_of_their_own(tmp_path: Path) -> None:
    content = small_models.convolution()
    for _ in range(2):
        for target, reason in (("auto", REASON), ("litert", ASKED)):
            with load(content, tmp_path, target=target) as model:
                assert reasons(model.report()) == {reason}


def test_the_warning_has_the_sentence() -> None:
    with pytest.warns(jitdelegate.DelegateWarning, match="Generic code is slower"):
        load(small_models.convolution(seed=77), Path("unused"), serialization_dir=False).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(small_models.convolution(seed=78), Path("unused"), serialization_dir=False, target="litert").close()


def test_full_delegation_is_refused_with_the_sentence(tmp_path: Path) -> None:
    with pytest.raises(DelegationError, match="Generic code is slower"):
        load(small_models.convolution(), tmp_path, require_full_delegation=True)


@pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")
def test_other_shapes_ask_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = small_models.convolution(open_batch=True)
    five = np.repeat(IMAGE, 5, axis=0)
    with load(content, tmp_path) as model:
        delegate = jitdelegate.GpuDelegate(serialization_dir=str(tmp_path))
        interpreter = jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate])
        monkeypatch.setattr(entry, "compiled", None)
        np.testing.assert_array_equal(model(five), expected(content, five))
        interpreter.resize_tensor_input(0, five.shape)
        np.testing.assert_array_equal(partial.invoked(interpreter, [[five]])[0][0], expected(content, five))
        assert interpreter.report().target == "litert"


@pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")
def test_the_delegate_takes_nothing_from_litert_s_own_interpreter(tmp_path: Path) -> None:
    partial.skip_without_host()
    content = small_models.convolution()
    delegate = jitdelegate.GpuDelegate(serialization_dir=str(tmp_path))
    interpreter = LiteRT(model_content=content, experimental_delegates=[delegate])
    np.testing.assert_array_equal(partial.invoked(interpreter, [[IMAGE]])[0][0], expected(content, IMAGE))
    report = delegate.report()
    assert report is not None
    assert (report.delegated, reasons(report)) == (0, {REASON})


@pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")
@pytest.mark.parametrize(("target", "where", "delegated"), [("auto", "litert", 0), ("cpu", "cpu", 1)])
def test_warming_agrees_with_loading(
    target: str, where: str, delegated: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution())
    assert warm.main([str(path), "--serialization-dir", str(tmp_path / "cache"), "--target", target, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["target"], told["delegated"], told["operators"]) == (where, delegated, 1)
    with load(str(path), tmp_path / "cache", target=target) as model:  # type: ignore[arg-type]
        assert (model.report().target, model.report().cache.outcome) == (where, "hit")


def test_an_analysis_agrees_with_loading(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution())
    found = analyze(str(path), DelegateOptions(serialization_dir=False))
    assert (found.main.target, [node.reason for node in found.main.nodes]) == ("litert", [REASON])
    assert [each for each in found.notes if "CPU" in each] == [NOTE]
    (suggestion,) = (each for each in found.suggestions if each.rule == "cpu_without_avx2")
    assert suggestion.nodes == (0,)


@pytest.mark.parametrize(("level", "then"), [("generic", "litert"), ("x86-64-v3", "cpu")])
def test_behind_a_gpu_comes_what_is_fastest_on_the_cpu(level: str, then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_known", (level,))
    monkeypatch.setattr("jitdelegate.targets.may_be_here", lambda name: True)
    monkeypatch.setattr(CudaTarget, "find_device", lambda self, options: CudaDevice("sm_80"))
    notes: list[str] = []
    assert [each.target.name for each in resolve_target(DelegateOptions(), notes, {})] == ["cuda", then]
    assert notes == [NOTE] * (then == "litert")


def filtered() -> bytes:
    """Six depthwise convolutions, then an operator that is not compiled."""
    model = ModelBuilder()
    shape = (1, 64, 64, 32)
    weights, bias = (model.constant(np.ones(size, np.float32)) for size in ((1, 3, 3, 32), (32,)))
    options = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
    image = model.input(shape)
    for _ in range(6):
        image = model.op("DEPTHWISE_CONV_2D", [image, weights, bias], shape, options=options)
    model.output(model.op("FAKE_QUANT", [image], shape, options={"min": -1.0, "max": 1.0, "num_bits": 8}))
    return model.finish()


@pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")
def test_partitions_of_generic_code_do_not_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = filtered()
    with load(content, tmp_path, target="cpu") as model:
        assert model.report().delegated == 0
    with load(content, tmp_path, target="cpu", partitioning="all") as model:
        assert model.report().delegated == 6
    monkeypatch.setattr(host, "_known", ("generic", "x86-64-v3"))
    with load(content, tmp_path) as model:
        assert model.report().delegated == 6


def test_a_broken_compiler_still_leaves_the_model_to_litert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> bytes:
        raise CompilerFailedError("the compiler failed with a test")

    monkeypatch.setattr(entry, "compiled", fail)
    with pytest.warns(jitdelegate.DelegateWarning), load(small_models.convolution(seed=79), tmp_path) as model:
        assert model.report().target == "litert"
