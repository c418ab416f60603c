"""Time per kernel of a model that was loaded with the option `profile`."""

from __future__ import annotations

from jitdelegate.base.record import Record
from jitdelegate.program.read import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from jitdelegate.engine.executable import Executable


class KernelTime(Record):
    """Time of one kernel.

    Attributes:
        name: unique in its partition.
        form: the kind of kernel.
        operators: indices of the operators that it computes; empty for copies at the model's borders.
        seconds: in one inference, on a GPU by all its launches; the median of the last runs, None before the first.
    """

    name: str
    form: str
    operators: tuple[int, ...]
    seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return self.values() | {"operators": list(self.operators)}

    def __repr__(self) -> str:
        return f"KernelTime({self.name!r}, {self.form}, operators={list(self.operators)}, seconds={self.seconds})"


def kernel_times(executable: Executable) -> list[KernelTime]:
    """One entry per kernel of a profiled program, in the order in which they run; none where it runs on LiteRT."""
    program = executable.program
    if executable.target != program.target:
        return []
    operators: dict[int, list[int]] = {}
    for one in program.operators:
        operators.setdefault(one.kernel, []).append(one.index)
    return [
        KernelTime(name=kernel.name, form=kernel.form, operators=tuple(operators.get(number, ())), seconds=time)
        for number, (kernel, time) in enumerate(zip(program.kernels, _seconds(executable), strict=True))
    ]


def _seconds(executable: Executable) -> list[float | None]:
    """Of each kernel, in whatever sessions they run."""
    if executable.session is not None:
        return executable.session.kernel_seconds()
    if executable.program.loader != "delegate":  # the model is closed
        return [None] * len(executable.program.kernels)
    found: list[float | None] = []
    for partition in executable.program.partitions:
        session = executable.hosted_sessions.get(partition.nodes)
        if session is not None:
            found += session.kernel_seconds()
        elif partition.nbytes:  # LiteRT has not asked for it
            found += [None] * len(read(executable.program.content(partition)).kernels)
    return found
