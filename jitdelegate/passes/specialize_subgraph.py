"""Specializes a subgraph for one program: no calls of other subgraphs, no variables, fixed input shapes and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jitdelegate.ir.graph import Model
from jitdelegate.ir.verify import verify_ports
from jitdelegate.ops.call import Shape
from jitdelegate.passes.functional_state import functional_state, functional_variables
from jitdelegate.passes.inline_subgraphs import inline_subgraphs
from jitdelegate.passes.resize_inputs import resize_inputs
from jitdelegate.passes.shape_inputs import fix_inputs
from jitdelegate.passes.works_on import applies


def specialize_subgraph(
    model: Model,
    number: int = 0,
    shapes: Sequence[Shape] = (),
    values: Sequence[tuple[int, Shape]] = (),
    *,
    hosted: bool = False,
) -> Model:
    """The model with one subgraph made ready for the passes.

    Args:
        number: index of the subgraph.
        shapes: shapes of its inputs; none for the shapes in the file.
        values: (position, elements) of the inputs whose values are known.
        hosted: whether LiteRT's own interpreter runs the subgraph; loops, branches and resource variables then stay
            with LiteRT.
    """
    graphs = list(model.graphs)
    graph = resize_inputs(graphs[number], shapes) if shapes else graphs[number]
    graph = fix_inputs(graph, values) if values else graph
    if applies(inline_subgraphs, graph):
        graph = inline_subgraphs(graph, model.graphs, hosted=hosted)
    verify_ports(model.graphs[number], graph, inline_subgraphs.__name__)
    graphs[number] = graph
    if hosted and applies(functional_variables, graph):
        graphs[number] = functional_variables(graph)
    elif not hosted and applies(functional_state, graph):
        graphs[number] = functional_state(replace(model, graphs=tuple(graphs)), number)
    verify_ports(graph, graphs[number], functional_state.__name__)
    graphs[number] = replace(graphs[number], called=model.graphs)
    return replace(model, graphs=tuple(graphs))
