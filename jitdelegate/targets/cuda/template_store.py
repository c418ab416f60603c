"""Caches the NVVM IR of templates beside the programs: Numba's front end runs once per template for all GPUs."""

from __future__ import annotations

import os
import zlib
from importlib.metadata import PackageNotFoundError, version

from xxhash import xxh3_128_digest, xxh3_128_hexdigest

from jitdelegate.cache.place import Place
from jitdelegate.errors import CacheError, DeviceError
from jitdelegate.program.generator_digest import GENERATOR_DIGEST
from jitdelegate.runtime.cuda.toolchain import NUMBA_CUDA_VERSIONS
from jitdelegate.targets.cuda.template import Template

SUFFIX = ".nvvm"
NUMBA_CUDA = "numba-cuda"
_PACKAGES = (NUMBA_CUDA, "numba", "llvmlite")
_HASH_BYTES = 16


class TemplateStore:
    """IR texts by template. If a file is damaged, or cannot be read or written, the text is made again; that is no
    error.

    Attributes:
        hits, misses: number of texts found in the cache, and of texts that Numba had to make.
    """

    def __init__(self, place: Place | None) -> None:
        self._place = place
        self._compiler = _compiler()
        self.hits = self.misses = 0

    def text(self, template: Template) -> str:
        """The NVVM IR text of a template.

        Raises:
            DeviceError: numba-cuda is needed, but the installed version is not the one that the kernels are written
                for.
            ImportError: numba-cuda is needed, but not installed.
        """
        name = self._name(template)
        found = self._read(name)
        if found is not None:
            self.hits += 1
            return found
        self.misses += 1
        text = _lowered(template)
        self._write(name, text)
        return text

    def _name(self, template: Template) -> str:
        parts = f"{GENERATOR_DIGEST}\0{self._compiler}\0{template.text}"
        return f"{template.family}-{xxh3_128_hexdigest(parts.encode())}{SUFFIX}"

    def _read(self, name: str) -> str | None:
        if self._place is None:
            return None
        try:
            descriptor = self._place.open(name)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read()
            if xxh3_128_digest(content[_HASH_BYTES:]) != content[:_HASH_BYTES]:
                return None
            return zlib.decompress(content[_HASH_BYTES:]).decode()
        except (OSError, CacheError, zlib.error, UnicodeDecodeError):
            return None

    def _write(self, name: str, text: str) -> None:
        if self._place is None:
            return
        content = zlib.compress(text.encode())
        try:
            self._place.write(name, xxh3_128_digest(content) + content, flush=False)
        except OSError:
            return  # if the disk is full, only the next start takes longer


def _lowered(template: Template) -> str:
    _check_numba_cuda()
    from jitdelegate.targets.cuda.front_end import lower

    return lower(template)


def _check_numba_cuda() -> None:
    """Refuses other versions of numba-cuda: their internals may differ."""
    found = version(NUMBA_CUDA)
    if not found.startswith(NUMBA_CUDA_VERSIONS):
        raise DeviceError(
            f"{NUMBA_CUDA} {found} is installed, expected {NUMBA_CUDA_VERSIONS}*: pip install jitdelegate[cuda]"
        )


def _compiler() -> str:
    """Names and versions of the packages that make the texts; "" if one is not installed."""
    try:
        return ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    except PackageNotFoundError:
        return ""
