"""Work of a stream as a CUDA graph."""

from __future__ import annotations

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cuda.driver import try_release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jitdelegate.runtime.cuda.driver import Driver


def capture(driver: Driver, stream: int, enqueue: Callable[[int], None]) -> int:
    """The work that `enqueue` puts into the stream it is called with, as a graph that is ready to run.

    Args:
        stream: one that can be captured, and has no work to wait for.
    Raises:
        DeviceError: the driver gives no graph; nothing is left behind.
    """
    driver.begin_capture(stream)
    try:
        enqueue(stream)
    except DeviceError:
        _leave(driver, stream)
        raise
    graph = driver.end_capture(stream)
    try:
        executable = driver.instantiate(graph)
    finally:
        try_release(driver.destroy_graph, graph)
    try:
        driver.upload_graph(executable, stream)
    except DeviceError:
        try_release(driver.destroy_executable, executable)
        raise
    return executable


def _leave(driver: Driver, stream: int) -> None:
    try:
        driver.destroy_graph(driver.end_capture(stream))
    except DeviceError:  # a capture that a failing call made invalid ends without a graph
        return
