"""ModelSession: a model whose caches live from run to run, in memory that all its signatures share."""

from __future__ import annotations

import _thread
import ctypes
import os
import sys

from jitdelegate.api.tensor_buffer import TensorBuffer
from jitdelegate.engine import load_path
from jitdelegate.errors import TensorError
from jitdelegate.runtime.binding import HOST, Place
from jitdelegate.runtime.buffers import borrow, handed_out
from jitdelegate.runtime.given_outputs import copy_all, output_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, NoReturn

    from numpy.typing import NDArray

    from jitdelegate.engine.executable import Executable
    from jitdelegate.program.program import Port, Program, Signature
    from jitdelegate.runtime.io_binding import IOBinding


class ModelSession:
    """Runs the signatures of a model on tensors that it keeps: the state, such as the KV caches of a decoder.

    A run reads the state where the signature has inputs of these names, and leaves its outputs of these names there.
    Caches that a compiled program updates row by row are not copied; on a GPU they stay in its memory. `Model.session`
    makes it. Several sessions of one model are independent of each other; several threads may use one, which runs one
    inference at a time.
    """

    def __init__(
        self,
        signatures: Sequence[Signature],
        subgraph: Callable[[int], Executable],
        ready: Callable[[Executable, Sequence[Any]], tuple[Executable, IOBinding | None]],
        patterns: tuple[str, ...],
    ) -> None:
        """
        Args:
            subgraph: gives the program of a subgraph.
            ready: gives the program for the inputs of a run, and its session; no session for a model on LiteRT.
            patterns: of the names of the state, as `Model.session` takes them.
        """
        self._signatures = {signature.key: signature for signature in signatures}
        self._subgraph = subgraph
        self._ready = ready
        self._lock = _thread.allocate_lock()
        self._bound: dict[str, _Bound] = {}
        self._ports: dict[str, Port] = {}
        self._state: dict[str, TensorBuffer] = {}
        for name, signature in self._selected(patterns):
            self._ports[name], self._state[name] = self._memory(signature, name)
        self.reset()

    def _selected(self, patterns: tuple[str, ...]) -> Iterator[tuple[str, Signature]]:
        """(name, a signature that has it as an input and an output) of the tensors that the patterns select."""
        from fnmatch import fnmatchcase

        found: dict[str, Signature] = {}
        for signature in self._signatures.values():
            outputs = {name for name, _ in signature.outputs}
            found.update((name, signature) for name, _ in signature.inputs if name in outputs)
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in found):
                raise TensorError(
                    f"{pattern!r} names no tensor that is an input and an output of a signature;"
                    f" {_suggestion(pattern, list(found))}"
                )
        return ((name, each) for name, each in found.items() if any(fnmatchcase(name, p) for p in patterns))

    def _memory(self, signature: Signature, name: str) -> tuple[Port, TensorBuffer]:
        """The port of a tensor of the state, and memory for it, on the device of the signature's program."""
        base, index = self._subgraph(signature.graph), dict(signature.inputs)[name]
        ports = enumerate(base.program.inputs)
        position, port = next((position, port) for position, port in ports if port.index == index)
        if base.session is None:
            return port, TensorBuffer.create(port.dtype, port.shape)
        return port, TensorBuffer(base.session.make_place(position, on_device=True), port.dtype, port.shape)

    def __repr__(self) -> str:
        tensors = ", ".join(f"{name}: {port.dtype}{list(port.shape)}" for name, port in self._ports.items())
        return f"ModelSession({tensors})"

    def __reduce__(self) -> NoReturn:
        """
        Raises:
            TypeError: always. `save` keeps the state for another process.
        """
        raise TypeError("a ModelSession cannot be copied or pickled; save its state and load it into another one")

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """The kept tensors by name: arrays on their memory, which may be read and written between runs; copies of those
        on a GPU."""
        return {name: _array_of(buffer) for name, buffer in self._state.items()}

    def reset(self) -> None:
        """Set every kept tensor to zero, a quantized one to its zero point."""
        with self._lock:
            for name, buffer in self._state.items():
                points = self._ports[name].zero_points
                if len(points) == 1 and points[0]:
                    import numpy as np  # not before: most caches are not quantized

                    buffer.write(np.full(buffer.shape, points[0], buffer.dtype))
                else:
                    zeros = (ctypes.c_char * buffer.nbytes)()
                    buffer.place.store(ctypes.addressof(zeros), buffer.nbytes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the kept tensors to a file that `numpy.load` reads: one array for each name (.npz).

        Raises:
            OSError: the file cannot be written.
        """
        from zipfile import ZipFile

        from numpy.lib.format import write_array

        with self._lock, ZipFile(path, "w") as archive:
            for name, array in self.state.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    write_array(member, array, allow_pickle=False)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Set the kept tensors to those of a file that `save` or `numpy.savez` wrote; nothing changes after an error.

        Raises:
            TensorError: the file is no such file, or its names, types or shapes differ from the kept tensors'.
            OSError: the file cannot be read.
        """
        arrays = _arrays_of(path)
        found = {name: f"{array.dtype.name}{list(array.shape)}" for name, array in arrays.items()}
        expected = {name: f"{buffer.dtype}{list(buffer.shape)}" for name, buffer in self._state.items()}
        if found != expected:
            raise TensorError(f"{path} holds the tensors {found}, expected {expected}")
        with self._lock:
            for name, array in arrays.items():
                self._state[name].write(array)

    def run(self, signature: str, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, NDArray[Any]]:
        """One inference of a signature: its other inputs by name, in a mapping or as keywords, to its other outputs.

        Returns:
            Output name -> a new tensor, for every output that is not part of the state.
        Raises:
            TensorError: the signature or an input is unknown or missing, or has a wrong type or shape; or a kept tensor
                has another type or shape in this signature; or a position lies beyond the rows of a kept tensor, which
                is unchanged then.
            RefusedValueError: an index outside what it indexes; see `docs/kv-caches.md`.
            DeviceError: the model is closed, or LiteRT or the GPU failed.
        """
        known = self._signatures.get(signature)
        if known is None:
            raise TensorError(f"no signature is named {signature!r}, the model has {list(self._signatures)}")
        values = {**(inputs or {}), **named}
        own = [name for name, _ in known.inputs if name not in self._state]
        if set(values) != set(own):
            found, expected = (", ".join(map(repr, names)) for names in (values, own))
            raise TensorError(f"inputs of {signature!r} are named {found}; expected {expected}")
        with self._lock:
            return self._run(known, values)

    def _run(self, signature: Signature, values: Mapping[str, Any]) -> dict[str, Any]:
        base, bound = self._subgraph(signature.graph), self._bound.get(signature.key)
        arguments: list[Any] = []
        if base.is_open or base.program.shape_inputs:  # else nothing depends on them
            by_index = {index: values.get(name, self._state.get(name)) for name, index in signature.inputs}
            arguments = [by_index.get(port.index) for port in base.program.inputs]
        executable, session = self._ready(base, arguments)
        if session is None or (bound is None and not base.answers(signature)):
            for limit in _limits(executable.program, signature, self._state):
                limit.check(values)
            return self._run_on_litert(executable, signature, values)
        try:
            if bound is None or bound.session is not session:
                bound = self._bound[signature.key] = _Bound(session, signature, self._state)
            return bound.run(values)
        except load_path.REPLACEABLE as error:
            load_path.recompile(executable, session, error)
            return self._run(signature, values)

    def _run_on_litert(self, executable: Executable, signature: Signature, values: Mapping[str, Any]) -> dict[str, Any]:
        names = [name for name, _ in signature.inputs if name in self._state]
        kept = {name: _array_of(self._state[name]) for name in names}
        found = executable.source.fallback().run_signature(signature.key, {**values, **kept})
        results = [
            (self._ports[name], value, self._state[name]) for name, value in found.items() if name in self._state
        ]
        copy_all(results)
        return {name: value for name, value in found.items() if name not in self._state}


def _suggestion(pattern: str, names: Sequence[str]) -> str:
    """Which pattern would select some of the names, as the end of a sentence.

    Args:
        pattern: selects none.
    """
    import re
    from fnmatch import filter as select
    from itertools import takewhile

    pairs = zip(min(names, default=""), max(names, default=""), strict=False)
    common = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    families = dict.fromkeys(re.sub(r"\d+", "*", name) for name in names)
    for other in (f"{pattern}*", f"*{pattern}*", f"{common}*", *families):
        selected = select(names, other)
        if selected and other != "*":
            last = f" to {selected[-1]!r}" if selected[1:] else ""
            return f"{other!r} names {len(selected)} of {len(names)}: {selected[0]!r}{last}"
    return "there are none"


class _Bound:
    """The binding of one signature: its part of the state, and memory for its other inputs and outputs.

    Raises:
        TensorError: a tensor of the state has another type or shape in this signature.
    """

    def __init__(self, session: IOBinding, signature: Signature, state: Mapping[str, TensorBuffer]) -> None:
        self.session = session
        program, places = session.program, list[Place]()
        self._inputs: dict[str, _Input] = {}
        names = {index: name for name, index in signature.inputs}
        for position, port in enumerate(program.inputs):
            buffer = state.get(names[port.index])
            if buffer is None:
                buffer = TensorBuffer(session.make_place(position), port.dtype, port.shape)
                self._inputs[names[port.index]] = _Input(port, buffer)
            places.append(output_place(buffer, port))
        kept = {index: state[name] for name, index in signature.outputs if name in state}
        made: dict[int, tuple[int, Place]] = {}
        for position, port in enumerate(program.outputs):
            if port.index in kept:
                places.append(output_place(kept[port.index], port))
            else:
                places.append(session.make_place(len(program.inputs) + position))
                made[port.index] = position, places[-1]
        self._limits = [
            (limit, limit.number_at(self._inputs[limit.name].address)) for limit in _limits(program, signature, state)
        ]
        self._outputs = {name: made[index] for name, index in sorted(signature.outputs) if name not in state}
        self._binding = session.bind(places)

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """One inference on the other inputs; copies of the other outputs.

        Raises:
            TensorError: rows of the state that the run would write lie outside; nothing has changed.
        """
        for name, given in self._inputs.items():
            given.write(values[name])
        for limit, number in self._limits:
            limit.refuse_outside(number.value)
        self.session.run_bound(self._binding)
        results = {}
        for name, (position, place) in self._outputs.items():
            output = self.session.new_output(position)
            ctypes.memmove(ctypes.addressof(output), place.address, output.nbytes)  # type: ignore[arg-type]
            results[name] = handed_out(output)
        return results


class _Limit:
    """A number of an input that says which rows of a tensor of the state a run writes.

    Attributes:
        name: of the input.
        room: the largest number so that all rows lie within the tensor.
    """

    __slots__ = ("_element", "_port", "_updated", "name", "room")

    def __init__(self, name: str, port: Port, element: int, updated: str, room: int) -> None:
        """
        Args:
            port: of the input.
            element: the number's place among its elements.
            updated: name of the tensor of the state.
        """
        self.name, self._port, self._element = name, port, element
        self._updated, self.room = updated, room

    def number_at(self, address: int) -> Any:
        """The number, where the input lies at an address, as a ctypes object."""
        kind = ctypes.c_int32 if self._port.dtype == "int32" else ctypes.c_int64
        return kind.from_address(address + self._element * ctypes.sizeof(kind))

    def check(self, values: Mapping[str, Any]) -> None:
        """
        Raises:
            TensorError: rows lie outside, or the input has another type or shape.
        """
        source = borrow(values[self.name], self._port)
        self.refuse_outside(self.number_at(source.address).value)

    def refuse_outside(self, number: int) -> None:
        """
        Raises:
            TensorError: rows lie outside.
        """
        if not 0 <= number <= self.room:
            raise TensorError(
                f"{self.name!r} has {number} at element {self._element}: the run would write beyond the rows of"
                f" {self._updated!r}, expected 0 to {self.room}"
            )


def _limits(program: Program, signature: Signature, state: Mapping[str, TensorBuffer]) -> Sequence[_Limit]:
    """The limits of a program's windows, the strictest for each number."""
    names = {index: name for name, index in signature.inputs}
    found: dict[tuple[int, int], _Limit] = {}
    for updated, given, element, room in program.windows:
        port = program.inputs[given]
        cache, name = names.get(program.inputs[updated].index, ""), names.get(port.index, "")
        is_strictest = (given, element) not in found or room < found[given, element].room
        if cache in state and name and name not in state and is_strictest:
            found[given, element] = _Limit(name, port, element, cache, room)
    return [*found.values()]


class _Input:
    """An input that is no part of the state, and the memory that runs read it from."""

    __slots__ = ("_buffer", "_port", "_view")

    def __init__(self, port: Port, buffer: TensorBuffer) -> None:
        self._port = port
        self._buffer = buffer
        self._view: Any = None

    @property
    def address(self) -> int:
        """The address of the memory."""
        return self._buffer.place.address

    def write(self, value: Any) -> None:
        """Copy a value to the memory; raises the errors of `borrow`."""
        view = self._view
        if view is not None and type(value) is type(view) and value.dtype is view.dtype and value.shape == view.shape:
            view[...] = value
            return
        source = borrow(value, self._port)
        ctypes.memmove(self._buffer.place.address, source.address, source.nbytes)
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(value) is numpy.ndarray and value.dtype == self._port.dtype:
            self._view = self._buffer.view().view(value.dtype)  # arrays like this one are copied faster


def _array_of(buffer: TensorBuffer) -> NDArray[Any]:
    """The buffer's memory as an array; a copy of memory of a GPU."""
    return buffer.view() if buffer.place.gpu == HOST else buffer.read()


def _arrays_of(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name."""
    from zipfile import BadZipFile

    import numpy as np

    try:
        # opened here: numpy leaves a file open that it refuses
        with open(os.fspath(path), "rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, KeyError, AttributeError, TypeError, BadZipFile) as error:
        raise TensorError(f"{path} is no file of named arrays (.npz): {error}") from error
