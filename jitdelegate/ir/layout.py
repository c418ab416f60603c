"""How a tensor lies in memory: row-major, or blocked by the vector width, with halos for sliding windows, alone or as a
part of a larger tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from jitdelegate.ir.types import ELEMENT_TYPES


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The shape as an image [N, H, W, C]; other ranks are one row of pixels with the last size as channels."""
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    return 1, 1, prod(shape[:-1]), shape[-1] if shape else 1


@dataclass(frozen=True)
class Layout:
    """Where element (n, y, x, c) of an image lies: base + n*image + y*row + x*pixel + c//lanes*block + c%lanes.

    Row-major: pixels of C elements. Blocked: [N][H][C/lanes][W][lanes] with a padded last block, so that a vector load
    reads one pixel of one block. All distances are in bytes. A part of a larger tensor has the distances of that one.

    Attributes:
        shape: [N, H, W, C].
        lanes: channels of a block, as many as a vector register holds floats.
        blocked: see above.
        halo: (top, bottom, left, right) rows and columns around every image that hold `halo_value`.
        dtype: the type of the elements.
        halo_value: 0, or for integers the zero point, as it is stored.
        length: of a part, neighbouring elements of a row, counted row-major; the channels where it is blocked or has a
            halo. 0 for a tensor of its own.
        pitch: elements between the first ones of two rows.
    """

    shape: tuple[int, int, int, int]
    lanes: int
    blocked: bool = False
    halo: tuple[int, int, int, int] = (0, 0, 0, 0)
    dtype: str = "float32"
    halo_value: float = 0.0
    length: int = 0
    pitch: int = 0

    @cached_property
    def element(self) -> int:
        """Bytes of one element."""
        return ELEMENT_TYPES[self.dtype].nbytes

    @cached_property
    def blocks(self) -> int:
        """The number of channel blocks; the last one may be partly filled."""
        return -(-self.shape[3] // self.lanes)

    @property
    def tail(self) -> int:
        """Channels in the last block if it is partly filled, else 0."""
        return self.shape[3] % self.lanes

    @property
    def width(self) -> int:
        """Columns of a row, halo included."""
        return self.shape[2] + self.halo[2] + self.halo[3]

    def apart(self, elements: int) -> int:
        """Bytes between elements of a row-major tensor without a halo that are so many elements apart."""
        if self.length and elements >= self.length:
            elements = elements // self.length * self.pitch
        return elements * self.element

    @property
    def pixel(self) -> int:
        return self.lanes * self.element if self.blocked else self.apart(self.shape[3])

    @property
    def block(self) -> int:
        return (self.width * self.lanes if self.blocked else self.lanes) * self.element

    @property
    def row(self) -> int:
        if self.blocked:
            return self.block * -(-(self.pitch or self.shape[3]) // self.lanes)
        return self.width * self.pixel if any(self.halo) else self.apart(self.shape[2] * self.shape[3])

    @property
    def image(self) -> int:
        if self.length and not any(self.halo) and not self.blocked:
            return self.apart(self.shape[1] * self.shape[2] * self.shape[3])
        return self.row * (self.shape[1] + self.halo[0] + self.halo[1])

    @property
    def distances(self) -> tuple[int, int, int, int]:
        """Bytes between neighbours along N, H, W and, within a block, C."""
        return self.image, self.row, self.pixel, self.element

    @property
    def base(self) -> int:
        return self.halo[0] * self.row + self.halo[2] * self.pixel

    @property
    def size(self) -> int:
        """Bytes that the tensor takes; a vector load of a row-major tail may read up to one vector further."""
        return self.shape[0] * self.image

    @property
    def plain(self) -> bool:
        """True where the elements lie row-major and dense, as the caller's own memory does."""
        dense = not self.blocked or self.shape[:3] == (1, 1, 1)
        return dense and not any(self.halo) and not self.length
