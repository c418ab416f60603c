"""Warnings that name the user's line, and plain printing of them for commands."""

from __future__ import annotations

import sys
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

_OWN = ("jitdelegate", "ai_edge_litert")


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn, with the line of the user that called us or LiteRT."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OWN:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


class PlainWarnings:
    """`with PlainWarnings(CacheWarning):` prints such a warning as one line without its source, in commands."""

    def __init__(self, *categories: type[Warning]) -> None:
        self._categories = categories
        self._before = warnings.catch_warnings()

    def __enter__(self) -> None:
        self._before.__enter__()
        show = warnings.showwarning

        def print_text(message: Warning | str, category: type[Warning], *place: Any, **further: Any) -> None:
            if issubclass(category, self._categories):
                print(" ".join(str(message).splitlines()), file=sys.stderr)  # noqa: T201
            else:
                show(message, category, *place, **further)

        warnings.showwarning = print_text

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._before.__exit__(kind, error, trace)
