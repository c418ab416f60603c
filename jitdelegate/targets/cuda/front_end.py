"""Numba's front end: a Python kernel and its macros to NVVM IR text. The only module that knows numba.cuda.

numba-cuda is in maintenance, so what is used of its insides stays here: `compile_cuda` with the C calling convention,
`nvvm.set_cuda_kernel` and `nvvm.set_launch_bounds`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.compiler import compile_cuda
from numba.cuda.cudadrv import nvvm
from numba.cuda.extending import intrinsic

from jitdelegate.targets.cuda.device_code import I32, Code, Value

BASELINE = (8, 0)
"""Lowering does not look at the GPU; some capability has to be named."""
POINTER_ALIGN = 16
TYPES = {
    "void": types.void,
    "int32": types.int32,
    # Numba makes int64 of sums of int32, which become int32 again; what needs 64 bits comes unsigned.
    "int64": types.uint64,
    "float32": types.float32,
    "boolean": types.boolean,
    "pointer": types.CPointer(types.uint8),
}
"""Names of what kernels take and macros return."""

Kind = str | tuple[str, int]
"""A name of TYPES, or with a number: a tuple of so many."""
Body = Callable[..., Any]


def macro(returns: Kind = "void") -> Callable[[Body], Any]:
    """A decorator: a function in Numba kernels whose body writes its device code itself.

    The body is called with a `Code` and, for each argument, a `Value` (integers as int32 but for "int64", local arrays
    and pointers as pointers) or a list of them (tuples). It returns a Value, or a sequence of n where `returns` is
    ("int32", n).
    """
    numba_type = _numba_type(returns)

    def decorate(body: Body) -> Any:
        def typed(context: Any, *arguments: Any) -> Any:
            def generate(target: Any, builder: Any, signature: Any, values: Any) -> Any:
                code = Code(builder)
                given = [_argument(code, target, t, v) for t, v in zip(signature.args, values, strict=True)]
                return _returned(target, builder, numba_type, body(code, *given))

            return numba_type(*arguments), generate

        typed.__name__ = body.__name__
        # Numba folds calls by the signature: `context` stands where the body takes its `code`.
        typed.__signature__ = inspect.signature(body)  # type: ignore[attr-defined]
        return intrinsic(typed)

    return decorate


def _numba_type(kind: Kind) -> Any:
    return types.UniTuple(TYPES[kind[0]], kind[1]) if isinstance(kind, tuple) else TYPES[kind]


def _argument(code: Code, target: Any, type_: Any, value: Any) -> Any:
    if isinstance(type_, types.BaseTuple):
        members = [code.builder.extract_value(value, k) for k in range(len(type_))]
        return [_argument(code, target, t, v) for t, v in zip(type_, members, strict=True)]
    if isinstance(type_, types.Array):
        return Value(code, target.make_array(type_)(target, code.builder, value=value).data)
    if isinstance(type_, types.Boolean):
        return Value(code, value if value.type.width == 1 else code.builder.trunc(value, ir.IntType(1)))
    if isinstance(type_, types.Integer) and type_ != TYPES["int64"]:
        return Value(code, _narrowed(code, type_, value))
    return Value(code, value)


def _narrowed(code: Code, type_: Any, value: Any) -> Any:
    if value.type.width == I32.width:
        return value
    if value.type.width > I32.width:
        return code.builder.trunc(value, I32)
    return code.builder.sext(value, I32) if type_.signed else code.builder.zext(value, I32)


def _returned(target: Any, builder: Any, type_: Any, result: Any) -> Any:
    if type_ == types.void:
        return target.get_dummy_value()
    if isinstance(type_, types.UniTuple):
        packed = ir.Constant(target.get_value_type(type_), ir.Undefined)
        for k, value in enumerate(result):
            packed = builder.insert_value(packed, value.value, k)
        return packed
    return result.value


def lower(kernel: Callable[..., None], parameters: Sequence[Kind], name: str, threads: int, blocks: int = 1) -> str:
    """NVVM IR text of one kernel with the C symbol `name`; the same in every process.

    Args:
        kernel: a Python function that Numba compiles.
        parameters: what it takes; a tuple is one parameter to the kernel and n arguments of a launch. A "pointer" is
            aligned to POINTER_ALIGN and aliases no other.
        threads: the most threads of a block.
        blocks: as many blocks of it must fit on a multiprocessor.
    """
    kernel.__name__ = kernel.__qualname__ = name
    result = compile_cuda(
        kernel, types.void, tuple(map(_numba_type, parameters)), cc=BASELINE, abi="c", nvvm_options={"opt": 3}
    )
    function = result.library.get_function(result.fndesc.llvm_func_name)
    _return_nothing(function)
    for argument in function.args:
        if isinstance(argument.type, ir.PointerType):
            argument.add_attribute("noalias")
            argument.attributes.align = POINTER_ALIGN
    nvvm.set_cuda_kernel(function)
    nvvm.set_launch_bounds(function, (threads, blocks))
    return _without_counters("\n".join(str(module) for module in result.library.modules))


def _return_nothing(function: Any) -> None:
    """The C convention gives kernels an `i8*` result; a CUDA kernel has none."""
    for block in function.blocks:
        if isinstance(block.terminator, ir.Ret):
            block.instructions.pop()
            block.terminator = None
            ir.IRBuilder(block).ret_void()
    function.ftype = ir.FunctionType(ir.VoidType(), function.ftype.args)
    function.type = ir.PointerType(function.ftype)
    function.return_value = ir.ReturnValue(function, ir.VoidType())


def _without_counters(text: str) -> str:
    """The text without the comment that numbers modules by the order in which a process made them."""
    return re.sub(r"(?m)^; ModuleID = .*$\n?", "", text)
