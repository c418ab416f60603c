"""The arguments of a signature: names, order, and the tensors of a subgraph that they stand for."""

from __future__ import annotations

from jitdelegate.errors import CompiledModelError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeVar

    from jitdelegate.program.program import Program

    Value = TypeVar("Value")

DEFAULT_SIGNATURE = "<placeholder signature>"
"""LiteRT's key of the signature of a model without any; its arguments are the tensors' names."""


class Arguments:
    """The inputs or the outputs of a signature.

    Attributes:
        kind: "input" or "output".
        names: in the order in which buffers are given.
    """

    __slots__ = ("_indices", "_key", "kind", "names")

    def __init__(self, key: str, kind: str, pairs: Sequence[tuple[str, int]]) -> None:
        """
        Args:
            pairs: name and tensor index of each argument.
        """
        self._key = key
        self.kind = kind
        self.names = [name for name, _ in pairs]
        self._indices = [index for _, index in pairs]

    def position(self, name: str) -> int:
        """Position of the argument of this name.

        Raises:
            CompiledModelError: there is none.
        """
        if name not in self.names:
            raise CompiledModelError(
                f"{self.kind.capitalize()} tensor not found: {name!r}; signature {self._key!r} has {self.names}"
            )
        return self.names.index(name)

    def port_indices(self, program: Program) -> list[int]:
        """Positions of the arguments among the inputs or outputs of their subgraph's program.

        Raises:
            CompiledModelError: a tensor is none of them, or an input of the subgraph has no name.
        """
        is_input = self.kind == "input"
        indices = [port.index for port in (program.inputs if is_input else program.outputs)]
        if self._indices == indices:  # also where one tensor is several outputs
            return [*range(len(indices))]
        if not {*self._indices} <= {*indices} or (is_input and {*self._indices} != {*indices}):
            raise CompiledModelError(
                f"signature {self._key!r} names the {self.kind} tensors {self._indices}, its subgraph has {indices}"
            )
        return [indices.index(index) for index in self._indices]

    def positions(self, program: Program) -> list[int]:
        """For each input or output of the program, the position of its argument; raises the errors of `port_indices`.

        Outputs without a name have none.
        """
        indices = self.port_indices(program)
        return [indices.index(index) for index in sorted({*indices})]

    def in_order(self, values: Mapping[str, Value]) -> list[Value]:
        """Values by name as a list. Other names are ignored, as in LiteRT.

        Raises:
            CompiledModelError: a name is missing.
        """
        missing = [name for name in self.names if name not in values]
        if missing:
            raise CompiledModelError(
                f"the map is missing the {self.kind} {missing[0]!r}: found {[*values]}, expected {self.names}"
            )
        return [values[name] for name in self.names]

    def counted(self, values: Sequence[Value]) -> Sequence[Value]:
        """The values.

        Raises:
            CompiledModelError: their number is wrong.
        """
        if len(values) != len(self.names):
            raise CompiledModelError(
                f"{self.kind.capitalize()} buffer size mismatch: number of {self.kind}s:{len(self.names)}"
                f" vs buffers:{len(values)}"
            )
        return values


class SignatureArguments:
    """A signature of a model.

    Attributes:
        key: its name.
        graph: the subgraph that it runs.
        inputs, outputs: its arguments.
    """

    __slots__ = ("graph", "inputs", "key", "outputs")

    def __init__(
        self, key: str, graph: int, inputs: Sequence[tuple[str, int]], outputs: Sequence[tuple[str, int]]
    ) -> None:
        self.key = key
        self.graph = graph
        self.inputs = Arguments(key, "input", inputs)
        self.outputs = Arguments(key, "output", outputs)

    def names(self) -> dict[str, list[str]]:
        """{"inputs": [names], "outputs": [names]}."""
        return {"inputs": [*self.inputs.names], "outputs": [*self.outputs.names]}


def signatures_of(program: Program) -> list[SignatureArguments]:
    """The signatures of a model; LiteRT's default one, on the first subgraph, where it has none."""
    if not program.signatures:
        sides = ([(port.name, port.index) for port in ports] for ports in (program.inputs, program.outputs))
        return [SignatureArguments(DEFAULT_SIGNATURE, 0, *sides)]
    return [
        SignatureArguments(signature.key, signature.graph, signature.inputs, signature.outputs)
        for signature in program.signatures
    ]
