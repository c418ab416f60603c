"""What Numba's Python lacks: bits of numbers as other numbers, memory at an address, and calls of an address."""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

I64 = ir.IntType(64)
TYPES = {
    "void": types.void,
    "i16": types.uint16,
    "i32": types.int32,
    "i64": types.int64,
    "ptr": types.int64,
    "float": types.float32,
    "double": types.float64,
}
"""Numba's types of LLVM's."""
_kept: list[Any] = []


@cache
def address_of(function: Any, result: str, arguments: tuple[str, ...]) -> int:
    """The address of a Python function, compiled for these of LLVM's types."""
    compiled = cfunc(TYPES[result](*(TYPES[one] for one in arguments)))(function)
    _kept.append(compiled)
    return int(compiled.address)


def _convert(source: Any, result: Any, operation: str = "bitcast") -> Any:
    def typed(context: Any, number: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, values: Any) -> Any:
            return getattr(builder, operation)(values[0], target.get_value_type(result))

        return result(source), generate

    return intrinsic(typed)


bits_of_float, float_of_bits = _convert(types.float32, types.uint32), _convert(types.uint32, types.float32)
_pointer = _convert(types.int64, types.voidptr, "inttoptr")


@njit
def memory(address, shape, dtype):
    """Numbers from an address on, as an array."""
    return carray(_pointer(address), shape, dtype)


@intrinsic
def call(context: Any, address: Any, first: Any, second: Any) -> Any:
    """Calls the function of two words at an address; a word."""

    def generate(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        function = builder.inttoptr(values[0], ir.FunctionType(I64, [I64, I64]).as_pointer())
        return builder.call(function, values[1:])

    return types.int64(types.int64, types.int64, types.int64), generate
