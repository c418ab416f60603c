"""The graph as stable text, one line per node, for reading and for comparison in tests."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor

SHORT = {"float32": "f32", "float16": "f16", "int32": "i32", "int64": "i64", "int8": "i8", "uint8": "u8", "bool": "b1"}


def tensor_type(tensor: Tensor) -> str:
    """`f32[1,4,4,8]`."""
    return f"{SHORT.get(tensor.dtype, tensor.dtype)}[{','.join(map(str, tensor.shape))}]"


def form_text(form: Any) -> str:
    """The form's name with every field that differs from its default."""
    shown = [(f.name, getattr(form, f.name)) for f in fields(form) if getattr(form, f.name) != f.default]
    return f"{type(form).__name__}({', '.join(f'{name}={_value(value)}' for name, value in shown)})"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ",".join(map(_value, value)) + ")"
    return str(value)


def _operand(graph: Graph, index: int) -> str:
    if index == ABSENT:
        return "-"
    return f"%{index}:{tensor_type(graph.tensors[index])}" if graph.tensors[index].is_constant else f"%{index}"


def node_text(graph: Graph, node: Node) -> str:
    """`%2 = CONV_2D(%0, %3:f32[8,3,3,4]) {stride_w=1} : f32[1,4,4,8]`, with the form after `by` once lowered."""
    outputs = ", ".join(f"%{i}" for i in node.outputs)
    inputs = ", ".join(_operand(graph, i) for i in node.inputs)
    attrs = ", ".join(f"{name}={_value(value)}" for name, value in sorted(node.attrs.items()))
    types = ", ".join(tensor_type(graph.tensors[i]) for i in node.outputs)
    by = f" by {form_text(node.form)}" if node.form else ""
    return f"{outputs} = {node.op}({inputs}){f' {{{attrs}}}' if attrs else ''} : {types}{by}"


def graph_text(graph: Graph) -> str:
    """The whole graph: a header with inputs, one line per node, a footer with outputs."""
    inputs = ", ".join(f"%{i}: {tensor_type(graph.tensors[i])}" for i in graph.inputs)
    lines = [f"graph {graph.name or 'main'}({inputs})"]
    lines += ["  " + node_text(graph, node) for node in graph.nodes]
    lines.append("  return " + ", ".join(f"%{i}" for i in graph.outputs))
    return "\n".join(lines) + "\n"
