"""Record: values by name, declared as in a dataclass, which would take too long to import for a start."""

from __future__ import annotations

from jitdelegate.errors import did_you_mean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, dataclass_transform
else:

    def dataclass_transform() -> Callable[[type], type]:
        return lambda record: record


@dataclass_transform()
class Record:
    """Values by the names that a subclass annotates, in this order; those with a value in the class may be left out.

    Records are compared and shown by their values; further attributes are refused.
    """

    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._names = tuple(cls.__annotations__)

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self._names, values, strict=False))
        wrong = [name for name in named if name in given or name not in self._names]
        missing = [name for name in self._names if name not in (*given, *named) and not hasattr(type(self), name)]
        if wrong or missing or len(values) > len(self._names):
            hinted = [f"{name}{did_you_mean(name, self._names) if name in wrong else ''}" for name in named]
            told = f"takes {', '.join(self._names)}, but got {len(values)} values and {', '.join(hinted) or 'no names'}"
            raise TypeError(f"{type(self).__name__} {told}")
        self.__dict__.update(given | named)

    if not TYPE_CHECKING:  # type checkers find such names by themselves, but not where there is this method

        def __setattr__(self, name: str, value: object) -> None:
            if name not in self._names and not isinstance(getattr(type(self), name, None), property):
                hint = did_you_mean(name, self._names)
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")
            super().__setattr__(name, value)

    def values(self) -> dict[str, Any]:
        """The values by name."""
        return {name: getattr(self, name) for name in self._names}

    def __eq__(self, other: object) -> bool:
        return other.values() == self.values() if type(other) is type(self) else NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in sorted(self._names))})"
