"""Contractions on tensor cores: the PTX that is really emitted, run in the simulator against numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from random import Random

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import RESULT, Arg, maximum, unary
from jitdelegate.ir.forms import Contract, IndexMap
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.code.template import Argument, Launch, NoPointer, TensorPointer, WeightsPointer
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.compile import back_end
from jitdelegate.targets.cuda.multiply import mma_tile
from jitdelegate.targets.cuda.multiply.mma_tile import SLIM_TILES, TILES, WIDE_TILES, Tile
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, STEP, Operand
from jitdelegate.targets.cuda.products import contract, mma
from jitdelegate.targets.cuda.sources.conv_problem import problem_of
from jitdelegate.targets.cuda.walks import split_k
from jitdelegate.targets.cuda.walks.mma_kernel import Mma
from jitdelegate.targets.planning.epilogue import Reach
from jitdelegate.targets.reference.evaluate import run_node
from tests.gpu.simulator import Memory, Module
from tests.targets.cuda_execute import ptx_of, text_of

TOLERANCES = {"float16": 6e-4, "bfloat16": 5e-3, "tf32": 1e-4}
"""Root mean square errors against the outputs', the reference being computed on rounded data and weights."""


PLAIN = Contract()


@dataclass(frozen=True)
class Case:
    """A Contract and the shapes of its tensors; `extra` are operands of the epilogue."""

    data: tuple[int, ...]
    weights: tuple[int, ...]
    output: tuple[int, ...]
    form: Contract = PLAIN
    extra: tuple[tuple[int, ...], ...] = ()
    has_bias: bool = True
    ports: bool = False


@dataclass
class Prepared:
    """A case's launches, and what they read."""

    writer: Writer
    node: Node
    values: list[np.ndarray]
    output: int
    launches: list[Launch] = field(default_factory=list)

    @property
    def templates(self) -> list[Mma]:
        return [launch.template for launch in self.launches if isinstance(launch.template, Mma)]


def prepare(case: Case, precision: str, architecture: str = "sm_90") -> Prepared:
    """The launches of a case whose tensors are float32 ports of the graph, or else stored as the precision says."""
    random = np.random.default_rng(prod(case.data) + prod(case.weights))
    shapes = [case.data, case.weights, (case.weights[0],), *case.extra]
    values = [random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    constants = {1, 2}
    tensors = [Tensor(f"t{i}", v.shape, "float32", v if i in constants else None) for i, v in enumerate(values)]
    output = len(tensors)
    tensors.append(Tensor("output", case.output, "float32"))
    inputs = (0, 1, 2 if case.has_bias else ABSENT, *range(3, output))
    node = Node("CONV_2D", inputs, (output,), {}, form=case.form)
    ports = ((0, *range(3, output)), (output,)) if case.ports else ((), ())
    writer = Writer(Graph(tuple(tensors), (node,), *ports), GPUS[architecture], precision)
    writer.begin(node)
    contract.write(writer, problem_of(writer, node))
    return Prepared(writer, node, values, output, writer.launches)


Change = Callable[[str], str]


def run(
    prepared: Prepared,
    architecture: str = "sm_90",
    schedule: str = "lockstep",
    seed: int = 0,
    change: Change = str,
) -> np.ndarray:
    """What the launches compute, in the simulator, with PTX that `change` may have broken."""
    writer, memory = prepared.writer, Memory()
    weights = memory.keep(memory.place(np.frombuffer(bytes(writer.weights.content), np.uint8)))
    places = {i: memory.place(stored(value, writer.element(i))) for i, value in enumerate(prepared.values)}
    shape, element = writer.shape(prepared.output), writer.element(prepared.output)
    places[prepared.output] = memory.allocate(prod(shape) * element.nbytes)
    places |= {number: memory.allocate(nbytes) for number, nbytes in writer.temporaries.items()}
    for launch in prepared.launches:
        Module(change(ptx_of(launch.template, architecture))).launch(
            launch.template.symbol,
            grid=launch.grid,
            block=(launch.template.threads, 1, 1),
            arguments=[value_of(argument, places, weights) for argument in launch.arguments],
            shared_bytes=launch.shared_bytes,
            memory=memory,
            schedule=schedule,
            seed=seed,
            is_dependent=GPUS[architecture].has_dependent_launch,
        )
    kind = np.float32 if element is Element.FLOAT32 else np.float16 if element is Element.FLOAT16 else np.uint16
    return loaded(memory.array(places[prepared.output], kind, shape), element)


def value_of(argument: Argument, places: dict[int, int], weights: int) -> int | float:
    """A launch argument in the simulator's memory."""
    if isinstance(argument, TensorPointer):
        return places[argument.index]
    if isinstance(argument, WeightsPointer):
        return weights + argument.offset
    return 0 if isinstance(argument, NoPointer) else argument


def stored(values: np.ndarray, element: Element) -> np.ndarray:
    """Float32 numbers as they lie in memory."""
    return values if element is Element.FLOAT32 else Operand(element.value).rounded(values)


def loaded(array: np.ndarray, element: Element) -> np.ndarray:
    """What lies in memory as float32."""
    if element is Element.BFLOAT16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def rounded(values: np.ndarray, precision: str) -> np.ndarray:
    """Float32 numbers as tensor cores see them."""
    bits = Operand(precision).rounded(values)
    return bits.view(np.float32) if precision == "tf32" else loaded(bits, Element(precision))


def expected(prepared: Prepared, precision: str) -> np.ndarray:
    """The reference on rounded data and weights."""
    values = list(prepared.values)
    values[:2] = [rounded(value, precision) for value in values[:2]]
    for i in range(3, len(values)):
        values[i] = loaded(stored(values[i], prepared.writer.element(i)), prepared.writer.element(i))
    operands = [None if i == ABSENT else values[i] for i in prepared.node.inputs]
    return run_node(prepared.node, operands, prepared.writer.shape(prepared.output))


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """Root of the mean square difference over that of the wanted values."""
    assert found.shape == wanted.shape
    return float(np.sqrt(np.mean((found - wanted) ** 2.0) / np.mean(wanted**2.0)))


def check(case: Case, precision: str, architecture: str = "sm_90", **how: object) -> Prepared:
    """The case computes what it has to."""
    prepared = prepare(case, precision, architecture)
    found = run(prepared, architecture, **how)
    assert error(found, expected(prepared, precision)) < TOLERANCES[precision]
    return prepared


def use(monkeypatch: pytest.MonkeyPatch, tile: Tile) -> None:
    """Leaves no other tile to choose."""
    monkeypatch.setattr(mma, "TILES", (tile,))
    monkeypatch.setattr(mma, "WIDE_TILES", ())
    monkeypatch.setattr(mma, "SLIM_TILES", ())


@pytest.fixture(params=TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tile]:
    """Each tile, with no other to choose."""
    use(monkeypatch, request.param)
    yield request.param


def windowed(channels: int, outputs: int, **changes: object) -> Case:
    """A 3x3 kernel with stride (2, 1) over a 9x7 image with padding above, left and right."""
    form = Contract(kernel=(3, 3), stride=(2, 1), padding=(1, 0, 1, 2))
    return Case((1, 9, 7, channels), (outputs, 3, 3, channels), (1, 4, 8, outputs), form, **changes)


CASES = {
    "one pixel of numbers": Case((1, 300), (10, 300), (1, 10)),
    "rows of numbers": Case((5, 70), (33, 70), (5, 33)),
    "1x1": Case((2, 5, 7, 16), (24, 1, 1, 16), (2, 5, 7, 24)),
    "1x1 with stride": Case((1, 5, 7, 16), (24, 1, 1, 16), (1, 3, 4, 24), Contract(stride=(2, 2))),
    "without bias": Case((1, 3, 3, 8), (8, 1, 1, 8), (1, 3, 3, 8), has_bias=False),
    "3 channels": windowed(3, 33),
    "5 channels": windowed(5, 5),
    "6 channels": windowed(6, 12),
    "12 channels": windowed(12, 34),
    "dilated": Case(
        (1, 9, 8, 8), (16, 3, 2, 8), (1, 5, 7, 16), Contract(kernel=(3, 2), dilation=(2, 3), padding=(0, 0, 1, 1))
    ),
    "groups": Case((1, 4, 5, 48), (72, 2, 2, 16), (1, 3, 4, 72), Contract(kernel=(2, 2), groups=3)),
    "groups of odd sizes": Case((1, 4, 5, 9), (15, 2, 2, 3), (1, 3, 4, 15), Contract(kernel=(2, 2), groups=3)),
    "transposed": Case(
        (1, 4, 5, 16),
        (24, 3, 3, 16),
        (1, 9, 10, 24),
        Contract(kernel=(3, 3), stride=(2, 2), padding=(0, 0, 1, 0), transposed=True),
    ),
    "transposed with a stride beyond the kernel": Case(
        (1, 2, 3, 8), (3, 1, 2, 8), (1, 5, 9, 3), Contract(kernel=(1, 2), stride=(3, 3), transposed=True)
    ),
}


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "tf32"])
@pytest.mark.parametrize("name", CASES)
def test_contractions_agree_with_the_reference(name, precision):
    check(CASES[name], precision)


@pytest.mark.parametrize("precision", ["float16", "tf32"])
def test_every_tile_takes_a_convolution_larger_than_itself_or_smaller(only, precision):
    assert check(windowed(40, 72), precision).templates[0].tile.rows == only.rows


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_tiles_end_where_the_pixels_end(more, only):
    check(Case((only.rows + more, 32), (only.columns + 1, 32), (only.rows + more, only.columns + 1)), "float16")


@pytest.mark.parametrize("steps", [8, 128, 136, 520])
def test_tiles_end_where_the_sum_ends(steps, only):
    check(Case((9, steps), (8, steps), (9, 8)), "float16")


@pytest.mark.parametrize("name", ["1x1", "3 channels", "12 channels", "groups", "transposed"])
def test_ports_are_read_and_written_as_float32(name):
    case = replace(CASES[name], ports=True)
    template = check(case, "float16").templates[0]
    assert (template.source, template.output) == (Element.FLOAT32, Element.FLOAT32)


@pytest.mark.parametrize("name", ["rows of numbers", "1x1", "3 channels", "12 channels", "groups", "transposed"])
def test_turing_multiplies_halves_without_asynchronous_copies(name):
    template = check(CASES[name], "float16", "sm_75").templates[0]
    assert "cp.async" not in ptx_of(template, "sm_75")


@pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
def test_turing_refuses_what_it_has_no_tensor_cores_for(precision):
    with pytest.raises(CompileError, match=f"sm_75 has no {precision} tensor cores"):
        prepare(CASES["1x1"], precision, "sm_75")


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
@pytest.mark.parametrize("columns", [32, 64])
def test_warps_may_run_in_any_order(architecture, columns, monkeypatch):
    use(monkeypatch, next(tile for tile in TILES if (tile.rows, tile.columns) == (columns, columns)))
    check(windowed(40, 24), "float16", architecture, schedule="random", seed=1)


@pytest.mark.parametrize("ports", [False, True])
def test_the_epilogue_reads_other_operands(ports):
    shapes = ((1, 4, 8, 24), (24,), (1, 4, 8, 1), (1,))
    own = tuple(IndexMap.broadcast(shape, (1, 4, 8, 24)) for shape in shapes)
    value = RESULT * Arg(2) + Arg(1) * Arg(3)
    form = replace(windowed(16, 24).form, epilogue=maximum(value, -0.5) - Arg(4), operands=own)
    check(replace(windowed(16, 24), form=form, extra=shapes, ports=ports), "float16")


def test_a_large_sum_is_shared_out_between_warps():
    template = prepare(Case((49, 1024), (1024, 1024), (49, 1024)), "float16").templates[0]
    assert template.tile.warps[2] > 1


def test_blocks_share_out_a_sum_where_there_are_few_of_them():
    case = Case((1, 7, 7, 512), (40, 3, 3, 512), (1, 7, 7, 40), Contract(kernel=(3, 3), padding=(1, 1, 1, 1)))
    launches = prepare(case, "float16", "sm_80").launches
    assert [launch.template.family for launch in launches] == ["contract_mma", "contract_combine"]
    (launch,) = prepare(case, "float16", "sm_90").launches
    assert launch.template.cluster == launch.grid[2] > 1


def test_parts_of_a_sum_meet_in_the_output(only, monkeypatch):
    monkeypatch.setattr(mma_tile, "COMBINE_CYCLES", -(10**9))
    monkeypatch.setattr(split_k, "FEWEST_TILES", 1)
    case = Case((1, 3, 5, 24), (12, 3, 3, 24), (1, 3, 5, 12), Contract(kernel=(3, 3), padding=(1, 1, 1, 1)))
    assert check(case, "float16", "sm_75").templates[0].is_part


def test_parts_of_a_sum_meet_in_a_cluster(only, monkeypatch):
    monkeypatch.setattr(split_k, "CLUSTER_CYCLES", -(10**9))
    monkeypatch.setattr(split_k, "FEWEST_OF_CLUSTER", 1)
    monkeypatch.setattr(split_k, "PARTS", (3,))  # no power of two, so that blocks take turns unevenly with the rows
    case = Case((1, 3, 5, 56), (12, 3, 3, 56), (1, 3, 5, 12), Contract(kernel=(3, 3), padding=(1, 1, 1, 1)))
    assert check(case, "float16", schedule="random").templates[0].cluster > 1


def test_a_large_problem_takes_the_largest_tile():
    template = prepare(Case((8192, 64), (4096, 64), (8192, 4096)), "float16").templates[0]
    assert template.tile == WIDE_TILES[0]


@pytest.mark.parametrize("channels", [3, 40])
@pytest.mark.parametrize("tile", SLIM_TILES[1::2], ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_a_slim_tile_takes_few_output_channels(tile, channels, monkeypatch):
    use(monkeypatch, tile)
    assert check(windowed(channels, tile.columns - 3), "float16", schedule="random").templates[0].tile.rows == tile.rows


@pytest.mark.parametrize("tile", WIDE_TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_a_wide_tile_ends_where_pixels_channels_and_the_sum_end(tile, monkeypatch):
    use(monkeypatch, tile)
    form, across = Contract(kernel=(1, 3), padding=(0, 0, 1, 0)), tile.rows // 2 + 1
    case = Case((1, 2, across + 1, 40), (tile.columns + 8, 1, 3, 40), (1, 2, across, tile.columns + 8), form)
    assert check(case, "float16").templates[0].tile.columns == tile.columns


@pytest.mark.parametrize("k_bytes", [2, 100, 320, 10_000])
def test_threads_share_out_tiles_in_whole_chunks(k_bytes):
    tiles = *WIDE_TILES, *SLIM_TILES, *TILES
    for tile in (shape(one, k_bytes) for shape in (Tile.shortened, Tile.trimmed) for one in tiles):
        chunks = tile.row_bytes // CHUNK
        assert tile.rows * chunks % tile.threads == tile.columns * chunks % tile.threads == 0
        assert tile.threads // chunks % 8 == 0, "the swizzle would differ from row to row of a thread"
        assert tile.row_bytes % (tile.warps[2] * STEP) == 0


def test_weights_are_rounded_to_the_nearest_even():
    values = np.array([1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-9, 1 + 2**-8, 1 + 3 * 2**-8, np.inf, 70000], np.float32)
    assert Operand.FLOAT16.rounded(values).tolist() == [
        1,
        1 + 2**-9,
        -1 - 2**-9,
        1 + 2**-8,
        1 + 3 * 2**-8,
        np.inf,
        np.inf,
    ]
    assert rounded(values, "bfloat16").tolist() == [1, 1, -1, 1, 1 + 2**-6, np.inf, 70144]
    assert rounded(values, "tf32").tolist() == [1, 1 + 2**-9, -1 - 2**-9, 1 + 2**-8, 1 + 3 * 2**-8, np.inf, 70016]


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "tf32"])
def test_infinity_and_nan_come_through(precision):
    assert np.isnan(rounded(np.array([np.nan, -np.nan], np.float32), precision)).all()
    prepared = prepare(Case((3, 16), (8, 16), (3, 8)), precision)
    prepared.values[0][:] = 1
    prepared.values[0][0, 0], prepared.values[0][1, 0] = np.nan, np.inf
    found = run(prepared)
    assert np.isnan(found[0]).all() and np.isinf(found[1]).all() and np.isfinite(found[2]).all()


def test_equal_problems_share_a_template():
    a, b = (prepare(Case((n, 64), (32, 64), (n, 32)), "float16").templates[0] for n in (30, 31))
    assert a == b and a.symbol == b.symbol


def templates() -> Iterator[Mma]:
    """A sample of what can be chosen: every tile, and of small ones every way of copying."""
    half, single = Element.FLOAT16, Element.FLOAT32
    for tile in WIDE_TILES:
        plain = Mma(half, half, tile, 8, 8, False, False, single, Epilogue(), Operand.FLOAT16, True, False)
        yield from (plain, replace(plain, operand=Operand.TF32, source=single, output=single, width=4, run=4))
    for tile in TILES:
        whole = Mma(half, half, tile, 8, 8, False, False, single, Epilogue(), Operand.FLOAT16, True, False)
        yield whole
        yield replace(whole, has_async_copy=False, tile=replace(tile, stages=2))
        yield replace(whole, operand=Operand.TF32, source=single, output=single, width=4, run=4)
    for tile in SLIM_TILES:
        yield replace(whole, tile=tile)
        if tile.rows <= mma.MOST_ROWS:
            yield replace(whole, tile=replace(tile, stages=2), width=1, source=single)
    small = replace(whole, tile=TILES[2])
    yield replace(small, operand=Operand.BFLOAT16, source=Element.BFLOAT16, output=Element.BFLOAT16, is_direct=True)
    yield replace(small, width=2, run=1, is_scattered=True)
    long = unary("tanh", RESULT * Arg(1)) + unary("logistic", RESULT)
    yield replace(small, tile=TILES[0], epilogue=Epilogue(long, ((Reach.ELEMENT, half),)))
    for changes in (
        {"width": 1},
        {"source": single},
        {"source": single, "width": 1},
        {"width": 2, "has_async_copy": False},
    ):
        yield replace(small, tile=replace(TILES[2], stages=2), **changes)


@pytest.mark.parametrize("architecture", back_end.ARCHITECTURES)
def test_no_architecture_spills(architecture):
    gpu = GPUS[architecture]
    fit = [template for template in templates() if template.tile.shared_bytes <= gpu.shared_bytes]
    if not gpu.has_async_copy:
        fit = [one for one in fit if one.operand is Operand.FLOAT16 and not one.has_async_copy]
    for template in Random(architecture).sample(fit, min(12, len(fit))):
        cubin = back_end.cubin(back_end.ptx(text_of(template), architecture), architecture)
        assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0), template
        assert cubin.registers <= 255


def test_products_run_on_tensor_cores():
    for template in templates():
        architecture = "sm_90" if template.has_async_copy else "sm_75"
        assert "mma.sync.aligned" in ptx_of(template, architecture)
