"""A client whose kernels are machine code: each partition is (a + b) * 0.5, as `clients.chain` makes them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any

from llvmlite import binding

from jitdelegate.engine.litert_delegate.delegate_client import DelegateKernel
from jitdelegate.runtime.litert_layout import LAYOUT
from tests.engine.litert_delegate.clients import NumpyClient, NumpyKernel

SOURCE = f"""
define ptr @data(ptr %context, i64 %index) {{
    %tensors.place = getelementptr i8, ptr %context, i64 {LAYOUT.context["tensors"]}
    %tensors = load ptr, ptr %tensors.place
    %offset = mul i64 %index, {LAYOUT.tensor.size}
    %tensor = getelementptr i8, ptr %tensors, i64 %offset
    %place = getelementptr i8, ptr %tensor, i64 {LAYOUT.tensor["data"]}
    %address = load ptr, ptr %place
    ret ptr %address
}}

define i64 @argument(ptr %node, i64 %number) {{
    %slot.place = getelementptr i8, ptr %node, i64 {LAYOUT.node["user_data"]}
    %slot = load ptr, ptr %slot.place
    %arguments.place = getelementptr i64, ptr %slot, i64 1
    %arguments = load ptr, ptr %arguments.place
    %place = getelementptr i64, ptr %arguments, i64 %number
    %value = load i64, ptr %place
    ret i64 %value
}}

define i32 @half_of_sum(ptr %context, ptr %node) {{
entry:
    %count = call i64 @argument(ptr %node, i64 0)
    %index.a = call i64 @argument(ptr %node, i64 1)
    %index.b = call i64 @argument(ptr %node, i64 2)
    %index.c = call i64 @argument(ptr %node, i64 3)
    %a = call ptr @data(ptr %context, i64 %index.a)
    %b = call ptr @data(ptr %context, i64 %index.b)
    %c = call ptr @data(ptr %context, i64 %index.c)
    br label %next
next:
    %i = phi i64 [ 0, %entry ], [ %more, %next ]
    %a.place = getelementptr float, ptr %a, i64 %i
    %b.place = getelementptr float, ptr %b, i64 %i
    %c.place = getelementptr float, ptr %c, i64 %i
    %x = load float, ptr %a.place
    %y = load float, ptr %b.place
    %sum = fadd float %x, %y
    %half = fmul float %sum, 0.5
    store float %half, ptr %c.place
    %more = add i64 %i, 1
    %done = icmp eq i64 %more, %count
    br i1 %done, label %end, label %next
end:
    ret i32 0
}}
"""


@cache
def engine() -> Any:
    """Keeps the code in memory."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    found = binding.create_mcjit_compiler(binding.parse_assembly(SOURCE), machine)
    found.finalize_object()
    return found


class CompiledClient(NumpyClient):
    """The same with machine code.

    Attributes:
        entry: of all kernels.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.entry = engine().get_function_address("half_of_sum")

    def kernel(
        self, subgraph: int, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]], context: int
    ) -> DelegateKernel:
        """The graph's input is an input of every sum, and its other input comes from ABS, but for the first."""
        kernel = super().kernel(subgraph, nodes, shapes, context)
        assert isinstance(kernel, NumpyKernel)
        (output,), shape = kernel.outputs, kernel.output_shapes[0]
        one, other = kernel.steps[0].inputs
        count = 1
        for size in shape:
            count *= size
        kernel.words = (ctypes.c_uint64 * 4)(count, one, other, output)  # type: ignore[attr-defined]
        kernel.entry, kernel.arguments = self.entry, ctypes.addressof(kernel.words)  # type: ignore[attr-defined]
        return kernel
