"""Caches the lowered code of templates beside the programs: Numba's front end runs once per template for all GPUs, NVVM
once per architecture, whatever models have the template."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable

from xxhash import xxh3_128_digest, xxh3_128_hexdigest

from jitdelegate.errors import CacheError, DeviceError
from jitdelegate.program.generator_digest import GENERATOR_DIGEST
from jitdelegate.runtime.cache.directory import CacheDirectory
from jitdelegate.runtime.cuda.toolchain import NUMBA_CUDA_VERSIONS, installed_toolchain
from jitdelegate.targets.cuda.code.template import Template

SUFFIX, PTX_SUFFIX = ".nvvm", ".ptx"
NUMBA_CUDA = "numba-cuda"
_HASH_BYTES = 16


class TemplateStore:
    """NVVM IR and PTX of templates. If a file is damaged, or cannot be read or written, its text is made again; that is
    no error. Nothing is kept where the versions of the compilers are unknown."""

    def __init__(self, directory: CacheDirectory | None) -> None:
        self._toolchain = installed_toolchain()
        self._directory = directory if self._toolchain else None

    def text(self, template: Template) -> str:
        """The NVVM IR text of a template.

        Raises:
            DeviceError: numba-cuda is needed, but the installed version is not the one that the kernels are written
                for.
            ImportError: numba-cuda is needed, but not installed.
        """
        name = _name(template, SUFFIX, self._toolchain, template.text)
        return self._kept(name, lambda: _lowered(template))

    def ptx(self, template: Template, text: str, architecture: str) -> bytes:
        """PTX of a template's NVVM IR text.

        Raises:
            CompileError: NVVM refuses the text.
            DeviceError: NVVM or libdevice is not installed.
        """
        name = _name(template, PTX_SUFFIX, self._toolchain, architecture, text)
        return self._kept(name, lambda: _compiled(text, architecture).decode()).encode()

    def _kept(self, name: str, make: Callable[[], str]) -> str:
        """The text of this name, which is made and written where it is missing."""
        text = self._read(name)
        if text is None:
            text = make()
            self._write(name, text)
        return text

    def _read(self, name: str) -> str | None:
        if self._directory is None:
            return None
        try:
            descriptor = self._directory.open(name)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read()
            if xxh3_128_digest(content[_HASH_BYTES:]) != content[:_HASH_BYTES]:
                return None
            return zlib.decompress(content[_HASH_BYTES:]).decode()
        except (OSError, CacheError, zlib.error, UnicodeDecodeError):
            return None

    def _write(self, name: str, text: str) -> None:
        if self._directory is None:
            return
        content = zlib.compress(text.encode(), zlib.Z_BEST_SPEED)
        try:
            self._directory.write(name, xxh3_128_digest(content) + content, flush=False)
        except OSError:
            return  # if the disk is full, only the next start takes longer


def _name(template: Template, suffix: str, *parts: str) -> str:
    """The file of what the generators make of these parts."""
    return f"{template.family}-{xxh3_128_hexdigest(chr(0).join((GENERATOR_DIGEST, *parts)).encode())}{suffix}"


def _compiled(text: str, architecture: str) -> bytes:
    from jitdelegate.targets.cuda.compile import back_end

    return back_end.ptx(text, architecture)


def _lowered(template: Template) -> str:
    _check_numba_cuda()
    from jitdelegate.targets.cuda.compile.front_end import lower

    return lower(template)


def _check_numba_cuda() -> None:
    """Refuses other versions of numba-cuda: their internals may differ."""
    from importlib.metadata import version

    installed = version(NUMBA_CUDA)
    if not installed.startswith(NUMBA_CUDA_VERSIONS):
        raise DeviceError(
            f"{NUMBA_CUDA} {installed} is installed, expected {NUMBA_CUDA_VERSIONS}*: install jitdelegate's extra cuda"
        )
