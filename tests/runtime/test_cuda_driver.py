"""The driver's prototypes are those of CUDA's own header."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.runtime.cuda.driver import OPENGL_PROTOTYPES, PROTOTYPES

DECLARATION = re.compile(r"CUresult CUDAAPI (\w+)\(([^;]*)\);")
RENAMED = re.compile(r"#define (cu\w+)\s+(?:__CUDA_API_PT[SD]Z?S?\()?(cu\w+)")
HANDLES = ("CUcontext", "CUmodule", "CUfunction", "CUstream", "CUevent", "CUgraph", "CUgraphExec", "CUgraphicsResource")
ENUMERATIONS = ("CUresult", "CUdevice_attribute", "CUfunction_attribute", "CUpointer_attribute", "CUstreamCaptureMode")
KINDS = {
    **dict.fromkeys(("int", "CUdevice", *ENUMERATIONS), ctypes.c_int),
    **dict.fromkeys(("unsigned int", "GLuint"), ctypes.c_uint),
    "unsigned char": ctypes.c_ubyte,
    "unsigned long long": ctypes.c_ulonglong,
    "size_t": ctypes.c_size_t,
    "CUdeviceptr": ctypes.c_uint64,
    **dict.fromkeys(HANDLES, ctypes.c_void_p),
}
ALL = {**PROTOTYPES, **OPENGL_PROTOTYPES}
OLDER_NAMES = {"cuEventElapsedTime": "cuEventElapsedTime_v2"}
"""Functions that the header calls by a name which drivers before its own lack; their arguments are the same."""


def header() -> str:
    """cuda.h and cudaGL.h, from the package that brings CUDA's headers; skips the test where there is none."""
    found = [path for folder in sys.path for path in Path(folder).glob("nvidia/*/include/cuda.h")]
    if not found:
        pytest.skip("no cuda.h (it comes with the extra 'cuda')")
    return found[0].read_text() + found[0].with_name("cudaGL.h").read_text()


def kind(parameter: str) -> Any:
    """The ctypes type of one parameter, as in `const void *image`."""
    if "*" in parameter:
        is_text = parameter.startswith("const char *") and "**" not in parameter
        return ctypes.c_char_p if is_text else ctypes.c_void_p
    return KINDS[parameter.removeprefix("const ").rpartition(" ")[0]]


@pytest.fixture(scope="module")
def declared() -> dict[str, tuple[Any, ...]]:
    """Exported name to the types of its parameters."""
    text = re.sub(r"/\*.*?\*/", "", header(), flags=re.DOTALL)
    exported = {plain: name for plain, name in RENAMED.findall(text) if name.startswith(plain)}
    found: dict[str, tuple[Any, ...]] = {}
    for name, parameters in DECLARATION.findall(text):
        known = exported.get(name, name)
        if known not in found and known in ALL.keys() | OLDER_NAMES.values():  # the first is the current one
            found[known] = tuple(kind(" ".join(one.split())) for one in parameters.split(","))
    return found


@pytest.mark.parametrize("name", ALL)
def test_a_prototype_is_the_headers(name: str, declared: dict[str, tuple[Any, ...]]) -> None:
    assert ALL[name] == declared[OLDER_NAMES.get(name, name)]
