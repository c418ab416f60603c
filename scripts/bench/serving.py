"""A load test on loopback: an HTTP server with our batcher against the same server with LiteRT.

Each side is `examples/serving/asgi.py` in uvicorn, in a process of its own; with LiteRT, its interpreter runs each row
in a thread, one after another, as servers around it do. Clients with a connection each send a row and wait for its
answer, as fast as they get them. The sides take turns. Throughput is the median of the rounds; p50 and p99 are those of
all requests. `speed` is our throughput over LiteRT's.

Needs uvicorn. Server and clients share this machine's CPUs.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import jitdelegate
from jitdelegate.commands.measurement.column import Column
from scripts.bench.call import tiny_model
from scripts.bench.rounds import in_turns
from scripts.bench.suite import Row, Suite

ROOT = Path(__file__).resolve().parents[2]
OURS, LITERT = "jitdelegate", "LiteRT"
ROWS = 8
"""Most rows of a batch, where the model takes several."""
LONGEST_START = 60.0
"""Seconds."""


def serve(model: str, side: str, port: int, threads: int) -> None:
    """Answer requests on loopback until the process is told to end."""
    import uvicorn

    sys.path.insert(0, str(ROOT / "examples/serving"))
    from asgi import App

    class LiteRtApp(App):
        """The same server around LiteRT's interpreter."""

        def _open(self) -> None:
            self._model = self._batcher = _LiteRtRows(model, threads)

    app = (App if side == OURS else LiteRtApp)(model, threads, ROWS)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


class _LiteRtRows:
    """LiteRT's interpreter with the interface of a model and of its batcher: each row runs alone, in a thread.

    Attributes:
        inputs, outputs: names, types and shapes.
    """

    def __init__(self, path: str, threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(path, num_threads=threads)
        self._interpreter.allocate_tensors()
        self._pool = ThreadPoolExecutor(1)
        self.inputs = list(map(_port, self._interpreter.get_input_details()))
        self.outputs = list(map(_port, self._interpreter.get_output_details()))

    def _run(self, row: Mapping[str, Any]) -> dict[str, Any]:
        for port in self.inputs:
            self._interpreter.set_tensor(port.index, row[port.name][None])
        self._interpreter.invoke()
        return {port.name: self._interpreter.get_tensor(port.index)[0] for port in self.outputs}

    async def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, row)

    async def aclose(self) -> None:
        self._pool.shutdown()

    def close(self) -> None:
        """Nothing is left to end."""


def _port(detail: Mapping[str, Any]) -> SimpleNamespace:
    named = {key: detail[key] for key in ("name", "index", "dtype")}
    return SimpleNamespace(**named, shape=tuple(map(int, detail["shape"])))


@contextmanager
def server(model: Path, side: str, threads: int) -> Iterator[int]:
    """A server in a process of its own; gives its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"from scripts.bench.serving import serve; serve({str(model)!r}, {side!r}, {port}, {threads})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    try:
        _await_start(process, port)
        yield port
    finally:
        process.terminate()
        process.wait()


def _await_start(process: subprocess.Popen[bytes], port: int) -> None:
    """
    Raises:
        RuntimeError: the server ended, or does not answer.
    """
    deadline = time.monotonic() + LONGEST_START
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start within {LONGEST_START:g} s, or ended: {process.poll()}")


async def _client(port: int, request: bytes, until: float, taken: list[float]) -> None:
    """Send the request again and again over one connection; adds the seconds of each answer that came in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (start := time.perf_counter()) < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server answered {head.decode().splitlines()[0]}")
        if b"chunked" in head:
            while size := int(await reader.readline(), 16):
                await reader.readexactly(size + 2)
            await reader.readline()
        else:
            sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(sizes[0].partition(b":")[2]))
        end = time.perf_counter()
        if end <= until:
            taken.append(end - start)
    writer.close()
    await writer.wait_closed()


def load(port: int, request: bytes, clients: int, seconds: float) -> list[float]:
    """Seconds of each answer to that many clients at once."""

    async def all_clients() -> list[float]:
        taken: list[float] = []
        until = time.perf_counter() + seconds
        await asyncio.gather(*(_client(port, request, until, taken) for _ in range(clients)))
        return taken

    return asyncio.run(all_clients())


def request_of(model: Path) -> bytes:
    """A request with a random row."""
    port = jitdelegate.load(model, target="litert").inputs[0]
    row = np.random.default_rng(0).random(port.shape[1:]).astype(port.dtype).tobytes()
    return b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n%s" % (len(row), row)


def measure(model: Path, threads: int, clients: int, rounds: int, seconds: float) -> dict[str, Row]:
    """Side to its figures."""
    request = request_of(model)
    with server(model, OURS, threads) as ours, server(model, LITERT, threads) as theirs:
        ports = {OURS: ours, LITERT: theirs}
        for port in ports.values():
            load(port, request, clients, seconds / 2)
        sides = {side: partial(load, port, request, clients, seconds) for side, port in ports.items()}
        found = list(in_turns(sides, rounds))
    return {side: _figures([taken[side] for taken in found], seconds) for side in ports}


def _figures(rounds: Sequence[Sequence[float]], seconds: float) -> Row:
    times = sorted(time for taken in rounds for time in taken)
    return {
        "per_s": statistics.median(len(taken) / seconds for taken in rounds),
        "p50_ms": 1e3 * times[len(times) // 2],
        "p99_ms": 1e3 * times[len(times) * 99 // 100],
    }


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per model, number of threads, number of clients and side."""
    for model, threads, clients in product(arguments.model, arguments.threads, arguments.clients):
        found = measure(model, threads, clients, arguments.rounds, arguments.seconds)
        for side, figures in found.items():
            row = {"model": model.name, "threads": threads, "clients": clients, "side": side, **figures}
            yield row | {"speed": found[OURS]["per_s"] / figures["per_s"]}


def options(parser: argparse.ArgumentParser) -> None:
    """How many clients, and how long."""
    parser.add_argument("--clients", type=int, nargs="+", default=(1, 8), help="connections (default: 1 8)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a round of one side lasts")


SUITE = Suite(
    columns=(
        *(Column("model", "<40"), Column("threads", "7"), Column("clients", "7"), Column("side", "<12")),
        *(Column("per_s", "9.1f", "per s"), Column("p50_ms", "9.3f", "p50 ms"), Column("p99_ms", "9.3f", "p99 ms")),
        Column("speed", "6.2f"),
    ),
    rows=rows,
    make=tiny_model,
    rounds=5,
    options=options,
)
