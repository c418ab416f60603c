"""A model's bytes on their way to a worker of a cluster, and the entries on their way back: nobody shares a folder."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any

from jitdelegate.base.options import DelegateOptions
from jitdelegate.engine.load_path import find_key
from jitdelegate.engine.precompile import precompile
from jitdelegate.errors import CacheError, DeviceError, ModelError, OptionError, ProgramError, TensorError
from jitdelegate.program.read import complete, read_front, verify_weights, weights_start
from jitdelegate.runtime.cache.key import SUFFIX, Key, fingerprint, stored_key
from jitdelegate.runtime.cache.shared_weights import whole_weights
from jitdelegate.runtime.cache.store import open_store
from jitdelegate.targets import parse_target
from jitdelegate.targets.target import Device

if TYPE_CHECKING:
    from jitdelegate.engine.named_shapes import NamedShapes
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.key import Parts
    from jitdelegate.runtime.cache.store import Store

_alone = Lock()
"""Held by the order that a process fills: on the threads of one, they would need more memory and no less time."""


@dataclass(frozen=True)
class Order:
    """What a worker compiles, as plain data, which every version of Python and of jitdelegate can read.

    Attributes:
        content: the model's bytes.
        target: as "cpu:x86-64-v3".
        options: by name, without a directory.
        shapes, hosted: as for `precompile`.
        key: the parts of the main program's key, as whoever asks for it makes it.
    """

    content: bytes
    target: str
    options: dict[str, Any]
    shapes: Sequence[NamedShapes]
    hosted: bool
    key: Parts


@dataclass(frozen=True)
class Parcel:
    """What a worker has compiled.

    Attributes:
        entries: names of files and their bytes.
        seconds: that it took.
        trouble: what is wrong with the order, on whatever worker; "" where entries are there.
    """

    entries: Sequence[tuple[str, bytes]]
    seconds: float
    trouble: str = ""


def order_for(
    model: str, device: Device, keywords: dict[str, Any], shapes: Sequence[NamedShapes], *, hosted: bool
) -> Order:
    """The order of a model's programs for a device.

    Args:
        keywords: options by name.
    Raises:
        OSError: the file cannot be read.
        DeviceError: the device lacks a requested feature.
    """
    content, own = Path(model).read_bytes(), {**keywords, "serialization_dir": False}
    key = find_key(device, DelegateOptions.from_keywords({}, own), fingerprint(content))
    return Order(content, f"{device.target.name}:{device.kind}", own, shapes, hosted, key.parts)


def fill_order(order: Order) -> Parcel:
    """Compile what is ordered, on a worker.

    Raises:
        DeviceError: other versions of jitdelegate or of compilers are installed here, so that the key is another;
            nothing is compiled then. Also as `precompile`: another worker may do better.
    """
    _, (device,) = parse_target(order.target)
    with _alone, TemporaryDirectory(prefix="jitdelegate-") as folder:
        options = DelegateOptions.from_keywords({}, {**order.options, "serialization_dir": folder})
        own = find_key(device, options, fingerprint(order.content))
        if difference := Key(order.key, options.model_token).difference(own.parts):
            name, found, expected = difference
            told = f"{name}: found {found!r}, expected {expected!r}"
            raise DeviceError(f"the worker on {platform.node()} has another version of jitdelegate or of {told}")
        start = time.perf_counter()
        try:
            precompiled = precompile(
                order.content, device, options, open_store(folder), order.shapes, hosted=order.hosted
            )
        except (ModelError, OptionError, TensorError) as error:
            return Parcel((), time.perf_counter() - start, str(error))
        if not precompiled.path:
            raise CacheError(f"the worker on {platform.node()} stored nothing: {precompiled.trouble}")
        entries = [(path.name, path.read_bytes()) for path in Path(folder).glob(f"*{SUFFIX}")]
        return Parcel(entries, time.perf_counter() - start)


def unpack(parcel: Parcel, store: Store) -> None:
    """Check every byte of the entries, and store them.

    Raises:
        ProgramError: one is damaged, or has another name than its key's; none is stored.
        CacheError: the directory does not take them, or there are none.
    """
    if parcel.trouble:
        raise CacheError(parcel.trouble)
    if not parcel.entries:
        raise CacheError("the worker sent no programs")
    contents = dict(parcel.entries)
    programs = {name: _front(name, content) for name, content in contents.items()}
    names = sorted(programs, key=lambda name: len(programs[name].key))  # those first whose weights others share
    for name in names:
        _complete(programs[name], memoryview(contents[name]), programs)
    for name in names:
        trouble = store.put(stored_key(programs[name].key), contents[name])
        if trouble:
            raise CacheError(f"nothing was stored: {trouble}")


def _front(name: str, content: bytes) -> Program:
    program = read_front(content[: weights_start(content, len(content))], len(content))
    expected = stored_key(program.key).entry_name()
    if name != expected:
        raise ProgramError(f"{name} has the name of another key, expected {expected}")
    return program


def _complete(program: Program, content: memoryview, others: dict[str, Program]) -> None:
    """Give a program its weights, checked; those that share its own come after it."""
    weights = content[weights_start(content, len(content)) :]
    if program.shared:
        sources = stored_key(program.key).weight_sources
        weights = whole_weights(program, weights, [others.get(source.entry_name()) for source in sources])
    verify_weights(complete(program, weights))
