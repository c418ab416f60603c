"""Whether the cache has a model's programs, every byte of them good; compiles nothing and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jitdelegate.base.options import DelegateOptions
from jitdelegate.engine.load_path import find_key, resolve_target
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.engine.precompile import Precompiled, all_programs, hosted_programs
from jitdelegate.errors import CacheError, CompilerFailedError
from jitdelegate.program.program import LITERT
from jitdelegate.runtime.cache.directory import open_cache_directory, user_directory
from jitdelegate.runtime.cache.key import TOOLCHAIN, variant_parts
from jitdelegate.runtime.cache.prebuilt_store import PrebuiltStore
from jitdelegate.runtime.cache.store import ABSENT, Lookup, Store, open_store
from jitdelegate.targets.target import Device

if TYPE_CHECKING:
    from jitdelegate.engine.named_shapes import NamedShapes
    from jitdelegate.runtime.cache.key import Key, Shapes


class MissError(CacheError):
    """The cache lacks a usable program; says why."""


def verified(
    model: str,
    device: Device | None,
    options: DelegateOptions,
    output: str | None = None,
    shapes: Sequence[NamedShapes] = (),
    *,
    hosted: bool = False,
) -> Precompiled:
    """The model's programs, all of them hits, as `precompile` gives them.

    Args:
        device: one that this machine may lack; None for those of this machine that `options` name.
        model, options, output, shapes, hosted: as for `precompile`.
    Raises:
        MissError: the cache lacks one of them.
        ModelError: the file cannot be read.
        TensorError: no input has such a name, or it cannot have such sizes.
        DeviceError: this machine has no such device, or a device lacks a requested feature.
        CompilerFailedError: an entry says that the compiler as a whole failed.
    """
    # without a directory, the fingerprint of a large file is not remembered there
    source = ModelFile(model, options.altered(serialization_dir=False, prebuilt=()))
    store = _open(options, output)
    *before, last = resolve_target(options, [], {}) if device is None else [device]
    for each in before:
        found = _verified(_Entries(source, each, store, is_here=True), shapes, hosted=hosted)
        if found.program.target != LITERT:  # else the next device may compile it
            return found
    return _verified(_Entries(source, last, store, is_here=device is None), shapes, hosted=hosted)


def _verified(entries: _Entries, shapes: Sequence[NamedShapes], *, hosted: bool) -> Precompiled:
    found = all_programs(entries.fetch, shapes)
    if hosted:
        hosted_programs(entries.fetch, shapes)
    return found


class _Entries:
    def __init__(self, source: ModelFile, device: Device, store: Store, *, is_here: bool) -> None:
        self._source = source
        self._device = device
        self._store = store
        self._is_here = is_here

    def fetch(self, subgraph: int, sizes: Shapes = (), *, hosted: bool = False) -> Lookup:
        """
        Raises:
            MissError: there is no usable entry.
        """
        variant = variant_parts(subgraph, sizes, hosted=hosted)
        key = find_key(self._device, self._source.options, self._source.fingerprint(), variant)
        lookups = [self._store.verified(one) for one in self._usable(key)]
        lookup = next((one for one in lookups if one.hit), lookups[0])
        if not lookup.hit:
            raise MissError(lookup.reason)
        if lookup.program is not None and lookup.program.failure:
            raise CompilerFailedError(lookup.program.failure)
        return lookup

    def _usable(self, key: Key) -> list[Key]:
        """Keys of entries that a start here would use; of one for another machine, there is no saying."""
        if not self._is_here:
            return [key]
        key, _ = self._device.usable_key(key, self._source.options)
        return [key, *(() if key.part(TOOLCHAIN) else self._device.alternatives(key))]


def _open(options: DelegateOptions, output: str | None) -> Store:
    """The store, whose files are read without a trace."""
    place = options.serialization_dir if output is None else output
    folders = options.prebuilt_folders if output is None else ()
    if isinstance(place, bool):
        return PrebuiltStore(folders, place, looks_only=True) if folders else open_store(place)
    path = user_directory() if place is None else place
    if folders:
        return PrebuiltStore(folders, path if os.path.lexists(path) else False, looks_only=True)
    if not os.path.lexists(path):
        return Store(None, f"there is no directory {path}", ABSENT)
    try:
        return Store(open_cache_directory(path).looking())
    except CacheError as error:
        return Store(None, str(error))
