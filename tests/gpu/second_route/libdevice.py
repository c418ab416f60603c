"""NVIDIA's functions for the CPU: their LLVM bitcode, whose intrinsic functions are LLVM's own or written here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

import llvmlite.binding as llvm
import numpy as np
from numba import njit

from tests.gpu.second_route.instructions import power_of_two
from tests.gpu.second_route.native import address_of

CALL = re.compile(r'call (\w+) (?:asm "([^"]*)", "[^"]*"|@([\w.]+))\(([^()]*)\)')
ATTRIBUTES = re.compile(r"(?m) #\d+|, !\S+ !\d+|(?<=define) internal|^;.*")
SMALLEST = 2.0**-126


@njit
def flushed(a):
    return np.copysign(np.float32(0), a) if abs(a) < SMALLEST else a


@njit
def _multiply_add(a, b, c):
    """a * b + c rounded to the nearest float32, and by how much that is too high."""
    product, addend = np.float64(a) * np.float64(b), np.float64(c)  # exact
    total = product + addend
    rest = total - product
    lost = (product - (total - rest)) + (addend - rest)
    return np.float32(total), np.float64(np.float32(total)) - total - lost


def multiply_add_downwards(a, b, c):
    near, excess = _multiply_add(a, b, c)
    return np.nextafter(near, np.float32(-np.inf)) if excess > 0 else near


def multiply_add_to_zero(a, b, c):
    near, excess = _multiply_add(a, b, c)
    return np.nextafter(near, np.float32(0)) if excess * np.sign(near) > 0 else near


LLVM = {
    **{f"{name}.f": f"{name[1:]}num.f32" for name in ("fmin", "fmax")},
    "f2i.rz": "fptosi.sat.i32.f32",
    "f2ui.rz": "fptoui.sat.i32.f32",
    "round.f": "roundeven.f32",
    "round.d": "roundeven.f64",
    **{f"fabs.{kind}": f"fabs.{kind}" for kind in ("f32", "f64")},
    **{f"{name}.{kind[0]}": f"{name}.{kind[1:]}" for name in ("floor", "ceil", "trunc") for kind in ("ff32", "df64")},
    **{f"{name}.rn.{kind[0]}": f"{name}.{kind[1:]}" for name in ("fma", "sqrt") for kind in ("ff32", "df64")},
}
WRITTEN = {
    "add.rn.f": lambda a, b: a + b,
    **dict.fromkeys(("mul.rn.f", "mul.rn.d"), lambda a, b: a * b),
    **dict.fromkeys(("div.rn.f", "div.approx.f"), lambda a, b: a / b),
    "saturate.f": lambda a: min(a, np.float32(1)) if a > 0 else np.float32(0),
    "ex2.approx.ftz.f32": power_of_two,
    "rcp.approx.ftz.f32 $0,$1;": lambda a: flushed(np.float32(1) / flushed(a)),
    "fma.rm.f": multiply_add_downwards,
    "fma.rz.f": multiply_add_to_zero,
}
"""By the names of intrinsic functions, or by PTX."""


@cache
def _library() -> tuple[str, dict[str, str]]:
    """The definitions of types, and of functions by name."""
    from cuda import pathfinder  # of the extra 'cuda', without which tests are skipped

    with open(pathfinder.find_bitcode_lib("device"), "rb") as file:
        module = llvm.parse_bitcode(file.read())
    types = (str(one) for one in module.struct_types if one.name)
    return "\n".join(types), {one.name: str(one) for one in module.functions}


def definitions(names: Iterable[str]) -> str:
    """LLVM IR of NVIDIA's functions of these names, and of what they call."""
    (types, functions), texts = _library(), dict[str, str]()
    waiting = sorted(names)
    while waiting:
        if (name := waiting.pop()) not in texts:
            texts[name] = CALL.sub(_call, ATTRIBUTES.sub("", functions[name]))
            waiting += [called for _, _, called, _ in CALL.findall(texts[name]) if called.startswith("__")]
    return "\n".join([types, *texts.values()]) if texts else ""


def _call(match: re.Match[str]) -> str:
    """A call for the CPU. What flushes to zero is never reached: NVVM is not asked for it, says `__nvvm_reflect`."""
    type_, ptx, function, operands = match.groups()
    name = ptx or function.removeprefix("llvm.nvvm.")
    if name == "__nvvm_reflect":
        return "add i32 0, 0"
    if name in LLVM:
        return f"call {type_} @llvm.{LLVM[name]}({operands})"
    if name in WRITTEN:
        address = address_of(WRITTEN[name], type_, tuple(one.split(" ")[0] for one in operands.split(", ")))
        return f"call {type_} inttoptr (i64 {address} to ptr)({operands})"
    if name == function:
        return match.group()
    if ".ftz" not in name:
        raise KeyError(name)
    return f"freeze {type_} poison"
