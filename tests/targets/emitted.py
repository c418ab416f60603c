"""Runs functions of a module of the CPU target alone, without a program around them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import llvmlite.binding as llvm
import numpy as np

from jitdelegate.base.targets import LEVELS
from jitdelegate.targets.cpu.code.kernel import Generator, Job
from jitdelegate.targets.cpu.code.machine import compile_object, triple
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Module

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRY = "entry"


def generator_of(features: str) -> Generator:
    """A generator without a graph."""
    return Generator(LEVELS[features], Module(LEVELS[features]))


def call(generator: Generator, name: str, *arrays: np.ndarray) -> None:
    """Calls the function `void name(pointer ...)` of the module."""
    f = generator.module.function(ENTRY, [(f"p{k}", POINTER) for k in range(len(arrays))], exported=True)
    f.call(name, *f.parameters)
    f.finish()
    _run(generator, arrays)


def run_jobs(generator: Generator, jobs: Sequence[Job], *arrays: np.ndarray) -> None:
    """Runs all chunks of jobs, whose memory in "io" are these arrays."""
    scratch = np.zeros(generator.scratch + 64, np.uint8)
    aligned = scratch[-scratch.ctypes.data % 64 :]
    f = generator.module.function(ENTRY, [(f"p{k}", POINTER) for k in range(len(arrays) + 1)], exported=True)
    *pointers, own = f.parameters
    for job in jobs:
        at = [pointers[address.offset] + address.distance for address in job.addresses]
        f.loop(job.chunks, lambda chunk, job=job, at=at: f.call(job.function, chunk, own, *at))
    f.finish()
    _run(generator, [*arrays, aligned])


def _run(generator: Generator, arrays: Sequence[np.ndarray]) -> None:
    features = generator.machine.name
    with _loaded(compile_object(generator.module.text(triple(features)), features)) as entry:
        entry(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))


@contextmanager
def _loaded(code: bytes) -> Iterator[Callable[..., None]]:
    target = llvm.Target.from_default_triple().create_target_machine()
    with llvm.create_mcjit_compiler(llvm.parse_assembly(""), target) as engine:
        engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
        engine.finalize_object()
        yield ctypes.CFUNCTYPE(None)(engine.get_function_address(ENTRY))
