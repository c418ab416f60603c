"""Inner loops for Arm, in cycles that llvm-mca computes for cores that need not be there: none spills, and none takes
more cycles than it took."""

from __future__ import annotations

import re

import pytest

from scripts.bench.cycles import CORES, KERNELS, loops
from scripts.inner_loops import Loop, cycles, inner_loops, llvm_mca

LEAST = 0.95
"""Part of a rate that is not lost."""
ASSEMBLY = """
outer_1:
\tstp\td9, d8, [sp, #-16]!
\tstr\tq0, [sp, #32]            // 16-byte Folded Spill
.LBB0_1:
\tldr\tq0, [x0], #16
.LBB0_2:                                // =>This Inner Loop Header
\tldp\tq1, q2, [x1], #32
\tsdot\tv3.4s, v1.16b, v0.4b[1]
\tsmmla\tv4.4s, v1.16b, v0.16b
\tsmull\tv5.8h, v1.8b, v0.8b
\tfmla\tv6.4s, v1.4s, v0.s[2]
\tldr\tq7, [sp, #32]            // 16-byte Folded Reload
\tb.lo\t.LBB0_2
\tcbnz\tx0, .LBB0_1
\tldp\td9, d8, [sp], #16
\tret
other_2:
\tfmla\tv6.4s, v1.4s, v0.s[2]
\tret
"""


def test_only_inner_loops_are_counted_with_their_products_and_spills() -> None:
    (loop,) = inner_loops(ASSEMBLY, "outer")
    assert len(loop.lines) == 7
    assert (loop.products, loop.spills) == (16 + 32 + 8 + 4, 1)
    (whole,) = inner_loops(ASSEMBLY, "other")
    assert (whole.products, whole.spills) == (4, 0)


@pytest.mark.parametrize(
    ("name", "core", "instruction"),
    [
        ("float32 convolution", "cortex-a72", r"fmla\tv\d+.4s, v\d+.4s, v\d+.s\[3]"),
        ("int8 convolution", "cortex-a72", r"smlal\tv\d+.8h, v\d+.8b, v\d+.8b"),
        ("int8 convolution", "neoverse-n1", r"sdot\tv\d+.4s, v\d+.16b, v\d+.4b\[3]"),
        ("int8 convolution", "neoverse-v2", r"\tsmmla\tv"),
        ("uint8 convolution", "neoverse-v2", r"\tusmmla\tv"),
        ("int16 convolution", "neoverse-n1", r"smlal2\tv\d+.4s, v\d+.8h, v\d+.h\[7]"),
        ("float16 convolution", "neoverse-n1", r"fmla\tv\d+.8h, v\d+.8h, v\d+.h\[3]"),
        ("bfloat16 matrices", "neoverse-v2", r"\tbfdot\tv"),
        ("int8 depthwise 3x3", "neoverse-n1", r"sdot\tv\d+.4s, v\d+.16b, v\d+.16b"),
        ("int8 depthwise 3x3", "cortex-a72", r"smlal2\tv\d+.8h, v\d+.16b, v\d+.16b"),
        ("int8 depthwise 3x3", "neoverse-n1", r"fcvtns(.|\n)*sqxtn2\tv\d+.16b"),
    ],
)
def test_levels_use_their_instructions(name: str, core: str, instruction: str) -> None:
    assert re.search(instruction, "\n".join(loops(name, core)[0].lines))


@pytest.mark.skipif(not llvm_mca(), reason="no llvm-mca of LLVM 16 or later is installed")
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", KERNELS)
def test_inner_loops_keep_their_speed(name: str, core: str) -> None:
    expected = KERNELS[name].rates[list(CORES).index(core)]
    if not expected:
        pytest.skip(f"{core} has no {name}")
    found = loops(name, core)
    assert [loop.function for loop in found if loop.spills] == []
    (taken,) = cycles(found[:1], core)
    assert found[0].products / taken >= LEAST * expected


@pytest.mark.skipif(not llvm_mca(), reason="no llvm-mca of LLVM 16 or later is installed")
def test_cycles_are_those_of_the_core() -> None:
    loop = Loop("", tuple(f"\tfmla\tv{number}.4s, v20.4s, v21.s[0]" for number in range(16)))
    assert [round(cycles([loop], core)[0]) for core in CORES] == [16, 8, 4]
