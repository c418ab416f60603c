"""Lowered templates are stored in the cache directory, and made again after a change of their generators."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from jitdelegate.errors import DeviceError
from jitdelegate.ir.expr import Const
from jitdelegate.runtime.cache.directory import open_cache_directory
from jitdelegate.targets.cuda.code.device_code import Code
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.compile import template_store
from jitdelegate.targets.cuda.compile.template_store import TemplateStore
from jitdelegate.targets.cuda.forms.map import MapTemplate

VERSIONS = {"numba-cuda": "0.30.4", "numba": "0.68.1", "llvmlite": "0.50.0", "nvidia-nvvm": "13.5.37"}


@dataclass(frozen=True, eq=False)
class Nothing(Template):
    """A kernel that does nothing, so many times."""

    family: ClassVar[str] = "nothing"
    times: int = 1

    @property
    def threads(self) -> int:
        return 32

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return ()

    def write(self, code: Code) -> None:
        raise AssertionError("there is nothing to write")


@pytest.fixture(autouse=True)
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What seems to be installed."""
    installed = dict(VERSIONS)
    monkeypatch.setattr("importlib.metadata.version", installed.__getitem__)
    monkeypatch.setattr(template_store, "installed_toolchain", lambda: ", ".join(map(" ".join, installed.items())))
    return installed


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Template]:
    """What Numba was asked for."""
    asked: list[Template] = []

    def lower(template: Template) -> str:
        asked.append(template)
        return f"{template} {len(asked)}"

    monkeypatch.setattr(template_store, "_lowered", lower)
    return asked


def text(path: Path, template: Template) -> str:
    """As a process of its own gets it."""
    return TemplateStore(open_cache_directory(str(path))).text(template)


def test_a_text_is_made_once_and_then_found(tmp_path: Path, lowered: list[Template]) -> None:
    folder = tmp_path / "cache"
    first = [text(folder, Nothing(times)) for times in (1, 2)]
    assert [text(folder, Nothing(times)) for times in (1, 2)] == first
    assert lowered == [Nothing(1), Nothing(2)]


@pytest.mark.parametrize("package", VERSIONS)
def test_another_version_of_what_makes_texts_makes_them_anew(
    package: str, tmp_path: Path, lowered: list[Template], versions: dict[str, str]
) -> None:
    before = text(tmp_path / "cache", Nothing())
    versions[package] += ".post1"
    assert text(tmp_path / "cache", Nothing()) != before
    assert len(lowered) == 2


def test_other_generators_make_texts_anew(
    tmp_path: Path, lowered: list[Template], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = text(tmp_path / "cache", Nothing())
    monkeypatch.setattr(template_store, "GENERATOR_DIGEST", "another")
    assert text(tmp_path / "cache", Nothing()) != before


def test_a_numba_cuda_that_the_kernels_are_not_written_for_is_not_tried(versions: dict[str, str]) -> None:
    versions["numba-cuda"] = "0.31.0"
    with pytest.raises(DeviceError, match=r"numba-cuda 0\.31\.0 is installed, expected 0\.30\.\*: install"):
        TemplateStore(None).text(Nothing())


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What NVVM was asked for: texts and architectures."""
    asked: list[tuple[str, str]] = []

    def compile_text(text: str, architecture: str) -> bytes:
        asked.append((text, architecture))
        return f"{text} for {architecture}".encode()

    monkeypatch.setattr(template_store, "_compiled", compile_text)
    return asked


def ptx(path: Path, text: str, architecture: str = "sm_90") -> bytes:
    """As a process of its own gets it."""
    return TemplateStore(open_cache_directory(str(path))).ptx(Nothing(), text, architecture)


def test_ptx_is_made_once_for_each_text_and_architecture(tmp_path: Path, compiled: list[tuple[str, str]]) -> None:
    asked = [("a", "sm_90"), ("b", "sm_90"), ("a", "sm_80")]
    for _ in range(2):
        for text, architecture in asked:
            assert ptx(tmp_path / "cache", text, architecture) == f"{text} for {architecture}".encode()
    assert compiled == asked


def test_another_toolchain_makes_ptx_anew(
    tmp_path: Path, compiled: list[tuple[str, str]], versions: dict[str, str]
) -> None:
    ptx(tmp_path / "cache", "a")
    versions["nvidia-nvvm"] = "13.6.1"
    ptx(tmp_path / "cache", "a")
    assert len(compiled) == 2


def test_nothing_of_an_unknown_toolchain_is_kept(
    tmp_path: Path, lowered: list[Template], compiled: list[tuple[str, str]], versions: dict[str, str]
) -> None:
    versions.clear()
    for _ in range(2):
        text(tmp_path / "cache", Nothing())
        assert ptx(tmp_path / "cache", "a") == b"a for sm_90"
    assert len(lowered) == len(compiled) == 2 and not list((tmp_path / "cache").iterdir())


def test_templates_are_as_equal_as_their_texts() -> None:
    zero, minus = (scaled(value) for value in (0.0, -0.0))
    assert zero == scaled(0.0) and hash(zero) == hash(scaled(0.0))
    assert zero != minus and zero.symbol != minus.symbol
    assert scaled(1.0) != scaled(1)


def scaled(value: float) -> MapTemplate:
    return MapTemplate(1, 4, Element.FLOAT32, (), (), Const(value), is_dense=True)
