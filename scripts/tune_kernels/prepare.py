"""Fills sweeps: plans networks, and compiles every candidate of every problem that they have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jitdelegate.errors import CompileError, JitDelegateError
from jitdelegate.ir.graph import Graph
from jitdelegate.program.program import Program
from jitdelegate.targets.cuda.code.choices import Choices
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.compile.template_store import TemplateStore
from jitdelegate.targets.cuda.generate import Builder
from jitdelegate.targets.cuda.plan.plan import Plan
from jitdelegate.targets.cuda.tuning import problems_of
from scripts.gpu_check.ceiling_kernels import ceilings_program
from scripts.gpu_check.weights import lowered
from scripts.prepare_gpu_check.source import Source
from scripts.tune_kernels.sweep import Candidate, Problem, Sweep


def prepared(sources: Sequence[Source], precisions: Sequence[str], gpu: Gpu, store: TemplateStore) -> Sweep:
    """The problems of networks for a kind of GPU, those that take longest first."""
    build, problems, code = Builder(gpu, store), dict[str, Problem](), dict[str, bytes]()
    for source in sources:
        for precision in precisions:
            print(source.name, precision, gpu.kind, flush=True)
            try:
                graph = lowered(source.content, source.shapes)
                problems |= {one.text: one for one in problems_in(graph, gpu, precision, build, code, problems)}
            except JitDelegateError as error:
                print(f"left out: {error}", flush=True)
    found = sorted(problems.values(), key=lambda one: -one.cycles)
    return Sweep(gpu.kind, found, code, ceilings_program(gpu.kind))


def problems_in(
    graph: Graph, gpu: Gpu, precision: str, build: Builder, code: dict[str, bytes], known: dict[str, Problem]
) -> Iterator[Problem]:
    """The problems of a lowered graph that are not known.

    Args:
        code: receives the binaries of kernels, by name.
    """
    for one in problems_of(graph, gpu, precision, Choices(), known):
        try:
            plans = one.plans()
            programs = dict(zip(plans, build([*plans.values()]), strict=True))
        except CompileError as error:
            print(f"left out: {one.problem}: {error}", flush=True)
            continue
        for program in programs.values():
            code.update(_images(program))
        found = {name: _candidate(program, plans[name]) for name, program in programs.items()}
        yield Problem(one.problem, one.cycles, found)


def _images(program: Program) -> Iterator[tuple[str, bytes]]:
    starts = [*(start for _, start in program.entries), len(program.code)]
    for (name, start), end in zip(program.entries, starts[1:], strict=True):
        yield name, bytes(program.code[start:end])


def _candidate(program: Program, planned: Plan) -> Candidate:
    launches = [launch.contents() for launch in program.launches]
    moved = [launch.moved for launch in planned.launches]
    return Candidate(program.arena_bytes, len(program.weights), [name for name, _ in program.entries], launches, moved)
