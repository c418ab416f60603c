"""Calls the compiler and turns failures of it as a whole into CompilerFailedError."""

from __future__ import annotations

import time
from collections.abc import MutableMapping, Sequence

from jitdelegate.base.options import DelegateOptions
from jitdelegate.errors import CompilerFailedError, JitDelegateError
from jitdelegate.ir.faults import may_pass, told
from jitdelegate.program.program import Program
from jitdelegate.runtime.cache.key import TOOLCHAIN, Key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from jitdelegate.program.program import FileParts
    from jitdelegate.tflite.read import Reading

LARGE = 1 << 24
"""Bytes of a model whose compilation leaves so much garbage that it is collected at once."""


def compiled(
    content: ReadableBuffer,
    options: DelegateOptions,
    key: Key,
    seconds: MutableMapping[str, float],
    sources: Sequence[Program | None] = (),
    reading: Reading | None = None,
) -> FileParts:
    """The file of a model's program, as `compile_model` makes it.

    Raises:
        ModelError, ShapesError, DeviceError: as `compile_model`.
        CompilerFailedError: the compiler cannot be imported, is too old, lacks memory or files, or raises an unexpected
            error outside of its stages. It has the cause.
    """
    from jitdelegate.compiler.rare_collection import rare_collection, release_memory

    start = time.perf_counter()
    try:
        with rare_collection():
            from jitdelegate.compiler.compile import compile_model  # here, since the import is what fails without LLVM

            seconds["import compiler"] = time.perf_counter() - start
            parts = compile_model(content, options, key, seconds, sources, reading)
        if memoryview(content).nbytes >= LARGE:
            release_memory()
        return parts
    except JitDelegateError:
        raise
    except Exception as error:
        raise _failure(error, key) from error


def uncompiled(content: ReadableBuffer, key: Key, failure: str) -> Program:
    """A program without code, for a model that runs on LiteRT after the compiler's `failure`.

    Raises:
        ModelError: the bytes are not a model, or one that would corrupt LiteRT's memory.
        CompilerFailedError: reading the model fails too.
    """
    try:
        from jitdelegate.compiler.compile import uncompiled_program

        return uncompiled_program(content, key, failure)
    except JitDelegateError:
        raise
    except Exception as error:
        raise _failure(error, key) from error


def remembered(content: ReadableBuffer, key: Key, failure: str) -> FileParts:
    """The file of a program without code, by which later starts know of a failure that lasts; raises as
    `uncompiled`."""
    program = uncompiled(content, key, failure)
    try:
        from jitdelegate.program.write import parts

        return parts(program)
    except Exception as error:
        raise _failure(error, key) from error


def _failure(error: Exception, key: Key) -> CompilerFailedError:
    """A part of the compiler that the key knows of cannot be missing for long: it is there, or the key changes."""
    is_there = isinstance(error, ImportError) and bool(key.part(TOOLCHAIN))
    return CompilerFailedError(told(error), may_pass=is_there or may_pass(error))
