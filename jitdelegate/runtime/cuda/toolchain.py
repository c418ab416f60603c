"""Finds and names the installed compilers for CUDA, without importing them."""

from __future__ import annotations

import os
import sys

NUMBA_CUDA = "numba_cuda"
NUMBA_CUDA_VERSIONS = "0.30."
"""Prefixes of the versions of numba-cuda whose internals the code generators use."""
CUDA_BINDINGS = "cuda_bindings"
"""The package whose major version decides which CUDA toolkit's libraries are loaded."""
_PACKAGES = {
    "12": (NUMBA_CUDA, "numba", "llvmlite", "nvidia_cuda_nvcc_cu12", "nvidia_nvjitlink_cu12"),
    "13": (NUMBA_CUDA, "numba", "llvmlite", "nvidia_nvvm", "nvidia_nvjitlink"),
}
"""Packages that make NVVM IR, PTX and binaries, by the toolkit's major number; the last one makes the binaries."""
_BINARIES = "nvidia-nvjitlink"
_NAMED = {CUDA_BINDINGS, *(name for names in _PACKAGES.values() for name in names)}
_SUFFIX = ".dist-info"


def installed_toolchain() -> str:
    """The packages that make NVVM IR, PTX and binaries, with versions, for the installed CUDA bindings; "" if one is
    missing, or the version of numba-cuda is not supported.

    Found by the names of the packages' metadata, one listing per folder.
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
    """The major number of the CUDA toolkit that makes a toolchain's binaries; 0 if it makes none for GPUs."""
    name, _, version = toolchain.rpartition(", ")[2].partition(" ")
    major = version.partition(".")[0]
    return int(major) if name.startswith(_BINARIES) and major in _PACKAGES else 0


def _metadata(folder: str) -> list[tuple[str, str]]:
    """Name and version of the CUDA toolchain's packages with metadata in `folder`."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    packages = (name.removesuffix(_SUFFIX).partition("-") for name in names if name.endswith(_SUFFIX))
    return [(name, version) for name, _, version in packages if name in _NAMED]
