"""Inline PTX in which threads meet or exchange values is convergent: NVVM may not make it depend on further conditions,
which leaves threads behind that others wait for."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ops import OPS
from jitdelegate.passes.lower import lower
from jitdelegate.targets.cuda.template import Template
from tests.targets.cuda_execute import templates_of, text_of

back_end = pytest.importorskip("jitdelegate.targets.cuda.back_end")

MEETING = re.compile(
    r"\b(bar|barrier|shfl|vote|match|redux|activemask|mma|ldmatrix|wgmma|cp\.async\.(wait|commit)_group)\b"
)
"""PTX in which the threads of a warp or block take part together. Source: PTX ISA, the instructions with .sync, and the
groups of cp.async, whose number all threads of a warp must agree on."""
USED = {"bar.sync", "shfl.sync", "mma.sync", "ldmatrix.sync", "cp.async.wait_group", "cp.async.commit_group"}
ASM = re.compile(r'\basm +(?:sideeffect +)?"((?:[^"\\]|\\.)*)"')


def every_template(precision: str) -> Iterator[Template]:
    """Those of every operator's first two cases, each once."""
    found: dict[str, Template] = {}
    for op in OPS.values():
        for case in op.cases[:2]:
            try:
                found.update({one.text: one for one in templates_of(lower(case.graph(op)), precision=precision)})
            except CompileError:
                continue
    yield from found.values()


def inline_ptx(template: Template) -> Iterator[tuple[str, str]]:
    """Each partition of PTX in a template's IR, and the line that it stands in."""
    for line in text_of(template).splitlines():
        for text in ASM.findall(line):
            yield text, line


@pytest.mark.parametrize("precision", ["float32", "float16", "tf32"])
def test_exactly_those_partitions_in_which_threads_meet_are_convergent(precision: str) -> None:
    partitions = [partition for template in every_template(precision) for partition in inline_ptx(template)]
    for text, line in partitions:
        assert bool(MEETING.search(text)) == line.rstrip().endswith("convergent"), line
    used = {name for name in USED if any(name in text for text, _ in partitions)}
    assert used == (USED if precision != "float32" else USED - {"mma.sync", "ldmatrix.sync"})


def test_kernels_of_older_gpus_are_the_same_with_and_without_it() -> None:
    templates = {one.family: one for one in every_template("float16") if "convergent" in text_of(one)}
    assert templates.keys() >= {"contract_mma", "matmul_mma", "reduce"}
    for template in templates.values():
        text = text_of(template)
        plain = re.sub(r" convergent$", "", text, flags=re.MULTILINE)
        assert plain != text
        assert back_end.ptx(text, "sm_90") == back_end.ptx(plain, "sm_90"), template
