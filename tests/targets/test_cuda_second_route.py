"""Every family of kernels gives the same bits in the simulator and where LLVM makes code for the CPU of its IR."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numba import njit

from jitdelegate.ir.expr import Apply, Arg
from jitdelegate.ir.forms import Contract, IndexMap, Map
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.index_forms import Update
from jitdelegate.ops import OPS
from jitdelegate.passes.lower import lower
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.products import attention as attention_module
from jitdelegate.targets.cuda.products import separable
from tests.gpu import second_route
from tests.gpu.one_instruction import apply
from tests.gpu.second_route import coroutine
from tests.gpu.second_route.instructions import BARRIERS, PIECES, found, shuffle
from tests.gpu.second_route.native import bits_of_float
from tests.gpu.second_route.row import OF_WARP
from tests.gpu.simulator import Memory
from tests.targets import index_graphs, normalize_graphs, test_cuda_hybrid, test_cuda_integer_contract
from tests.targets.cuda_execute import all_families, run, templates_of, text_of
from tests.targets.cuda_graphs import graph_of, stored_between
from tests.targets.cuda_routes import bits, on_the_cpu, simulated
from tests.targets.elementwise_graphs import of_elements
from tests.targets.matmul_graphs import attention, matmul
from tests.targets.recurrent_graphs import LSTM, recurrent
from tests.targets.test_cuda_cell import Steps
from tests.targets.test_cuda_integer_contract import CASES, LONG_SUMS
from tests.targets.test_cuda_separable import Pair
from tests.targets.test_cuda_stored_weights import INT4
from tests.targets.tuned_graphs import weighted

OLD_AND_NEW = (("sm_75", "float32"), ("sm_90", "float16"))
PRODUCTS = (*OLD_AND_NEW, ("sm_75", "float16"), ("sm_90", "float32"), ("sm_80", "tf32"), ("sm_90", "bfloat16"))


OPERATORS = {
    "ARG_MAX": 2, "BIDIRECTIONAL_SEQUENCE_RNN": 1, "CUMSUM": 2, "DEPTHWISE_CONV_2D": 1, "DYNAMIC_UPDATE_SLICE": 0,
    "GATHER": 3, "L2_POOL_2D": 1, "LOGISTIC": 0, "LOG_SOFTMAX": 1, "RESIZE_BILINEAR": 2, "RFFT2D": 1, "SCATTER_ND": 1,
    "SOFTMAX": 1, "TFLite_Detection_PostProcess": 1, "UNIDIRECTIONAL_SEQUENCE_LSTM": 1,
}  # fmt: skip
"""Operators, and the number of the case that is run."""
STARTS = np.array([(0, 4), (3, 4), (8, 4), (9, 4), (3, 4)], np.int32)
WINDOWS = (np.ones((9, 16), np.float32), index_graphs.numbers((5, 1, 8)), STARTS)
OTHERS = {
    **{name: lower(OPS[name].cases[number].graph(OPS[name])) for name, number in OPERATORS.items()},
    "normalize": stored_between(normalize_graphs.layer((3, 600), (1,), (600,), (600,))),
    "normalize in order": normalize_graphs.shares_in_order((40, 33)),
    "cell": Steps(1, 2, 6, 900).graph,
    "recurrent of 100 units": recurrent(LSTM, 2, 1, 100),
    "transpose": graph_of(Map(Arg(0), (IndexMap.along(1, 0),)), [(70, 130)], (130, 70)),
    "windows": index_graphs.graph_of(Update(clamps=False), WINDOWS, (9, 16), "float32"),
    **{f"integers, {name}": CASES[name] for name in ("rows", "3 channels of uint8", "72 channels of uint8", "groups")},
    "integers, one row": test_cuda_integer_contract.problem((1, 70), 33),
    "integers, one row of uint8": test_cuda_integer_contract.problem((1, 70), 33, "uint8"),
    "sums of 64 bits": LONG_SUMS["window"],
    "int8 weights of a row": test_cuda_hybrid.CASES["a row"],
    "rows of int16": test_cuda_hybrid.CASES["rows of 16 bits"],
    "rows of int4": INT4["rows"],
}
SAME = Contract(kernel=(3, 3), padding=(1, 1, 1, 1))
FUNCTIONS = {"exp": 1, "log": 1, "tanh": 1, "erf": 1, "pow": 2, "atan2": 2, "fmod": 2, "round": 1, "trunc": 1}
GRAPHS: dict[str, tuple[Graph, Sequence[tuple[str, str]]]] = {
    **{name: (graph, OLD_AND_NEW) for name, graph in OTHERS.items()},
    "attention": (attention((33, 40, 130, 24), adj_y=True), PRODUCTS),
    "attention of few rows": (attention((1, 16, 300, 16), adj_y=True), OLD_AND_NEW),
    "convolution": (weighted(SAME, (1, 9, 10, 16), (33, 3, 3, 16), (1, 9, 10, 33)), PRODUCTS),
    "a long sum": (
        weighted(SAME, (1, 5, 5, 512), (40, 3, 3, 512), (1, 5, 5, 40)),
        [(GPU, "float16") for GPU in ("sm_80", "sm_90")],
    ),
    "matmul": (matmul((70, 40, 66)), PRODUCTS),
    "matmul, turned": (matmul((40, 70, 24), adjoint=(True, True)), PRODUCTS),
    "separable": (Pair((1, 3, 6, 72), 24).graph, PRODUCTS[:4]),
    **{
        name: (of_elements(Apply(name, (Arg(0), Arg(1))[:count]), ["float32"] * count, 1000), PRODUCTS[3:4])
        for name, count in FUNCTIONS.items()
    },
}
"""Graph, and the architectures and precisions that it is computed in."""
EACH = [(name, *way) for name, (_, ways) in GRAPHS.items() for way in ways]


@pytest.fixture(autouse=True)
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one kernel can compute together, it does."""
    monkeypatch.setattr(separable, "launch_cycles", lambda gpu: 10**9)
    monkeypatch.setattr(attention_module, "_cycles_apart", lambda *_: np.inf)


def feeds(graph: Graph) -> list[np.ndarray]:
    return [_feed(np.random.default_rng(index), graph.tensors[index]) for index in graph.inputs]


def _feed(random: np.random.Generator, tensor: Any) -> np.ndarray:
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "f":
        return (random.uniform(-2, 2, tensor.shape) * random.choice([1e-3, 1, 1, 1, 20], tensor.shape)).astype(dtype)
    if dtype.itemsize > 2 or dtype.kind == "b":  # an index or a truth value
        return random.integers(0, 2, tensor.shape).astype(dtype)
    return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, tensor.shape, dtype, endpoint=True)


def outputs(name: str, architecture: str, precision: str, module_of: Any, schedule: str = "lockstep") -> list[bytes]:
    graph, _ = GRAPHS[name]
    with np.errstate(all="ignore"):
        given = WINDOWS if name == "windows" else feeds(graph)
        return bits(run(graph, given, architecture, precision, schedule, 1, module_of=module_of))


@pytest.mark.parametrize(("name", "architecture", "precision"), EACH)
def test_both_routes_give_the_same_bits(name: str, architecture: str, precision: str) -> None:
    expected = outputs(name, architecture, precision, simulated)
    assert outputs(name, architecture, precision, on_the_cpu) == expected
    assert outputs(name, architecture, precision, on_the_cpu, "random") == expected


def pieces(template: Template) -> set[str]:
    """The pieces of PTX of a template."""
    texts = {match.group(3) for match in coroutine.INLINE.finditer(text_of(template))}
    return {text if text in BARRIERS else found(text)[0] for text in texts}


def test_every_family_and_every_piece_of_ptx_is_compared() -> None:
    used = {one for graph, ways in GRAPHS.values() for way in ways for one in templates_of(graph, *way)}
    assert all_families() == {one.family for one in used}
    alone = {found(text_of_instruction(opcode, kinds))[0] for opcode, kinds in INSTRUCTIONS}
    assert {*PIECES, *BARRIERS} == alone.union(*map(pieces, used))


FLOATS = np.array(
    [0, -0.0, 1, -1.5, 2.5, 1e-40, -1e-40, 3e38, -3e38, *np.float32(2.0) ** [31, 32, 63, 64, -126, -127, -149], *-(
        np.float32(2.0) ** [31, 63, 64]), -126, -126.5, 127.9, 128, np.inf, -np.inf, np.nan], np.float32
)  # fmt: skip
WORDS = np.array([0, 1, 0x7F80FF01, 0x80000000, 0xFFFFFFFF, 0x01020304, *range(7, 2**32, 2**27 + 12345)], np.uint32)
INSTRUCTIONS = [
    ("max.f32", ("f32", "f32", "f32")),
    ("ex2.approx.ftz.f32", ("f32", "f32")),
    *((f"cvt.rzi.{kind}.f32", (kind, "f32")) for kind in ("s32", "u32", "s64")),
    ("cvt.rna.tf32.f32", ("f32", "f32")),
    ("cvt.rn.bf16x2.f32", ("b32", "f32", "f32")),
    ("dp4a.s32.s32", ("s32", "b32", "b32", "s32")),
    ("dp4a.u32.s32", ("s32", "b32", "b32", "s32")),
]


def text_of_instruction(opcode: str, kinds: Sequence[str]) -> str:
    return f"{opcode} {', '.join(f'${number}' for number in range(len(kinds)))};"


@pytest.mark.parametrize(("opcode", "kinds"), INSTRUCTIONS, ids=lambda given: given if isinstance(given, str) else "")
def test_both_readings_of_an_instruction_are_the_same_at_the_edges(opcode: str, kinds: Sequence[str]) -> None:
    edges = [np.concatenate([FLOATS, WORDS.view(np.float32)]) if kind == "f32" else WORDS for kind in kinds[1:]]
    random = np.random.default_rng(0)
    values = [np.concatenate([one, random.permutation(one), random.permutation(one)]) for one in edges]
    values = [values[0], *map(random.permutation, values[1:])]
    expected = apply(opcode, kinds, *values)
    function = njit(PIECES[found(text_of_instruction(opcode, kinds))[0]].function)
    whole = [one if one.dtype == np.float32 else one.view(np.int32) for one in values]
    results = np.array([function(*one) for one in zip(*whole, strict=True)])
    is_word = expected.dtype == np.float32 and results.dtype == np.int64
    results = results.astype(np.uint32).view(np.float32) if is_word else results.astype(expected.dtype)
    assert bits([results]) == bits([expected])


SHUFFLE, TO_TF32 = "shfl.sync.bfly.b32 $0, $1, $2, 31, -1;", "cvt.rna.tf32.f32 $0, $1;"
PLANTED = {
    "a lane is another": ("SOFTMAX", "sm_75", "float32", SHUFFLE, shuffle(njit(lambda lane, b: lane ^ b ^ 1))),
    "a number is cut off": ("matmul", "sm_80", "tf32", TO_TF32, lambda a: bits_of_float(a) & 0xFFFFE000),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_another_meaning_of_an_instruction_is_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *way, text, wrong = PLANTED[bug]
    pattern, _ = found(text)
    monkeypatch.setitem(PIECES, pattern, replace(PIECES[pattern], function=wrong))
    assert outputs(*way, on_the_cpu.__wrapped__) != outputs(*way, simulated)


def test_a_missing_barrier_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BARRIERS, "bar.sync 0;", OF_WARP)
    way = "normalize", "sm_75", "float32"
    assert outputs(*way, on_the_cpu.__wrapped__, "random") != outputs(*way, simulated)


MEETING = """
define void @"meet"(i8* %"unused")
{
entry:
  %"thread" = call i32 @"llvm.nvvm.read.ptx.sreg.tid.x"()
  %"comes" = icmp ult i32 %"thread", LIMIT
  br i1 %"comes", label %"then", label %"after"
then:
  call void asm sideeffect "bar.sync 0;", "~{memory}"() convergent
  br label %"after"
after:
  ret void
}
"""


@pytest.mark.parametrize(
    ("limit", "problem"), [(64, ""), (48, "lanes of a warp wait at different"), (32, "never come to a barrier")]
)
def test_threads_that_do_not_meet_are_seen(limit: int, problem: str) -> None:
    module = second_route.Module(MEETING.replace("LIMIT", str(limit)))
    with pytest.raises(AssertionError, match=problem) if problem else nullcontext():
        module.launch("meet", (2, 1, 1), (64, 1, 1), [0], memory=Memory())
