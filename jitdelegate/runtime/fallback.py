"""Runs a whole model on LiteRT's own kernels.

LiteRT and numpy are imported when a model is opened here, never for compiled models.
"""

from __future__ import annotations

import _thread
import ctypes

from jitdelegate.errors import DeviceError, ModelError, TensorError, shortened
from jitdelegate.program.program import Port
from jitdelegate.runtime.buffers import ELEMENTS, accepted_shape, fits, no_memory, taken, tensor_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    import numpy as np

    from jitdelegate.runtime.mapped_model import MappedModel

XNNPACK_WORD = "XNNPack"
"""Word, in any case, in every message by which LiteRT's default delegate refuses a model."""

NO_REASON = "it gives no reason, as where there is too little memory"


class Fallback:
    """One instance of a model in LiteRT.

    Attributes:
        interpreter: LiteRT's interpreter; `allocate` may replace it by one without XNNPACK.
        default_delegate: False once XNNPACK refused the model and LiteRT's builtin kernels took over.
        in_use: whether it may hold values that the user set, which another instance would lack.
    """

    def __init__(
        self,
        model: str | bytes | MappedModel,
        *,
        num_threads: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        make_delegate: Callable[[], Any] | None = None,
    ) -> None:
        """Create the instance; `allocate` prepares it.

        Args:
            model: a path, the content of a .tflite file, or a mapped file.
            num_threads: as LiteRT's argument.
            arguments: further keyword arguments of LiteRT's Interpreter.
            make_delegate: creates jitdelegate's delegate for each interpreter.
        Raises:
            ModelError: LiteRT cannot read the model; has LiteRT's message.
        """
        self._arguments = {"num_threads": num_threads, **(arguments or {})}
        self._make_delegate = make_delegate
        self._delegate: Any = None
        name = "model_path" if isinstance(model, str) else "model_content" if isinstance(model, bytes) else "mapped"
        self._source: dict[str, Any] = {name: model}
        self._resizes: dict[int, tuple[Sequence[int] | np.ndarray, bool]] = {}
        self._signatures: dict[str, dict[str, dict[str, Any]]] = {}
        self._lock = _thread.allocate_lock()
        self._allocated = False
        self._told = ""
        self.default_delegate = True
        self.in_use = False
        self.interpreter = self._create()
        # Read now: LiteRT loses the file's shapes and open sizes once an input is resized.
        self._inputs = self._details()

    def _details(self) -> list[dict[str, Any]]:
        try:
            return self.interpreter.get_input_details()  # type: ignore[no-any-return]
        except ValueError as error:
            raise ModelError(f"LiteRT cannot tell the inputs' types: {_text(error)}") from error

    def _create(self) -> Any:
        from ai_edge_litert.interpreter import OpResolverType

        from jitdelegate.runtime.string_guard import StringGuard

        arguments, self._told = dict(self._arguments), ""
        if not self.default_delegate:
            arguments["experimental_op_resolver_type"] = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        if self._make_delegate is not None:
            self._delegate = self._make_delegate()
            arguments["experimental_delegates"] = [self._delegate]
        try:
            return StringGuard(**self._source, **arguments)
        except (ValueError, RuntimeError) as error:
            self._raise_interruption()
            raise ModelError(f"LiteRT cannot open this model: {_text(error)}") from error

    def resize(self, index: int, shape: Sequence[int] | np.ndarray, strict: bool = False) -> None:
        """Set another shape for an input; takes effect with the next `allocate`.

        Raises:
            TensorError, DeviceError: LiteRT refuses it, by a ValueError or a RuntimeError; has LiteRT's message.
        """
        try:
            self.interpreter.resize_tensor_input(index, shape, strict)
        except ValueError as error:
            raise TensorError(self._text(error)) from error
        except RuntimeError as error:
            raise DeviceError(self._text(error)) from error
        self._resizes[index] = shape, strict
        self._allocated = False

    def allocate(self) -> None:
        """Prepare the model, without XNNPACK where that refuses it.

        Raises:
            DeviceError: neither XNNPACK nor LiteRT's builtin kernels can run the model; has LiteRT's message.
        """
        try:
            self.interpreter.allocate_tensors()
        except RuntimeError as error:
            self.recover(error)
        self._allocated = True

    def invoke(self) -> None:
        """Run on the current input values; again without XNNPACK if only that failed."""
        self.in_use = True
        try:
            self.interpreter.invoke()
        except RuntimeError as error:
            if not self._is_default_delegates(error):
                self._raise_interruption()
                raise RuntimeError(self._text(error)) from error
            inputs = [detail["index"] for detail in self.interpreter.get_input_details()]
            values = [self.interpreter.get_tensor(index) for index in inputs]
            self.recover(error)
            for index, value in zip(inputs, values, strict=True):
                self.interpreter.set_tensor(index, value)
            self.interpreter.invoke()

    def _is_default_delegates(self, error: Exception) -> bool:
        return self.default_delegate and XNNPACK_WORD.lower() in str(error).lower()

    def recover(self, error: Exception) -> None:
        """Make a new instance without XNNPACK, if XNNPACK failed.

        Raises:
            DeviceError: something else failed; has LiteRT's message.
        """
        self._raise_interruption()
        if not self._is_default_delegates(error):
            raise DeviceError(f"LiteRT cannot run this model: {self._text(error) or NO_REASON}") from error
        self.default_delegate = False
        self.interpreter = self._create()
        self._restore()

    def _text(self, error: Exception) -> str:
        """LiteRT's words about an error, on one line. Its interpreter repeats those of earlier errors before them."""
        told, before = str(error), self._told
        if told.startswith(before):
            self._told = told
        return _text(told.removeprefix(before) or told)

    def _raise_interruption(self) -> None:
        """Raise an interrupt again that LiteRT turned into an error of the delegate."""
        if self._delegate is not None:
            self._delegate.raise_interruption()

    def _restore(self) -> None:
        """Set the former instance's shapes in a new one, and prepare it."""
        for index, (shape, strict) in self._resizes.items():
            self.interpreter.resize_tensor_input(index, shape, strict)
        self.allocate()

    def reset(self) -> None:
        """Make a new instance: LiteRT's own `reset_all_variables` does not reset resource variables."""
        with self._lock:
            self.interpreter = self._create()
            self._restore()

    def run(self, inputs: Sequence[Any], shapes: Sequence[tuple[int, ...]] | None = None) -> tuple[Any, ...]:
        """One inference; inputs and outputs in the model's order.

        Inputs are as for compiled programs (`runtime.buffers.checked`); strings are arrays or nested lists of bytes. A
        dimension that the file leaves open may have any size.

        Args:
            shapes: of the inputs, where these need not be what the file allows.
        Returns:
            One tensor object per output; strings as numpy arrays of bytes.
        Raises:
            TensorError: wrong number, type or shape of inputs.
            DeviceError: LiteRT failed while running; has LiteRT's message.
        """
        with self._lock:
            if len(inputs) != len(self._inputs):
                raise TensorError(f"{len(inputs)} inputs given, expected {len(self._inputs)}: {_names(self._inputs)}")
            details = self._inputs
            if shapes is not None:
                details = [_reshaped(detail, shape) for detail, shape in zip(details, shapes, strict=True)]
            values = [_array(value, detail) for value, detail in zip(inputs, details, strict=True)]
            self.fit([value.shape for value in values])
            if not self._allocated:
                self.allocate()
            self.in_use = True
            return self._invoke(values)

    def run_signature(
        self, key: str, inputs: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> dict[str, Any]:
        """As `run`, for one signature, with inputs, shapes and results by its names."""
        with self._lock:
            self.in_use = True
            details = self._arguments_of(key)
            if shapes is not None:
                details = {name: _reshaped(details[name], shape) for name, shape in shapes.items()}
            arrays = {name: _array(value, details[name]) for name, value in inputs.items()}
            try:
                outputs = self.interpreter.get_signature_runner(key)(**arrays)
            except (ValueError, RuntimeError) as error:
                self.recover(error)
                outputs = self.interpreter.get_signature_runner(key)(**arrays)
            self.interpreter.note_run()
            return {name: _tensor(array) for name, array in outputs.items()}

    def _arguments_of(self, key: str) -> dict[str, dict[str, Any]]:
        """A signature's inputs with the file's shapes."""
        if key not in self._signatures:
            self._signatures[key] = self.interpreter.get_signature_runner(key).get_input_details()
        return self._signatures[key]

    def fit(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Set the inputs' shapes, in order; takes effect with the next `allocate`."""
        for shape, detail in zip(shapes, self.interpreter.get_input_details(), strict=True):
            if shape != tuple(detail["shape"]):
                self.resize(detail["index"], shape)

    def _invoke(self, values: list[np.ndarray]) -> tuple[Any, ...]:
        """Run; again without XNNPACK if only that failed (some shapes are known only while running)."""
        try:
            return self._invoke_once(values)
        except (ValueError, RuntimeError) as error:
            self.recover(error)
        return self._invoke(values)

    def _invoke_once(self, values: list[np.ndarray]) -> tuple[Any, ...]:
        for value, detail in zip(values, self._inputs, strict=True):
            self.interpreter.set_tensor(detail["index"], value)
        self.interpreter.invoke()
        outputs = self.interpreter.get_output_details()
        return tuple(_tensor(self.interpreter.get_tensor(detail["index"])) for detail in outputs)


def _array(value: Any, detail: dict[str, Any]) -> np.ndarray:
    """The value as an array for LiteRT; values that compiled programs refuse are refused here too."""
    import numpy as np

    if detail["dtype"] in (np.bytes_, np.object_, np.str_):
        texts = np.asarray(value)
        _check_shape(texts.shape, detail)
        return texts
    port = _port(detail)
    shape = accepted_shape(value, port)
    elements = taken(value, port, shape)
    try:
        return np.ascontiguousarray(elements).reshape(-1).view(port.dtype).reshape(shape)
    except MemoryError as error:
        raise no_memory(port, elements.nbytes) from error


def _reshaped(detail: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """The detail of an input that has to have this shape."""
    return detail | {"shape": shape, "shape_signature": shape}


def _port(detail: dict[str, Any]) -> Port:
    import numpy as np

    shape, dtype = tuple(map(int, detail["shape"])), np.dtype(detail["dtype"])
    return Port(
        name=detail["name"],
        index=detail["index"],
        shape=shape,
        shape_signature=tuple(map(int, detail["shape_signature"])),
        dtype=dtype.name,
        nbytes=int(np.prod(shape)) * dtype.itemsize,
        scales=tuple(map(float, detail["quantization_parameters"]["scales"])),
    )


def _check_shape(shape: tuple[int, ...], detail: dict[str, Any]) -> None:
    expected, signature = tuple(map(int, detail["shape"])), tuple(map(int, detail["shape_signature"]))
    if shape != expected and not fits(shape, signature):
        raise TensorError(
            f"input {shortened(detail['name'])!r} has shape {list(shape)}, expected {list(signature or expected)}"
        )


def _tensor(array: Any) -> Any:
    """LiteRT's output as a tensor object; types that only numpy has, such as strings, stay arrays."""
    if array.dtype.name not in ELEMENTS:
        return array
    try:
        tensor = tensor_class(array.dtype.name, array.shape)()
        content = array.tobytes()
    except MemoryError as error:
        raise DeviceError(f"no memory of {array.nbytes} bytes for an output") from error
    ctypes.memmove(ctypes.addressof(tensor), content, len(content))
    return tensor


def _names(details: list[dict[str, Any]]) -> str:
    return ", ".join(repr(shortened(detail["name"])) for detail in details)


def _text(error: Exception | str) -> str:
    return " ".join(str(error).split())
