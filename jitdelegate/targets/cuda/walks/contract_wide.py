"""Contract of integers without tensor cores, which have no sums of 64 bits: each thread multiplies a pixel by a few
neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, common_width, load_where
from jitdelegate.targets.cuda.code.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.code.output import Output
from jitdelegate.targets.cuda.code.sizes import Kind, Number
from jitdelegate.targets.cuda.code.template import NoPointer, Template, TensorPointer
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem, Phase, whole
from jitdelegate.targets.cuda.sources.pixel_gather import PixelGather, SourceSizes, TargetPixels
from jitdelegate.targets.maths.cast import cast

RUN = 4
"""Most neighbouring channels of a thread; weights of as many are read together."""
WIDTH = 8
"""Most channels of the data that are read together; sums of so many products fit in 32 bits."""


class WideSizes(NamedTuple):
    """Sizes of a launch.

    Attributes:
        chunks: chunks of the table.
        depth, outputs: data channels and output channels of a group.
        pitch: weights of a step of K.
        stride: elements between output pixels.
        halo: the value of pixels outside the image.
        filter_zero: the weights' zero point.
    """

    chunks: Number
    depth: Number
    outputs: Number
    pitch: Number
    stride: Number
    halo: Number
    filter_zero: Number


@dataclass(frozen=True, eq=False, slots=True)
class ContractWide(Template):
    """A product of pixels by channels.

    Attributes:
        source, sums, output: element types of data, sums and results.
        width: elements of a chunk of the table.
        run: neighbouring channels of a thread.
        is_direct, is_scattered: as in `ConvProblem`.
        has_filter_zero: whether a zero point is subtracted from the weights.
    """

    family: ClassVar[str] = "contract_wide"
    threads: ClassVar[int] = 128
    source: Element
    sums: Element
    output: Element
    width: int
    run: int
    is_direct: bool
    is_scattered: bool
    has_filter_zero: bool
    epilogue: Epilogue

    @property
    def parameters(self) -> tuple[Kind, ...]:
        extra = self.epilogue.parameters
        return *("pointer",) * 5, extra, WideSizes, SourceSizes, (TargetPixels,) if self.is_scattered else ()

    def write(
        self,
        code: Code,
        out: Value,
        data: Value,
        weights: Value,
        bias: Value,
        table: Value,
        extra: Sequence[Value],
        sizes: WideSizes,
        source: SourceSizes,
        targets: Sequence[TargetPixels],
    ) -> None:
        """Args:
        weights: int8[groups, K, pitch].
        bias: [groups, pitch], of the type of the sums.
        """
        runs, thread, group = sizes.pitch // self.run, self.thread(code), code.special("ctaid.z")
        pixel = thread // runs
        column = (thread - pixel * runs) * self.run
        gather = PixelGather(code, source, table, self.width, self.is_direct)
        row = gather.row(pixel, group * sizes.depth)
        first = group * source.steps
        with code.when((pixel < source.pixels) & (column < sizes.outputs)):
            start = load_run(code, self.sums, bias, group * sizes.pitch + column, self.run)
            with code.carried(sizes.chunks, start) as (chunk, now, following):
                inside, index = gather.chunk(row, gather.entry(chunk))
                numbers = load_where(code, self.source, inside, data, index, self.width)
                values = [
                    code.select(inside, cast(code, one, self.source.dtype, "int32"), sizes.halo) for one in numbers
                ]
                at = (first + chunk * self.width) * sizes.pitch + column
                parts = self._products(code, values, weights, at, sizes)
                wide = (cast(code, part, "int32", self.sums.dtype) for part in parts)
                following[:] = [a + b for a, b in zip(now, wide, strict=True)]
            target = targets[0].pixel(pixel) if targets else pixel
            output = Output(code, self.epilogue, self.output, out, extra, sizes.stride)
            output.store(following, target, group * sizes.outputs + column)

    def _products(
        self, code: Code, values: Sequence[Value], weights: Value, at: Value, sizes: WideSizes
    ) -> list[Value]:
        """The sums of the products of a chunk; its weights begin at index `at`."""
        less = sum(values, start=code.integer(0)) * sizes.filter_zero if self.has_filter_zero else code.integer(0)
        sums = [-less] * self.run
        for number, value in enumerate(values):
            row = load_run(code, Element.INT8, weights, at + sizes.pitch * number, self.run)
            sums = [a + value * cast(code, b, "int8", "int32") for a, b in zip(sums, row, strict=True)]
        return sums


def write(writer: Writer, problem: ConvProblem) -> None:
    """Writes the launches of a contraction, one per phase."""
    for phase in problem.phases:
        _launch(writer, problem, phase)


def _launch(writer: Writer, problem: ConvProblem, phase: Phase) -> None:
    epilogue, extra = writer.epilogue(problem.node)
    template = ContractWide(
        source=writer.element(problem.data),
        sums=problem.sums,
        output=writer.element(problem.output),
        width=problem.width(WIDTH),
        run=common_width((problem.outputs, *writer.output_grain(problem.node)), RUN),
        is_direct=problem.is_direct,
        is_scattered=problem.is_scattered,
        has_filter_zero=problem.filter_zero != 0,
        epilogue=epilogue,
    )
    pitch = whole(problem.outputs, template.run)
    chunks = -(-phase.steps // template.width)
    table = NoPointer() if template.is_direct else writer.constant(problem.table(phase, template.width, template.width))
    blocks, _, _ = template.grid(problem.pixels(phase) * (pitch // template.run))
    writer.launch(
        template,
        (blocks, 1, problem.groups),
        (
            TensorPointer(problem.output),
            writer.pointer(problem.data),
            writer.constant(phase.matrices(problem.groups, 1, template.run)),
            writer.constant(problem.biases(phase, template.run)),
            table,
            extra,
            WideSizes(
                *(chunks, problem.depth, problem.outputs, pitch, problem.out_pitch, problem.halo, problem.filter_zero)
            ),
            problem.source(phase),
            (problem.target_pixels(phase),) if template.is_scattered else (),
        ),
    )
