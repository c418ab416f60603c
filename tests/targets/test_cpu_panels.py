"""Panels: a matrix that is packed at run time becomes the bytes that it becomes at compile time, for every multiply."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.base.targets import LEVELS, Level
from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import MatMul
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.kernel import Memory
from jitdelegate.targets.cpu.multiply.long_products import LongBytes, LongWords
from jitdelegate.targets.cpu.multiply.pairs import WordPairs
from jitdelegate.targets.cpu.multiply.products import QUAD, ByteProducts, PairProducts, Products, WordProducts
from jitdelegate.targets.cpu.products.matmul import Product, matmul_jobs, matrix
from jitdelegate.targets.cpu.sources.panels import Packing, PanelGroup, pack, pack_function
from tests.targets.emitted import call, generator_of, run_jobs
from tests.targets.levels import INTEGERS

ALIGN = 64


def kinds(machine: Level) -> list[Products]:
    """All multiplies of matrices on a machine."""
    bytes_ = ByteProducts if machine.plus_bytes else PairProducts
    integers = [bytes_(machine), bytes_(machine, is_signed=False), WordPairs(machine), WordProducts(machine)]
    if machine.multiplies_long:
        integers += [LongBytes(machine), LongBytes(machine, is_signed=False), LongWords(machine)]
    return [Products(machine), *integers]


def data_type(products: Products) -> str:
    """The type of data that the products read."""
    if products.accumulator == "int64":
        return "int16"
    if products.converted:
        return products.converted
    return "float32" if products.accumulator == "float32" else ("int8" if products.is_signed else "uint8")


def matrix_type(products: Products) -> str:
    """The type of a matrix that is packed for the products."""
    return "float32" if products.accumulator == "float32" else "int8"


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    random = np.random.default_rng(sum(shape))
    if dtype == "float32":
        return random.normal(0, 1, shape).astype(np.float32)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def aligned(nbytes: int) -> np.ndarray:
    memory = np.zeros(nbytes + ALIGN, np.uint8)
    return memory[-memory.ctypes.data % ALIGN :][:nbytes]


def at_compile_time(products: Products, weights: np.ndarray) -> np.ndarray:
    """The bytes of the weights of a panel of weights [columns, depth]."""
    generator, (columns, depth) = generator_of(products.machine.name), weights.shape
    steps = -(-depth // products.channels)
    padded = np.zeros((columns, steps * products.channels), weights.dtype)
    padded[:, :depth] = weights
    filters = padded.reshape(columns, steps, products.channels)
    groups = [PanelGroup(0, -(-columns // products.lanes), 1, masked=False)]
    offset = pack(generator, products, groups, filters, [(np.arange(steps), steps // QUAD)])
    vectors = -(-columns // products.lanes)
    heads, line = vectors * products.bias_bytes, vectors * products.weight_bytes
    return np.frombuffer(generator.weights.content, np.uint8)[offset + heads :][: steps * line]


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("depth", [1, 4, 11, 36])
@pytest.mark.parametrize("features", INTEGERS)
def test_a_panel_is_packed_at_run_time_as_at_compile_time(features: str, depth: int, is_transposed: bool) -> None:
    machine = LEVELS[features]
    for products in kinds(machine):
        for columns in (1, machine.lanes, 2 * machine.lanes - 3):
            dtype = matrix_type(products)
            weights, vectors = values((columns, depth), dtype), -(-columns // machine.lanes)
            stored = np.ascontiguousarray(weights if is_transposed else weights.T)
            row, zero = stored.strides[0], 0 if products.stored == "float32" else 3
            packing = Packing(products, dtype, vectors, depth, columns, row, is_transposed, zero)
            generator, panel = generator_of(features), aligned(packing.nbytes)
            call(generator, pack_function(generator, packing), stored, panel)
            heads = vectors * products.bias_bytes if zero else 0
            belongs = at_compile_time(products, np.full_like(weights, -1)) != 0  # lanes after the columns are arbitrary
            np.testing.assert_array_equal(panel[heads:][belongs], at_compile_time(products, weights)[belongs])
            if zero:
                expected = -(zero + products.offset) * weights.sum(1, dtype=np.int64)
                np.testing.assert_array_equal(panel[:heads].view(products.accumulator)[:columns], expected)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("sizes", [(1, 4, 3), (5, 36, 21), (9, 1100, 70), (30, 11, 33)], ids=str)
@pytest.mark.parametrize("features", INTEGERS)
def test_two_matrices_are_multiplied_by_every_multiply(
    features: str, sizes: tuple[int, int, int], adjoint: bool
) -> None:
    (rows, depth, columns), lanes = sizes, LEVELS[features].lanes
    for products in kinds(LEVELS[features]):
        generator, dtype = generator_of(features), data_type(products)
        a, b = values((rows, depth), dtype), values((depth, columns), matrix_type(products))
        stored = np.ascontiguousarray(b.T if adjoint else b)
        padded = np.concatenate([a.ravel(), np.zeros(ALIGN, dtype)])
        result = np.zeros((rows, columns), products.accumulator)
        sides = [
            matrix(Memory("io", number, Layout((1, 1, *each.shape), lanes, dtype=str(each.dtype))), each.shape, (), ())
            for number, each in enumerate((a, stored, result))
        ]
        epilogue = Epilogue(RESULT, source=products.accumulator, dtype=products.accumulator)
        product = Product.of(MatMul(adj_y=adjoint), products, *sides, epilogue)
        run_jobs(generator, matmul_jobs(generator, product), padded, stored, result)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(result, exact, rtol=1e-4 if dtype == "float32" else 0, atol=1e-3)
