"""LiteRT's interpreter without those reads of strings that end the process."""

from __future__ import annotations

from jitdelegate.errors import TensorError
from jitdelegate.runtime.litert import interpreter_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jitdelegate.runtime.bus_guard import Net
    from jitdelegate.runtime.mapped_model import MappedModel


class StringGuard(interpreter_class()):  # type: ignore[misc]  # LiteRT has no types
    """LiteRT's Interpreter. Where LiteRT follows a null pointer, for strings that have no value yet and for views of
    strings, it raises an error; so it does after a run on a mapped file that has changed.

    Attributes:
        has_run: whether tensors have values of a run.
    """

    def __init__(self, mapped: MappedModel | None = None, **arguments: Any) -> None:
        """
        Args:
            mapped: the model; None where the arguments of LiteRT's Interpreter name it.
        """
        self._nets: list[Net] = []  # the first attribute: it goes before LiteRT's mapping
        self._mapped = mapped
        if mapped is None:
            super().__init__(**arguments)
        else:
            make = super().__init__
            self._nets += mapped.open(lambda: make(model_path=mapped.path, **arguments))
        self.has_run = False
        self._given: set[int] = set()

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        super().set_tensor(tensor_index, value)
        if not self.has_run:
            self._given.add(tensor_index)

    def allocate_tensors(self) -> None:
        super().allocate_tensors()
        self._refuse_changes()

    def invoke(self) -> None:
        super().invoke()
        self.note_run()

    def note_run(self) -> None:
        """Note the end of a run, also of a signature.

        Raises:
            DeviceError: the model's file has changed.
        """
        self.has_run = True
        self._refuse_changes()

    def _refuse_changes(self) -> None:
        if self._mapped is not None:
            self._mapped.refuse_changes(self._nets)

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> Any:
        """
        Raises:
            TensorError: a tensor of strings has no value yet.
        """
        if not self.has_run and (subgraph_index or tensor_index not in self._given):
            self._refuse_strings(tensor_index, subgraph_index, "have no value before a run or `set_tensor`")
        return super().get_tensor(tensor_index, subgraph_index)

    def tensor(self, tensor_index: int) -> Callable[[], Any]:
        """
        Raises:
            TensorError: by the returned function, for a tensor of strings.
        """
        view = super().tensor(tensor_index)

        def checked() -> Any:
            self._refuse_strings(tensor_index, 0, "have no view; `get_tensor` copies them")
            return view()

        return checked

    def _refuse_strings(self, tensor_index: int, subgraph_index: int, reason: str) -> None:
        import numpy as np

        detail = self._get_tensor_details(tensor_index, subgraph_index)
        if detail["dtype"] is np.bytes_:
            raise TensorError(f"tensor {tensor_index} {detail['name']!r} holds strings, which {reason}")
