"""Kernel forms that read, find or sum elements at indices that only runtime values decide.

They store their results as they are: `epilogue` stays RESULT and there are no extra operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jitdelegate.ir.forms import Form


@dataclass(frozen=True, slots=True)
class IndexForm(Form):
    """A form without epilogue whose operands and results are all row-major."""

    takes_epilogue: ClassVar[bool] = False
    exact_loads: ClassVar[bool] = True
    is_row_major: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class IndexedForm(IndexForm):
    """A form with an operand of indices, which may lie outside what they index.

    refusal: the words in which the run is refused that finds an index outside, with {} for that index; "" where such an
        index is no error. The run goes on to its end all the same, as if it were none: nothing outside is touched.
    """

    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Gather(IndexedForm):
    """Slices of the data at runtime indices; inputs (data of any type, `indices` int32 or int64).

    out[b, o, i, n] = data[b, o, indices[b, i, 0], ..., indices[b, i, m - 1], n]: b are the first `batch` axes, o the
    axes from there to `axis`, then come the m indexed axes, m being the last size of `indices`; n are the other axes. A
    slice is 0 where one of its indices lies outside, negative ones included: no other memory is ever read.
    """

    core: ClassVar[int] = 2
    visits_once: ClassVar[bool] = True
    axis: int = 0
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Scatter(IndexedForm):
    """Slices combined at runtime indices; inputs (updates float32, int32 or int64; `indices` int32 or int64).

    out[s, n] = `initial` combined with updates[i, n] for every i, in order, with indices[i] == s, by `kind`, of
    `ir.combiners`. The last axis of `indices` holds one index per axis of s; one outside is skipped.

    skips_negative: whether `refusal` is about indices beyond the end alone.
    """

    core: ClassVar[int] = 2
    kind: str = "sum"
    initial: float = 0.0
    skips_negative: bool = False


@dataclass(frozen=True, slots=True)
class Update(IndexForm):
    """The data with windows replaced; inputs (data of any type, update of the same type, start int32 or int64).

    One window, with start[rank]: out[i] = update[i - s] where i - s lies within the update, else data[i]. Several, one
    after another, with start[T, rank] and update[T, ...]; each has one element along every axis on which starts differ.
    Targets write the windows alone where the result may have the memory of the data (`targets.planning.in_place`).

    clamps: whether s[a] = max(0, min(start[a], size of axis a of the data - that of a window)), so that the window lies
        within the data. Otherwise s is start, and a window of which any part lies outside is left out.
    """

    core: ClassVar[int] = 3
    visits_once: ClassVar[bool] = True
    clamps: bool = True


@dataclass(frozen=True, slots=True)
class Scan(IndexForm):
    """Running sums along `axis`: each sum is over the elements before its own and, unless `exclusive`, its own element.

    With `reverse`, each sum is over the elements after its own. Elements are added one by one from the first on;
    integers wrap.
    """

    axis: int = 0
    exclusive: bool = False
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class ArgReduce(IndexForm):
    """The index along `axis` of the largest ("max") or smallest ("min") element, the first of equals: int32 or int64.

    Elements are float32 or integers.

    NaN is neither larger nor smaller than anything: its index is the result only where it comes first.
    """

    kind: str = "max"
    axis: int = 0


@dataclass(frozen=True, slots=True)
class TopK(IndexForm):
    """The indices of the largest elements of each row (last axis), as int32: largest first, of equals the earlier one.

    Elements are float32 or int32; the output's last size is their number. Positive NaN is above infinity.
    """


@dataclass(frozen=True, slots=True)
class Suppress(IndexForm):
    """Non-maximum suppression; inputs (boxes f32[4, N]: ymin, xmin, ymax, xmax; scores f32[C, N]), output int32[C, K].

    Row c holds the indices of the boxes that are kept for class c, by descending score, the earlier box first among
    equals, then -1s. A box is kept if its score is at least `score_threshold` and its intersection with each box kept
    before is at most `overlap` of their union.
    """

    core: ClassVar[int] = 2
    score_threshold: float = 0.0
    overlap: float = 0.5
