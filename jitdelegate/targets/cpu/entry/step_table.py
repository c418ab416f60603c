"""The calls of long programs as tables of addresses: equal layers call the same functions, each with its own addresses.

Code for every call would be most of such a program, and take LLVM longer than all kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jitdelegate.targets.cpu.code.kernel import Address, Job, Step, table_name
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Function, Module, Value

FEWEST_STEPS, STEPS_OF_SHARED = 512, 8
"""Steps of the shortest program with tables, where a step that threads share counts as several. A call takes some
nanoseconds longer by a table, which only counts where all steps are small."""
LEAST_ALIKE = 4
"""Calls of each kind, on average, that make a table worth its code."""
WORD = 8
ROWS = "step_rows"
"""The module's name of the table of rows: the number of a call's kind, then its addresses."""


def address_of(f: Function, address: Address, arena: Value, weights: Value, io: Value) -> Value:
    """An argument of a chunk function."""
    if address.space == "io":
        return f.load(POINTER, io + address.offset * WORD, WORD) + address.distance
    if address.space == "code":
        return Value(f, POINTER, f"@{table_name(address.offset)}") + address.distance
    if address.space == "number":
        return Value(f, POINTER, f"inttoptr (i64 {address.offset} to ptr)")
    return {"arena": arena, "weights": weights}[address.space] + (address.offset + address.distance)


@dataclass
class StepTable:
    """The rows of all jobs of a program.

    Attributes:
        starts: for each job of each step, in order, the first byte of its row.
        kinds: function and spaces of the addresses of calls that differ in numbers only, to the kind's number.
    """

    steps: Sequence[Step]
    rows: list[int] = field(default_factory=list)
    starts: list[list[int]] = field(default_factory=list)
    kinds: dict[tuple[str, tuple[object, ...]], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for step in self.steps:
            self.starts.append([self._add(job) for job in step.jobs])

    def _add(self, job: Job) -> int:
        start = WORD * len(self.rows)
        kind = job.function, tuple(each if each.space == "code" else each.space for each in job.addresses)
        self.rows.append(self.kinds.setdefault(kind, len(self.kinds)))
        for each in job.addresses:
            if each.space == "io":
                self.rows += [each.offset * WORD, each.distance]
            elif each.space != "code":
                self.rows.append(each.offset + each.distance)
        return start

    @classmethod
    def of(cls, steps: Sequence[Step]) -> StepTable | None:
        """The table of a long program that gains by one; else None."""
        if sum(STEPS_OF_SHARED if step.is_shared else 1 for step in steps) < FEWEST_STEPS:
            return None
        found = cls(steps)
        return found if len(found.kinds) * LEAST_ALIKE <= sum(map(len, found.starts)) else None

    def write_call(self, module: Module) -> None:
        """`void call(arena, weights, io, chunk, scratch, row)`: calls the function of a row for one chunk."""
        module.constant(ROWS, self.rows)
        spaces = [(name, POINTER) for name in ("arena", "weights", "io")]
        f = module.function("call", [*spaces, ("chunk", INDEX), ("scratch", POINTER), ("row", POINTER)])
        arena, weights, io, chunk, scratch, row = f.parameters
        cases = " ".join(f"i64 {number}, label %kind{number}" for number in self.kinds.values())
        f.do(f"switch {f.load(INDEX, row, WORD)}, label %end [{cases}]")
        for (function, spaces_of), number in self.kinds.items():
            f.start_block(f"kind{number}")
            words = (f.load(INDEX, row + WORD * place, WORD) for place in range(1, len(self.rows)))
            arguments = []
            for space in spaces_of:
                if isinstance(space, Address):
                    arguments.append(address_of(f, space, arena, weights, io))
                elif space == "io":
                    arguments.append(f.load(POINTER, io + next(words), WORD) + next(words))
                elif space == "number":
                    arguments.append(f.cast("inttoptr", next(words), POINTER))
                else:
                    arguments.append((arena if space == "arena" else weights) + next(words))
            f.call(function, chunk, scratch, *arguments)
            f.jump("end")
        f.start_block("end")
        f.finish()

    def row(self, f: Function, start: Value) -> Value:
        """The address of the row that begins at this byte."""
        return Value(f, POINTER, f"@{ROWS}") + start
