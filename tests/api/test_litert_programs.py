"""Programs written for `ai_edge_litert` run after a change of their import lines, with the same outputs."""

from __future__ import annotations

import importlib
import inspect
import re
from enum import EnumType
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.tflite.write import ModelBuilder
from tests.api import small_models

FOLDER = Path(__file__).parents[1] / "litert_programs"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
IMPORT = re.compile(r"^((?:from|import) )ai_edge_litert\b", re.MULTILINE)


def vector() -> bytes:
    """f32[16] -> RELU."""
    model = ModelBuilder()
    model.output(model.op("RELU", [model.input((16,), name="value")], (16,), name="positive"))
    return model.finish()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models that the programs open."""
    made = tmp_path_factory.mktemp("programs")
    for name, content in {
        "image": small_models.convolution(),
        "signed": small_models.convolution(signature=True),
        "batches": small_models.convolution(open_batch=True),
        "signatures": small_models.two_signatures(),
        "quantized": small_models.integers_and_floats("uint8"),
        "vector": vector(),
    }.items():
        (made / f"{name}.tflite").write_bytes(content)
    return made


def run(source: str, name: str) -> list[np.ndarray]:
    variables: dict[str, Any] = {"__name__": name}
    exec(compile(source, name, "exec"), variables)
    return [np.asarray(value) for value in variables["outputs"]]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # LiteRT's Delegate without a library
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_after_a_change_of_its_import_lines(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    source = (FOLDER / f"{name}.py").read_text()
    changed, count = IMPORT.subn(r"\1jitdelegate", source)
    assert count and "ai_edge_litert" not in changed
    expected = run(source, f"{name} with ai_edge_litert")
    found = run(changed, f"{name} with jitdelegate")
    assert len(found) == len(expected)
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-5, strict=True)


def test_there_are_a_dozen_programs() -> None:
    assert len(PROGRAMS) >= 12


@pytest.mark.parametrize(
    "module",
    [
        *("compiled_model", "cpu_kernel_mode", "cpu_options", "environment", "gpu_options", "hardware_accelerator"),
        *("interpreter", "tensor_buffer"),
    ],
)
def test_a_module_has_every_class_that_litert_s_module_of_its_name_has(module: str) -> None:
    theirs, ours = (importlib.import_module(f"{package}.{module}") for package in ("ai_edge_litert", "jitdelegate"))
    classes = [
        name for name, each in vars(theirs).items() if getattr(each, "__module__", "").startswith("ai_edge_litert")
    ]
    assert [name for name in classes if not name.startswith("_") and not hasattr(ours, name)] == []


def test_public_classes_and_their_members_have_docstrings() -> None:
    bare = []
    for name in jitdelegate.__all__:
        public = getattr(jitdelegate, name)
        if name == "OpResolverType" or isinstance(public, EnumType):  # LiteRT's own, or numbers
            continue
        members = [each for each in (vars(public) if isinstance(public, type) else ()) if not each.startswith("_")]
        shown = (public, *(getattr(public, member) for member in members))
        said = [each for each in shown if callable(each) or isinstance(each, property)]
        bare += [f"{name}: {each}" for each in said if not inspect.getdoc(each)]
    assert bare == []
