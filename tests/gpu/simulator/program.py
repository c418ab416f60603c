"""A function as basic blocks: runs of steps, each with one way to leave it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.gpu.simulator.decode import BUILDERS, Decoder, Get, Step
from tests.gpu.simulator.errors import SimulationError
from tests.gpu.simulator.instructions.cluster import cluster_arrival
from tests.gpu.simulator.instructions.warp import warp_barrier
from tests.gpu.simulator.syntax import Function, Immediate, Instruction, Symbol

LEAVING = {"bra", "ret", "bar", "barrier"}
CONVERGING = {"shfl", "bar", "barrier", "mma", "ldmatrix"}


@dataclass(frozen=True)
class Leave:
    """How a basic block ends: `kind` "fall", "branch", "exit", "barrier" or "cluster" (a barrier of all blocks of a
    cluster).

    `condition` selects the lanes that do so, None all; the others go on with the next block. `target` is the number of
    the block to which a branch leads.
    """

    kind: str
    condition: Get | None = None
    target: int = 0


@dataclass(frozen=True)
class Block:
    """Steps to execute in order, the instructions they came from, and the instruction that leaves, if one does."""

    steps: tuple[Step, ...]
    sources: tuple[Instruction, ...]
    leave: Leave
    converges: bool = False  # holds an instruction that the lanes of a warp must execute together


def build(function: Function, decoder: Decoder) -> list[Block]:
    """The basic blocks of a function; a last empty one ends every lane that falls off the end."""
    starts = _starts(function)
    number = {start: index for index, start in enumerate(starts)}
    ends = [*starts[1:], len(function.instructions)]
    blocks = [_block(function, decoder, start, end, number) for start, end in zip(starts, ends, strict=True)]
    return [*blocks, Block((), (), Leave("exit"))]


def _starts(function: Function) -> list[int]:
    after = {place + 1 for place, one in enumerate(function.instructions) if _leaves(one)}
    labels = set(function.labels.values())
    return sorted(place for place in {0} | after | labels if place <= len(function.instructions))


def _leaves(one: Instruction) -> bool:
    return one.name in LEAVING and "warp" not in one.parts and "arrive" not in one.parts


def _block(function: Function, decoder: Decoder, start: int, end: int, number: dict[int, int]) -> Block:
    instructions = function.instructions[start:end]
    leave = Leave("fall")
    if instructions and _leaves(instructions[-1]):
        leave = _leave(function, decoder, instructions[-1], number)
    plain = instructions if leave.kind == "fall" else instructions[:-1]
    converges = any(one.name in CONVERGING for one in plain)
    return Block(tuple(decoder.step(one) for one in plain), tuple(instructions), leave, converges)


def _leave(function: Function, decoder: Decoder, one: Instruction, number: dict[int, int]) -> Leave:
    condition = None if one.predicate is None else decoder.condition(one.predicate)
    if one.name == "ret":
        return Leave("exit", condition)
    if "cluster" in one.parts:
        if one.predicate is not None or "wait" not in one.parts:
            raise decoder.unknown(one, "only barrier.cluster.arrive and .wait of all threads are known")
        return Leave("cluster")
    if one.name in ("bar", "barrier"):
        _require_plain_barrier(decoder, one)
        return Leave("barrier", condition)
    target = one.operands[-1]
    assert isinstance(target, Symbol)
    return Leave("branch", condition, number[_find_label(function, one, target.name)])


def _require_plain_barrier(decoder: Decoder, one: Instruction) -> None:
    whole = one.operands[:1] in ((), (Immediate("0"),)) and len(one.operands) <= 1
    if "sync" not in one.parts or not whole:
        raise decoder.unknown(one, "only barrier 0 of the whole block is known")


def _find_label(function: Function, one: Instruction, name: str) -> int:
    for scope in reversed(one.scopes):
        if (scope, name) in function.labels:
            return function.labels[scope, name]
    raise SimulationError("syntax", f"no label {name}", kernel=function.name, line=one.line, instruction=one.text)


def _barrier(decoder: Decoder, one: Instruction) -> Step:
    return cluster_arrival(decoder, one) if "cluster" in one.parts else warp_barrier(decoder, one)


BUILDERS["bar"] = BUILDERS["barrier"] = _barrier
