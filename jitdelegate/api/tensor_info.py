"""What a model tells about its inputs, outputs and signatures."""

from __future__ import annotations

from jitdelegate.errors import JitDelegateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from jitdelegate.program.program import Port, Signature

    PortsOf = Callable[[int], tuple[Sequence[Port], Sequence[Port]]]

NAMED = 2
"""Most names of tensors of one type that a signature's text lists, such as the caches of its layers."""


class Quantization:
    """real = scale * (stored - zero_point): one entry for the whole tensor, or one per slice along `axis`."""

    __slots__ = ("axis", "scales", "zero_points")

    def __init__(self, scales: tuple[float, ...], zero_points: tuple[int, ...], axis: int) -> None:
        self.scales = scales
        self.zero_points = zero_points
        self.axis = axis

    def __repr__(self) -> str:
        return f"Quantization(scales={self.scales}, zero_points={self.zero_points}, axis={self.axis})"


class TensorInfo:
    """An input or output of a model.

    Attributes:
        name: the tensor's name in the file, or that of a signature's argument.
        shape: sizes, outermost first.
        shape_signature: as `shape`, -1 where the model takes any size.
        dtype: numpy's name of the element type, or "string".
        quantization: None for unquantized tensors.
    """

    __slots__ = ("dtype", "name", "quantization", "shape", "shape_signature")

    def __init__(self, port: Port, name: str | None = None) -> None:
        """
        Args:
            name: that of a signature's argument.
        """
        self.name = port.name if name is None else name
        self.shape = port.shape
        self.shape_signature = port.shape_signature
        self.dtype = port.dtype
        self.quantization = Quantization(port.scales, port.zero_points, port.axis) if port.scales else None

    def __repr__(self) -> str:
        return f"TensorInfo({self.name!r}, {self.dtype}{list(self.shape)})"


class SignatureInfo(dict[str, list[str]]):
    """A signature of a model: {"inputs": [names], "outputs": [names]} in alphabetical order, and details of these.

    Attributes:
        key: the name of the signature.
    """

    def __init__(self, signature: Signature, ports_of: PortsOf) -> None:
        """
        Args:
            ports_of: gives the inputs and outputs of a subgraph; raises ModelError where the file cannot be read.
        """
        super().__init__(inputs=sorted(dict(signature.inputs)), outputs=sorted(dict(signature.outputs)))
        self.key = signature.key
        self._signature = signature
        self._ports_of = ports_of

    def _arguments(self) -> tuple[dict[str, Port], dict[str, Port]]:
        """The ports of inputs and outputs by the signature's names."""
        signature = self._signature
        inputs, outputs = ({port.index: port for port in ports} for ports in self._ports_of(signature.graph))
        return _named(signature.inputs, inputs), _named(signature.outputs, outputs)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs, in the order of the subgraph; raises ModelError if the model's file is needed and missing."""
        return _infos(self._arguments()[0])

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs, as `inputs`."""
        return _infos(self._arguments()[1])

    def get_input_details(self) -> dict[str, dict[str, Any]]:
        """Input name to the tensor's details, as LiteRT's SignatureRunner gives them; raises as `inputs`."""
        return _details(self._arguments()[0])

    def get_output_details(self) -> dict[str, dict[str, Any]]:
        """Output name to the tensor's details."""
        return _details(self._arguments()[1])

    def __repr__(self) -> str:
        try:
            inputs, outputs = map(_listed, (self.inputs, self.outputs))
        except JitDelegateError:  # the file is gone
            inputs, outputs = (", ".join(names) for names in self.values())
        return f"Signature({self.key!r}: {inputs} -> {outputs})"


def _named(names: Iterable[tuple[str, int]], ports: dict[int, Port]) -> dict[str, Port]:
    return {name: ports[index] for name, index in names if index in ports}


def _infos(ports: dict[str, Port]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(port, name) for name, port in ports.items())


def _details(ports: dict[str, Port]) -> dict[str, dict[str, Any]]:
    from jitdelegate.engine.compiled_interpreter import describe  # not before: it is LiteRT's interface

    return {name: describe(port) for name, port in ports.items()}


def _listed(tensors: Sequence[TensorInfo]) -> str:
    """Names and types; of more tensors of one type, the first names."""
    groups: dict[str, list[str]] = {}
    for tensor in tensors:
        sizes = [*(tensor.shape_signature if -1 in tensor.shape_signature else tensor.shape)]
        groups.setdefault(f"{tensor.dtype}{sizes}", []).append(tensor.name)
    return ", ".join(f"{_some(names)}: {kind}" for kind, names in groups.items())


def _some(names: Sequence[str]) -> str:
    left = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {left} more" if left > 0 else "")
