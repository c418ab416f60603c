"""Rectangular tiles of an image's output pixels: each is computed by one block.

With dilation, the pixels of a tile are as far apart as the taps of a window, so that their windows share data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.division import divided, divisor
from jitdelegate.targets.cuda.code.sizes import Divisor, Number


class PixelTiles(NamedTuple):
    """Launch arguments about the tiles of an output.

    Attributes:
        down, across: tiles along the rows and along the columns of an image.
        apart_y, apart_x: rows and columns from one pixel of a tile to the next.
        shift: a tile has 2 ** shift pixels across.
        rows, columns: size of an image.
    """

    down: Divisor
    across: Divisor
    apart_y: Divisor
    apart_x: Divisor
    shift: Number
    rows: Number
    columns: Number

    @staticmethod
    def of(image: Sequence[int], pixels: int, shift: int, apart: Sequence[int]) -> PixelTiles:
        """Tiles of so many pixels for images [rows, columns]."""
        counts = tiles_of(image, pixels, shift, apart)
        down, across, apart_y, apart_x = (Divisor(*divisor(size)) for size in (*counts, *apart))
        return PixelTiles(down, across, apart_y, apart_x, shift, *image)


def tiles_of(image: Sequence[int], pixels: int, shift: int, apart: Sequence[int]) -> tuple[int, int]:
    """Numbers of tiles along the rows and along the columns of an image."""
    return tiles_along(image[0], pixels >> shift, apart[0]), tiles_along(image[1], 1 << shift, apart[1])


def tiles_along(size: int, outputs: int, apart: int) -> int:
    """Number of tiles of some outputs, `apart` from one to the next, that cover an axis."""
    return apart * -(-size // (apart * outputs))


@dataclass(frozen=True, slots=True)
class TilePixels:
    """Device code: the pixels of tile `number`, counted over all images.

    Attributes:
        pixels: pixels of a tile.
    """

    code: Code
    tiles: PixelTiles
    image: Value
    y: Value
    x: Value

    @staticmethod
    def of(code: Code, tiles: PixelTiles, number: Value, pixels: int) -> TilePixels:
        """Finds the tile's first pixel."""
        line, across = divided(code, number, tiles.across)
        image, down = divided(code, line, tiles.down)
        height = code.like(pixels, number) >> tiles.shift
        width = code.like(1, number) << tiles.shift
        return TilePixels(
            code, tiles, image, _first(code, down, height, tiles.apart_y), _first(code, across, width, tiles.apart_x)
        )

    def position(self, row: Value) -> tuple[Value, Value]:
        """(y, x) in the image of pixel number `row` of the tile."""
        tiles = self.tiles
        down = row >> tiles.shift
        return self.y + down * tiles.apart_y.size, self.x + (row - (down << tiles.shift)) * tiles.apart_x.size

    def pixel(self, y: Value, x: Value) -> tuple[Value, Value]:
        """(whether a pixel exists, its number among those of all images)."""
        rows, columns = self.tiles.rows, self.tiles.columns
        return (y < rows) & (x < columns), (self.image * rows + y) * columns + x


def _first(code: Code, tile: Value, outputs: Value, apart: Divisor) -> Value:
    """The first output of a tile along an axis, as `depthwise_kernel.first_of` has it."""
    stretch, _ = divided(code, tile, apart)
    first: Value = stretch * apart.size * (outputs - 1) + tile
    return first
