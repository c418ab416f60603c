"""Programs for devices that this machine does not have: compiled, stored, never opened."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.entry import compiled
from jitdelegate.engine.load_path import find_key
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import CompilerFailedError
from jitdelegate.program.program import Program
from jitdelegate.runtime.cache.key import variant_parts
from jitdelegate.runtime.cache.store import Lookup, open_store
from jitdelegate.targets.target import Device

if TYPE_CHECKING:
    from jitdelegate.program.program import FileParts


@dataclass(frozen=True, slots=True)
class Precompiled:
    """One model's program for one device.

    Attributes:
        further: the programs of further signatures' subgraphs.
        hit: whether it was in the cache already.
        path: the entry's file; "" where it could not be stored, and `trouble` says why.
    """

    program: Program
    hit: bool
    path: str
    trouble: str
    further: tuple[Program, ...] = ()


def precompile(model: str, device: Device, options: DelegateOptions, output: str | None = None) -> Precompiled:
    """Compile a model for one device into the cache, with the programs of its further signatures.

    Args:
        model: path of a .tflite file.
        device: a device that this machine may lack.
        options: precision, token and cache directory.
        output: directory of the program instead; the templates' IR stays in `options.serialization_dir`.
    Raises:
        ModelError: the file cannot be read, or is not a model.
        DeviceError: the compilers are not installed, or the device lacks a requested feature.
        CompilerFailedError: the compiler as a whole fails, or did so at an earlier start.
    """
    store = open_store(options.serialization_dir if output is None else output)
    source = ModelFile(model, options)
    fingerprint = source.fingerprint()

    def fetch(subgraph: int) -> Lookup:
        key = find_key(device, options, fingerprint, variant_parts(subgraph))

        def parts() -> FileParts:
            sources = store.weight_sources(key)
            return source.make(lambda content: compiled(content, options, key, {}, sources, source.reading))

        lookup = store.fetch(key, parts)
        if lookup.program is not None and lookup.program.failure:
            raise CompilerFailedError(lookup.program.failure)
        return lookup

    found = fetch(0)
    assert found.program is not None
    signed = sorted({signature.graph for signature in found.program.signatures} - {0})
    further = tuple(each for subgraph in signed if (each := fetch(subgraph).program) is not None)
    path = found.path if found.path and not found.write_failure and os.path.exists(found.path) else ""
    return Precompiled(found.program, found.hit, path, found.write_failure or found.reason, further)
