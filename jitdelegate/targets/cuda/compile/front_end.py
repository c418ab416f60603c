"""Numba's front end: compiles a template's kernel to NVVM IR text. The only module that uses numba.cuda.

numba-cuda is in maintenance mode, so all uses of its internals stay in this module: `compile_cuda` with the C calling
convention, `nvvm.set_cuda_kernel` and `nvvm.set_launch_bounds`.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.compiler import compile_cuda
from numba.cuda.cudadrv import nvvm
from numba.cuda.extending import intrinsic

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.sizes import Kind, count, filled, members
from jitdelegate.targets.cuda.code.template import Template

BASELINE = (8, 0)
"""Lowering does not depend on the GPU, but Numba requires some compute capability."""
POINTER_ALIGN = 16
TYPES = {"int32": types.int32, "float32": types.float32, "pointer": types.CPointer(types.uint8)}
"""Numba's types by their names in `Kind`."""


def lower(template: Template) -> str:
    """NVVM IR text of a template's kernel, a C function named by its symbol; the same in every process.

    The kernel passes all parameters as one tuple to an intrinsic function, whose body `Template.write` writes. Numba
    flattens tuples: each number and pointer is a parameter of the C function, and the tuple, which Numba builds of them
    again, is left out. Pointers to constants are aligned to POINTER_ALIGN and alias no other; of pointers to tensors,
    which `Code.await_launches` makes anew, NVVM knows neither.
    """

    def typed(context: Any, arguments: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, values: Any) -> Any:
            _write(template, Code(builder))
            return target.get_dummy_value()

        return types.void(arguments), generate

    write = intrinsic(typed)

    def kernel(arguments):  # type: ignore[no-untyped-def]
        write(arguments)

    kernel.__name__ = kernel.__qualname__ = template.symbol
    parameters = (_numba_type(template.parameters),)
    result = compile_cuda(kernel, types.void, parameters, cc=BASELINE, abi="c", nvvm_options={"opt": 3})
    function = result.library.get_function(result.fndesc.llvm_func_name)
    _return_nothing(function)
    entry = function.entry_basic_block
    entry.instructions = [one for one in entry.instructions if not isinstance(one, ir.InsertValue)]
    for argument in function.args:
        if isinstance(argument.type, ir.PointerType):
            argument.add_attribute("noalias")
            argument.attributes.align = POINTER_ALIGN
    nvvm.set_cuda_kernel(function)
    nvvm.set_launch_bounds(function, (template.threads, template.min_blocks))
    if template.cluster > 1:
        _set_cluster(function, template.cluster)
    return _without_counters("\n".join(str(module) for module in result.library.modules))


def _write(template: Template, code: Code) -> None:
    """The whole kernel."""
    numbers = (Value(code, parameter) for parameter in code.builder.function.args)
    arguments: list[Any] = []
    for position, kind in enumerate(template.parameters):
        own = list(islice(numbers, count(kind)))
        arguments.append(filled(kind, iter(own)))
        pointers = [one for one in own if isinstance(one.value.type, ir.PointerType)]
        if position in template.constants:
            code.constants += pointers
        else:
            code.tensors += [(one, one.value) for one in pointers]
    for pointer, _ in code.tensors:
        pointer.value = None
    code.launch_dependents()
    if not template.awaits_launches:
        code.await_launches()
    template.write(code, *arguments)
    assert not code.is_waiting, f"{template.family} does not wait for the launches before it"


def _numba_type(kind: Kind) -> Any:
    return TYPES[kind] if isinstance(kind, str) else types.Tuple([_numba_type(one) for one in members(kind)])


def _return_nothing(function: Any) -> None:
    """Makes the function return nothing: the C convention gives it an `i8*` result, which CUDA kernels do not have."""
    for block in function.blocks:
        if isinstance(block.terminator, ir.Ret):
            block.instructions.pop()
            block.terminator = None
            ir.IRBuilder(block).ret_void()
    function.ftype = ir.FunctionType(ir.VoidType(), function.ftype.args)
    function.type = ir.PointerType(function.ftype)
    function.return_value = ir.ReturnValue(function, ir.VoidType())


def _set_cluster(function: Any, size: int) -> None:
    """Makes `size` neighbouring blocks along z a cluster, in every launch."""
    module = function.module
    for axis, blocks in zip("xyz", (1, 1, size), strict=True):
        named = [function, f"cluster_dim_{axis}", ir.Constant(ir.IntType(32), blocks)]
        module.add_named_metadata("nvvm.annotations", module.add_metadata(named))


def _without_counters(text: str) -> str:
    """The text without the comment that numbers modules in the order in which the process created them."""
    return re.sub(r"(?m)^; ModuleID = .*$\n?", "", text)
