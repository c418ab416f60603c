"""A model behind HTTP, in any ASGI server. Requests that wait at the same time run as one batch.

    pip install . uvicorn
    MODEL=model.tflite uvicorn --app-dir examples/serving asgi:app
    curl --data-binary @row.bin http://127.0.0.1:8000/

The body of a POST is one row of the model's first input, without the axis of rows, as the bytes of its elements; the
answer is that of the first output. GET /metrics answers Prometheus, where its library is installed.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

import jitdelegate

Receive, Send = Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]
Answer = tuple[int, bytes, bytes]
"""Status, type and body."""
_BYTES, _TEXT = b"application/octet-stream", b"text/plain"


class App:
    """Loads the model when the server starts, so that a missing file ends the server, not a request."""

    def __init__(self, model: str, threads: int, max_batch_size: int) -> None:
        self._arguments = model, threads, max_batch_size
        self._metrics: Callable[[], bytes] = bytes

    def _open(self) -> None:
        path, threads, max_batch_size = self._arguments
        self._model = jitdelegate.load(path, num_threads=threads)
        self._batcher = jitdelegate.DynamicBatcher(self._model, max_batch_size=max_batch_size)
        try:
            from prometheus_client import CollectorRegistry, generate_latest

            from jitdelegate.telemetry import MetricsCollector
        except ImportError:
            return  # GET /metrics answers nothing
        registry = CollectorRegistry()
        MetricsCollector({os.path.basename(path): self._batcher}, registry)
        self._metrics = lambda: generate_latest(registry)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """The interface that ASGI servers call."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            status, kind, body = await self._answer(scope, receive)
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
            await send({"type": "http.response.body", "body": body})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    self._open()
                except (jitdelegate.JitDelegateError, OSError) as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._batcher.aclose()
                self._model.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer(self, scope: Any, receive: Receive) -> Answer:
        if scope["path"] == "/metrics":
            return 200, _TEXT, self._metrics()
        if scope["method"] != "POST":
            return 405, _TEXT, b"expected POST"
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        port = self._model.inputs[0]
        try:
            row = np.frombuffer(body, port.dtype).reshape(port.shape[1:])
            outputs = await self._batcher({port.name: row})
        except ValueError as error:
            return 400, _TEXT, str(error).encode()
        except RuntimeError as error:
            return 503, _TEXT, str(error).encode()
        return 200, _BYTES, outputs[self._model.outputs[0].name].tobytes()


app = App(
    os.environ.get("MODEL", "model.tflite"), int(os.environ.get("THREADS", "1")), int(os.environ.get("ROWS", "8"))
)
