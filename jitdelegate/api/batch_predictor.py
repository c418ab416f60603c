"""BatchPredictor: a model as a picklable callable over batches of rows, for Ray Data, Dask and plain Python."""

from __future__ import annotations

import os

from jitdelegate.errors import TensorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from numpy.typing import NDArray

    from jitdelegate.api.row_batches import RowBatches


class BatchPredictor:
    """Adds a model's outputs to batches of rows.

    A batch is a mapping from column names to arrays of shape [rows, ...], as Ray Data's `map_batches` passes it, a
    pandas DataFrame whose cells are numbers or arrays, as Dask's `map_partitions` passes it, or one array, for models
    with one input. The result is of the same kind: the batch's columns and the outputs', or the only output's array.

        dataset.map_batches(BatchPredictor, fn_constructor_args=("model.tflite",), concurrency=4)  # Ray Data
        frame.map_partitions(BatchPredictor("model.tflite", inputs={"x": "pixels"}))  # Dask

    It is pickled as its arguments. Each process loads the model at its first batch, from the cache of compiled programs
    if that has it: let all workers share one directory, `serialization_dir`, which may be read-only once
    `python -m jitdelegate.warm` has filled it. Several threads may call it.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        *,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        prepare: Callable[[Any], Any] | None = None,
        batch_size: int | None = None,
        options: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    ) -> None:
        """
        Args:
            model: path of the .tflite file, the same on every worker, or its content.
            inputs: input name -> column; None takes columns of the inputs' names, or the only column for an only input.
            outputs: output name -> column; None takes the outputs' names. Other outputs are left out.
            prepare: called with each batch, returns the batch that the model sees; picklable, as this object is.
            batch_size: rows of one inference, where the model leaves their number open.
            options: options of `jitdelegate.load` by name, or the path of a file with them.
        """
        self._model = model if isinstance(model, bytes) else os.fspath(model)
        self._inputs = dict(inputs) if inputs is not None else None
        self._outputs = dict(outputs) if outputs is not None else None
        self._prepare = prepare
        self._batch_size = batch_size
        self._options = options
        self._loaded: RowBatches | None = None

    def __reduce__(self) -> tuple[Callable[..., BatchPredictor], tuple[Any, ...]]:
        """Pickled as its arguments; the copy loads the model again."""
        arguments = (self._inputs, self._outputs, self._prepare, self._batch_size, self._options)
        return _unpickled, (self._model, *arguments)

    def __call__(self, batch: Any) -> Any:
        """The batch with the model's outputs.

        Raises:
            ValueError: a column is missing, or does not fit the model.
            RuntimeError: the model cannot run.
        """
        import numpy

        seen = batch if self._prepare is None else self._prepare(batch)
        rows = self._rows()
        if isinstance(seen, numpy.ndarray):
            return self._of_array(seen, rows)
        names = self._input_columns([str(name) for name in seen.keys()], rows)  # noqa: SIM118 a DataFrame iterates so too
        found = rows.run({name: _column(seen[column]) for name, column in names.items()})
        return _with_columns(batch, self._named(found))

    def _rows(self) -> RowBatches:
        if self._loaded is None:  # two threads may both load it: one of them is kept
            from jitdelegate.api.model import load
            from jitdelegate.api.row_batches import RowBatches

            self._loaded = RowBatches(load(self._model, options=self._options), self._batch_size)
        return self._loaded

    def _of_array(self, array: NDArray[Any], rows: RowBatches) -> Any:
        if len(rows.inputs) != 1:
            raise TensorError(f"the batch is one array, but the model has the inputs {', '.join(rows.inputs)}")
        found = self._named(rows.run({rows.inputs[0]: array}))
        return next(iter(found.values())) if len(found) == 1 else found

    def _input_columns(self, columns: list[str], rows: RowBatches) -> Mapping[str, str]:
        """Input name -> column."""
        wanted = self._inputs
        if wanted is None:
            if len(rows.inputs) == len(columns) == 1:
                return {rows.inputs[0]: columns[0]}
            wanted = {name: name for name in rows.inputs}
        missing = [column for column in wanted.values() if column not in columns]
        if missing:
            raise TensorError(
                f"the batch has the columns {', '.join(columns)}, expected {', '.join(missing)};"
                " `inputs` names the column of each input"
            )
        return wanted

    def _named(self, found: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs that are asked for, by column."""
        if self._outputs is None:
            return found
        unknown = [name for name in self._outputs if name not in found]
        if unknown:
            raise TensorError(f"the model has the outputs {', '.join(found)}, but not {', '.join(unknown)}")
        return {column: found[name] for name, column in self._outputs.items()}


def _unpickled(
    model: str | bytes, inputs: Any, outputs: Any, prepare: Any, batch_size: int | None, options: Any
) -> BatchPredictor:
    return BatchPredictor(
        model, inputs=inputs, outputs=outputs, prepare=prepare, batch_size=batch_size, options=options
    )


def _column(values: Any) -> NDArray[Any]:
    """A column as an array of shape [rows, ...]; cells that are arrays or lists are stacked."""
    import numpy

    array = numpy.asarray(values)
    if array.dtype != object or not len(array):
        return array
    try:
        return numpy.stack([numpy.asarray(cell) for cell in array])
    except ValueError as error:
        raise TensorError(f"rows of a column have different shapes: {error}") from error


def _with_columns(batch: Any, outputs: dict[str, NDArray[Any]]) -> Any:
    """The batch and the outputs; a DataFrame holds one array per cell."""
    if not hasattr(batch, "assign"):
        return {**batch, **outputs}
    return batch.assign(**{name: values if values.ndim == 1 else list(values) for name, values in outputs.items()})
