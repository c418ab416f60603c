"""Fourier: one block per row, in shared memory; each thread transforms the same number of values in every stage."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from jitdelegate.ir.forms import Fourier
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, load, load_where, store
from jitdelegate.targets.cuda.code.lanes import WARP
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.maths.fourier import (
    LARGEST_RADIX,
    Complex,
    Stage,
    product,
    real_transform,
    small_transform,
    stages,
    turns,
)

FLOAT = 4


@dataclass(frozen=True, eq=False)
class FourierTemplate(Template):
    """The transform of rows of 2 * `count` numbers as `count` complex ones, in float32, since many GPUs have few units
    for doubles; the factors are rounded from double precision.

    Attributes:
        width: numbers of a row that are read together: 1 or 2.
    """

    family: ClassVar[str] = "fourier"
    parameters: ClassVar[tuple[Kind, ...]] = "pointer", "pointer", "pointer", "int32"
    count: int
    width: int
    source: Element
    target: Element

    @property
    def threads(self) -> int:
        return max(WARP, self.count // LARGEST_RADIX)

    @property
    def pitch(self) -> int:
        """Bytes of the real parts, and of the imaginary parts, in shared memory."""
        return (self.count + self.count // WARP) * FLOAT

    def write(self, code: Code, out: Value, data: Value, table: Value, size: Value) -> None:
        FourierKernel(self, code, out, data, table, size).write()


def factors(count: int) -> np.ndarray:
    """float32[..., 2]: the twiddles of all stages, then the turns."""
    numbers = np.concatenate([*(stage.twiddles().ravel() for stage in stages(count)), turns(count)])
    return np.stack([numbers.real, numbers.imag], axis=-1).astype(np.float32)


@dataclass
class FourierKernel:
    """Writes the kernel of one template.

    In shared memory, every 32 complex numbers are followed by an unused one, so that threads that store far from each
    other meet different banks.
    """

    template: FourierTemplate
    code: Code
    out: Value
    data: Value
    table: Value
    size: Value

    def __post_init__(self) -> None:
        self.thread, self.row = self.code.special("tid.x"), self.code.special("ctaid.x")
        self.shared = self.code.static_shared(2 * self.template.pitch, "row")

    def write(self) -> None:
        """Writes the whole kernel."""
        first = 0
        for stage in stages(self.template.count):
            self._stage(stage, first)
            first += stage.groups * (stage.radix - 1)
        self._finish(first)

    def _stage(self, stage: Stage, first: int) -> None:
        """One stage; its twiddles are the table's entries from `first` on."""
        code, threads = self.code, self.template.threads
        transforms = self.template.count // stage.radix
        numbers = [self.thread + turn * threads for turn in range(-(-transforms // threads))]
        transformed = []
        for number in numbers:
            place = number if transforms >= threads else number & (transforms - 1)
            values = [self._value(stage, place + j * transforms) for j in range(stage.radix)]
            transformed.append(self._transformed(stage, first, place, values))
        code.barrier()
        with code.when(self.thread < transforms):
            for number, values in zip(numbers, transformed, strict=True):
                place = (number & (stage.stride - 1)) + (number // stage.stride) * (stage.radix * stage.stride)
                for k, value in enumerate(values):
                    self._keep(value, place + k * stage.stride)
        code.barrier()

    def _value(self, stage: Stage, place: Value) -> Complex:
        """A complex number of the row, or of the stage before."""
        if stage.stride > 1:
            return self._kept(place)
        index = self.row * self.size
        if self.template.width == 2:
            real, imaginary = self._numbers(index, place * 2, 2)
        else:
            (real,), (imaginary,) = (self._numbers(index, place * 2 + part, 1) for part in (0, 1))
        return real, imaginary

    def _numbers(self, index: Value, place: Value, count: int) -> list[Value]:
        return load_where(self.code, self.template.source, place < self.size, self.data, index + place, count)

    def _transformed(self, stage: Stage, first: int, number: Value, values: list[Complex]) -> list[Complex]:
        results, group = small_transform(values), number // stage.stride
        for k in range(1, stage.radix if stage.groups > 1 else 1):
            factor = self._factor(group * (stage.radix - 1) + (first + k - 1))
            results[k] = product(self.code, results[k], factor)
        return results

    def _factor(self, place: Value) -> Complex:
        real, imaginary = load(self.code, Element.FLOAT32, self.table, place * 2, 2)
        return real, imaginary

    def _address(self, place: Value) -> Value:
        return self.shared + (place + (place // WARP)) * FLOAT

    def _kept(self, place: Value) -> Complex:
        at = self._address(place)
        return self.code.load(at, 0)[0], self.code.load(at, self.template.pitch)[0]

    def _keep(self, value: Complex, place: Value) -> None:
        at = self._address(place)
        for number, part in enumerate(value):
            self.code.store([part], at, number * self.template.pitch)

    def _finish(self, first: int) -> None:
        """The transform of the real row."""
        code, count = self.code, self.template.count
        start = self.row * (count + 1)
        with code.loop(count, self.thread, self.template.threads) as place:
            back = self._kept((count - place) & (count - 1))
            value = real_transform(code, self._kept(place), back, self._factor(place + first))
            self._store(value, start + place)
        with code.when(self.thread.equals(0)):
            real, imaginary = self._kept(self.thread)
            self._store((real - imaginary, code.real(0)), start + count)

    def _store(self, value: Complex, place: Value) -> None:
        store(self.code, self.template.target, list(value), self.out, place * 2)


def write_fourier(writer: Writer, node: Node, form: Fourier) -> None:
    """Writes the launch of a Fourier node."""
    source, target = node.inputs[0], node.outputs[0]
    *outer, size = writer.shape(source)
    count, width = form.length // 2, 1 if size % 2 else 2
    template = FourierTemplate(count, width, writer.element(source), writer.element(target))
    table = writer.constant(factors(count))
    products = prod(outer) * count * 2 * form.length.bit_length()
    pointers = [writer.pointer(target), writer.pointer(source), table]
    writer.launch(template, (prod(outer), 1, 1), [*pointers, size], products=products)
