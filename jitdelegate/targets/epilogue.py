"""Extra operands of epilogues: how each goes along with the output that a kernel makes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from jitdelegate.ir.forms import IndexMap, Shape


class Reach(Enum):
    """Which element of an extra operand belongs to channel c of pixel p, of C channels each."""

    ELEMENT = "element"  # p * C + c
    CHANNEL = "channel"  # c
    PIXEL = "pixel"  # p
    SCALAR = "scalar"  # 0


@dataclass(frozen=True, slots=True)
class EpilogueOperand:
    """An operand of `shape` that is read at the index of an output of shape `output`.

    Attributes:
        axes: per axis of the output, the operand's axis that goes along with it; None where the operand is repeated.
    """

    shape: Shape
    output: Shape
    axes: tuple[int | None, ...]

    @classmethod
    def of(cls, index_map: IndexMap, shape: Shape, output: Shape) -> EpilogueOperand | None:
        """The operand as it is read through `index_map`; None where it is shifted, padded, strided or transposed."""
        if index_map.fill is not None or any(index_map.starts) or any(step != 1 for step in index_map.steps):
            return None
        shift, along = len(output) - len(shape), dict[int, int]()
        for axis, (dim, size) in enumerate(zip(index_map.dims, shape, strict=True)):
            if dim == shift + axis:
                along[dim] = axis
            elif dim >= 0 and size != 1:
                return None
        return cls(shape, output, tuple(map(along.get, range(len(output)))))

    @property
    def reach(self) -> Reach | None:
        """Which of its elements belongs to a pixel's channel, where it lies dense; None where no formula says it."""
        if prod(self.shape) == 1:
            return Reach.SCALAR
        moved = [1 if axis is None else size for axis, size in zip(self.axes, self.output, strict=True)]
        if prod(moved) != prod(self.shape):
            return None  # only the first slice of an axis is read
        has_channels, pixels = moved[-1] == self.output[-1], prod(moved[:-1])
        if pixels == prod(self.output[:-1]):
            return Reach.ELEMENT if has_channels else Reach.PIXEL
        return Reach.CHANNEL if has_channels and pixels == 1 else None


def reach(index_map: IndexMap, shape: Shape, output: Shape) -> Reach | None:
    """How an epilogue reads an operand of `shape` that lies dense; None where none of the ways fits."""
    operand = EpilogueOperand.of(index_map, shape, output)
    return operand.reach if operand else None
