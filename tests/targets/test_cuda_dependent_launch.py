"""Kernels that begin before the launches they depend on have ended: where they wait, and that nothing comes earlier."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from jitdelegate.ir.forms import Softmax
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.code.dependent_launch import for_architecture
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.code.template import Template
from tests.gpu.one_instruction import kernel
from tests.gpu.simulator import Memory, Module, SimulationError
from tests.targets.contract_cases import convolution
from tests.targets.cuda_execute import ptx_of, templates_of, text_of
from tests.targets.cuda_graphs import graph_of, stored_between
from tests.targets.sass import early_accesses, written_early

back_end = pytest.importorskip("jitdelegate.targets.cuda.compile.back_end")
lower = pytest.importorskip("jitdelegate.targets.cuda.compile.front_end").lower

ROWS = convolution((1, 7, 7, 64), 64).graph
GRAPHS: dict[str, Callable[[], tuple[Graph, str]]] = {
    "normalize": lambda: (graph_of(Softmax(), [(3, 1000)], (3, 1000)), "float32"),
    "contract_ffma": lambda: (ROWS, "float32"),
    "contract_mma": lambda: (stored_between(ROWS), "float16"),
    "contract_mma, through registers": lambda: (ROWS, "float16"),
    "contract_gemv": lambda: (convolution((1, 1, 1, 512), 96, (1, 1)).graph, "float16"),
}
PREFETCHED = {"contract_ffma", "contract_mma", "contract_mma, through registers"}
"""Kernels that read weights before they wait."""


def template_of(name: str) -> Template:
    graph, precision = GRAPHS[name]()
    family = name.partition(",")[0]
    return next(one for one in templates_of(graph, precision=precision) if one.family == family)


@pytest.mark.parametrize("name", GRAPHS)
def test_before_the_wait_there_are_only_reads_of_constants(name: str) -> None:
    template = template_of(name)
    ptx = ptx_of(template, "sm_90")
    before, _, after = ptx.partition("griddepcontrol.wait;")
    assert "griddepcontrol.launch_dependents;" in before
    early = written_early(ptx)
    assert bool(early) == (name in PREFETCHED)
    assert all(one.startswith(("ld.global", "cp.async")) for one in early)
    if not template.constants:
        assert "ld.global.nc" not in after
    assert early_accesses(back_end.cubin(ptx.encode(), "sm_90").image) <= len(early)


@pytest.mark.parametrize("architecture", back_end.ARCHITECTURES)
@pytest.mark.parametrize("name", GRAPHS)
def test_on_no_gpu_nvvm_takes_a_tensor_for_constant(name: str, architecture: str) -> None:
    """It would where parameters that alias nothing are its pointers; a tensor may lie where the launch writes."""
    template = template_of(name)
    text, ptx = text_of(template), ptx_of(template, architecture)
    pointers = {int(at) for at in re.findall(r'i8\* noalias align 16 %"arg\.arguments\.(\d+)', text)}
    hidden = {int(at) for at in re.findall(r'asm sideeffect "mov.u64[^(]*\(i8\* %"arg\.arguments\.(\d+)', text)}
    assert hidden == pointers - template.constants != set()
    assert not re.search(r"readonly|readnone|invariant", text)
    assert ("ld.global.nc" in ptx) <= bool(template.constants)
    assert ("griddepcontrol" in ptx) == GPUS[architecture].has_dependent_launch


def test_older_gpus_get_the_same_text_where_arguments_stand_in_a_line_of_their_own() -> None:
    text = text_of(template_of("normalize"))
    ordinary = re.sub(r'(asm sideeffect "[^"]*", *"[^"]*")\s*\(', r"\1(", text)
    broken = re.sub(r'(asm sideeffect "[^"]*", *"[^"]*")\(', r"\1\n(", ordinary)
    assert broken.count("\n(") >= 4
    assert for_architecture(broken, "sm_89").replace("\n(", "(") == for_architecture(ordinary, "sm_89")


def test_a_template_that_reads_a_tensor_before_it_waits_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    template = template_of("normalize")
    monkeypatch.setattr(type(template), "awaits_launches", True)
    with pytest.raises(AssertionError, match="only after await_launches"):
        lower(template)


def test_a_launch_whose_template_takes_a_tensor_for_a_constant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(template_of("normalize")), "constants", frozenset({1}))
    with pytest.raises(AssertionError, match="normalize reads tensors as constants"):
        templates_of(GRAPHS["normalize"]()[0])


READ = "ld.global.u32 %r1, [%d0];"
WRITE = "st.global.u32 [%d1], %r1;"
WAIT = "griddepcontrol.wait;"
BODIES = {
    "right": (WAIT + READ + WRITE, None),
    "a constant is read early": ("ld.global.u32 %r1, [%d2];" + WAIT + READ + WRITE, None),
    "no wait": ("mov.u32 %r1, 1;", "a thread ends that has not waited"),
    "a read before the wait": (READ + WAIT + WRITE, "reads 4 bytes"),
    "a write before the wait": ("mov.u32 %r1, 1;" + WRITE + WAIT, "writes 4 bytes"),
    "some threads wait": ("setp.lt.u32 %p1, %r0, 16; @%p1 " + WAIT + READ + WRITE, "reads 4 bytes"),
    "a copy before the wait": (
        "mov.u32 %r3, dynamic; cp.async.ca.shared.global [%r3], [%d0], 4;" + WAIT + WRITE,
        "reads 4 bytes",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_simulator_sees_what_comes_before_the_wait(name: str) -> None:
    body, message = BODIES[name]
    memory = Memory()
    places = [
        memory.place(np.zeros(4, np.uint32)),
        memory.allocate(4),
        memory.keep(memory.place(np.ones(4, np.uint32))),
    ]
    module = Module(kernel(body, ["u64"] * 3, module=".extern .shared .align 16 .b8 dynamic[];"))

    def launch() -> None:
        module.launch("k", (1,), (32,), places, 256, memory=memory, is_dependent=True, check_races=False)

    if message is None:
        launch()
    else:
        with pytest.raises(SimulationError, match=f"early: .*{message}"):
            launch()
