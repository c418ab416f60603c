"""NVVM IR to PTX to cubin with NVIDIA's compiler libraries: no GPU, no driver, no Numba."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cuda import pathfinder
from cuda.bindings import nvjitlink, nvvm

from jitdelegate.errors import CompileError, DeviceError
from jitdelegate.runtime.cuda.architectures import is_made_by, is_portable
from jitdelegate.runtime.cuda.toolchain import cuda_major, installed_toolchain
from jitdelegate.targets.cuda.code.dependent_launch import for_architecture
from jitdelegate.targets.cuda.code.gpu import GPUS

ARCHITECTURES = tuple(name for name in GPUS if is_made_by(cuda_major(installed_toolchain()), name))
"""The GPUs that the installed compilers make binaries for."""
PTX_VERSIONS = ((121, b"8.8"), (120, b"8.7"), (110, b"9.0"), (100, b"8.6"), (0, b"7.8"))
"""The PTX version for GPUs from each capability on: NVVM names its own, which only drivers as new as it read. Source:
PTX ISA, "Release Notes"; 7.8 came with CUDA 11.8, 8.7 with CUDA 12.8, 9.0 with CUDA 13.0."""
USED = re.compile(r"Used (\d+) registers")
STACK = re.compile(r"(\d+) bytes stack frame")
SPILLS = re.compile(r"(\d+) bytes spill (?:stores|loads)")
SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of one kernel and the resources that it needs on a multiprocessor.

    Attributes:
        image: the ELF file that the driver loads, or PTX and a zero byte.
        registers: per thread.
        stack_bytes, spill_bytes: per thread; local memory, which is slow.
        shared_bytes: static, per block.
    """

    image: bytes
    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int


@contextmanager
def _libraries() -> Iterator[None]:
    """Reports a missing library in one sentence; pathfinder raises a RuntimeError of many lines."""
    try:
        yield
    except RuntimeError as error:
        cause = str(error).partition("\n")[0]
        raise DeviceError(f"NVIDIA's compilers are not all there: {cause}; install jitdelegate's extra cuda") from error


@_libraries()
def ptx(text: str, architecture: str) -> bytes:
    """PTX of NVVM IR text.

    Args:
        architecture: a name such as "sm_90" or "compute_90".
    Raises:
        CompileError: NVVM refuses the text.
        DeviceError: NVVM or libdevice is not installed.
    """
    text = for_architecture(text, architecture)
    program = nvvm.create_program()
    options = ["-opt=3", f"-arch=compute_{architecture.rpartition('_')[2]}"]
    try:
        content = text.encode()
        nvvm.add_module_to_program(program, content, len(content), "kernel")
        if "@__nv_" in text or '@"__nv_' in text:
            library = _device_library()
            nvvm.lazy_add_module_to_program(program, library, len(library), "libdevice")
        nvvm.compile_program(program, len(options), options)
        result = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, result)
    except nvvm.nvvmError as error:
        raise CompileError(f"NVVM refuses a kernel for {architecture}: {error} {_nvvm_log(program)}") from error
    finally:
        nvvm.destroy_program(program)
    return bytes(result).rstrip(b"\0").strip()


@cache
def _device_library() -> bytes:
    with open(pathfinder.find_bitcode_lib("device"), "rb") as file:
        return file.read()


def _nvvm_log(program: Any) -> str:
    log = bytearray(nvvm.get_program_log_size(program))
    nvvm.get_program_log(program, log)
    return log.decode().rstrip("\0")


@_libraries()
def cubin(code: bytes, architecture: str) -> Cubin:
    """Machine code for one GPU from PTX; for "compute_90" and its like, the PTX itself, as every driver of such a GPU
    reads it. It is assembled for its resources, and to know that it can be.

    Raises:
        CompileError: the assembler refuses it.
        DeviceError: nvJitLink is not installed.
    """
    if is_portable(architecture):
        text = _with_version(code, architecture)
        return replace(cubin(text, f"sm_{architecture.rpartition('_')[2]}"), image=text + b"\0")
    options = [f"-arch={architecture}", "-verbose"]
    handle = nvjitlink.create(len(options), options)
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, code, len(code), "kernel")
        nvjitlink.complete(handle)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
        log = _log(nvjitlink.get_info_log_size, nvjitlink.get_info_log, handle)
    except nvjitlink.nvJitLinkError as error:
        error_log = _log(nvjitlink.get_error_log_size, nvjitlink.get_error_log, handle)
        raise CompileError(f"nvJitLink refuses a kernel for {architecture}: {error} {error_log}") from error
    finally:
        nvjitlink.destroy(handle)
    return Cubin(
        image=bytes(image),
        registers=_number(USED, log),
        stack_bytes=_number(STACK, log),
        spill_bytes=sum(map(int, SPILLS.findall(log))),
        shared_bytes=_number(SHARED, log),
    )


def _with_version(code: bytes, architecture: str) -> bytes:
    """PTX whose version is the lowest that has all that the kernels use for such a GPU."""
    capability = int(architecture.rpartition("_")[2])
    version = next(version for lowest, version in PTX_VERSIONS if capability >= lowest)
    return re.sub(rb"(?m)^\.version .*$", b".version " + version, code, count=1)


def _log(size: Any, read: Any, handle: Any) -> str:
    log = bytearray(size(handle))
    if log:
        read(handle, log)
    return log.decode().rstrip("\0")


def _number(pattern: re.Pattern[str], log: str) -> int:
    match = pattern.search(log)
    return int(match.group(1)) if match else 0
