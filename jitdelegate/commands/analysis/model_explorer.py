"""An analysis as node data for Google's Model Explorer, which draws the model itself.

The data are {graph: {"results": {node: {"value": ..., "bgColor": ...}}}}. Its reader of .tflite files names a graph
after the subgraph, else after the first signature that enters it, else "main" or "subgraph_1", and a node by the
operator's position. Where a tensor's name is looked up first and is such a number, the operator's output names it.
"""

from __future__ import annotations

import json

from jitdelegate.commands.analysis.colours import colour, label
from jitdelegate.commands.analysis.facts import Analysis, NodeFact, SubgraphFacts


def model_explorer(analysis: Analysis) -> str:
    """One set of node data, JSON: place and partition of every operator, in the colours of the page."""
    return json.dumps({_graph(facts): _data(facts) for facts in reversed(analysis.subgraphs)}, indent=1)


def _graph(facts: SubgraphFacts) -> str:
    signature = facts.signatures[0] if facts.signatures else ""
    return facts.name or signature or ("main" if facts.index == 0 else f"subgraph_{facts.index}")


def _data(facts: SubgraphFacts) -> dict[str, object]:
    names = {tensor.name for node in facts.nodes for tensor in node.outputs}
    names |= {tensor.name for node in facts.nodes for tensor in node.inputs if tensor is not None}
    return {
        "results": {_key(node, names): {"value": label(node), "bgColor": colour(node)} for node in facts.nodes},
        "showExpandedSummaryOnGroupNode": True,
        "showLabelCountColumnsInChildrenStatsTable": True,
    }


def _key(node: NodeFact, names: set[str]) -> str:
    position = str(node.index)
    return node.outputs[0].name if position in names and node.outputs else position
