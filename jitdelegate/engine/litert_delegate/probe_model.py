"""The tiny model on which the probe tries the delegate: two partitions, a variable tensor, shapes that change."""

from __future__ import annotations

import ctypes

from jitdelegate.engine.litert_delegate.delegate_client import DelegateClient, DelegateKernel, Facts
from jitdelegate.engine.litert_delegate.stubs import doubling, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jitdelegate.runtime.litert_layout import Layout

SIZES = 3, 5
"""The model's inputs are f32[size]; it is made for the first size and resized to the second."""
ADD, ABS, MUL, RNN = 0, 101, 18, 24
"""TFLite's numbers of the operators."""
CODES = (ADD, ABS, MUL, ADD, RNN)
PARTITIONS = ((0,), (2, 3))
TENSORS = (
    ("first", "float32", (3,)),
    ("second", "float32", (3,)),
    ("numbers", "int32", (2,)),
    ("sum", "float32", (3,)),
    ("absolute", "float32", (3,)),
    ("product", "float32", (3,)),
    ("result", "float32", (3,)),
    ("sequence", "float32", (1, 4)),
    ("weights", "float32", (2, 4)),
    ("recurrent", "float32", (2, 2)),
    ("bias", "float32", (2,)),
    ("state", "float32", (1, 2)),
    ("hidden", "float32", (1, 2)),
)
"""(name, type, shape), in the order of their indices."""
FIRST, SECOND, SUM, ABSOLUTE, PRODUCT, RESULT, SEQUENCE, BIAS, STATE, HIDDEN = 0, 1, 3, 4, 5, 6, 7, 10, 11, 12
CONSTANTS = (2, 8, 9, BIAS)
NODES = (
    ((FIRST, FIRST), (SUM,)),
    ((SUM,), (ABSOLUTE,)),
    ((ABSOLUTE, SECOND), (PRODUCT,)),
    ((PRODUCT, FIRST), (RESULT,)),
    ((SEQUENCE, 8, 9, BIAS, STATE), (HIDDEN,)),
)
"""(inputs, outputs) of each operator."""
PARTITION_TENSORS = (((FIRST,), (SUM,)), ((FIRST, SECOND, ABSOLUTE), (RESULT,)))
"""(inputs, outputs) of each partition."""


def model() -> bytes:
    """result = abs(first + first) * second + first, and beside it a recurrent network."""
    import numpy as np

    from jitdelegate.tflite.write import ModelBuilder

    builder = ModelBuilder()
    for index in (FIRST, SECOND):
        builder.input(TENSORS[index][2], name=TENSORS[index][0])
    builder.constant(np.arange(2, dtype=np.int32), name="numbers")
    for name, dtype, shape in TENSORS[SUM : RESULT + 1]:
        builder.tensor(shape, dtype, name=name)
    builder.input(TENSORS[SEQUENCE][2], name="sequence")
    for name, dtype, shape in TENSORS[SEQUENCE + 1 : STATE]:
        builder.constant(np.full(shape, 0.5, dtype), name=name)
    builder.variable(TENSORS[STATE][2], name="state")
    builder.tensor(TENSORS[HIDDEN][2], name="hidden")
    for op, (inputs, outputs) in zip(("ADD", "ABS", "MUL", "ADD", "RNN"), NODES, strict=True):
        builder.node(op, inputs, outputs)
    builder.output(RESULT, HIDDEN)
    return builder.finish()


class ProbeClient(DelegateClient):
    """Delegates ADD in machine code, and MUL with ADD in Python.

    Attributes:
        opened: (nodes, shapes) of each call of `kernel`.
        closed: number of closed kernels.
        failing: whether the next run in Python raises.
        offers: number of times LiteRT offered the model.
        look: called at each offer, while LiteRT answers questions about nodes.
        warnings: the delegate's warnings.
    """

    num_subgraphs = 1

    def __init__(self, layout: Layout) -> None:
        self._code = load(doubling(layout))[0]
        self._layout = layout
        self.opened: list[tuple[tuple[int, ...], dict[int, tuple[int, ...]]]] = []
        self.closed = 0
        self.failing = False
        self.offers = 0
        self.look: Callable[[], None] = _do_nothing
        self.warnings: list[str] = []

    def facts(self, subgraph: int) -> Facts:
        """Facts of the whole model."""
        tensors = [(index, name, dtype) for index, (name, dtype, _) in enumerate(TENSORS)]
        return Facts(len(TENSORS), len(NODES), tensors, [(index, *node) for index, node in enumerate(NODES)])

    def partitions(self, subgraph: int) -> tuple[tuple[int, ...], ...]:
        """The delegated operators, in LiteRT's groups."""
        self.offers += 1
        self.look()
        return PARTITIONS

    def kernel(
        self, subgraph: int, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]], context: int
    ) -> DelegateKernel:
        """One of the two kernels."""
        self.opened.append((nodes, dict(shapes)))
        kind = _Doubled if nodes == PARTITIONS[0] else _Multiplied
        return kind(self, self._layout, self._code, shapes[FIRST])

    def warn(self, sentence: str) -> None:
        """Keep the warning for the probe's verdict."""
        self.warnings.append(sentence)


class _ProbeKernel(DelegateKernel):
    def __init__(self, client: ProbeClient, layout: Layout, code: int, shape: tuple[int, ...]) -> None:
        self._client = client
        self.count = shape[0]
        self.output_shapes = (shape,)
        self.prepare(layout, code)

    def prepare(self, layout: Layout, code: int) -> None:
        """Set what differs between the kernels."""

    def close(self) -> None:
        self._client.closed += 1


class _Doubled(_ProbeKernel):
    """sum = first + first, by machine code that finds the tensors itself."""

    inputs, outputs = (FIRST,), (SUM,)

    def prepare(self, layout: Layout, code: int) -> None:
        data, size = layout.tensor["data"], layout.tensor.size
        self._words = (ctypes.c_uint64 * 3)(self.count, FIRST * size + data, SUM * size + data)
        self.entry, self.arguments = code, ctypes.addressof(self._words)


class _Multiplied(_ProbeKernel):
    """result = absolute * second + first, through Python."""

    inputs, outputs = (ABSOLUTE, SECOND, FIRST), (RESULT,)

    def run(self, addresses: list[int]) -> None:
        if self._client.failing:
            self._client.failing = False
            raise ValueError("100% as %s intended %n")
        absolute, second, first, result = (self._floats(address) for address in addresses)
        result[:] = [x * y + z for x, y, z in zip(absolute, second, first, strict=True)]

    def _floats(self, address: int) -> ctypes.Array[ctypes.c_float]:
        return (ctypes.c_float * self.count).from_address(address)


def _do_nothing() -> None:
    """The default of `look`."""
