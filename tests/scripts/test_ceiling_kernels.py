"""The kernels that say what a GPU can do: they are nothing but what they are to measure, and touch no memory."""

from __future__ import annotations

import pytest

from tests.gpu.simulator import Memory, Module

pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")

from jitdelegate.program.read import read
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.multiply.tensor_core import Operand
from scripts.gpu_check.ceiling_kernels import Exchanges, Meetings, Nothing, Products, ceilings_program
from scripts.gpu_check.ceilings import PRODUCTS, ROUNDS, STEP, SUMS, family
from tests.targets.cuda_execute import ptx_of
from tests.targets.sass import instructions

SURROUNDINGS = 1.15
"""Of the loop's products, all instructions but those that fill up the code."""


@pytest.mark.parametrize("kind", ["sm_90", "sm_90:16", "sm_75"])
def test_a_kernel_of_products_has_next_to_nothing_else(kind: str) -> None:
    program = read(ceilings_program(kind))
    products = [launch for launch in program.launches if family(program, launch) == "products"]
    for launch, name in zip(products, PRODUCTS, strict=False):
        counts = instructions(bytes(program.code)[program.entries[launch.kernel][1] :])
        found = counts["FFMA"] if name == "float32" else counts["HMMA"]
        needed = SUMS * ROUNDS if name == "float32" else SUMS * ROUNDS // 4
        assert found % needed == 0 and found > 0
        if name == "float32":
            assert sum(counts.values()) - counts["NOP"] - counts["FADD"] < SURROUNDINGS * found
    assert [family(program, launch) for launch in program.launches[1 + len(products) :]] == (
        [] if kind == "sm_75" else ["meetings", "exchanges"]
    )
    assert program.launches[1].grid[0] == 8 * int({"sm_90": 132, "sm_90:16": 16, "sm_75": 40}[kind])


def test_what_is_counted_for_an_instruction_is_what_tensor_cores_multiply() -> None:
    per_thread = {"float16": 16 * 8 * 16 / 32, "tf32": 16 * 8 * 8 / 32}  # of m16n8k16 and m16n8k8, by 32 lanes
    assert all(4 * STEP[name] == products for name, products in per_thread.items())


@pytest.mark.parametrize(
    "template", [Nothing(), Products(None), Products(Operand.FLOAT16), Products(Operand.TF32), Meetings(), Exchanges()]
)
def test_the_kernels_run_and_write_nothing(template: Template) -> None:
    memory = Memory()
    output = memory.allocate(4)
    memory.write(output, b"kept")
    arguments = [output] if isinstance(template, Nothing) else [output, 2]
    Module(ptx_of(template, "sm_90")).launch(
        template.symbol,
        grid=(1, 1, template.cluster),
        block=(template.threads, 1, 1),
        arguments=arguments,
        shared_bytes=0,
        memory=memory,
    )
    assert memory.read(output, 4) == b"kept"
