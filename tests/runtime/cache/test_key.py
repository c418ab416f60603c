"""A key's parts decide the entry's name, and explain a miss."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jitdelegate.runtime.cache import key as key_module
from jitdelegate.runtime.cache.key import Key, KeyParts, machine_with, model_key, this_cpu, this_machine
from jitdelegate.runtime.cuda import toolchain as cuda
from jitdelegate.targets.cpu import target as cpu
from tests import imports
from tests.child import answer_of

BASE = {
    "target": "cpu",
    "features": "x86-64-v4",
    "loader": "flat",
    "options": (("precision", "float32"),),
    "toolchain": "llvmlite 1",
}


def make(token: str | None = "token", fingerprint: str = "0" * 32, **changes: object) -> Key:
    own = KeyParts(**{"machine": this_machine(), **BASE, **changes})  # type: ignore[arg-type]
    return model_key(fingerprint, own, token=token)


@pytest.mark.parametrize(
    "change",
    [
        {"token": "other"},
        {"token": None},
        {"token": ""},
        {"target": "litert"},
        {"features": "x86-64-v3"},
        {"loader": "object"},
        {"options": (("precision", "bfloat16"),)},
        {"options": ()},
    ],
)
def test_every_part_that_changes_the_code_changes_the_name(change: dict[str, object]) -> None:
    assert make(**change).entry_name() != make().entry_name()


@pytest.mark.parametrize("name", ["FORMAT_VERSION", "GENERATOR_DIGEST"])
def test_another_format_or_generator_changes_the_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make().entry_name()
    monkeypatch.setattr(key_module, name, "other")
    assert make().entry_name() != before


def test_another_machine_changes_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make().entry_name()
    monkeypatch.setattr(key_module.sys, "platform", "another")
    assert make().entry_name() != before


def test_a_toolchain_changes_the_end_of_the_name_only() -> None:
    names = {make(toolchain=toolchain).entry_name() for toolchain in ("", "llvmlite 1", "llvmlite 2")}
    assert len(names) == 3 and all(name.startswith(make().entry_beginning()) for name in names)


def test_the_fingerprint_is_in_the_name_beside_a_token() -> None:
    assert make(fingerprint="1" * 32).entry_name() != make().entry_name()
    assert make(fingerprint="1" * 32).entry_name().startswith("token-")


def test_parts_that_join_to_the_same_text_are_told_apart() -> None:
    joined = {make(options=options).digest() for options in ((("a", "bc"),), (("ab", "c"),), (("a", "b"), ("c", "")))}
    assert len(joined) == 3


@pytest.mark.parametrize("token", ["../../etc/passwd", ".hidden", "a/b\0c", "x" * 1000, "\udcff", "ü", "a b", ""])
def test_a_token_never_leaves_the_directory(token: str) -> None:
    name = make(token=token).entry_name()
    assert "/" not in name and "\0" not in name and not name.startswith(".") and len(name) <= 110 and name.isascii()


def name() -> str:
    return make().entry_name()


def test_the_same_key_has_the_same_name_in_every_process() -> None:
    for seed in ("0", "1"):
        assert answer_of(name, PYTHONHASHSEED=seed) == name()


def test_the_first_part_that_differs_is_named() -> None:
    assert make().difference(make().parts) is None
    assert make().difference(make(features="generic", loader="object").parts) == ("features", "generic", "x86-64-v4")
    assert make().difference(()) == ("model", "", "0" * 32)


def test_the_toolchain_is_read_without_importing_it() -> None:
    llvmlite = pytest.importorskip("llvmlite")
    assert cpu.installed_toolchain() == f"llvmlite {llvmlite.__version__}"
    answer_of(imports.the_cpu_s_toolchain)


def test_what_runs_on_a_gpu_does_not_depend_on_the_machine_that_compiled_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make(machine="x86_64").entry_name()
    monkeypatch.setattr(key_module.sys, "platform", "another")
    assert make(machine="x86_64").entry_name() == before


@pytest.mark.parametrize(
    "machine, cpu",
    [
        ("linux aarch64 64", "aarch64"),
        (machine_with("x86_64"), "x86_64"),
        ("aarch64", "aarch64"),
        (this_machine(), this_cpu()),
    ],
)
def test_a_key_tells_the_family_of_the_cpu_of_its_program_or_beside_it(machine: str, cpu: str) -> None:
    assert make(machine=machine).cpu == cpu


@pytest.mark.parametrize("name, family", [("arm64", "aarch64"), ("AMD64", "x86_64"), ("riscv64", "riscv64")])
def test_cpus_have_the_names_that_linux_gives_them(name: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_module.os, "uname", lambda: SimpleNamespace(machine=name))
    assert this_cpu() == family


def install(folder: Path, *packages: str) -> None:
    for package in packages:
        (folder / f"{package}.dist-info").mkdir()


COMMON = ("numba-0.68.1", "llvmlite-0.50.0")
CUDA_13 = ("cuda_bindings-13.5.0", *COMMON, "nvidia_nvvm-13.5.37", "nvidia_nvjitlink-13.5.37")
CUDA_12 = ("cuda_bindings-12.9.10", *COMMON, "nvidia_cuda_nvcc_cu12-12.9.86", "nvidia_nvjitlink_cu12-12.9.86")


def test_the_cuda_toolchain_is_read_from_the_names_of_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    install(first, "numba_cuda-0.30.4", "numba_cuda_mlir-0.6.0", "other-1")
    install(second, "numba_cuda-0.29.0", *CUDA_13)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "none"), str(first), str(second)])
    assert cuda.installed_toolchain() == (
        "numba-cuda 0.30.4, numba 0.68.1, llvmlite 0.50.0, nvidia-nvvm 13.5.37, nvidia-nvjitlink 13.5.37"
    )


def test_the_cuda_toolchain_is_that_of_the_installed_bindings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "numba_cuda-0.30.4", *CUDA_12, *set(CUDA_13) - {"cuda_bindings-13.5.0", *COMMON})
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert cuda.installed_toolchain() == (
        "numba-cuda 0.30.4, numba 0.68.1, llvmlite 0.50.0, nvidia-cuda-nvcc-cu12 12.9.86, nvidia-nvjitlink-cu12 12.9.86"
    )


@pytest.mark.parametrize(
    ("toolchain", "major"),
    [
        ("numba-cuda 0.30.4, nvidia-nvvm 13.5.37, nvidia-nvjitlink 13.5.37", 13),
        ("numba-cuda 0.30.4, nvidia-cuda-nvcc-cu12 12.9.86, nvidia-nvjitlink-cu12 12.9.86", 12),
        ("llvmlite 0.50.0", 0),
        ("nvidia-nvjitlink", 0),
        ("nvidia-nvjitlink latest.1", 0),
        ("", 0),
    ],
)
def test_a_toolchain_says_which_cuda_made_the_binaries(toolchain: str, major: int) -> None:
    assert cuda.cuda_major(toolchain) == major


@pytest.mark.parametrize(
    "packages",
    [
        (),
        ("numba_cuda-0.30.4",),
        CUDA_13,
        ("numba_cuda-0.29.1", *CUDA_13),
        ("numba_cuda-0.30.4", *CUDA_13[1:]),
        ("numba_cuda-0.30.4", "cuda_bindings-12.9.10", *CUDA_13[1:]),
        ("numba_cuda-0.30.4", "cuda_bindings-14.0.0", *CUDA_13[1:]),
    ],
)
def test_a_cuda_toolchain_that_cannot_compile_here_accepts_programs_of_any(
    packages: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, *packages)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert cuda.installed_toolchain() == ""
    assert make(toolchain=cuda.installed_toolchain()).difference(make(toolchain="other").parts) is None


def test_the_cuda_toolchain_is_found_without_importing_it() -> None:
    pytest.importorskip("numba_cuda")
    answer_of(imports.the_cuda_toolchain, flags=["-S"], PYTHONPATH=os.pathsep.join(sys.path))


def test_a_toolchain_that_is_not_installed_is_accepted_as_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert cpu.installed_toolchain() == ""
    assert make(toolchain="").difference(make(toolchain="llvmlite 7").parts) is None
