"""DynamicBatcher: single requests of an asyncio server, run together as batches."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from jitdelegate.api.row_batches import RowBatches
from jitdelegate.errors import DeviceError, RefusedValueError, TensorError
from jitdelegate.runtime.buffers import fits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from jitdelegate.api.model import Model

    Row = Mapping[str, np.ndarray]
    Request = tuple[dict[str, np.ndarray], asyncio.Future[dict[str, np.ndarray]]]


class DynamicBatcher:
    """Collects rows that coroutines await, and runs those that wait at the same time as one batch.

    A batch starts when `max_batch_size` rows wait, or `max_delay` seconds after its first row came; while one runs, the
    next one gathers. The model runs in one thread of its own, so the event loop stays free. All calls have to come from
    one event loop.

        async with DynamicBatcher(jitdelegate.load("model.tflite"), max_batch_size=16) as batcher:
            outputs = await batcher({"image": pixels})
    """

    def __init__(
        self, model: Model, *, max_batch_size: int = 8, max_delay: float = 0.002, max_waiting: int = 1024
    ) -> None:
        """
        Args:
            model: one whose inputs begin with an axis of rows; where it leaves their number open, an inference has
                `max_batch_size` rows, else as many as the model says.
            max_batch_size: most rows that run together.
            max_delay: seconds that a row waits at most for others.
            max_waiting: most rows that wait or run; a further call waits until one of them is done.
        Raises:
            ValueError: the model takes no rows, or a number is too small.
        """
        if max_batch_size < 1 or max_delay < 0 or max_waiting < 1:
            raise TensorError(
                f"max_batch_size is {max_batch_size}, max_delay {max_delay}, max_waiting {max_waiting};"
                " expected at least 1, 0 and 1"
            )
        is_open = any(tensor.shape_signature[:1] == (-1,) for tensor in model.inputs)
        self._rows = RowBatches(model, max_batch_size if is_open else None)
        self._shapes = {tensor.name: (tensor.shape_signature[1:], tensor.dtype) for tensor in model.inputs}
        self._max_batch_size = max_batch_size
        self._max_delay = max_delay
        self._room = asyncio.Semaphore(max_waiting)
        self._queue: asyncio.Queue[Request] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, "jitdelegate-batches")
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __call__(self, row: Row) -> dict[str, np.ndarray]:
        """The outputs of one row by name, without the axis of rows.

        Args:
            row: input name -> array without the axis of rows.
        Raises:
            ValueError: the row does not fit the model; other rows are not affected.
            RuntimeError: the model cannot run, or refuses this row's values, or the batcher is closed.
        """
        checked = self._checked(row)
        async with self._room:
            if self._is_closed:
                raise _closed()
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._serve())
            future: asyncio.Future[dict[str, np.ndarray]] = asyncio.get_running_loop().create_future()
            self._queue.put_nowait((checked, future))
            return await future

    def _checked(self, row: Row) -> dict[str, np.ndarray]:
        """The row as arrays of the model's types; errors must not reach a batch, which has other people's rows."""
        if not hasattr(row, "keys"):
            raise TensorError(f"the row is {type(row).__name__}, expected a mapping from names to values")
        if set(row) != set(self._shapes):
            raise TensorError(f"the row has {', '.join(map(repr, row))}; expected {', '.join(map(repr, self._shapes))}")
        arrays = {name: np.asarray(value) for name, value in row.items()}
        for name, array in arrays.items():
            shape, dtype = self._shapes[name]
            if not fits(array.shape, shape) or array.dtype != dtype:
                raise TensorError(
                    f"input {name!r} is {array.dtype.name}{list(array.shape)}, expected {dtype}{list(shape)},"
                    " without the axis of rows"
                )
        return arrays

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            requests = await self._gathered()
            try:
                for same in _of_equal_shapes(requests):
                    await loop.run_in_executor(self._thread, self._answer, loop, same)
            except asyncio.CancelledError:
                _fail(requests, _closed())
                raise

    async def _gathered(self) -> list[Request]:
        """The next batch, once it is full or has waited long enough."""
        requests = [await self._queue.get()]
        end = asyncio.get_running_loop().time() + self._max_delay
        while len(requests) < self._max_batch_size:
            left = end - asyncio.get_running_loop().time()
            try:
                requests.append(
                    self._queue.get_nowait() if left <= 0 else await asyncio.wait_for(self._queue.get(), left)
                )
            except (asyncio.QueueEmpty, TimeoutError):
                break
            except asyncio.CancelledError:
                _fail(requests, _closed())
                raise
        return [request for request in requests if not request[1].done()]  # a cancelled call needs no answer

    def _answer(self, loop: asyncio.AbstractEventLoop, requests: list[Request]) -> None:
        """Run the batch and pass on its results; in the batcher's thread."""
        columns = {name: np.stack([row[name] for row, _ in requests]) for name in requests[0][0]}
        try:
            found = self._rows.run(columns)
        except RefusedValueError as error:
            if len(requests) == 1:
                loop.call_soon_threadsafe(_fail, requests, error)
            else:  # only the rows that the model refuses fail
                for request in requests:
                    self._answer(loop, [request])
            return
        except Exception as error:  # noqa: BLE001 every caller gets it
            loop.call_soon_threadsafe(_fail, requests, error)
            return
        results = [{name: values[place] for name, values in found.items()} for place in range(len(requests))]
        loop.call_soon_threadsafe(_deliver, requests, results)

    async def aclose(self) -> None:
        """Stop; rows that wait fail with a RuntimeError. The model stays open."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        waiting = []
        while not self._queue.empty():
            waiting.append(self._queue.get_nowait())
        _fail(waiting, _closed())
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> DynamicBatcher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _of_equal_shapes(requests: list[Request]) -> list[list[Request]]:
    """The requests grouped by the shapes of their rows: only equal ones make a batch."""
    groups: dict[tuple[tuple[int, ...], ...], list[Request]] = {}
    for request in requests:
        groups.setdefault(tuple(array.shape for array in request[0].values()), []).append(request)
    return list(groups.values())


def _closed() -> DeviceError:
    return DeviceError("the batcher is closed")


def _fail(requests: list[Request], error: Exception) -> None:
    for _, future in requests:
        if not future.done():
            future.set_exception(error)


def _deliver(requests: list[Request], results: list[dict[str, np.ndarray]]) -> None:
    for (_, future), result in zip(requests, results, strict=True):
        if not future.done():
            future.set_result(result)
