"""Calls the compiler and turns its failures into CompilerFailedError."""

from __future__ import annotations

import time
from collections.abc import MutableMapping, Sequence

from jitdelegate.cache.key import Key
from jitdelegate.errors import CompilerFailedError, JitDelegateError
from jitdelegate.options import DelegateOptions
from jitdelegate.program.program import Program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from jitdelegate.program.program import FileParts


def compiled(
    content: ReadableBuffer,
    options: DelegateOptions,
    key: Key,
    seconds: MutableMapping[str, float],
    lenders: Sequence[Program | None] = (),
) -> FileParts:
    """The file of a model's program, as `compile_model` makes it.

    Raises:
        ModelError, DeviceError: as `compile_model`.
        CompilerFailedError: the compiler cannot be imported, or raises an unexpected error, which is the cause.
    """
    from jitdelegate.compiler.rare_collection import rare_collection

    start = time.perf_counter()
    try:
        with rare_collection():
            from jitdelegate.compiler.compile import compile_model  # here, since the import is what fails without LLVM

            seconds["import compiler"] = time.perf_counter() - start
            return compile_model(content, options, key, seconds, lenders)
    except JitDelegateError:
        raise
    except Exception as error:
        raise _failure(error) from error


def uncompiled(content: ReadableBuffer, key: Key, failure: CompilerFailedError) -> Program:
    """A program without code, for a model that runs on LiteRT after the compiler's `failure`.

    Raises:
        ModelError: the bytes are not a model, or one that would corrupt LiteRT's memory.
        CompilerFailedError: reading the model fails too.
    """
    try:
        from jitdelegate.compiler.compile import uncompiled_program

        return uncompiled_program(content, key, f"{failure}.")
    except JitDelegateError:
        raise
    except Exception as error:
        raise _failure(error) from error


def _failure(error: Exception) -> CompilerFailedError:
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return CompilerFailedError(f"the compiler failed with {told.rstrip('.')}")
