"""An interpreter that switches to a program specialized for the current values of the shape inputs."""

from __future__ import annotations

from jitdelegate.engine.compiled_interpreter import copied
from jitdelegate.engine.load_path import REPLACEABLE, recompile
from jitdelegate.errors import TensorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np

    from jitdelegate.engine.executable import Executable
    from jitdelegate.engine.specializations import Specializations


class ShapeInputInterpreter:
    """LiteRT's interpreter, whose runs use a program specialized for the shape inputs' values where there is one.

    Attributes:
        executable: the program of the last run; the model's main one after a run on LiteRT.
    """

    def __init__(self, specializations: Specializations, base: Executable) -> None:
        self._specializations = specializations
        self._base = self.executable = base
        self._outputs: dict[int, np.ndarray] = {}

    @property
    def _litert(self) -> Any:
        return self._base.source.fallback().interpreter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._litert, name)

    def forget(self) -> None:
        """Take outputs from LiteRT again, until the next run."""
        self.executable, self._outputs = self._base, {}

    def invoke(self) -> None:
        """As LiteRT's method."""
        self.forget()
        inputs = [self._litert.get_tensor(port.index) for port in self._base.program.inputs]
        executable = self._specializations.for_values(self._base, inputs)
        executable.announce()
        if executable.session is None:
            self._litert.invoke()
            return
        self.executable = executable
        try:
            outputs = executable.session.run(inputs)
        except REPLACEABLE as error:
            recompile(executable, executable.session, error)
            self.invoke()
            return
        ports = executable.program.outputs
        self._outputs = {port.index: output.__array__() for port, output in zip(ports, outputs, strict=True)}

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> np.ndarray:
        """As LiteRT's method.

        Raises:
            TensorError: the last run was a program's, which keeps no intermediate tensors.
        """
        if subgraph_index == 0 and self._outputs:
            if tensor_index in self._outputs:
                return copied(self._outputs[tensor_index])
            inputs = {port.index for port in self._base.program.inputs}
            if tensor_index in self._base.source.runtime_tensors(0) - inputs:
                if (constant := self._base.source.unpacked(0, tensor_index)) is not None:
                    return constant
                found = f"tensor {tensor_index} is neither an input nor an output"
                raise TensorError(f"{found}; a program keeps no other without extra_outputs=[{tensor_index}]")
        return self._litert.get_tensor(tensor_index, subgraph_index)  # type: ignore[no-any-return]

    def tensor(self, tensor_index: int) -> Callable[[], np.ndarray]:
        """As LiteRT's method."""
        if tensor_index in self._outputs:
            return lambda: self._outputs[tensor_index]
        return self._litert.tensor(tensor_index)  # type: ignore[no-any-return]

    def get_output_details(self) -> list[dict[str, Any]]:
        """As LiteRT's method; after a run, with the actual shapes of the outputs."""
        import numpy as np

        details: list[dict[str, Any]] = self._litert.get_output_details()
        for detail in details:
            if detail["index"] in self._outputs:
                detail["shape"] = np.array(self._outputs[detail["index"]].shape, np.int32)
        return details
