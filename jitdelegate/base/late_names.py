"""Names of a module that another one defines, which is imported when one of them is first used."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def late_names(module: str, names: Sequence[str], source: str) -> Callable[[str], object]:
    """The `__getattr__` of a module.

    Args:
        module: its name.
        names: its `__all__`; those that it does not define itself come from `source`.
    """

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(__import__(source, fromlist=[name]), name)

    return find
