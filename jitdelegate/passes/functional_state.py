"""Turns variables into inputs and outputs of the graph, whose values the runtime keeps from run to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.errors import CompileError
from jitdelegate.ir.graph import ABSENT, Graph, Model, Node, State, Tensor
from jitdelegate.ops import find
from jitdelegate.ops.call import zero
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.infer_shapes import infer_shapes
from jitdelegate.passes.resize_inputs import reshaped
from jitdelegate.passes.works_on import variables, works_on

Name = tuple[str, str]
"""A resource variable's container and its name."""

RESOURCE_OPS = {"VAR_HANDLE": (0, 1), "READ_VARIABLE": (1, 1), "ASSIGN_VARIABLE": (2, 0), "CALL_ONCE": (0, 0)}
"""TFLite's name -> number of inputs and outputs."""


@works_on(variables, *RESOURCE_OPS)
def functional_state(model: Model, number: int = 0) -> Graph:
    """%1 = SVDF(%0, ..., %5 a variable) -> %1, %6 = SVDF(%0, ..., %5), with the state %5 -> %6;
    %2 = READ_VARIABLE(%1); ASSIGN_VARIABLE(%1, %3) -> nothing, with the state %2 -> %3.

    Resource variables start with the values that the model's CALL_ONCE assigns; a variable that the model only reads
    becomes a constant. If a first value is not known, the operators stay as they are and the check reports them.

    Args:
        number: index of the subgraph to rewrite.
    """
    graph = functional_variables(model.graphs[number])
    try:
        return _Resources(model, number, graph).rewritten()
    except CompileError:
        return graph


@works_on(variables)
def functional_variables(graph: Graph) -> Graph:
    """As `functional_state`, for variable tensors only; resource variables stay as they are."""
    return _Variables(graph).rewritten()


@works_on(*RESOURCE_OPS)
def resource_problem(model: Model, number: int = 0) -> str | None:
    """Why `functional_state` leaves the resource variables of a subgraph as they are; None if it rewrites them."""
    try:
        _Resources(model, number, model.graphs[number]).rewritten()
    except CompileError as problem:
        return str(problem)
    return None


class _Variables:
    """Tensors of a graph that are variables, and the nodes that update them in place."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._draft = GraphBuilder(graph)
        self._now: dict[int, int] = {}
        self._written: set[int] = set()

    def rewritten(self) -> Graph:
        """The graph with a state for every variable that a node updates."""
        kept = [node for node in self._graph.nodes if not self._starts_with_zeros(node)]
        self._written = {index for node in kept for index in node.outputs}
        nodes = [self._node(node) for node in kept]
        changed = [index for index, now in self._now.items() if now != index]
        for index in (*changed, *self._graph.inputs):
            self._draft.tensors[index] = replace(self._draft.tensors[index], is_variable=False)
        graph = self._draft.graph(nodes)
        graph = replace(graph, outputs=tuple(self._now.get(index, index) for index in graph.outputs))
        states = [State(index, self._now[index], _first_value(self._graph.tensors[index])) for index in changed]
        return _with_states(graph, states)

    def _starts_with_zeros(self, node: Node) -> bool:
        """Whether the node gives a variable the zeros that it has anyway. Converters write such a DEQUANTIZE for models
        with float16 weights; LiteRT runs it once, before the first run."""
        if node.op != "DEQUANTIZE" or len(node.inputs) != 1 or not self._may_update(node.outputs[0]):
            return False
        data = self._graph.tensors[node.inputs[0]].data
        return data is not None and data.dtype == np.float16 and not data.any()

    def _node(self, node: Node) -> Node:
        """The node reading the variables' current values, with an additional output for each variable it updates."""
        op = find(node)
        inputs = tuple(self._now.get(index, index) for index in node.inputs)
        outputs = node.outputs
        for operand in op.updates(node) if op else ():
            index = node.inputs[operand] if operand < len(node.inputs) else ABSENT
            if self._may_update(index) and node.inputs.count(index) == 1:
                tensor = self._graph.tensors[index]
                self._now[index] = self._draft.add(replace(tensor, name=f"{tensor.name} after", is_variable=False))
                outputs += (self._now[index],)
        return node.between(inputs, outputs)

    def _may_update(self, index: int) -> bool:
        is_given = index in self._graph.inputs or index in self._written
        return index != ABSENT and self._graph.tensors[index].is_variable and not is_given


def _first_value(variable: Tensor) -> np.ndarray | None:
    """The value of a variable before the first run: the zero point of an int8, as in LiteRT, else zeros."""
    first = zero(variable) if variable.dtype == "int8" else 0
    return np.full(variable.shape, first, np.int8) if first else None


@dataclass
class _Value:
    """The value of a resource variable at some point of the run.

    Attributes:
        first: the constant value before the first run; None if every run assigns the variable before reading it.
        before: the tensor with the value at the start of a run; None until the variable is read.
        now: the tensor with the current value.
    """

    first: np.ndarray | None
    before: int | None = None
    now: int | None = None


class _Resources:
    """Resource variables of one subgraph."""

    def __init__(self, model: Model, number: int, graph: Graph) -> None:
        self._model = model
        self._number = number
        self._graph = graph
        self._draft = GraphBuilder(graph)
        self._values: dict[Name, _Value] = {}
        self._handles: dict[int, Name] = {}
        self._instead: dict[int, int] = {}

    def rewritten(self) -> Graph:
        """The graph without operators on resources.

        Raises:
            CompileError: a variable's value is not known; names the variable and the reason.
        """
        if not any(_is_resource_op(node) for node in self._graph.nodes):
            return self._graph
        nodes = [left for node in self._graph.nodes if (left := self._left(node)) is not None]
        nodes = [node.between(tuple(map(self._current, node.inputs)), node.outputs) for node in nodes]
        graph = self._draft.graph(nodes)
        self._refuse_other_users(graph)
        self._refuse_shared()
        states = [
            State(value.before, value.now, value.first, is_resource=True)
            for value in self._values.values()
            if value.before is not None and value.now is not None and value.now != value.before
        ]
        return _with_states(self._with_constants(graph), states)

    def _current(self, index: int) -> int:
        return self._instead.get(index, index)

    def _left(self, node: Node) -> Node | None:
        """What remains of one operator. Operators on resources vanish, except that READ_VARIABLE of a graph output
        becomes a copy: the caller finds that output by its tensor index."""
        if not _is_resource_op(node):
            return node
        if node.op == "CALL_ONCE":
            self._initialize(_first_subgraph(node))
        elif node.op == "VAR_HANDLE":
            self._handles[node.outputs[0]] = _name(node)
        elif node.op == "READ_VARIABLE":
            (output,) = node.outputs
            self._instead[output] = self._read(node)
            if output in self._graph.outputs:
                return self._copy(self._instead[output], output, node.origin)
        elif node.op == "ASSIGN_VARIABLE":
            self._assign(node)
        return None

    def _copy(self, source: int, output: int, origin: tuple[int, ...]) -> Node:
        tensor = self._draft.tensors[output] = reshaped(self._draft.tensors[output], self._draft.tensors[source].shape)
        return Node("RESHAPE", (source,), (output,), {"new_shape": tensor.shape}, origin=origin)

    def _initialize(self, number: int) -> None:
        if not 0 < number < len(self._model.graphs):
            raise CompileError(f"CALL_ONCE names subgraph {number}, which cannot be one that sets variables.")
        for name, data in _assigned_constants(self._model.graphs[number], number).items():
            if name in self._values and self._values[name].now is not None:
                raise CompileError(f"The variable '{name[1]}' is used before CALL_ONCE sets it.")
            self._values[name] = _Value(data)

    def _value(self, node: Node, tensor: Tensor) -> _Value:
        """The variable that a READ_VARIABLE or ASSIGN_VARIABLE names; `tensor` is the value read or assigned."""
        name = self._handles.get(node.inputs[0])
        if name is None:
            raise CompileError(f"{node.op}: the variable comes from another operator than VAR_HANDLE.")
        value = self._values.get(name)
        if value is None:
            raise CompileError(f"{node.op}: no CALL_ONCE gives the variable '{name[1]}' its first value.")
        first = value.first
        if value.before is None and first is not None:
            quant = tensor.quant if tensor.is_quantized else None
            value.before = value.now = self._draft.add(Tensor(name[1], first.shape, str(first.dtype), quant=quant))
        assert value.now is not None
        found, expected = _type(tensor), _type(self._draft.tensors[value.now])
        if found != expected:
            raise CompileError(f"{node.op}: '{tensor.title}' is {found}, but the variable '{name[1]}' is {expected}.")
        return value

    def _read(self, node: Node) -> int:
        now = self._value(node, self._graph.tensors[node.outputs[0]]).now
        assert now is not None
        return now

    def _assign(self, node: Node) -> None:
        index, name = self._current(node.inputs[1]), self._handles.get(node.inputs[0])
        if name is not None and name not in self._values:
            self._values[name] = _Value(None, now=index)
        self._value(node, self._draft.tensors[index]).now = index

    def _refuse_other_users(self, graph: Graph) -> None:
        """Refuses handles that are graph outputs or inputs of other operators."""
        users = {index: node.op for node in graph.nodes for index in node.inputs}
        users |= dict.fromkeys(graph.outputs, "the model's output")
        for index in users.keys() & self._handles.keys():
            raise CompileError(f"The variable '{self._handles[index][1]}' goes to {users[index]}.")

    def _refuse_shared(self) -> None:
        """Refuses variables that several subgraphs use if one of those subgraphs changes the variable."""
        nodes = (node for graph in self._model.graphs for node in graph.nodes)
        first = {_first_subgraph(node) for node in nodes if node.op == "CALL_ONCE"}
        for number, graph in enumerate(self._model.graphs):
            if number != self._number and number not in first:
                self._refuse_users(number, graph)

    def _refuse_users(self, number: int, graph: Graph) -> None:
        ops = [node for node in graph.nodes if _is_resource_op(node)]
        assigns = any(node.op == "ASSIGN_VARIABLE" for node in ops)
        for name in (_name(node) for node in ops if node.op == "VAR_HANDLE"):
            value = self._values.get(name)
            if value is not None and (assigns or value.now != value.before):
                raise CompileError(f"The variable '{name[1]}' is shared with subgraph {number}.")

    def _with_constants(self, graph: Graph) -> Graph:
        """The graph with each variable that is only read as a constant, its first value."""
        tensors = list(graph.tensors)
        for value in self._values.values():
            if value.before is not None and value.now == value.before:
                tensors[value.before] = replace(tensors[value.before], data=value.first)
        return replace(graph, tensors=tuple(tensors))


def _type(tensor: Tensor) -> str:
    """Type and quantization, which must agree wherever a variable is read or assigned. Shapes in a file are hints."""
    quant = tensor.quant if tensor.is_quantized else None
    return f"{tensor.dtype} quantized by {quant.scales} and {quant.zero_points}" if quant else tensor.dtype


def _is_resource_op(node: Node) -> bool:
    """Whether the node acts on resource variables.

    Raises:
        CompileError: it does, but its number of inputs or outputs is wrong.
    """
    if node.custom or node.op not in RESOURCE_OPS:
        return False
    inputs, outputs = RESOURCE_OPS[node.op]
    if (len(node.inputs), len(node.outputs)) != (inputs, outputs) or ABSENT in node.inputs:
        raise CompileError(f"{node.op} has not {inputs} inputs and {outputs} outputs.")
    return True


def _first_subgraph(node: Node) -> int:
    """The subgraph that a CALL_ONCE runs."""
    return int(node.attrs.get("init_subgraph_index", 0))


def _name(node: Node) -> Name:
    return str(node.attrs.get("container", "")), str(node.attrs.get("shared_name", ""))


def _assigned_constants(graph: Graph, number: int) -> Mapping[Name, np.ndarray]:
    """The constants that a subgraph without inputs assigns to variables.

    Raises:
        CompileError: the subgraph does more than assign values that are known while compiling.
    """
    graph = infer_shapes(graph)
    handles: dict[int, Name] = {}
    found: dict[Name, np.ndarray] = {}
    for node in graph.nodes:
        if _is_resource_op(node) and node.op == "VAR_HANDLE":
            handles[node.outputs[0]] = _name(node)
            continue
        if _is_resource_op(node) and node.op == "ASSIGN_VARIABLE" and node.inputs[0] in handles:
            tensor = graph.tensors[node.inputs[1]]
            if tensor.data is not None and tensor.data.shape == tensor.shape:
                found[handles[node.inputs[0]]] = tensor.data
                continue
        raise CompileError(f"CALL_ONCE: subgraph {number} does more than assign constants, it has {node.op}.")
    return found


def _with_states(graph: Graph, states: list[State]) -> Graph:
    """The graph with additional states. A new value that is also an input of the run is copied to another tensor."""
    draft, nodes = GraphBuilder(graph), list(graph.nodes)
    befores = (*graph.inputs, *(state.before for state in states))
    for position, state in enumerate(states):
        if state.after in befores:
            copied = draft.add(replace(draft.tensors[state.before], name=f"{draft.tensors[state.before].name} after"))
            nodes.append(Node("RESHAPE", (state.after,), (copied,), {"new_shape": draft.tensors[copied].shape}))
            states[position] = replace(state, after=copied)
    return replace(
        draft.graph(nodes),
        inputs=befores,
        outputs=(*graph.outputs, *(state.after for state in states)),
        states=(*graph.states, *states),
    )
