"""DynamicBatcher: single requests of an asyncio server, run together as batches."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from jitdelegate.api.row_batches import RowBatches
from jitdelegate.errors import DeviceError, RefusedValueError, TensorError
from jitdelegate.runtime.buffers import fits
from jitdelegate.runtime.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, NoReturn

    from numpy.typing import NDArray

    from jitdelegate.api.model import Model

    Row = Mapping[str, NDArray[Any]]
    Outputs = dict[str, NDArray[Any]]
    Shapes = tuple[tuple[int, ...], ...]


class BatchCounts:
    """Running totals of a batcher, of batches that have ended.

    Attributes:
        batches: that ran.
        rows: in them.
        failed_rows: those of them that got an error.
        run_seconds: of all batches' runs.
        row_seconds: of all rows, from the call until the batch's end.
    """

    __slots__ = ("batches", "failed_rows", "row_seconds", "rows", "run_seconds")

    def __init__(self) -> None:
        self.batches = self.rows = self.failed_rows = 0
        self.run_seconds = self.row_seconds = 0.0

    def add(self, batch: Sequence[_Request], outcomes: Sequence[object], run_seconds: float, now: float) -> None:
        """Count a batch; only the worker's thread calls it. `now` is by the clock of the rows' event loop."""
        self.batches += 1
        self.rows += len(batch)
        self.failed_rows += sum(isinstance(outcome, Exception) for outcome in outcomes)
        self.run_seconds += run_seconds
        self.row_seconds += sum(now - request.came for request in batch)


class DynamicBatcher:
    """Collects rows that coroutines await, and runs those that wait at the same time as one batch.

    A batch starts when `max_batch_size` rows of equal shapes wait, or as many as an inference takes where the model
    says how many, or `max_delay` seconds after its first row came. It starts as well when as many wait as were in the
    last batch or waited at its end: where one client asks after each answer, its rows wait for nobody. While a batch
    runs, the next one gathers. The model runs in one thread of its own, so the event loop stays free. Calls may come
    from several event loops; the rows of each make batches of their own.

        async with DynamicBatcher(jitdelegate.load("model.tflite"), max_batch_size=16) as batcher:
            outputs = await batcher({"image": pixels})

    Attributes:
        counts: how many batches and rows ran, and how long they took.
    """

    def __init__(
        self, model: Model, *, max_batch_size: int = 8, max_delay: float = 0.002, max_waiting: int = 1024
    ) -> None:
        """
        Args:
            model: one whose inputs begin with an axis of rows; where it leaves their number open, an inference has
                `max_batch_size` rows, or one alone, else as many as the model says.
            max_batch_size: most rows that run together.
            max_delay: seconds that a row waits at most for others.
            max_waiting: most rows of an event loop that wait or run; a further call waits until one of them is done.
        Raises:
            ValueError: the model takes no rows, or a number is too small or not whole.
        """
        are_whole = isinstance(max_batch_size, int) and isinstance(max_waiting, int)
        if not (are_whole and max_batch_size >= 1 and max_delay >= 0 and max_waiting >= 1):
            raise TensorError(
                f"max_batch_size is {max_batch_size}, max_delay {max_delay}, max_waiting {max_waiting};"
                " expected at least 1, 0 and 1, whole numbers for both counts"
            )
        is_open = any(tensor.shape_signature[:1] == (-1,) for tensor in model.inputs)
        self._rows = RowBatches(model, max_batch_size if is_open else None)
        self._inputs = {tensor.name: (tensor.shape_signature[1:], tensor.dtype) for tensor in model.inputs}
        self._most = min(max_batch_size, max_waiting)  # rows that must not wait together cannot run together
        self._enough = self._most if is_open else min(self._most, self._rows.batch_size)
        self._max_delay = max_delay
        self._worker = Worker(_drop)
        self.counts = BatchCounts()
        self._gatherings: dict[asyncio.AbstractEventLoop, _Gathering] = {}
        self._is_closed = False

    async def __call__(self, row: Row) -> Outputs:
        """The outputs of one row by name, without the axis of rows.

        Args:
            row: input name -> array without the axis of rows.
        Raises:
            ValueError: the row does not fit the model; other rows are not affected.
            RuntimeError: the model cannot run, or refuses this row's values, or the batcher is closed.
        """
        request = _Request(self._checked(row), asyncio.get_running_loop())
        if self._is_closed:
            raise _closed()
        gathering = self._gathering()
        try:
            gathering.add(request)
            return await request.future
        finally:
            gathering.leave(request)

    def _checked(self, row: Row) -> dict[str, NDArray[Any]]:
        """The row as arrays of the model's types, in the order of its inputs; errors must not reach a batch, which has
        other people's rows."""
        if not hasattr(row, "keys"):
            raise TensorError(f"the row is {type(row).__name__}, expected a mapping from names to values")
        if set(row) != set(self._inputs):
            raise TensorError(f"the row has {', '.join(map(repr, row))}; expected {', '.join(map(repr, self._inputs))}")
        arrays = {name: np.asarray(row[name]) for name in self._inputs}
        for name, array in arrays.items():
            shape, dtype = self._inputs[name]
            if not fits(array.shape, shape) or array.dtype != dtype:
                raise TensorError(
                    f"input {name!r} is {array.dtype.name}{list(array.shape)}, expected {dtype}{list(shape)},"
                    " without the axis of rows"
                )
        return arrays

    def _gathering(self) -> _Gathering:
        """That of the running loop. Loops of several threads may ask at the same time; each changes its own entry only,
        besides those of loops that have ended."""
        loop = asyncio.get_running_loop()
        if loop not in self._gatherings:
            for other in [*self._gatherings]:
                if other.is_closed():
                    self._gatherings.pop(other, None)
            self._gatherings[loop] = _Gathering(
                loop, self._worker, self._rows, self._most, self._enough, self._max_delay, self.counts
            )
        return self._gatherings[loop]

    @property
    def waiting(self) -> int:
        """Rows that wait for their batch."""
        return sum(each.waiting for each in [*self._gatherings.values()])

    async def aclose(self) -> None:
        """Stop; rows that wait or run fail with a RuntimeError. The model stays open. Harmless a second time."""
        self._is_closed = True
        for loop, each in [*self._gatherings.items()]:
            if loop is asyncio.get_running_loop():
                each.close()
            else:
                _call_soon(loop, each.close)

    def __reduce__(self) -> NoReturn:
        """
        Raises:
            TypeError: always. Its calls belong to event loops of this process.
        """
        raise TypeError("a DynamicBatcher cannot be copied or pickled; make another one of the same model")

    async def __aenter__(self) -> DynamicBatcher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Request:
    """A row that a call waits for.

    Attributes:
        row: arrays by name, in the order of the model's inputs.
        shapes: those of the arrays; only equal ones make a batch.
        came: when, by the loop's clock.
        future: gets the outputs, or an error.
    """

    __slots__ = ("came", "future", "row", "shapes")

    def __init__(self, row: dict[str, NDArray[Any]], loop: asyncio.AbstractEventLoop) -> None:
        self.row = row
        self.shapes: Shapes = tuple(array.shape for array in row.values())
        self.came = loop.time()
        self.future: asyncio.Future[Outputs] = loop.create_future()


class _Gathering:
    """The rows of one event loop that wait, and the batch of them that runs.

    There is no task, which might be cancelled or end: the loop calls all methods but `_run`, and none of them awaits,
    so nothing happens in between.
    """

    __slots__ = (
        *("_counts", "_enough", "_expected", "_loop", "_max_delay", "_most", "_rows", "_running", "_timer", "_waiting"),
        "_worker",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        rows: RowBatches,
        most: int,
        enough: int,
        max_delay: float,
        counts: BatchCounts,
    ) -> None:
        """
        Args:
            worker: the thread that runs batches.
            most: rows of a batch.
            enough: rows that need not wait for others.
            counts: gets what runs.
        """
        self._loop = loop
        self._worker = worker
        self._rows = rows
        self._most = most
        self._enough = enough
        self._expected = 1
        self._max_delay = max_delay
        self._counts = counts
        self._waiting: dict[Shapes, list[_Request]] = {}
        self._running: list[_Request] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Rows that wait; other threads may ask."""
        return sum(len(equal) for equal in [*self._waiting.values()])

    def add(self, request: _Request) -> None:
        """Let a row wait; a batch that it fills may start."""
        equal = self._waiting.setdefault(request.shapes, [])
        equal.append(request)
        if len(equal) >= self._enough:
            self._advance()
        elif len(equal) == self._expected:  # calls that come at the same time run together
            self._wake(request.came)
        elif self._timer is None:
            self._wake(request.came + self._max_delay)

    def leave(self, request: _Request) -> None:
        """Forget a row whose call has ended, because it was answered or cancelled."""
        request.future.cancel()  # harmless where it is done
        equal = self._waiting.get(request.shapes, [])
        if request.future.cancelled() and request in equal:
            equal.remove(request)

    def _wake(self, when: float) -> None:
        """Advance at that time of the loop's clock, instead of any other one."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._advance)

    def _advance(self) -> None:
        """Start the next batch, if none runs and one may start."""
        while not self._running and (batch := self._next()):
            self._start(batch)

    def _next(self) -> list[_Request]:
        """Rows taken from those that wait: of the batches that are full, expect nobody or have waited long enough, the
        one with the oldest row. [] if there is none; a timer is set for the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting = {shapes: equal for shapes, equal in self._waiting.items() if equal}
        oldest_first = sorted(self._waiting.values(), key=lambda equal: equal[0].came)
        now = self._loop.time()
        for equal in oldest_first:
            if len(equal) >= min(self._enough, self._expected) or equal[0].came + self._max_delay <= now:
                batch = equal[: self._most]
                del equal[: self._most]
                return batch
        if oldest_first:
            self._wake(oldest_first[0][0].came + self._max_delay)
        return []

    def _start(self, batch: list[_Request]) -> None:
        self._running = batch
        try:
            self._worker.call(lambda: self._run(batch))
        except Exception as error:  # noqa: BLE001 no thread is to be had, or Python exits: every caller gets it
            self._finish(batch, [_passed_on(error)] * len(batch))

    def _run(self, batch: list[_Request]) -> None:
        """Run a batch and pass on its outcomes; in the worker's thread, to which nothing may be raised."""
        start = time.perf_counter()
        outcomes = self._outcomes(batch)
        self._counts.add(batch, outcomes, time.perf_counter() - start, self._loop.time())
        _call_soon(self._loop, self._end, batch, outcomes)

    def _outcomes(self, batch: list[_Request]) -> list[Outputs | Exception]:
        """The outputs of each row, or its error. Where the model refuses a value, each row runs alone."""
        try:
            columns = {name: np.stack([request.row[name] for request in batch]) for name in batch[0].row}
            found = self._rows.run(columns)
            return [{name: values[row] for name, values in found.items()} for row in range(len(batch))]
        except BaseException as error:  # noqa: BLE001 every caller gets it
            if isinstance(error, RefusedValueError) and len(batch) > 1:
                return [outcome for request in batch for outcome in self._outcomes([request])]
            return [_passed_on(error)] * len(batch)

    def _end(self, batch: list[_Request], outcomes: Sequence[Outputs | Exception]) -> None:
        self._finish(batch, outcomes)
        self._advance()

    def _finish(self, batch: list[_Request], outcomes: Sequence[Outputs | Exception]) -> None:
        """Answer the calls that still wait. Whoever was answered or waits by now is expected to ask again."""
        self._running = []
        self._expected = len(batch) + len(self._waiting.get(batch[0].shapes, ()))
        for request, outcome in zip(batch, outcomes, strict=True):
            if request.future.done():
                continue
            if isinstance(outcome, Exception):
                request.future.set_exception(outcome)
            else:
                request.future.set_result(outcome)

    def close(self) -> None:
        """Let all calls fail. A batch that runs goes on, and nobody gets its answers."""
        waiting = [each for equal in self._waiting.values() for each in equal]
        self._waiting = {}
        for each in [*waiting, *self._running]:
            if not each.future.done():
                each.future.set_exception(_closed())


def _drop() -> None:
    """In a forked child nobody waits for batches: event loops do not survive a fork."""


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Let the loop, which another thread may run, call the function."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return  # the loop is closed: nobody waits there


def _passed_on(error: BaseException) -> Exception:
    """What callers get of an error in a batch. Futures take no StopIteration; an error that is no Exception would end
    the event loop, or look like a cancelled call."""
    if isinstance(error, MemoryError):
        passed = DeviceError("no memory for a batch")
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    else:
        passed = DeviceError(f"the model ended with {type(error).__name__}")
    passed.__cause__ = error
    return passed


def _closed() -> DeviceError:
    return DeviceError("the batcher is closed")
