"""The examples of servers answer: in a server where that is installed, and Triton's with a stand-in for its module."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from tests.api import small_models
from tests.docs.blocks import ROOT

SERVING = ROOT / "examples/serving"
ROW = np.random.default_rng(0).standard_normal((8, 8, 3)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution(open_batch=True))
    monkeypatch.setenv("MODEL", str(path))
    monkeypatch.syspath_prepend(SERVING)
    return path


def _expected(model: Path) -> np.ndarray:
    return np.asarray(jitdelegate.load(model, target="cpu")(ROW[None]))[0]


def _example(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


async def _post(app: Any, body: bytes, path: str = "/", method: str = "POST") -> tuple[int, bytes]:
    """The answer of an ASGI application to a request whose body comes in two pieces."""
    pieces = [{"body": body[:7], "more_body": True}, {"body": body[7:], "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return pieces.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "path": path, "method": method}, receive, send)
    return sent[0]["status"], sent[1]["body"]


async def _lived(app: Any, use: Any) -> tuple[Any, list[dict[str, Any]]]:
    """What `use()` gives between start and end of an ASGI application, and what the application said."""
    asked: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    told: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    asked.put_nowait({"type": "lifespan.startup"})
    life = asyncio.ensure_future(app({"type": "lifespan"}, asked.get, send))
    while not told and not life.done():
        await asyncio.sleep(0.001)
    result = await use() if told[0]["type"].endswith("complete") else None
    asked.put_nowait({"type": "lifespan.shutdown"})
    await life
    return result, told


def test_asgi_answers_rows_and_says_what_is_wrong(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = _example("asgi", monkeypatch).app

    async def use() -> list[tuple[int, bytes]]:
        good = await asyncio.gather(*(_post(app, ROW.tobytes()) for _ in range(3)))
        return [
            *good,
            await _post(app, b"short"),
            await _post(app, b"", method="GET"),
            await _post(app, b"", "/metrics"),
        ]

    answers, told = asyncio.run(_lived(app, use))
    assert [status for status, _ in answers] == [200, 200, 200, 400, 405, 200]
    for _, body in answers[:3]:
        np.testing.assert_array_equal(np.frombuffer(body, np.float32).reshape(4, 4, 4), _expected(model))
    assert b'jitdelegate_row_seconds_count{batcher="model.tflite"} 3.0' in answers[-1][1]
    assert told[-1] == {"type": "lifespan.shutdown.complete"}


def test_asgi_server_does_not_start_without_its_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model.unlink()
    _, told = asyncio.run(_lived(_example("asgi", monkeypatch).app, None))
    assert told[0]["type"] == "lifespan.startup.failed"
    assert "model.tflite" in told[0]["message"]


class Tensor:
    """As Triton's tensors."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        self.name, self.array = name, array

    def as_numpy(self) -> np.ndarray:
        return self.array


def _triton_module() -> types.ModuleType:
    """The part of Triton's module that the example uses."""
    module: Any = types.ModuleType("triton_python_backend_utils")
    module.Tensor, module.TritonError = Tensor, str
    module.InferenceResponse = lambda output_tensors, error=None: (output_tensors, error)
    module.get_input_tensor_by_name = lambda request, name: Tensor(name, request[name])
    module.triton_string_to_numpy = {"TYPE_FP32": np.float32}.get
    return module  # type: ignore[no-any-return]


def _config(**options: str) -> str:
    known = {
        "max_batch_size": 4,
        "input": [{"name": "image", "data_type": "TYPE_FP32", "dims": ["8", "8", "3"]}],
        "output": [{"name": "features", "data_type": "TYPE_FP32", "dims": ["4", "4", "4"]}],
        "parameters": {name: {"string_value": value} for name, value in options.items()},
    }
    return json.dumps(known)


def test_triton_answers_each_request_of_a_batch(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", _triton_module())
    monkeypatch.syspath_prepend(SERVING / "triton/classifier/1")
    (model.parent / "1").mkdir()
    shutil.copy(model, model.parent / "1/model.tflite")
    served = _example("model", monkeypatch).TritonPythonModel()
    where = {"model_repository": str(model.parent), "model_version": "1"}
    served.initialize({"model_config": _config(num_threads="1", target="cpu"), **where})
    requests = [{"image": np.stack([number * ROW] * rows)} for number, rows in ((1, 1), (0, 3), (2, 2))]
    responses = served.execute(requests)
    assert [error for _, error in responses] == [None] * 3
    assert [tensors[0].array.shape for tensors, _ in responses] == [(1, 4, 4, 4), (3, 4, 4, 4), (2, 4, 4, 4)]
    np.testing.assert_array_equal(responses[0][0][0].array[0], _expected(model))
    ((tensors, error),) = served.execute([{"image": ROW[None, :4]}])
    assert not tensors
    assert "expected float32[1, 8, 8, 3]" in error
    with pytest.raises(jitdelegate.OptionError, match="num_thread"):
        served.initialize({"model_config": _config(num_thread="1"), **where})


def test_ray_serve(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = pytest.importorskip("ray.serve")
    requests = pytest.importorskip("requests")
    example = _example("ray_serve", monkeypatch)
    sys.modules["ray"].init(num_cpus=1, runtime_env={"working_dir": str(SERVING)}, log_to_driver=False)
    try:
        serve.run(example.app)
        url = "http://127.0.0.1:8000/"
        answer = requests.post(url, json={"image": ROW.tolist()}, timeout=60).json()
        np.testing.assert_allclose(answer["features"], _expected(model), rtol=1e-6)
        assert requests.post(url, json={"image": [1]}, timeout=60).status_code == 400
    finally:
        serve.shutdown()
        sys.modules["ray"].shutdown()


def test_bentoml(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bentoml = pytest.importorskip("bentoml")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SERVING), *sys.path]))
    server = bentoml.serve("bentoml_service:Served", working_dir=str(SERVING), port=3999)
    with server, bentoml.SyncHTTPClient(server.url) as client:
        np.testing.assert_allclose(client.predict(row=ROW.tolist()), _expected(model), rtol=1e-6)
        with pytest.raises(bentoml.exceptions.BentoMLException):
            client.predict(row=[1.0])


def test_every_server_is_tried() -> None:
    files = {path.stem for path in SERVING.rglob("*.py")}
    assert files == {"asgi", "ray_serve", "bentoml_service", "model"}
