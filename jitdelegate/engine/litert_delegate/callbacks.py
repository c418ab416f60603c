"""The functions that LiteRT calls, made once per process and never freed.

An interpreter may outlive every Python object that refers to it, and still calls them. So no object owns them, and they
find delegates and kernels by number.
"""

from __future__ import annotations

import ctypes
import struct
import sys

from jitdelegate.engine.litert_delegate.check import Doubt, check_functions
from jitdelegate.engine.litert_delegate.context import Context, Partition, Registration
from jitdelegate.engine.litert_delegate.delegation import Delegation, sentence
from jitdelegate.engine.litert_delegate.kernel import Kernel, number_at
from jitdelegate.engine.litert_delegate.stubs import answering, jump_to_slot, load
from jitdelegate.engine.litert_delegate.trust import libraries, litert_folder
from jitdelegate.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.litert_layout import Layout

NAME = b"jitdelegate"
"""LiteRT's name of our nodes."""
python_invocations = 0
"""Number of inferences of partitions that ran through Python."""
delegations: dict[int, Delegation] = {}
"""Delegates with living Python objects, by number."""
kernels: dict[int, Kernel] = {}
"""Kernels between `init` and `free`, by number."""

_OK, _ERROR, _NOTHING = 0, 1, 0
_Address = ctypes.c_void_p
_ANSWERING = ctypes.CFUNCTYPE(None, _Address, _Address, ctypes.c_size_t, _Address)
_FREE = ctypes.CFUNCTYPE(None, _Address, _Address)
_name = ctypes.create_string_buffer(NAME)
_word = ctypes.c_uint64.from_address
_numbers = iter(range(1, 1 << 62))
_callbacks: dict[str, Callbacks] = {}
"""By the layout's digest. If two threads make them at once, one set is kept, and both threads get it."""


class Callbacks:
    """All functions for one layout.

    Their result is a word at the address that `stubs.answering` passes; it means failure until they write it.

    Attributes:
        prepare_graph: the address of TfLiteDelegate.Prepare.
        registration: the bytes of our TfLiteRegistration.

    Raises:
        DeviceError: executable memory is not available.
    """

    _is_ending = staticmethod(sys.is_finalizing)  # a module's own names are gone before its last objects

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        answering_error = self._prepare_graph, self._prepare, self._invoke
        self._functions = (*map(_ANSWERING, answering_error), _ANSWERING(self._init), _FREE(self._free))
        *errors, init, free = map(_address, self._functions)
        partitions = (
            *(answering(function, _ERROR) for function in errors),
            answering(init, _NOTHING),
            jump_to_slot(layout),
        )
        self.prepare_graph, prepare, self._python_entry, init, invoke = load(*partitions)
        words = {"init": init, "free": free, "prepare": prepare, "invoke": invoke}
        self.registration = _registration(layout, words | {"custom_name": ctypes.addressof(_name)})

    def _prepare_graph(self, address: int, delegate: int, _: int, answer: int) -> None:
        delegation = None
        try:
            delegation = delegations.get(self._number(delegate))
            if delegation is not None:
                delegation.attach(Context(address, self._layout), self.registration, delegate)
            _word(answer).value = _OK
        except BaseException as error:  # noqa: BLE001 - nothing may pass through LiteRT's C++
            self._report_graph(address, delegation, error)

    def _init(self, address: int, params: int, length: int, answer: int) -> None:
        """LiteRT takes any result for a success; a node without a kernel fails in `prepare`."""
        try:
            partition = Partition(self._layout, params)
            delegation = delegations[self._number(partition.delegate)]
            number = next_number()
            kernel = kernels[number] = Kernel(delegation, delegation.subgraph, number, self._python_entry)
            kernel.take(partition)
            _word(answer).value = kernel.address
        except BaseException as error:  # noqa: BLE001 - nothing may pass through LiteRT's C++
            self._report(address, None, error)

    def _free(self, address: int, slot: int | None) -> None:
        """Close a kernel. Errors go to the client's `warn`, since LiteRT may be partly destroyed.

        While Python exits, nothing is closed: the process frees everything.
        """
        if self._is_ending():
            return
        kernel = kernels.pop(number_at(slot or 0), None)
        if kernel is None:
            return
        try:
            kernel.close()
        except Exception as error:  # noqa: BLE001 - nothing may pass through LiteRT's C++
            kernel.delegation.client.warn(f"a partition could not be closed: {sentence(error)}")

    def _prepare(self, address: int, node: int, _: int, answer: int) -> None:
        kernel = None
        try:
            kernel = self._kernel(node)
            kernel.prepare(Context(address, self._layout))
            _word(answer).value = _OK
        except BaseException as error:  # noqa: BLE001 - nothing may pass through LiteRT's C++
            self._report(address, None if kernel is None else kernel.delegation, error)

    def _invoke(self, address: int, node: int, _: int, answer: int) -> None:
        global python_invocations
        kernel = None
        try:
            python_invocations += 1
            kernel = self._kernel(node)
            kernel.run(Context(address, self._layout))
            _word(answer).value = _OK
        except BaseException as error:  # noqa: BLE001 - nothing may pass through LiteRT's C++
            self._report(address, None if kernel is None else kernel.delegation, error)

    def _report_graph(self, address: int, delegation: Delegation | None, error: BaseException) -> None:
        """Report an error, through a function that is known to be LiteRT's."""
        try:
            check_functions(address, self._layout, libraries(litert_folder()))
        except (Doubt, ImportError, OSError):
            return
        self._report(address, delegation, error)

    def _report(self, address: int, delegation: Delegation | None, error: BaseException) -> None:
        """Make the error's text that of the RuntimeError that LiteRT raises."""
        if delegation is not None and not isinstance(error, Exception):
            delegation.interruption = error
        Context(address, self._layout).report(f"jitdelegate: {sentence(error).rstrip('. ')}. ")

    def _number(self, delegate: int) -> int:
        return _word(delegate + self._layout.delegate["data_"]).value

    def _kernel(self, node: int) -> Kernel:
        kernel = kernels.get(number_at(_word(node + self._layout.node["user_data"]).value))
        if kernel is None:
            raise DeviceError("a partition has no kernel, expected one from `init`")
        return kernel


def next_number() -> int:
    """A number that no delegate or kernel of this process had before; thread-safe."""
    return next(_numbers)


def callbacks_for(layout: Layout) -> Callbacks:
    """The callbacks for a layout, made at the first call.

    Raises:
        DeviceError: there is no executable memory.
    """
    known = _callbacks.get(layout.digest())
    return known or _callbacks.setdefault(layout.digest(), Callbacks(layout))


def _address(function: object) -> int:
    value = ctypes.cast(function, _Address).value  # type: ignore[arg-type]
    assert value is not None
    return value


def _registration(layout: Layout, words: dict[str, int]) -> bytearray:
    content = bytearray(ctypes.sizeof(Registration))
    for name, value in words.items():
        struct.pack_into("<Q", content, layout.registration[name], value)
    return content
