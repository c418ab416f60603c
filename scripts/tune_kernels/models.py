"""The cost models of the families, computed from the lines of tables: a problem and a candidate.

They call the families' own functions, whose constants are those of their modules. So a change of a constant changes
their results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType, SimpleNamespace
from typing import Any, get_args, get_type_hints

from jitdelegate.targets.cuda.code import cost
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.multiply import ffma_tile, mma_tile
from jitdelegate.targets.cuda.multiply.tensor_core import Operand
from jitdelegate.targets.cuda.products import matmul
from jitdelegate.targets.cuda.sources.line_loader import FEWEST_BYTES
from jitdelegate.targets.cuda.walks import split_k
from jitdelegate.targets.cuda.walks.matmul_ffma import FfmaProduct, FfmaTile
from jitdelegate.targets.cuda.walks.matmul_mma import MmaTile

Constant = tuple[ModuleType, str]
"""A number of a module."""


@dataclass(frozen=True, slots=True)
class Line:
    """A problem and a candidate as numbers.

    Attributes:
        family: of the kernels.
        way: how they multiply; "" where a family has one way.
        elements: types of operands and results.
        sizes: by letter; those that are not one number are left out.
        tile: the candidate's numbers.
        split: how many share the work.
        moved: of each launch, as `Launch` has it.
    """

    family: str
    way: str
    elements: Sequence[Element]
    sizes: Mapping[str, int]
    tile: Sequence[int]
    split: int
    moved: Sequence[Sequence[int]] = ()


def line_of(problem: str, candidate: str, moved: Sequence[Sequence[int]] = ()) -> Line:
    """The numbers of a problem and a candidate."""
    family, *words = problem.split()
    way = "" if "," in words[0] else words.pop(0)  # there are several elements
    elements = tuple(Element[name.upper()] for name in words[0].split(","))
    sizes = {word[0]: int(word[1:]) for word in words[1:] if word[1:].isdecimal()}
    tile, _, split = candidate.partition("/")
    numbers = tuple(int(number) for number in tile.split("-") if number.isdecimal())
    return Line(family, way, elements, sizes, numbers, int(split or 1), moved)


def _record(kind: type, numbers: Sequence[int]) -> Any:
    """A record of numbers and tuples of them, from all numbers."""
    rest, values, hints = list(numbers), [], get_type_hints(kind)
    for field in fields(kind):
        width = len(get_args(hints[field.name]))
        values.append(tuple(rest[:width]) if width else rest[0])
        del rest[: width or 1]
    return kind(*values)


def _mma(line: Line, gpu: Gpu) -> float:
    tile, one, nbytes = _record(mma_tile.Tile, line.tile), line.sizes, Operand(line.way).element.nbytes
    cycles = tile.cycles(gpu, line.split, one["M"], one["N"], one["K"] * nbytes, one["G"])
    return float(cycles) + _combining(line, gpu, mma_tile.COMBINE_CYCLES)


def _ffma(line: Line, gpu: Gpu) -> float:
    tile, one = _record(ffma_tile.Tile, line.tile), line.sizes
    cycles = tile.cycles(gpu, line.split, one["M"], one["N"], one["K"], one["G"] * one["P"])
    return float(cycles) + _combining(line, gpu, ffma_tile.COMBINE_CYCLES)


def _combining(line: Line, gpu: Gpu, launch: int) -> float:
    results = line.sizes["M"] * line.sizes["N"] * line.sizes["G"]
    return split_k.combining_cycles(gpu, line.split, results, launch)


def _matmul(line: Line, gpu: Gpu) -> float:
    one, (left, right, *_) = line.sizes, line.elements
    is_ffma = line.family == FfmaProduct.family
    tile: Any = _record(FfmaTile if is_ffma else MmaTile, line.tile)
    operand = Element.FLOAT32 if is_ffma else Operand(line.way).element
    steps = tile.steps if is_ffma else tile.row_bytes // operand.nbytes
    copies = not is_ffma and gpu.has_async_copy and left is right is operand
    narrowest = min(one["W"], one["V"]) * operand.nbytes
    # what the estimate asks of a product and of a template
    product: Any = SimpleNamespace(rows=one["M"], columns=one["N"], depth=one["K"], count=one["B"])
    sides = {"left": SimpleNamespace(element=left), "right": SimpleNamespace(element=right)}
    template: Any = SimpleNamespace(
        tile=tile,
        slices=line.split,
        steps=steps,
        threads=tile.threads * line.split,
        is_asynchronous=copies and narrowest >= FEWEST_BYTES,
        **sides,
    )
    return matmul._cycles(gpu, product, template)


def _moving(line: Line, gpu: Gpu) -> float:
    return sum(cost.moving_cycles(gpu, *launch) for launch in line.moved)


@dataclass(frozen=True, slots=True)
class Model:
    """The cost model of families.

    Attributes:
        families: that it is for.
        cycles: of a candidate.
        constants: that were estimated.
    """

    families: tuple[str, ...]
    cycles: Callable[[Line, Gpu], float]
    constants: tuple[Constant, ...]


def _of(module: ModuleType, *names: str) -> tuple[Constant, ...]:
    return tuple((module, name) for name in names)


MODELS = (
    Model(
        ("contract_mma",),
        _mma,
        _of(mma_tile, "TURN_CYCLES", "COMBINE_CYCLES", "ENDS_CYCLES", "FINISHED", "OTHER_REGISTERS", "COPIED"),
    ),
    Model(
        ("contract_ffma",),
        _ffma,
        _of(ffma_tile, "TURN_CYCLES", "COMBINE_CYCLES", "ENDS_CYCLES", "OTHER_INSTRUCTIONS", "COPIED"),
    ),
    Model(
        ("matmul_mma", "matmul_ffma"),
        _matmul,
        _of(matmul, "TURN_CYCLES", "COPY_TURN_CYCLES", "ENDS_CYCLES", "FINISHED", "THREADS", "COPIED"),
    ),
    Model(("depthwise", "contract_gemv"), _moving, _of(cost, "LATENCY_CYCLES", "COPIED")),
)
