"""The memory that a compilation takes at most, counted in multiples of the model's file."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from xxhash import xxh3_128_hexdigest

import jitdelegate
from jitdelegate import passes
from jitdelegate.ir import dequantize
from jitdelegate.ir.dequantize import Derived
from jitdelegate.ir.graph import Numbers, Quant, QuantizedOptions, Tensor
from jitdelegate.ops.dynamic_weights import rounded
from jitdelegate.program import shared_pages
from jitdelegate.targets.host import facts_of, level
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder

BLOCK = 32


def matrix(model: ModelBuilder, rows: int, depth: int) -> int:
    """A matrix of int4 in blocks."""
    random = np.random.default_rng(0)
    packed = random.integers(0, 256, rows * depth // 2).astype(np.uint8)
    scales = random.uniform(0.01, 0.02, rows * depth // BLOCK).astype(np.float16)
    return model.constant(packed, quant=Quant(Numbers(scales), (0,), 0, BLOCK), dtype="int4", shape=(rows, depth))


def product(rows: int, depth: int) -> bytes:
    """f32[1, depth] -> its products with such a matrix."""
    model = ModelBuilder()
    operands = [model.input((1, depth)), matrix(model, rows, depth), -1]
    model.output(model.op("FULLY_CONNECTED", operands, (1, rows), options={"keep_num_dims": False}))
    return model.finish()


def tied(rows: int, depth: int) -> bytes:
    """A row of such a matrix, and its products with all of them."""
    model = ModelBuilder()
    table = matrix(model, rows, depth)
    row = model.op("EMBEDDING_LOOKUP", [model.input((1,), "int32"), table], (1, depth))
    model.output(model.op("FULLY_CONNECTED", [row, table, -1], (1, rows), options={"keep_num_dims": False}))
    return model.finish()


@pytest.mark.parametrize("features", ["x86-64-v3", ""])
def test_weights_of_int4_in_blocks_are_never_floats_while_they_are_compiled(features: str) -> None:
    """Floats alone would take seven times the file, and the scales as Python numbers three times."""
    content = product(6000, 1024)
    options = {"cpu_features": features} if features else {}
    jitdelegate.load(product(64, 64), serialization_dir=False, target="cpu", **options).close()  # imports the compiler
    tracemalloc.start()
    try:
        model = jitdelegate.load(content, serialization_dir=False, target="cpu", **options)
        _, peak = tracemalloc.get_traced_memory()
        model.close()
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(content)


@pytest.mark.skipif(not facts_of(level()).plus_bytes, reason="other levels multiply floats")
def test_an_entry_of_int4_in_blocks_is_no_larger_than_the_file(tmp_path: Path) -> None:
    """With float32 scales, it is 1.11 times as large."""
    content = product(6000, 1024)
    jitdelegate.load(content, serialization_dir=tmp_path, target="cpu").close()
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.jitd")) < 1.05 * len(content)


def test_scales_are_rounded_when_they_are_read() -> None:
    table = next(tensor for tensor in read(product(4000, 512)).graphs[0].tensors if tensor.is_constant and tensor.quant)
    tracemalloc.start()
    try:
        found = rounded(table).quant
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None and kept < 4000 * 512 // BLOCK
    bits = np.array(found.scales, np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    assert found.scales[7] == np.array(found.scales)[7]


def test_bytes_of_a_table_of_int4_are_not_kept_in_a_graph() -> None:
    rows, depth = 4000, 512
    graph = read(tied(rows, depth)).graphs[0]
    tensors = tuple(replace(tensor, is_matrix=tensor.is_constant) for tensor in graph.tensors)
    lowered = passes.run(replace(graph, tensors=tensors, quantized=QuantizedOptions(multiplies_bytes=True)))
    assert "Gather" in {type(node.form).__name__ for node in lowered.nodes}
    held = {id(owner): owner.nbytes for owner in map(owner_of, lowered.tensors) if owner is not None}
    assert sum(held.values()) < rows * depth // 4  # the scales of the table, as floats, and zero points of rows


def owner_of(tensor: Tensor) -> np.ndarray | None:
    """The array in whose own memory a constant lies."""
    array: object = tensor.data if not isinstance(tensor, Derived) or tensor.integers is None else None
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array if isinstance(array, np.ndarray) else None


def test_what_a_lowering_has_read_need_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    unloaded: list[int] = []
    monkeypatch.setattr(dequantize, "unload", lambda view: unloaded.append(view.nbytes))
    passes.run(replace(read(product(4000, 512)).graphs[0], quantized=QuantizedOptions(multiplies_bytes=True)))
    assert 4000 * 512 // 2 in unloaded


def test_few_of_the_weights_are_in_memory_while_they_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    unloaded: list[int] = []
    monkeypatch.setattr(shared_pages, "unload", lambda view: unloaded.append(view.nbytes))
    monkeypatch.setattr(shared_pages, "HASHED_AT_ONCE", 1000)
    parts = [bytes(range(256)) * 10, b"other weights"]
    assert shared_pages.hash_of(parts) == xxh3_128_hexdigest(b"".join(parts))
    assert unloaded == [1000, 1000, 560, 13]
