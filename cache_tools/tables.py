"""Tables of tuned kernels as the commands see them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from cache_tools.amounts import short_size
from cache_tools.entries import Kept, open_directory
from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import CacheDirectory, close_quietly
from jitdelegate.runtime.cache.tuned import LARGEST_FILE, SUFFIX, Winner, parse_table


class Table(Kept):
    """One table.

    Attributes:
        winners: what it holds, by problem.
    """

    def __init__(self, directory: CacheDirectory, name: str) -> None:
        self.winners: dict[str, Winner] = {}
        super().__init__(directory, name, lambda: self._read(directory))

    def _read(self, directory: CacheDirectory) -> None:
        descriptor = directory.open(self.name)
        try:
            self.winners = parse_table(os.read(descriptor, LARGEST_FILE))
        except ValueError as error:
            raise CacheError(str(error)) from error
        finally:
            close_quietly(descriptor)

    def summary(self) -> dict[str, Any]:
        """One line's worth, as plain data."""
        return super().summary() | {"problems": len(self.winners)}

    def details(self) -> dict[str, Any]:
        """Everything, as plain data."""
        winners = {
            problem: {name: getattr(winner, name) for name in winner.__slots__}
            for problem, winner in self.winners.items()
        }
        return self.summary() | {"winners": winners}

    def line(self) -> str:
        """What `ls` prints."""
        return f"{self.name}  {self.trouble or f'{len(self.winners)} tuned problems'}  {short_size(self.size)}"

    def page(self) -> Iterable[str]:
        """Everything, in lines."""
        yield self.line()
        for problem, winner in self.winners.items():
            times = f"{winner.microseconds:.2f} us, the cost model's {winner.before:.2f} us"
            yield f"  {problem}: {winner.candidate} {times} ({winner.effort})"


def open_tables(path: str | None, names: Sequence[str] | None = None) -> list[Table]:
    """The tables of a directory, None for the user's cache directory: those with these names, or all.

    Raises:
        CacheError: the directory cannot be used.
    """
    directory = open_directory(path)
    found = [name for name in directory.names() if name.endswith(SUFFIX)] if directory else []
    return [Table(directory, name) for name in found if names is None or name in names] if directory else []
