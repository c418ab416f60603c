"""An interpreter that switches to a program specialized for the current values of the shape inputs."""

from __future__ import annotations

from jitdelegate.engine.load_path import recompile
from jitdelegate.errors import ProgramError, TensorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np

    from jitdelegate.engine.executable import Executable
    from jitdelegate.engine.specializations import Specializations


class ShapeInputInterpreter:
    """The methods are LiteRT's own, except that a run goes through a program where there is one for the inputs' values.

    Attributes:
        opened: the program of the last run, the model's main one where that was on LiteRT.
    """

    def __init__(self, variants: Specializations, base: Executable) -> None:
        self._specializations = variants
        self._base = self.opened = base
        self._outputs: dict[int, np.ndarray] = {}

    @property
    def _litert(self) -> Any:
        return self._base.source.fallback().interpreter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._litert, name)

    def forget(self) -> None:
        """Outputs are LiteRT's again, until the next run."""
        self.opened, self._outputs = self._base, {}

    def invoke(self) -> None:
        """As LiteRT's method."""
        self.forget()
        inputs = [self._litert.get_tensor(port.index) for port in self._base.program.inputs]
        opened = self._specializations.decided(self._base, inputs)
        if opened.session is None:
            self._litert.invoke()
            return
        self.opened = opened
        try:
            outputs = opened.session.run(inputs)
        except ProgramError as error:
            recompile(opened, opened.session, str(error))
            self.invoke()
            return
        ports = opened.program.outputs
        self._outputs = {port.index: output.__array__() for port, output in zip(ports, outputs, strict=True)}

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> np.ndarray:
        """As LiteRT's method, which has the inputs, too.

        Raises:
            TensorError: a program ran last, and the tensor lies between inputs and outputs.
        """
        if subgraph_index == 0 and self._outputs:
            if tensor_index in self._outputs:
                return self._outputs[tensor_index].copy()
            inputs = {port.index for port in self._base.program.inputs}
            if tensor_index in self._base.source.runtime_tensors(0) - inputs:
                raise TensorError(f"tensor {tensor_index} is neither an input nor an output; a program keeps no other")
        return self._litert.get_tensor(tensor_index, subgraph_index)  # type: ignore[no-any-return]

    def tensor(self, tensor_index: int) -> Callable[[], np.ndarray]:
        """As LiteRT's method."""
        if tensor_index in self._outputs:
            return lambda: self._outputs[tensor_index]
        return self._litert.tensor(tensor_index)  # type: ignore[no-any-return]

    def get_output_details(self) -> list[dict[str, Any]]:
        """As LiteRT's method, which after a run gives the shapes that outputs have come to."""
        import numpy as np

        details: list[dict[str, Any]] = self._litert.get_output_details()
        for detail in details:
            if detail["index"] in self._outputs:
                detail["shape"] = np.array(self._outputs[detail["index"]].shape, np.int32)
        return details
