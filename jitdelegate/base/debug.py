"""The debug log: what jitdelegate does, on stderr, by the level of JITDELEGATE_DEBUG.

1: each model that is opened, its cache outcome, where its operators run and why. 2: also the time of each kernel, when
its session closes. 3: also the graph after each pass that changed it. 4: also the generated code.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logging import Logger

PASSES, SOURCE = 3, 4
"""The upper levels; each includes those before it."""


def log(text: str) -> None:
    """Write `text` to stderr, by the logger "jitdelegate.debug". Callers ask for `options.DEBUG_LEVEL` first."""
    _logger().debug("%s", text.rstrip("\n"))


def _logger() -> Logger:
    """The logger; its first use gives it a handler of its own, unless the program has."""
    from logging import DEBUG, Formatter, StreamHandler, getLogger  # not before: every compilation imports this module

    logger = getLogger("jitdelegate.debug")
    if not logger.handlers:
        handler = StreamHandler()
        handler.setFormatter(Formatter("jitdelegate: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(DEBUG)
        logger.propagate = False  # handlers of the root logger should not get these
    return logger
