"""The first operator whose result departs from another side's.

A model that is cut behind operator k has as outputs all values that operators up to k compute and later ones read. If
they depart, then they depart behind every later operator too, as a rule, so that a binary search finds the first k.
Both sides run the cut model from its inputs on, so that each may fuse what it likes before the cut. Values that depend
on no input are no outputs: both sides may compute them beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.measurement.difference import Difference, Tolerance
from jitdelegate.commands.measurement.entry import Entry, find_entry, interface
from jitdelegate.commands.measurement.side import Side
from jitdelegate.errors import JitDelegateError
from jitdelegate.ir.graph import ABSENT, Graph
from jitdelegate.tflite.cut import Cutter
from jitdelegate.tflite.pack import pack_model

Open = Callable[[Entry], Side]
_KEY = "excerpt"
"""Key of the signature that runs an excerpt's subgraph."""


_OPAQUE = ("resource", "variant", "string")
"""Types without numbers to compare."""


@dataclass(frozen=True)
class Culprit:
    """The first operator whose result departs.

    Attributes:
        operators: its position in the subgraph; several where the models cut between them could not be run.
        op: its name.
        difference: of the tensor that it writes, or of the worst value behind it.
        reason: why that is too far.
        alone: what the operator by itself makes of the other side's operands, in words; "" where it cannot be said.
    """

    operators: tuple[int, ...]
    op: str
    difference: Difference
    reason: str
    alone: str


class Bisection:
    """The search in one model, with one set of inputs.

    Args:
        ours, theirs: open a side for a cut model.
        values: of the entry's inputs.
    """

    def __init__(
        self, entry: Entry, ours: Open, theirs: Open, values: Sequence[np.ndarray], tolerance: Tolerance
    ) -> None:
        self._entry = entry
        self._graph = entry.graph
        self._sides = ours, theirs
        self._values = {port.index: value for port, value in zip(entry.inputs, values, strict=True)}
        self._tolerance = tolerance
        self._dependent = dependent(self._graph)

    def search(self, shown: Callable[[int, int], object] = lambda low, high: None) -> Culprit | None:
        """The culprit; None where nothing departs in a fresh start with these inputs.

        Args:
            shown: called before each step with the positions that remain: after the first, up to the second.
        Raises:
            JitDelegateError: the whole model cannot be run.
        """
        low, high = -1, len(self._graph.nodes) - 1
        worst = self._worst(high)
        if worst is None:
            return None
        while high - low > 1:
            shown(low, high)
            found = self._probe(low, high)
            if found is None:  # nothing between them can be run
                break
            middle, departing = found
            if departing is None:
                low = middle
            else:
                high, worst = middle, departing
        return self._culprit(low, high, worst)

    def _probe(self, low: int, high: int) -> tuple[int, Difference | None] | None:
        """A position between, the nearest to the middle that can be run, and what departs behind it."""
        middle = (low + high) // 2
        for position in sorted(range(low + 1, high), key=lambda each: abs(each - middle)):
            try:
                return position, self._worst(position)
            except JitDelegateError:
                continue
        return None

    def _worst(self, position: int) -> Difference | None:
        """What departs most behind an operator; first of all what it writes itself. None if nothing does.

        Raises:
            JitDelegateError: a side cannot run the model that is cut there.
        """
        outputs = self._live(position)
        if not outputs:
            return None
        found, expected = (self._run(side, range(position + 1), [*self._values], outputs) for side in self._sides)
        differences = [
            self._difference(index, *pair)
            for index, pair in zip(outputs, zip(found, expected, strict=True), strict=True)
        ]
        departing = [difference for difference in differences if difference.departure(self._tolerance)]
        own = [
            difference for difference in departing if difference.interface.index in self._graph.nodes[position].outputs
        ]
        return max(own or departing, key=lambda each: each.nrmse, default=None)

    def _live(self, position: int) -> list[int]:
        """Tensors that operators up to `position` write, and later ones or the caller read."""
        written = dict.fromkeys(index for node in self._graph.nodes[: position + 1] for index in node.outputs)
        read = {index for node in self._graph.nodes[position + 1 :] for index in node.inputs}
        read.update(port.index for port in self._entry.outputs)
        return [index for index in written if index in read and self._is_comparable(index)]

    def _is_comparable(self, index: int) -> bool:
        tensor = self._graph.tensors[index]
        return index in self._dependent and tensor.dtype not in _OPAQUE and not tensor.is_variable

    def _run(
        self, open_side: Open, operators: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]
    ) -> list[np.ndarray]:
        content = _excerpt(self._entry.content, self._entry.subgraph, operators, inputs, outputs)
        entry = find_entry(content, DelegateOptions(), _KEY)
        positions = {port.index: position for position, port in enumerate(entry.inputs)}
        values = [self._values[port.index] for port in entry.inputs]
        entry = entry.with_shapes(
            {positions[port.index]: value.shape for port, value in zip(entry.inputs, values, strict=True)}
        )
        side = open_side(entry)
        side.set_inputs(values)
        side.run()
        found = {port.index: value for port, value in zip(entry.outputs, side.outputs(), strict=True)}
        return [found[index] for index in outputs]

    def _difference(self, index: int, found: np.ndarray, expected: np.ndarray) -> Difference:
        difference = Difference(interface(self._graph, index))
        difference.add(found, expected)
        return difference

    def _culprit(self, low: int, high: int, worst: Difference) -> Culprit:
        return Culprit(
            operators=tuple(range(low + 1, high + 1)),
            op=self._graph.nodes[high].op,
            difference=worst,
            reason=worst.departure(self._tolerance),
            alone=self._alone(high) if high - low == 1 else "",
        )

    def _alone(self, position: int) -> str:
        """What an operator makes of the other side's operands."""
        node, (ours, theirs) = self._graph.nodes[position], self._sides
        operands = [index for index in dict.fromkeys(node.inputs) if index != ABSENT and index in self._dependent]
        results = [index for index in node.outputs if self._is_comparable(index)]
        if (
            not operands
            or not results
            or not all(map(self._is_comparable, (i for i in operands if i not in self._values)))
        ):
            return ""
        try:
            missing = [index for index in operands if index not in self._values]
            if missing:
                computed = self._run(theirs, range(position), [*self._values], missing)
                self._values |= dict(zip(missing, computed, strict=True))
            operators = [*self._constant_operators(position), position]
            found, expected = (self._run(side, operators, operands, results) for side in (ours, theirs))
        except JitDelegateError:
            return ""
        differences = [
            self._difference(index, *pair)
            for index, pair in zip(results, zip(found, expected, strict=True), strict=True)
        ]
        reasons = [reason for difference in differences if (reason := difference.departure(self._tolerance))]
        return reasons[0] if reasons else "within the tolerance"

    def _constant_operators(self, position: int) -> list[int]:
        """Those before an operator that depend on no input, some of which may compute its operands."""
        nodes = enumerate(self._graph.nodes[:position])
        return [index for index, node in nodes if node.outputs and not self._dependent.intersection(node.outputs)]


def dependent(graph: Graph) -> set[int]:
    """Tensors that depend on an input or on a variable; the others can be computed before any run."""
    found = {*graph.inputs}
    for node in graph.nodes:
        if any(index in found or (index != ABSENT and graph.tensors[index].is_variable) for index in node.inputs):
            found.update(node.outputs)
        elif not node.inputs or any(graph.tensors[index].dtype in _OPAQUE for index in node.inputs if index != ABSENT):
            found.update(node.outputs)  # variables and what is read from them
    return found


def _excerpt(
    content: bytes, subgraph: int, operators: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]
) -> bytes:
    """A copy of a model with these operators only in one subgraph, which its only signature, _KEY, runs.

    Tensors keep their indices; in the signature, tensor 7 is named "7". Other subgraphs stay, for operators that name
    them.

    Args:
        content: a .tflite file that `read` accepts.
        operators: positions in the subgraph, in order.
        inputs, outputs: tensors of the subgraph; the inputs are no constants.
    Raises:
        ModelError: the bytes are not a model.
    """
    file, external = Cutter(content).model()
    subgraphs, stored = list(file["subgraphs"]), file["subgraphs"][subgraph].get("operators", ())
    subgraphs[subgraph] = subgraphs[subgraph] | {
        "operators": [stored[position] for position in operators],
        "inputs": list(inputs),
        "outputs": list(outputs),
    }
    signature = {
        "signature_key": _KEY,
        "subgraph_index": subgraph,
        "inputs": [{"name": str(index), "tensor_index": index} for index in inputs],
        "outputs": [{"name": str(index), "tensor_index": index} for index in outputs],
    }
    return pack_model(file | {"subgraphs": subgraphs, "signature_defs": [signature]}, external)
