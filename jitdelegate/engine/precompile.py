"""Programs for devices that this machine does not have: compiled, stored, never opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.entry import compiled
from jitdelegate.engine.load_path import find_key, refuse_other_ports
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.engine.named_shapes import all_subgraphs, named_shapes
from jitdelegate.errors import CompilerFailedError
from jitdelegate.program.program import Program
from jitdelegate.runtime.cache.key import variant_parts
from jitdelegate.runtime.cache.store import Lookup, Store
from jitdelegate.targets.target import Device

if TYPE_CHECKING:
    from jitdelegate.engine.named_shapes import NamedShapes
    from jitdelegate.program.program import FileParts
    from jitdelegate.runtime.cache.key import Shapes


@dataclass(frozen=True, slots=True)
class Precompiled:
    """One model's program for one device.

    Attributes:
        further: the programs of further signatures' subgraphs, then those for further shapes.
        shapes: for each of the further shapes, whether all its programs were in the cache already.
        hit: whether it was in the cache already.
        path: the entry's file; "" where it could not be stored, and `trouble` says why.
    """

    program: Program
    hit: bool
    path: str
    trouble: str
    further: tuple[Program, ...] = ()
    shapes: tuple[bool, ...] = ()


def precompile(
    model: str | bytes,
    device: Device,
    options: DelegateOptions,
    store: Store | None = None,
    shapes: Sequence[NamedShapes] = (),
    *,
    hosted: bool = False,
) -> Precompiled:
    """Compile a model for one device into the cache, with the programs of its further signatures.

    Args:
        model: path or content of a .tflite file.
        device: a device that this machine may lack.
        options: precision, token and cache directory.
        shapes: of inputs by name, to compile for as well.
        store: keeps the programs instead; the templates' IR stays in `options.serialization_dir`.
        hosted: whether LiteRT's own interpreter gets its programs, too.
    Raises:
        OptionError: LiteRT's own interpreter has no such inputs and outputs.
        ModelError: the file cannot be read, or is not a model.
        TensorError: no input has such a name, or it cannot have such sizes.
        DeviceError: the compilers are not installed, or the device lacks a requested feature.
        CompilerFailedError: the compiler as a whole fails, or did so at an earlier start.
    """
    if hosted:
        refuse_other_ports(options)
    source = ModelFile(model, options, store=store)
    with source.kept():
        fetch = partial(_fetch, source, device)
        precompiled = all_programs(fetch, shapes)
        if hosted:
            hosted_programs(fetch, shapes)
        return precompiled


def _fetch(source: ModelFile, device: Device, subgraph: int, sizes: Shapes = (), *, hosted: bool = False) -> Lookup:
    options, store, variant = source.options, source.store, variant_parts(subgraph, sizes, hosted=hosted)
    key = find_key(device, options, source.fingerprint(), variant)

    def parts() -> FileParts:
        sources = store.weight_sources(key)
        return source.make(lambda content: compiled(content, options, key, {}, sources, source.reading))

    lookup = store.fetch(key, parts)
    if not lookup.hit and isinstance(source.origin, str):
        store.remember_model(source.fingerprint(), source.origin)
    if lookup.program is not None and lookup.program.failure:
        raise CompilerFailedError(lookup.program.failure)
    return lookup


def hosted_programs(fetch: Callable[..., Lookup], shapes: Sequence[NamedShapes]) -> None:
    """As `HostedModel.prepare`, with `fetch` as for `all_programs`."""
    first = fetch(0, hosted=True).program
    assert first is not None
    idle = {subgraph.number for subgraph in first.idle}
    found = {number: fetch(number, hosted=True).program for number in range(first.num_subgraphs) if number not in idle}
    programs = {number: program for number, program in found.items() if program is not None}
    for given in shapes:
        for number, sizes in named_shapes(programs, given).items():
            if sizes != _own(programs[number]):
                fetch(number, sizes, hosted=True)


def all_programs(fetch: Callable[..., Lookup], shapes: Sequence[NamedShapes]) -> Precompiled:
    """The programs of all signatures for the file's shapes, and for further ones.

    Args:
        fetch: the look-up of a subgraph's program for some shapes, which has a program.
    """
    main = fetch(0)
    assert main.program is not None
    signed = [number for number in all_subgraphs(main.program) if number]
    programs = {0: main.program} | {
        number: program for number in signed if (program := fetch(number).program) is not None
    }
    resized = [
        [fetch(*one) for one in named_shapes(programs, given).items() if one[1] != _own(programs[one[0]])]
        for given in shapes
    ]
    further = [program for number, program in programs.items() if number]
    further += [one.program for lookups in resized for one in lookups if one.program is not None]
    hits = tuple(all(one.hit for one in lookups) for lookups in resized)
    path = main.path if main.path and not main.write_failure and os.path.exists(main.path) else ""
    return Precompiled(main.program, main.hit, path, main.write_failure or main.reason, tuple(further), hits)


def _own(program: Program) -> Shapes:
    """The shapes of its inputs."""
    return tuple(port.shape for port in program.inputs)
