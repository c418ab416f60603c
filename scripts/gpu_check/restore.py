"""Puts weights back into all programs, and checks that they are those that the programs were compiled with."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from xxhash import xxh3_128_hexdigest

from jitdelegate.errors import JitDelegateError
from jitdelegate.program.read import read
from scripts.gpu_check.bundle import Bundle, Prepared
from scripts.gpu_check.row import Row

SECTION = "weights"


def rows(bundle: Bundle) -> Iterator[Row]:
    """Restores every program that needs it, on as many processes as there are CPUs, for the sections that follow."""
    prepared = [one for kind in bundle.kinds for one in bundle.prepared(kind) if one.case.model]
    start, others = time.perf_counter(), 0
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as pool:  # forked before anyone meets the GPU
        for one, trouble in zip(prepared, pool.map(_trouble, prepared), strict=True):
            if trouble:
                others += 1
                yield Row(SECTION, one.name, "weights", note=trouble)
    yield Row(SECTION, bundle.name, "restored", float(len(prepared)))
    yield Row(SECTION, bundle.name, "others than prepared", float(others), limit=0.0)
    yield Row(SECTION, bundle.name, "time", time.perf_counter() - start, "s")


def _trouble(prepared: Prepared) -> str:
    """Restores a program; what is wrong with its weights, "" if nothing is."""
    try:
        found = read(prepared.content).weights
    except JitDelegateError as error:
        return str(error)
    if xxh3_128_hexdigest(found) == prepared.entry.weights:
        return ""
    return "numpy lays out other weights here than where the program was compiled; it computes on those"
