"""Contract: chooses a kernel for convolutions, transposed convolutions and fully connected layers."""

from __future__ import annotations

from jitdelegate.errors import CompileError
from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.products import ffma
from jitdelegate.targets.cuda.sources.conv_problem import problem_of
from jitdelegate.targets.cuda.sources.stored_weights import with_stored_weights
from jitdelegate.targets.cuda.walks import contract_wide, gemv


def write_contract(writer: Writer, node: Node, form: Contract) -> None:
    """Writes the launches of a Contract node.

    Raises:
        CompileError: the weights or the bias are not constant, those of integers are no int8, a filter spans more than
            32767 rows or columns, or the GPU does not support the precision.
    """
    problem = problem_of(writer, node)
    is_float = problem.sums is Element.FLOAT32
    if not is_float and problem.weights is not Element.INT8:
        raise CompileError(f"{node.op} has weights of {problem.weights.value}, expected int8 for sums of integers")
    if problem.sums is Element.INT64:
        contract_wide.write(writer, problem)
    elif gemv.fits(problem):
        gemv.write(writer, problem)
    elif is_float and writer.precision == "float32":
        ffma.write(writer, with_stored_weights(writer, problem))
    else:
        from jitdelegate.targets.cuda.products import mma

        mma.write(writer, with_stored_weights(writer, problem))
