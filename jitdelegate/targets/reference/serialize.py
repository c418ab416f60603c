"""Converts a lowered graph to bytes and back: nodes, forms and expressions as JSON, constants as in memory.

Forms, expressions and index maps are [class name, fields in order]. Reading checks values against the fields' types. It
does not check the version: the program's key does.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from jitdelegate.errors import ProgramError
from jitdelegate.ir.expr import Apply, Arg, Cast, Const, Expr
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.forms import Form, IndexMap, Map, Statistic
from jitdelegate.ir.graph import Graph, Node, State, Tensor
from jitdelegate.ir.quantized import Quantize, Rescale, Table
from jitdelegate.ir.random_bits import RandomBits
from jitdelegate.ir.verify import verify
from jitdelegate.targets.reference.forms import FORMS

ALIGNMENT = 16
"""Alignment of each constant, in bytes."""
NOT_CONSTANT = -1
EXPRESSIONS = (Apply, Arg, Cast, Const, FixedPoint, Quantize, RandomBits, Rescale, Table)
CLASSES: dict[str, Any] = {each.__name__: each for each in (IndexMap, Statistic, *EXPRESSIONS, Map, *FORMS)}
_Integers = tuple[int, ...]
_Tensor = tuple[str, _Integers, str, int]
_Node = tuple[str, _Integers, _Integers, _Integers, Form]
_Graph = tuple[tuple[_Tensor, ...], tuple[_Node, ...], _Integers, _Integers, tuple[tuple[int, int], ...]]


def serialize(graph: Graph) -> tuple[bytes, bytearray]:
    """(JSON, constants) of a lowered graph; first values of states are left out."""
    constants = bytearray()
    used = (bool(readers) or index in graph.outputs for index, readers in enumerate(graph.readers))
    tensors = [
        (tensor.name, tensor.shape, tensor.dtype, _append(constants, tensor.data if is_used else None))
        for tensor, is_used in zip(graph.tensors, used, strict=True)
    ]
    nodes = [(node.op, node.inputs, node.outputs, node.origin, _plain(node.form)) for node in graph.nodes]
    states = [(state.before, state.after) for state in graph.states]
    content = (tensors, nodes, graph.inputs, graph.outputs, states)
    return json.dumps(content, separators=(",", ":"), default=lambda number: number.item()).encode(), constants


def _append(constants: bytearray, data: np.ndarray | None) -> int:
    """Append the elements; returns their offset."""
    if data is None:
        return NOT_CONSTANT
    constants.extend(bytes(-len(constants) % ALIGNMENT))
    constants.extend(np.ascontiguousarray(data).tobytes())
    return len(constants) - data.nbytes


def _plain(value: Any) -> Any:
    """The value as lists, numbers and strings."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if type(value).__name__ in CLASSES:
        return [type(value).__name__, *(_plain(getattr(value, field.name)) for field in fields(value))]
    return value


def deserialize(content: bytes, constants: bytes) -> Graph:
    """The graph that `serialize` wrote; its constants are views of `constants`.

    Raises:
        ProgramError: the content is not a graph.
    """
    try:
        tensors, nodes, inputs, outputs, states = _checked(_Graph, json.loads(content))
        graph = Graph(
            tuple(_tensor(constants, *each) for each in tensors),
            tuple(Node(op, read, written, origin=origin, form=form) for op, read, written, origin, form in nodes),
            inputs,
            outputs,
            states=tuple(State(*each) for each in states),
        )
        verify(graph, "reading")
    except (AssertionError, RecursionError, TypeError, ValueError) as error:
        raise ProgramError(f"the code is no graph: {error}") from error
    return graph


def _tensor(constants: bytes, name: str, shape: tuple[int, ...], dtype: str, offset: int) -> Tensor:
    if offset == NOT_CONSTANT:
        return Tensor(name, shape, dtype)
    count = Tensor(name, shape, dtype).size
    return Tensor(name, shape, dtype, np.frombuffer(constants, dtype, count, offset).reshape(shape))


def _checked(kind: Any, value: Any) -> Any:
    """The value, of type `kind`, with lists as tuples; raises TypeError if it has another type."""
    if kind in (IndexMap, Statistic, Expr, Form):
        return _object(kind, value)
    if get_origin(kind) is tuple:
        return _tuple(get_args(kind), value)
    kinds = get_args(kind) or (kind,)
    if type(value) not in (*kinds, *([int] if float in kinds else [])):
        raise TypeError(f"found {value!r}, expected {kind}")
    return value


def _tuple(kinds: tuple[Any, ...], values: Any) -> tuple[Any, ...]:
    if type(values) is not list:
        raise TypeError(f"found {values!r}, expected a list")
    each = kinds[:1] * len(values) if kinds[1:] == (...,) else kinds
    return tuple(_checked(kind, value) for kind, value in zip(each, values, strict=True))


def _object(kind: Any, value: Any) -> Any:
    name, *values = value
    if name not in CLASSES or not issubclass(CLASSES[name], kind):
        raise TypeError(f"found {name!r}, expected a kind of {kind.__name__}")
    return CLASSES[name](*_tuple(_types(name), values))


@cache
def _types(name: str) -> tuple[Any, ...]:
    """The types of a class's fields, in order."""
    hints = get_type_hints(CLASSES[name])
    return tuple(hints[field.name] for field in fields(CLASSES[name]))
