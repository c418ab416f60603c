"""The kinds of operators, forms and values that a pass works on; it does not change a graph without them.

A pass is run only if `applies` is true, so that a compilation enters no pass that has nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from jitdelegate.ir.forms import Form
from jitdelegate.ir.graph import Graph
from jitdelegate.ops import OPS

Kind = str | type[Form] | Callable[[Graph], bool]
Function = TypeVar("Function", bound=Callable[..., Any])


def works_on(*kinds: Kind) -> Callable[[Function], Function]:
    """Declares that a pass changes only graphs with one of these kinds; of several declarations, each has to hold.

    Args:
        kinds: names of operators, classes of forms, and functions that look for a kind of values.
    """

    def declare(function: Function) -> Function:
        function.__dict__["works_on"] = (kinds, *declared(function))
        return function

    return declare


def declared(function: Callable[..., Any]) -> tuple[tuple[Kind, ...], ...]:
    """The kinds of each declaration of a pass; () for a pass that has to see every graph."""
    found: tuple[tuple[Kind, ...], ...] = getattr(function, "works_on", ())
    return found


def applies(function: Callable[..., Any], graph: Graph) -> bool:
    """Whether the graph has what a pass works on."""
    groups = declared(function)
    if not groups:
        return True
    names, forms = {node.op for node in graph.nodes}, tuple({type(node.form) for node in graph.nodes})

    def has(kind: Kind) -> bool:
        if isinstance(kind, str):
            return kind in names
        return any(issubclass(form, kind) for form in forms) if isinstance(kind, type) else kind(graph)

    return all(any(map(has, kinds)) for kinds in groups)


def moves(graph: Graph) -> bool:
    """Whether a node only moves elements: a transpose, reshape, slice or concatenation."""
    return any(node.form is not None and node.form.moves_only for node in graph.nodes)


def quantized_values(graph: Graph) -> bool:
    """Whether a tensor is quantized."""
    return any(tensor.quant is not None for tensor in graph.tensors)


def narrow_values(graph: Graph) -> bool:
    """Whether a value that is not quantized has a type that some operator computes in a wider one."""
    narrow = {dtype for op in OPS.values() for dtype in op.narrow}
    return any(tensor.dtype in narrow and not tensor.is_quantized for tensor in graph.tensors)


def custom_operators(graph: Graph) -> bool:
    """Whether an operator is a custom one."""
    return any(node.custom for node in graph.nodes)


def variables(graph: Graph) -> bool:
    """Whether a tensor is a variable."""
    return any(tensor.is_variable for tensor in graph.tensors)
