"""The installed compilers for CUDA: found and named without importing them."""

from __future__ import annotations

import os
import sys

NUMBA_CUDA = "numba_cuda"
NUMBA_CUDA_VERSIONS = "0.30."
"""How the versions of numba-cuda begin whose inner parts the code generators know."""
CUDA_BINDINGS = "cuda_bindings"
"""Says which CUDA toolkit's libraries are loaded: those of its own major number."""
_PACKAGES = {
    "12": (NUMBA_CUDA, "numba", "llvmlite", "nvidia_cuda_nvcc_cu12", "nvidia_nvjitlink_cu12"),
    "13": (NUMBA_CUDA, "numba", "llvmlite", "nvidia_nvvm", "nvidia_nvjitlink"),
}
"""What makes NVVM IR, PTX and binaries, by the toolkit's major number; the last one makes the binaries."""
_BINARIES = "nvidia-nvjitlink"
_NAMED = {CUDA_BINDINGS, *(name for names in _PACKAGES.values() for name in names)}
_SUFFIX = ".dist-info"


def installed_toolchain() -> str:
    """What makes NVVM IR, PTX and binaries, with versions, of the CUDA toolkit whose bindings are installed; "" where
    it is not all there, or numba-cuda is one that this version does not compile with.

    From the names of the packages' metadata, one listing per folder.
    """
    versions: dict[str, str] = {}
    for folder in sys.path:
        for name, version in _metadata(folder or "."):
            versions.setdefault(name, version)
    needed = _PACKAGES.get(versions.get(CUDA_BINDINGS, "").partition(".")[0], ())
    if not needed or not versions.keys() >= {*needed} or not versions[NUMBA_CUDA].startswith(NUMBA_CUDA_VERSIONS):
        return ""
    return ", ".join(f"{name.replace('_', '-')} {versions[name]}" for name in needed)


def cuda_major(toolchain: str) -> int:
    """The major number of the CUDA toolkit that makes a toolchain's binaries, 0 where it makes none for GPUs."""
    name, _, version = toolchain.rpartition(", ")[2].partition(" ")
    major = version.partition(".")[0]
    return int(major) if name.startswith(_BINARIES) and major in _PACKAGES else 0


def _metadata(folder: str) -> list[tuple[str, str]]:
    """Name and version of the packages of the CUDA toolchain whose metadata lie in `folder`."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = (name.removesuffix(_SUFFIX).partition("-") for name in names if name.endswith(_SUFFIX))
    return [(name, version) for name, _, version in found if name in _NAMED]
