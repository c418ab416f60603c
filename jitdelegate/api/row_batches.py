"""RowBatches: any number of rows through a model, in batches of the size that the model takes."""

from __future__ import annotations

from jitdelegate.errors import TensorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from jitdelegate.api.model import Model
    from jitdelegate.api.tensor_info import TensorInfo


class RowBatches:
    """Runs a model on rows: the first axis of every input and output counts them.

    Attributes:
        inputs: names of the model's inputs.
        batch_size: rows of one inference. A model of a fixed size determines it; one that leaves it open gets always
            this size, so that one program serves every number of rows: the last batch is filled up with its last row.
            But one row alone goes through the program of one row where the model was loaded with such a one for
            its shapes.
    """

    def __init__(self, model: Model, batch_size: int | None = None) -> None:
        """
        Args:
            batch_size: rows of one inference where the model leaves their number open; None is DEFAULT_BATCH_SIZE.
        Raises:
            ValueError: the model's inputs or outputs do not begin with an axis of rows, or have another number of them.
        """
        self._model = model
        self.inputs = [tensor.name for tensor in model.inputs]
        if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
            raise TensorError(f"batch_size is {batch_size!r}, expected None or a whole number from 1 on")
        fixed = {_fixed_rows(tensor) for tensor in model.inputs}
        if len(fixed) != 1:
            raise TensorError(f"inputs are {_listed(model.inputs)}, expected one number of rows as their first axes")
        (rows,) = fixed
        if rows is not None and batch_size not in (None, rows):
            raise TensorError(f"batch_size is {batch_size}, but the model's inputs are {_listed(model.inputs)}")
        self.batch_size: int = rows or batch_size or DEFAULT_BATCH_SIZE
        self._lone = {} if rows else {tensor.name: tensor.shape for tensor in model.inputs}

    def run(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name, with as many rows as the inputs have.

        Args:
            columns: input name -> array of shape [rows, ...], whose rows have the shape and type of the model's.
        Raises:
            ValueError: names, types, shapes or numbers of rows do not fit the model.
            RuntimeError: the device or LiteRT failed, or the model is closed.
        """
        import numpy

        arrays = {name: numpy.asarray(column) for name, column in columns.items()}
        counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
        if len(set(counts.values())) != 1:
            raise TensorError(f"inputs have {counts or 'no'} rows, expected one number for all")
        (count,) = set(counts.values())
        results: dict[str, NDArray[Any]] = {}
        takes_one = self._lone == {name: (1, *array.shape[1:]) for name, array in arrays.items()}
        for start in range(0, max(count, 1), self.batch_size):
            size = 1 if takes_one and count - start == 1 else self.batch_size
            batch = {name: _filled_up(array[start : start + size], size) for name, array in arrays.items()}
            for name, output in self._model.run(batch).items():
                found = numpy.asarray(output)
                if found.shape[:1] != (size,):
                    raise TensorError(
                        f"output {name!r} has shape {list(found.shape)}, expected {size} rows as first axis"
                    )
                if name not in results:
                    results[name] = numpy.empty((count, *found.shape[1:]), found.dtype)
                results[name][start : start + size] = found[: count - start]
        return results


DEFAULT_BATCH_SIZE = 32


def _filled_up(rows: NDArray[Any], size: int) -> NDArray[Any]:
    """The rows and copies of the last one, or zeros where there is none."""
    import numpy

    missing = size - len(rows)
    if not missing:
        return rows
    more = rows[-1:] if len(rows) else numpy.zeros((1, *rows.shape[1:]), rows.dtype)
    return numpy.concatenate([rows, *([more] * missing)])


def _fixed_rows(tensor: TensorInfo) -> int | None:
    """The number of rows that an input takes; None for any.

    Raises:
        TensorError: it has no axes.
    """
    if not tensor.shape:
        raise TensorError(f"input {tensor.name!r} is one number, expected rows as its first axis")
    return None if tensor.shape_signature[0] == -1 else tensor.shape[0]


def _listed(tensors: tuple[TensorInfo, ...]) -> str:
    return ", ".join(f"{tensor.name!r} {list(tensor.shape_signature)}" for tensor in tensors)
