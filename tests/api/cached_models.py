"""Small models with caches, as decoders have them: inputs that come back as outputs with some rows replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL, c_size_t, c_void_p
from mmap import PAGESIZE, PROT_READ, PROT_WRITE

import numpy as np

from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import GraphBuilder, ModelBuilder

ROWS, WIDTH = 3 * PAGESIZE // 64, 16
CACHE = (1, ROWS, WIDTH)
STEPS = {"prefill": 4, "decode": 1}


def decoder(dtype: str = "float32", *, reads_before: bool = False, negates: bool = False) -> bytes:
    """Two signatures: rows[1,N,WIDTH] and place i32[1] replace N rows of cache_k; those of cache_v get what cache_k
    held in its first rows after that. Returned are the caches and the first rows of cache_v, "seen".

    Args:
        reads_before: a further output "old" are the first rows of cache_k before the update.
        negates: "seen" is negated, which an option may leave to LiteRT.
    """
    model = ModelBuilder()
    for number, (key, count) in enumerate(STEPS.items()):
        _step(model, model if number == 0 else model.subgraph(key), key, count, dtype, reads_before, negates)
    return model.finish()


def _step(
    model: ModelBuilder, graph: GraphBuilder, key: str, count: int, dtype: str, reads_before: bool, negates: bool
) -> None:
    quant = Quant((0.5,), (3,)) if dtype == "int8" else None
    shape = (1, count, WIDTH)
    rows = graph.input(shape, dtype, name=f"{key}_rows", quant=quant)
    place = graph.input((1,), "int32", name=f"{key}_place")
    caches = {name: graph.input(CACHE, dtype, name=f"{key}_{name}", quant=quant) for name in ("cache_k", "cache_v")}
    zero = graph.constant(np.zeros(1, np.int32))
    start = graph.op("CONCATENATION", [zero, place, zero], (3,), dtype="int32", options={"axis": 0})

    def first(data: int, name: str) -> int:
        begin, size = graph.constant(np.zeros(3, np.int32)), graph.constant(np.array(shape, np.int32))
        return graph.op("SLICE", [data, begin, size], shape, dtype=dtype, quant=quant, name=name)

    def updated(name: str, part: int) -> int:
        operands = [caches[name], part, start]
        return graph.op("DYNAMIC_UPDATE_SLICE", operands, CACHE, dtype=dtype, quant=quant, name=f"{key}_{name}_out")

    outputs = {"cache_k": updated("cache_k", rows)}
    outputs["cache_v"] = updated("cache_v", first(outputs["cache_k"], f"{key}_part"))
    outputs["seen"] = first(outputs["cache_v"], f"{key}_seen")
    if negates:
        outputs["seen"] = graph.op("NEG", [outputs["seen"]], shape, name=f"{key}_negated")
    if reads_before:
        outputs["old"] = first(caches["cache_k"], f"{key}_old")
    graph.output(*outputs.values())
    model.signature(key, {"rows": rows, "place": place, **caches}, outputs, 0 if graph is model else 1)


def stepped(state: dict[str, np.ndarray], rows: np.ndarray, place: int, *, negates: bool = False) -> np.ndarray:
    """What a step does to the caches, in numpy; "seen"."""
    count = rows.shape[1]
    start = int(np.clip(place, 0, ROWS - count))
    state["cache_k"][0, start : start + count] = rows[0]
    state["cache_v"][0, start : start + count] = state["cache_k"][0, :count].copy()
    seen = state["cache_v"][:, :count].copy()
    return -seen if negates else seen


@contextmanager
def only_rows_writable(cache: np.ndarray, place: int) -> Iterator[None]:
    """Whole pages of a cache in which no byte of row `place` lies cannot be written to; writing ends the process."""
    start, size = cache.ctypes.data, cache.nbytes
    row = start + place * cache.nbytes // ROWS
    pages = range(-(-start // PAGESIZE) * PAGESIZE, start + size - PAGESIZE + 1, PAGESIZE)
    fenced = [page for page in pages if not page <= row < page + PAGESIZE]
    assert fenced
    _protect(fenced, PROT_READ)
    try:
        yield
    finally:
        _protect(fenced, PROT_READ | PROT_WRITE)


def _protect(pages: list[int], how: int) -> None:
    for page in pages:
        assert CDLL(None).mprotect(c_void_p(page), c_size_t(PAGESIZE), how) == 0


def aligned_cache(dtype: str = "float32") -> np.ndarray:
    """A cache of zeros that begins with a page."""
    room = np.zeros(ROWS * WIDTH * np.dtype(dtype).itemsize + PAGESIZE, np.uint8)
    first = -room.ctypes.data % PAGESIZE
    return room[first : first + room.size - PAGESIZE].view(dtype).reshape(CACHE)
