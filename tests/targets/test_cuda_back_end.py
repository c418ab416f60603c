"""NVIDIA's compiler libraries: missing libraries and refused code are reported in one sentence."""

from __future__ import annotations

import re

import pytest

from jitdelegate.errors import CompileError, DeviceError
from jitdelegate.program.cubin import PTX
from jitdelegate.runtime.cuda.architectures import SIZES, is_made_by, name_of
from jitdelegate.runtime.cuda.toolchain import cuda_major, installed_toolchain
from jitdelegate.targets.cuda.code.gpu import GPUS
from tests.targets.cuda_execute import ptx_of

pathfinder = pytest.importorskip("cuda.pathfinder", reason="needs cuda-bindings, the extra 'cuda'")
back_end = pytest.importorskip("jitdelegate.targets.cuda.compile.back_end")


def gone(*_: object) -> None:
    raise pathfinder.DynamicLibNotFoundError('Failure finding "libnvvm.so"\n  listdir("/here"):\n    nothing')


@pytest.mark.parametrize("library", ["nvvm", "nvjitlink"])
def test_a_missing_library_is_told_in_one_line(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getattr(back_end, library), "create_program" if library == "nvvm" else "create", gone)
    with pytest.raises(DeviceError, match=r'not all there: Failure finding "libnvvm\.so"; install jitdelegate'):
        back_end.ptx("", "sm_90") if library == "nvvm" else back_end.cubin(b"", "sm_90")


def test_what_a_compiler_refuses_is_told_in_its_words() -> None:
    with pytest.raises(CompileError, match="NVVM refuses a kernel for sm_90"):
        back_end.ptx("no module", "sm_90")
    with pytest.raises(CompileError, match="nvJitLink refuses a kernel for sm_90"):
        back_end.cubin(b"no ptx", "sm_90")


def test_code_is_compiled_for_the_architectures_that_a_device_is_matched_with() -> None:
    assert tuple(GPUS) == tuple(map(name_of, SIZES))
    toolkit = cuda_major(installed_toolchain())
    assert tuple(name for name in GPUS if is_made_by(toolkit, name)) == back_end.ARCHITECTURES
    assert len(GPUS) - len(back_end.ARCHITECTURES) == 1  # CUDA 13 lacks sm_72, CUDA 12 lacks sm_110


@pytest.mark.parametrize(
    ("architecture", "version"),
    [
        *(("compute_80", b"7.8"), ("compute_87", b"7.8"), ("compute_90", b"7.8"), ("compute_100", b"8.6")),
        *(("compute_110", b"9.0"), ("compute_120", b"8.7"), ("compute_121", b"8.8")),
    ],
)
def test_ptx_for_later_gpus_is_of_a_version_that_their_first_drivers_read(architecture: str, version: bytes) -> None:
    from tests.targets.test_cuda_dependent_launch import template_of

    for name in ("contract_mma", "normalize"):
        text = ptx_of(template_of(name), architecture)
        made = back_end.cubin(text.encode(), architecture)
        assert made.image.startswith(PTX) and made.image.endswith(b"}\0") and made.registers > 0
        assert re.findall(rb"(?m)^\.version (\S+)$", made.image) == [version]
        assert (b"griddepcontrol" in made.image) == (int(architecture.rpartition("_")[2]) >= 90)
