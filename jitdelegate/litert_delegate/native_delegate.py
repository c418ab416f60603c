"""NativeDelegate: what LiteRT's own interpreter takes for a delegate in C."""

from __future__ import annotations

import ctypes
import struct

from jitdelegate.litert_delegate.callbacks import callbacks_for, delegations, next_number
from jitdelegate.litert_delegate.delegation import Delegation
from jitdelegate.runtime.litert_layout import LAYOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.cache.place import Place
    from jitdelegate.litert_delegate.delegate_client import DelegateClient
    from jitdelegate.runtime.litert_layout import Layout

ALLOW_DYNAMIC_TENSORS = 1
"""A flag: models with tensors whose shapes only a run decides are offered too, kernels say their outputs' shapes."""
_SIZE = 256
"""Bytes of a TfLiteDelegate, more than LiteRT knows: fields that later versions append are zero then."""

_structures: list[ctypes.Array[ctypes.c_char]] = []
"""Never freed: an interpreter looks at its delegates until it ends, whatever Python knows of it."""


class NativeDelegate:
    """A client's delegate, for one interpreter.

    Whatever is not as expected, it claims nothing and warns, and the model runs on LiteRT.

    Attributes:
        pointer: the address of the TfLiteDelegate.

    Raises:
        DeviceError: there is no executable memory.
    """

    __slots__ = ("_delegation", "_number", "pointer")
    _living = delegations  # a module's own names are gone before its last objects

    def __init__(
        self,
        client: DelegateClient,
        flags: int = ALLOW_DYNAMIC_TENSORS,
        *,
        place: Place | None = None,
        layout: Layout = LAYOUT,
    ) -> None:
        """
        Args:
            client: the model.
            flags: TfLiteDelegate.flags.
            place: where verdicts on LiteRT versions that are not listed are kept.
            layout: what LiteRT's structures are taken for.
        """
        prepare = callbacks_for(layout).prepare_graph
        self._number = next_number()
        self._delegation = delegations[self._number] = Delegation(client, place)
        content = ctypes.create_string_buffer(_SIZE)
        for name, value in {"data_": self._number, "Prepare": prepare, "flags": flags}.items():
            struct.pack_into("<Q", content, layout.delegate[name], value)
        _structures.append(content)
        self.pointer = ctypes.addressof(content)

    @property
    def interruption(self) -> BaseException | None:
        """The KeyboardInterrupt or the like that LiteRT made a RuntimeError of, for whoever can raise it again."""
        return self._delegation.interruption

    def raise_interruption(self) -> None:
        """Raise that again, once."""
        found, self._delegation.interruption = self._delegation.interruption, None
        if found is not None:
            raise found

    @property
    def contexts(self) -> dict[int, int]:
        """Addresses of the TfLiteContexts that it found subgraphs in, and which they are."""
        return self._delegation.contexts

    def _get_native_delegate_pointer(self) -> int:
        """What LiteRT's Interpreter calls."""
        return self.pointer

    def __del__(self) -> None:
        self._living.pop(getattr(self, "_number", 0), None)
