"""Tries the delegate on a tiny model in a process that may crash, `python -m jitdelegate.engine.litert_delegate.probe`.

The layout to try comes on standard input; the last line of standard output is the verdict. The comparisons here cover
every field that the delegate reads or writes.
"""

from __future__ import annotations

import sys

from jitdelegate.engine.litert_delegate import callbacks
from jitdelegate.engine.litert_delegate.check import Doubt
from jitdelegate.engine.litert_delegate.context import ARENA, READ_ONLY, Context
from jitdelegate.engine.litert_delegate.delegation import sentence
from jitdelegate.engine.litert_delegate.native_delegate import NativeDelegate
from jitdelegate.engine.litert_delegate.probe_model import (
    ABS,
    ABSOLUTE,
    BIAS,
    CODES,
    CONSTANTS,
    FIRST,
    HIDDEN,
    NODES,
    PARTITION_TENSORS,
    PARTITIONS,
    RESULT,
    SECOND,
    SEQUENCE,
    SIZES,
    STATE,
    SUM,
    TENSORS,
    ProbeClient,
    model,
)
from jitdelegate.engine.litert_delegate.trust import ACCEPTED, accept
from jitdelegate.runtime.litert_layout import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FLOAT_BYTES = 4
_LONGEST_VERDICT = 300
_FAILED = "100% as %s intended %n"


def main() -> int:
    """Exit status: 0 there is a verdict."""
    _leave_no_core()
    verdict = judge(Layout.from_text(sys.stdin.read()))
    sys.stdout.write(f"\n{verdict or ACCEPTED}\n")
    sys.stdout.flush()
    return 0


def judge(layout: Layout) -> str:
    """ "" if the delegate works with the layout in this process's LiteRT, else the problem; may end the process."""
    try:
        accept(layout)
        _try(layout)
    except Exception as error:  # noqa: BLE001 - whatever it is, the layout is refused for it
        return " ".join(sentence(error).split())[:_LONGEST_VERDICT] or "an error without words"
    return ""


def _try(layout: Layout) -> None:
    """Make, run, resize and fail an interpreter.

    Raises:
        Doubt: something differs from what is expected.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    client = ProbeClient(layout)
    delegate = NativeDelegate(client, layout=layout)
    client.look = lambda: _look_at_nodes(Context(next(iter(delegate.contexts)), layout))
    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(
        model_content=model(), experimental_delegates=[delegate], experimental_op_resolver_type=plain
    )
    _same("what the delegate says", client.warnings, [])
    interpreter.allocate_tensors()
    _look_at_kernels()
    _look_at_tensors(Context(next(iter(delegate.contexts)), layout), interpreter)
    _run(interpreter, SIZES[0])
    _resize(interpreter, client)
    _run(interpreter, SIZES[1])
    _fail(interpreter, client)
    _run(interpreter, SIZES[1])
    del interpreter
    _same("kernels that were closed", client.closed, len(client.opened))
    _same("kernels that are left", len(callbacks.kernels), 0)


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Doubt(f"{what}: {found}, expected {expected}")


def _look_at_tensors(context: Context, interpreter: Any) -> None:
    for index, (name, dtype, shape) in enumerate(TENSORS):
        tensor = context.tensor(index)
        _same(f"tensor {index}", (tensor.name, tensor.dtype, tensor.shape), (name, dtype, shape))
        _same(f"is_variable of {name}", tensor.is_variable, index == STATE)
        _same(f"is_dynamic of {name}", tensor.is_dynamic, False)
    _same("the constants", [i for i in range(len(TENSORS)) if _is_constant(context, i)], [*CONSTANTS])
    _same("tensors that are not there", context.num_tensors() < len(TENSORS), False)
    for index in (FIRST, SECOND, SEQUENCE, BIAS, RESULT, HIDDEN):
        address = interpreter.tensor(index)().__array_interface__["data"][0]
        _same(f"the address of tensor {index}", context.data((index,)), [address])
        _same(f"the address of tensor {index}", context.tensor(index).data, address)
    for index in (FIRST, SUM, RESULT):
        tensor = context.tensor(index)
        _same(
            f"the memory of tensor {index}", (tensor.nbytes, tensor.allocation_type), (SIZES[0] * _FLOAT_BYTES, ARENA)
        )


def _is_constant(context: Context, index: int) -> bool:
    return context.tensor(index).allocation_type == READ_ONLY


def _look_at_nodes(context: Context) -> None:
    nodes = [context.node(position) for position in range(len(NODES))]
    _same("the operators", tuple(node.builtin_code for node in nodes), CODES)
    _same("the operators' tensors", tuple((node.inputs, node.outputs) for node in nodes), NODES)
    _same("the execution plan", context.execution_plan(), tuple(range(len(NODES))))
    partitions = context.preview((CODES.index(ABS),))
    offered = [(partition.nodes, partition.inputs, partition.outputs) for partition in partitions]
    _same("another partition", offered, [((1,), (SUM,), (ABSOLUTE,))])


def _look_at_kernels() -> None:
    opened = [(kernel.nodes, sorted(kernel.inputs), sorted(kernel.outputs)) for kernel in callbacks.kernels.values()]
    tensors = zip(PARTITIONS, PARTITION_TENSORS, strict=True)
    _same("the partitions", opened, [(nodes, sorted(inputs), sorted(outputs)) for nodes, (inputs, outputs) in tensors])


def _resize(interpreter: Any, client: ProbeClient) -> None:
    """Check that after a resize kernels are opened again, and the model is not offered again."""
    for index in (FIRST, SECOND):
        interpreter.resize_tensor_input(index, (SIZES[1],))
    interpreter.allocate_tensors()
    _same("offers of the model", client.offers, 1)
    for size, opened in zip(SIZES, (client.opened[:2], client.opened[2:]), strict=True):
        expected = [
            (nodes, dict.fromkeys(inputs, (size,)))
            for nodes, (inputs, _) in zip(PARTITIONS, PARTITION_TENSORS, strict=True)
        ]
        _same("the kernels' shapes", opened, expected)
    _same("kernels that were closed", client.closed, len(PARTITIONS))


def _run(interpreter: Any, size: int) -> None:
    import numpy as np

    first = np.arange(size, dtype=np.float32) - 2
    second = np.arange(size, dtype=np.float32) + 0.5
    before = callbacks.python_invocations
    interpreter.set_tensor(FIRST, first)
    interpreter.set_tensor(SECOND, second)
    interpreter.set_tensor(SEQUENCE, np.ones(TENSORS[SEQUENCE][2], np.float32))
    interpreter.invoke()
    _same("the result", interpreter.get_tensor(RESULT).tolist(), (abs(first + first) * second + first).tolist())
    _same("partitions that ran in Python", callbacks.python_invocations - before, 1)


def _fail(interpreter: Any, client: ProbeClient) -> None:
    """Check that the text of an error reaches the caller."""
    client.failing = True
    try:
        interpreter.invoke()
    except RuntimeError as error:
        text = str(error)
        _same("the error's words", (_FAILED in text, f"({callbacks.NAME.decode()})" in text), (True, True))
    else:
        raise Doubt("an error of a partition does not end the run")


def _leave_no_core() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.exit(main())
