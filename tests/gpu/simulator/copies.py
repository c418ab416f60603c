"""cp.async: copies into shared memory that arrive only when the thread waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.gpu.simulator.types import Array

if TYPE_CHECKING:
    from tests.gpu.simulator.group import Group


class CopyQueue:
    """The copies under way of a group; every thread counts its own commits, as the PTX manual says."""

    def __init__(self, lanes: int) -> None:
        self.commits = np.zeros(lanes, np.int64)
        self.pending: list[tuple[Array, Array, Array, Array]] = []  # lanes, offsets, bytes [lane, n], commit group

    def start(self, group: Group, offsets: Array, contents: Array) -> None:
        """Notes one copy per active lane."""
        lanes = group.active.lanes
        group.shared.shadow.on_copy_start(group, lanes, offsets, contents.shape[1])
        self.pending.append((lanes, offsets, contents, self.commits[lanes]))

    def commit(self, group: Group) -> None:
        """Closes the commit group of the active lanes."""
        self.commits[group.active.lanes] += 1

    def wait(self, group: Group, newest_left: int) -> None:
        """Lets arrive every copy of the active lanes but those of the newest `newest_left` commit groups."""
        waiting = group.active.mask
        left = []
        for lanes, offsets, contents, number in self.pending:
            arrives = waiting[lanes] & (number < self.commits[lanes] - newest_left)
            if arrives.any():
                _arrive(group, lanes[arrives], offsets[arrives], contents[arrives])
            if not arrives.all():
                stays = ~arrives
                left.append((lanes[stays], offsets[stays], contents[stays], number[stays]))
        self.pending = left

    def are_under_way(self, mask: Array) -> bool:
        """Whether a copy of these lanes (bool per lane) has not arrived."""
        return any(mask[lanes].any() for lanes, *_ in self.pending)


def _arrive(group: Group, lanes: Array, offsets: Array, contents: Array) -> None:
    group.shared.data[offsets[:, None] + np.arange(contents.shape[1])] = contents
    group.shared.shadow.on_copy_end(group, lanes, offsets, contents.shape[1])
