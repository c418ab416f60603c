"""Time per kernel of a model that was loaded with the option `profile`, for its report."""

from __future__ import annotations

from jitdelegate.api.report import KernelTime
from jitdelegate.program.read import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.io_binding import IOBinding

    PartitionSessions = Mapping[tuple[int, ...], IOBinding]


def kernel_times(program: Program, session: IOBinding | None, hosted: PartitionSessions) -> list[KernelTime]:
    """One entry per kernel of the program, in the order in which they run.

    Args:
        session: what runs the program; None where LiteRT's interpreter does.
        hosted: the sessions of partitions in LiteRT's interpreter, by their operators.
    """
    operators: dict[int, list[int]] = {}
    for one in program.operators:
        operators.setdefault(one.kernel, []).append(one.index)
    seconds = session.kernel_seconds() if session else _hosted_seconds(program, hosted)
    return [
        KernelTime(name=kernel.name, form=kernel.form, operators=operators.get(number, ()), seconds=each)
        for number, (kernel, each) in enumerate(zip(program.kernels, seconds, strict=True))
    ]


def _hosted_seconds(program: Program, sessions: PartitionSessions) -> list[float | None]:
    found: list[float | None] = []
    for partition in program.partitions:
        session = sessions.get(partition.nodes)
        if session is not None:
            found += session.kernel_seconds()
        elif partition.nbytes and not partition.hash:  # a compiled one that LiteRT has not asked for
            found += [None] * len(read(program.content(partition)).kernels)
    return found
