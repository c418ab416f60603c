"""The option `precision` on the CPU: bfloat16 is another program with smaller weights, "auto" measures, and the other
precisions are those of GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.base.options import PRECISIONS, DelegateOptions
from jitdelegate.base.targets import LEVELS
from jitdelegate.engine.choose_precision import largest_error
from jitdelegate.engine.load_path import find_key
from jitdelegate.runtime.cache.key import CHOSEN, FEATURES, INPUTS, Key
from jitdelegate.targets import host
from jitdelegate.targets.cpu.target import CpuDevice
from jitdelegate.tflite.write import ModelBuilder
from tests.targets.levels import BFLOATS, PAIRS

X = np.random.default_rng(1).normal(0, 1, (30, 257)).astype(np.float32)
HAS_HALF_SUMS = LEVELS[host.level()].has_half_sums
LARGEST_ERROR = 4e-3
"""NRMSE of a product whose operands are rounded to bfloat16, at most."""


def matrix_model() -> bytes:
    """x f32[30,257] -> its product with a matrix of 120 rows."""
    weights = np.random.default_rng(2).normal(0, 1, (120, 257)).astype(np.float32)
    model = ModelBuilder()
    operands = [model.input(X.shape, name="x"), model.constant(weights), -1]
    model.output(model.op("FULLY_CONNECTED", operands, (30, 120), name="y"))
    return model.finish()


def load(folder: Path, **options: Any) -> jitdelegate.Model:
    return jitdelegate.load(matrix_model(), serialization_dir=folder, options={"target": "cpu", **options})


def key(**options: Any) -> Key:
    return find_key(CpuDevice(), DelegateOptions(**options), "0")


def test_bfloat16_is_another_program_and_the_precisions_of_gpus_are_not() -> None:
    parts = {precision: key(precision=precision).parts for precision in PRECISIONS}
    assert parts["float32"] == parts["tf32"] == key().parts
    assert (parts["float32"] == parts["float16"]) is not HAS_HALF_SUMS
    names = {key(precision=precision).entry_name() for precision in ("float32", "bfloat16", "auto")}
    assert len(names) == 3


@pytest.mark.parametrize("features", host.levels())
def test_bfloat16_halves_the_program_and_keeps_the_error_small(features: str, tmp_path: Path) -> None:
    sizes, outputs = {}, {}
    for precision in ("float32", "bfloat16"):
        with load(tmp_path, precision=precision, cpu_features=features) as model:
            report = model.report()
            assert report.ignored_options == ()
            sizes[precision], outputs[precision] = Path(report.cache.path).stat().st_size, model(X)
    assert sizes["float32"] - sizes["bfloat16"] > 50_000
    assert 1e-4 < largest_error([outputs["bfloat16"]], [outputs["float32"]]) < LARGEST_ERROR


@pytest.mark.parametrize("precision", ["tf32"] if HAS_HALF_SUMS else ["tf32", "float16"])
def test_a_precision_of_gpus_is_ignored_and_that_is_told(precision: str, tmp_path: Path) -> None:
    with load(tmp_path, precision=precision) as model:
        assert model.report().ignored_options == ("precision",)
    with load(tmp_path) as model:
        assert model.report().cache.hit


@pytest.mark.skipif("x86-64-v4-bf16" not in BFLOATS, reason="the CPU has no AVX512-BF16")
def test_a_cpu_that_multiplies_pairs_fast_takes_the_level_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_known", (*(name for name in host.levels() if name != PAIRS), PAIRS))
    for precision, features in (("float32", "x86-64-v4-vbmi"), ("bfloat16", PAIRS)):
        with load(tmp_path, precision=precision) as model:
            assert model.report().features == features
            found = model(X)
    rounded = largest_error([found], [X @ np.random.default_rng(2).normal(0, 1, (120, 257)).astype(np.float32).T])
    assert 2e-3 < rounded < LARGEST_ERROR
    assert key(precision="bfloat16").part(FEATURES) == PAIRS


@pytest.mark.parametrize(
    ("faster", "bound", "expected"),
    [("bfloat16", 0.01, "bfloat16"), ("float32", 0.01, "float32"), ("bfloat16", 1e-6, "float32")],
)
def test_auto_takes_the_faster_one_under_the_bound_once(
    faster: str, bound: float, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(sessions: dict[str, Any], inputs: object) -> dict[str, float]:
        return {name: 1.0 if name == faster else 2.0 for name in sessions}

    monkeypatch.setattr("jitdelegate.engine.choose_precision._seconds", seconds)
    for outcome in ("miss", "hit"):
        with load(tmp_path, precision="auto", precision_bound=bound) as model:
            report, found = model.report(), model(X)
        assert report.cache.outcome == outcome
        assert report.ignored_options == ()
        (note,) = (note for note in report.notes if note.startswith("precision is 'auto'"))
        assert note.startswith(f"precision is 'auto': {expected}: error of bfloat16 0.00")
    with load(tmp_path, precision=expected) as model:
        np.testing.assert_array_equal(model(X), found)


def test_what_auto_depends_on_is_in_the_key(tmp_path: Path) -> None:
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=X)
    own = key(precision="auto", precision_inputs=samples)
    assert own.part(INPUTS)
    assert own.entry_name() != key(precision="auto").entry_name()
    assert own.changed(CHOSEN, "bfloat16: error").entry_name() == own.entry_name()
    assert [name for name, _ in CpuDevice().precisions(own)] == ["float32", "bfloat16"]
    with load(tmp_path, precision="auto", precision_inputs=samples) as model:
        assert any(note.startswith("precision is 'auto'") for note in model.report().notes)
