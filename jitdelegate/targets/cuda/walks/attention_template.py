"""Templates of attention: tiles, sizes of a launch, how operands are stored, and the memory that all this needs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jitdelegate.ir.expr import Expr
from jitdelegate.targets.cuda.code.division import divisor_kinds
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.operand import Neighbours
from jitdelegate.targets.cuda.code.sizes import Kind, Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK
from jitdelegate.targets.cuda.sources.line_loader import LineTile

FLOAT = 4
LANES = 32
WARP_ROWS = 16
"""Rows of a warp."""
HOLDING_REGISTERS = 32
"""Registers that a thread needs besides where tiles go through registers."""


class AttentionSizes(NamedTuple):
    """Sizes of a launch.

    Attributes:
        down: tiles of rows in a matrix.
        rows, keys, depth, columns: as in `attention_problem.Problem`.
        turns: tiles of keys that each slice of a part walks over.
        total: rows of all matrices.
        query: distance between the numbers of a query.
        key, value: distance between lines in memory.
    """

    down: Number
    rows: Number
    keys: Number
    depth: Number
    columns: Number
    turns: Number
    total: Number
    query: Number
    key: Number
    value: Number


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """The tile of a block: `down` warps of 16 rows each, by `keys` keys; `slices` times as many warps share out K."""

    down: int
    slices: int
    keys: int

    @property
    def rows(self) -> int:
        return self.down * WARP_ROWS

    @property
    def slice_threads(self) -> int:
        """Threads of a slice."""
        return self.down * LANES

    @property
    def threads(self) -> int:
        return self.slice_threads * self.slices


@dataclass(frozen=True, slots=True)
class Side:
    """How keys or values are stored.

    Attributes:
        by_key: whether the numbers of a key are neighbours in memory; else the keys are.
        width: elements of an access.
    """

    element: Element
    by_key: bool
    width: int


@dataclass(frozen=True, slots=True)
class ScoreOperand:
    """An operand of the expression on scores.

    Attributes:
        neighbours: where the elements of neighbouring keys are.
        has_rows: whether rows of a matrix read different elements.
    """

    element: Element
    neighbours: Neighbours
    has_rows: bool


@dataclass(frozen=True, eq=False, slots=True)
class AttentionTemplate(Template):
    """One attention.

    Attributes:
        depth, columns: numbers of a query and of a value, padded.
        query, query_width: how queries are stored, and elements of an access to them.
        number_axes, row_axes: how many axes there are.
        expr: of the score, Arg(0), and the operands.
        run: neighbouring results that are stored together.
        has_rest: whether the last tile may have keys that do not exist.
        is_part: whether a launch follows that combines parts.
        has_async_copy: whether the GPU has asynchronous copies, and whole mma steps.
    """

    awaits_launches: ClassVar[bool] = True
    thread_rows: ClassVar[int]
    """Rows of which a thread has scores."""
    other_registers: ClassVar[int]
    """Registers that a thread needs beside those that `registers` counts."""

    tile: AttentionTile
    depth: int
    columns: int
    query: Element
    query_width: int
    key: Side
    value: Side
    number_axes: int
    row_axes: int
    operands: tuple[ScoreOperand, ...]
    expr: Expr
    output: Element
    run: int
    epilogue: Epilogue
    has_rest: bool
    is_part: bool
    has_async_copy: bool

    @property
    @abstractmethod
    def stored(self) -> Element:
        """The type of elements in shared memory."""

    @property
    @abstractmethod
    def sums(self) -> int:
        """Sums of a thread."""

    @property
    def threads(self) -> int:
        return self.tile.threads

    @property
    def parameters(self) -> tuple[Kind, ...]:
        location: Kind = ("int32", ("int32",) * self.number_axes, ("int32",) * self.row_axes)
        pointers = "pointer", ("pointer",) * 3, ("pointer",) * len(self.operands), self.epilogue.parameters
        divisors = divisor_kinds(self.number_axes), divisor_kinds(self.row_axes)
        locations = (location,) * (4 + len(self.operands))
        return *pointers, "float32", AttentionSizes, divisors, locations, ("int32",) * len(self.operands)

    def _tile(self, side: Side, size: int) -> LineTile:
        lines, run = (self.tile.keys, size) if side.by_key else (size, self.tile.keys)
        return LineTile(side.element, self.stored, lines, run, side.width, self.tile.slice_threads, self.has_async_copy)

    @property
    def key_tile(self) -> LineTile:
        return self._tile(self.key, self.depth)

    @property
    def value_tile(self) -> LineTile:
        return self._tile(self.value, self.columns)

    @property
    def query_pitch(self) -> int:
        """Bytes between queries in shared memory."""
        return self.depth * self.stored.nbytes + CHUNK

    @property
    def slice_bytes(self) -> int:
        """Shared memory of a slice."""
        return self.key_tile.nbytes + self.value_tile.nbytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of queries, keys and values, or of the sums that later take their place."""
        tile = self.tile
        meeting = (tile.slices - 1) * tile.slice_threads * (self.sums + 2 * self.thread_rows) * FLOAT
        return max(tile.rows * self.query_pitch + tile.slices * self.slice_bytes, meeting)

    @property
    def registers(self) -> int:
        """About how many registers a thread needs: for the sums, for the scores and what they are made of, and for the
        tile that it loads."""
        tiles = self.key_tile, self.value_tile
        scores = WARP_ROWS * self.tile.keys // LANES * (1 + len(self.operands))
        held = max(tile.held for tile in tiles)
        loading = sum(tile.offset_registers for tile in tiles) + held + (HOLDING_REGISTERS if held else 0)
        return self.sums + scores + loading + self.other_registers
