"""Buffers on a GPU, on a driver without one: nothing is copied, streams are followed, and everything is given back."""

from __future__ import annotations

import ctypes
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from jitdelegate.api.tensor_buffer import TensorBuffer
from jitdelegate.errors import DeviceError, TensorError
from jitdelegate.program.program import Launch, Program
from jitdelegate.runtime.binding import Place
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.driver import LEGACY_STREAM, Driver
from jitdelegate.runtime.cuda.memory import DevicePlace
from jitdelegate.runtime.cuda.session import MOST_GRAPHS, CudaSession
from jitdelegate.runtime.given_outputs import run_into
from tests.gpu.stub.capture import Stream
from tests.gpu.stub.handles import GlBuffer
from tests.gpu.stub.install import install
from tests.gpu.stub.library import INVALID_VALUE, Library
from tests.gpu.stub.programs import SCALE, SHIFT, X_OFFSET, library, opened, scale_and_shift
from tests.runtime.tiny import SCALE as TINY_SCALE
from tests.runtime.tiny import tiny_program

X = np.arange(6, dtype=np.float32).reshape(2, 3)
COPIES = ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2")


def answer(x: np.ndarray) -> np.ndarray:
    """What the program computes."""
    return np.asarray(x * np.float32(SCALE) + np.float32(SHIFT)).reshape(3, 2)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """The stub in the place of the machine's driver; nothing is left of what is made."""
    made = install(monkeypatch, library(devices=2))
    yield made
    gc.collect()
    assert made.leaks() == []


def session(driver: Library, program: Program | None = None, stream: int | None = None) -> CudaSession:
    """A session on the stub's first GPU."""
    return CudaSession(opened(scale_and_shift()) if program is None else program, Device(Driver(driver), 0), stream)


class GpuArray:
    """An array of a library like CuPy, in memory that the library allocated itself."""

    def __init__(self, values: np.ndarray, driver: Library, *, gpu: int = 0, past: int = 0, **changes: Any) -> None:
        self._device = Device(Driver(driver), gpu)
        self._driver, self._changes = driver, changes
        self._context = self._device.driver.retain_context(self._device.handle)
        self.values, self.past = values, past
        self.asked: list[dict[str, Any]] = []
        with self:
            self.start = self._device.driver.allocate(values.nbytes + past + 1)
        self.address = self.start + past
        driver.memory.write(self.address, values.tobytes())

    def __enter__(self) -> None:
        self._device.driver.push_context(self._context)

    def __exit__(self, *_: object) -> None:
        self._device.driver.pop_context()

    def __del__(self) -> None:
        with self:
            self._device.driver.free(self.start)

    def read(self) -> np.ndarray:
        """What is there now."""
        found = np.frombuffer(self._driver.memory.read(self.address, self.values.nbytes), self.values.dtype)
        return found.reshape(self.values.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        described = {
            "shape": self.values.shape,
            "typestr": self.values.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
        }
        return {**described, **self._changes}


class DlpackArray(GpuArray):
    """An array of a library like PyTorch, of before or after DLPack 1.0."""

    is_new = True

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._device.ordinal

    def __dlpack__(self, **asked: Any) -> Any:
        if not self.is_new and "max_version" in asked:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.asked.append(asked)
        return TensorBuffer.create_from_cuda_array(self).__dlpack__(max_version=asked.get("max_version"))


class OldDlpackArray(DlpackArray):
    """One of before."""

    is_new = False


WAYS: list[tuple[type[GpuArray], Callable[[Any], TensorBuffer]]] = [
    (GpuArray, TensorBuffer.create_from_cuda_array),
    (DlpackArray, TensorBuffer.create_from_dlpack),
    (OldDlpackArray, TensorBuffer.create_from_dlpack),
    (DlpackArray, lambda array: TensorBuffer.create_from_dlpack(array.__dlpack__())),
]


def copies(driver: Library, before: Counter[str]) -> int:
    """How many copies were enqueued since then."""
    return sum((driver.calls - before)[name] for name in COPIES)


@pytest.mark.parametrize(("kind", "make"), WAYS)
def test_buffers_of_other_libraries_enter_and_leave_the_graph_without_a_copy(
    kind: type[GpuArray], make: Callable[[Any], TensorBuffer], driver: Library
) -> None:
    running, x, y = session(driver), kind(X, driver), kind(np.zeros((3, 2), np.float32), driver)
    inputs, outputs = make(x), make(y)
    assert (inputs.place.address, inputs.dtype, inputs.shape) == (x.address, "float32", (2, 3))
    binding = running.bind([inputs.place, outputs.place])
    before = driver.calls.copy()
    for turn in range(3):
        driver.memory.write(x.address, (X + turn).tobytes())
        running.run_bound(binding)
        np.testing.assert_array_equal(y.read(), answer(X + turn))
    assert copies(driver, before) == 0
    assert (driver.calls - before)["cuGraphLaunch"] == 3 and (driver.calls - before)["cuStreamBeginCapture_v2"] == 1
    running.close()


def test_a_side_on_the_host_is_copied_alone(driver: Library) -> None:
    running, x = session(driver), GpuArray(X, driver)
    y = TensorBuffer.create("float32", (3, 2))
    on_gpu = TensorBuffer.create_from_cuda_array(x)
    binding = running.bind([on_gpu.place, y.place])
    before = driver.calls.copy()
    running.run_bound(binding)
    np.testing.assert_array_equal(y.view(), answer(X))
    assert [(driver.calls - before)[name] for name in COPIES] == [0, 1, 0]
    back = TensorBuffer(running.make_place(1, on_device=True), "float32", (3, 2))
    host = TensorBuffer.create("float32", (2, 3))
    host.write(X + 1)
    before = driver.calls.copy()
    running.run_bound(running.bind([host.place, back.place]))
    assert [(driver.calls - before)[name] for name in COPIES] == [1, 0, 0]
    np.testing.assert_array_equal(back.read(), answer(X + 1))


def test_pinned_memory_is_copied_from_and_to_without_a_stop_between(driver: Library) -> None:
    running = session(driver)
    x, y = (TensorBuffer(running.make_place(number), "float32", shape) for number, shape in enumerate([(2, 3), (3, 2)]))
    assert not x.view().any()
    x.write(X)
    before = driver.calls.copy()
    running.run_bound(running.bind([x.place, y.place]))
    assert (driver.calls - before)["cuMemHostAlloc"] == 0
    np.testing.assert_array_equal(y.view(), answer(X))
    running.close()
    np.testing.assert_array_equal(y.view(), answer(X))


def test_memory_that_kernels_cannot_use_as_it_lies_is_copied_within_the_gpu(driver: Library) -> None:
    running, x = session(driver), GpuArray(X, driver, past=4)
    y = GpuArray(np.zeros((3, 2), np.float32), driver, past=8)
    places = [TensorBuffer.create_from_cuda_array(each).place for each in (x, y)]
    before = driver.calls.copy()
    running.run_bound(running.bind(places))
    np.testing.assert_array_equal(y.read(), answer(X))
    assert [(driver.calls - before)[name] for name in COPIES] == [0, 0, 2]


def test_an_output_may_lie_where_its_input_lies(driver: Library) -> None:
    running, x = session(driver), GpuArray(X, driver)
    place = TensorBuffer.create_from_cuda_array(x).place
    before = driver.calls.copy()
    running.run_bound(running.bind([place, place]))
    assert copies(driver, before) == 1  # the program does not update its input in place
    np.testing.assert_array_equal(x.read().ravel(), answer(X).ravel())
    with pytest.raises(TensorError, match="overlaps"):
        running.bind([place, DevicePlace(running._memory().context, 0, place.address + 8, 24, place)])


def test_an_input_that_a_launch_writes_to_is_not_the_callers(driver: Library) -> None:
    program = scale_and_shift()
    scaling, shifting = program.launches
    first = Launch(
        kernel=1, grid=(1, 1, 1), block=(1, 1, 1), kinds="ppfi", values=(X_OFFSET, X_OFFSET, *shifting.values[2:])
    )
    program.launches = (first, scaling, shifting)
    running, x = session(driver, opened(program)), GpuArray(X, driver)
    y = TensorBuffer.create("float32", (3, 2))
    running.run_bound(running.bind([TensorBuffer.create_from_cuda_array(x).place, y.place]))
    np.testing.assert_array_equal(y.view(), answer(X + np.float32(SHIFT)))
    np.testing.assert_array_equal(x.read(), X)


def test_a_session_keeps_the_graphs_of_the_last_bindings(driver: Library) -> None:
    running, x = session(driver), GpuArray(X, driver)
    outputs = [GpuArray(np.zeros((3, 2), np.float32), driver) for _ in range(MOST_GRAPHS + 1)]
    bindings = [running.bind([TensorBuffer.create_from_cuda_array(each).place for each in (x, y)]) for y in outputs]
    before = driver.calls.copy()
    for binding in (*bindings, *bindings[1:]):
        running.run_bound(binding)
    assert (driver.calls - before)["cuGraphInstantiateWithFlags"] == MOST_GRAPHS + 1
    running.run_bound(bindings[0])
    assert (driver.calls - before)["cuGraphInstantiateWithFlags"] == MOST_GRAPHS + 2
    assert (driver.calls - before)["cuGraphExecDestroy"] == 2
    for y in outputs:
        np.testing.assert_array_equal(y.read(), answer(X))


@pytest.mark.parametrize("stream", [LEGACY_STREAM, 2, "own"])
def test_runs_follow_the_producers_stream(stream: Any, driver: Library) -> None:
    running, plain = session(driver), GpuArray(X, driver)
    if stream == "own":
        with plain:
            stream = own = Driver(driver).create_stream()
    work: Stream = driver._find(stream, Stream)
    work.pending.append(lambda: driver.memory.write(plain.address, (X + 1).tobytes()))
    plain._changes = {"stream": stream}
    x = TensorBuffer.create_from_cuda_array(plain)
    y = TensorBuffer.create("float32", (3, 2))
    binding = running.bind([x.place, y.place])
    assert work.pending
    running.run_bound(binding)
    np.testing.assert_array_equal(y.view(), answer(X + 1))
    work.pending.append(lambda: driver.memory.write(plain.address, (X + 2).tobytes()))
    running.run_bound(binding)  # only the default stream is there for good
    np.testing.assert_array_equal(y.view(), answer(X + (2 if stream == LEGACY_STREAM else 1)))
    work.pending.clear()
    if stream > 2:
        with plain:
            Driver(driver).destroy_stream(own)


def test_dlpacks_producers_are_told_to_let_the_default_stream_wait(driver: Library) -> None:
    new, old = DlpackArray(X, driver), OldDlpackArray(X, driver)
    for each in (new, old):
        TensorBuffer.create_from_dlpack(each)
    assert new.asked == [{"stream": LEGACY_STREAM, "max_version": (1, 1)}] and old.asked == [{"stream": LEGACY_STREAM}]


def orders(driver: Library) -> list[tuple[str, int]]:
    """From now on, the calls that order streams, as (function, stream)."""
    told: list[tuple[str, int]] = []
    for name, at in (("cuEventRecord", 1), ("cuStreamWaitEvent", 0), ("cuStreamSynchronize", 0)):
        call = getattr(driver, name)
        setattr(driver, name, lambda *given, n=name, a=at, c=call: (told.append((n, given[a])), c(*given))[1])
    return told


@pytest.mark.parametrize(("consumer", "waits"), [(None, [1]), (1, [1]), (2, [2]), ("own", ["own"]), (-1, [])])
def test_consumers_of_shared_memory_follow_its_producer(consumer: Any, waits: list[Any], driver: Library) -> None:
    """By events alone: nobody waits on the host."""
    plain = GpuArray(X, driver)
    with plain:
        producer, own = (Driver(driver).create_stream() for _ in range(2))
    driver._find(producer, Stream).pending.append(lambda: driver.memory.write(plain.address, (X + 1).tobytes()))
    plain._changes = {"stream": producer}
    buffer, told = TensorBuffer.create_from_cuda_array(plain), orders(driver)
    capsule = buffer.__dlpack__(stream=own if consumer == "own" else consumer)
    assert told == [("cuStreamWaitEvent", own if stream == "own" else stream) for stream in waits]
    told.clear()
    assert buffer.__cuda_array_interface__["stream"] == 1 and told == [("cuStreamWaitEvent", 1)]
    for stream in waits:
        with plain:
            Driver(driver).synchronize(own if stream == "own" else stream)
        np.testing.assert_array_equal(plain.read(), X + 1)
    del capsule
    with plain:
        Driver(driver).synchronize(1)
        for stream in (producer, own):
            Driver(driver).destroy_stream(stream)


def test_a_consumer_on_no_stream_is_refused_and_our_own_memory_needs_no_order(driver: Library) -> None:
    running = session(driver)
    buffer, told = TensorBuffer(running.make_place(0, on_device=True), "float32", (2, 3)), orders(driver)
    with pytest.raises(BufferError, match="the consumer's stream is 0, which DLPack does not allow"):
        buffer.__dlpack__(stream=0)
    buffer.__dlpack__(stream=2)
    assert buffer.__cuda_array_interface__["stream"] is None and told == []


def test_a_run_while_the_default_stream_cannot_be_followed_is_refused(driver: Library) -> None:
    running, x = session(driver), GpuArray(X, driver, stream=LEGACY_STREAM)
    buffer = TensorBuffer.create_from_cuda_array(x)
    binding = running.bind([buffer.place, TensorBuffer.create("float32", (3, 2)).place])
    driver.fail("cuStreamIsCapturing", 906)
    with pytest.raises(DeviceError, match="a CUDA graph is being captured"):
        running.run_bound(binding)
    running.run_bound(binding)


def test_memory_that_no_run_can_use_is_refused_in_a_sentence(driver: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    running, elsewhere = session(driver), GpuArray(X, driver, gpu=1)
    there = TensorBuffer.create_from_cuda_array(elsewhere)
    y = TensorBuffer.create("float32", (3, 2))
    assert there.place.gpu == 1 and repr(there) == "TensorBuffer(float32[2, 3], GPU 1)"
    with pytest.raises(
        TensorError, match="tensor 'x' lies on GPU 1, expected GPU 0, where the model runs, or the host"
    ):
        running.bind([there.place, y.place])
    with pytest.raises(DeviceError, match="is no address of GPU memory of this process"):
        TensorBuffer.create_from_cuda_array(GpuArray(X, driver, data=(64, False)))
    mine = GpuArray(X, driver)
    with monkeypatch.context() as patched:
        patched.setattr(Driver, "pointer_attribute", lambda driver, fact, _: {1: 0xD0, 2: 2, 9: 0}[fact])
        with pytest.raises(DeviceError, match="belongs to another CUDA context, expected the primary one of GPU 0"):
            TensorBuffer.create_from_cuda_array(mine)
    readonly = TensorBuffer.create_from_cuda_array(GpuArray(X.reshape(3, 2), driver, data=(mine.address, True)))
    with pytest.raises(TensorError, match="the memory of output 'y' is read-only"):
        running.bind([y.place, readonly.place])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mask": object()}, "masked"),
        ({"strides": (4, 8)}, r"strides \[4, 8\] in bytes, expected contiguous"),
        ({"typestr": "<V2"}, "'<V2', expected numbers"),
        ({"typestr": ">f4"}, "'>f4', expected numbers"),
        ({"stream": 0}, "stream is 0"),
    ],
)
def test_arrays_that_cannot_be_taken_are_told(changes: dict[str, Any], reason: str, driver: Library) -> None:
    with pytest.raises(TensorError, match=reason):
        TensorBuffer.create_from_cuda_array(GpuArray(X, driver, **changes))
    with pytest.raises(TensorError, match="expected an object with __cuda_array_interface__"):
        TensorBuffer.create_from_cuda_array(X)
    assert TensorBuffer.create_from_cuda_array(GpuArray(X, driver, strides=(12, 4))).shape == (2, 3)


@pytest.mark.parametrize("shape", [(0, 3), ()])
def test_arrays_without_elements_or_axes_are_taken(shape: tuple[int, ...], driver: Library) -> None:
    values = np.ones(shape, np.int64)
    changes = {} if values.size else {"data": (0, False)}
    buffer = TensorBuffer.create_from_cuda_array(GpuArray(values, driver, **changes))
    assert (buffer.shape, buffer.dtype) == (shape, "int64")
    np.testing.assert_array_equal(buffer.read(), values)


def test_a_buffer_on_the_gpu_is_read_written_and_described(driver: Library) -> None:
    x = GpuArray(X, driver)
    buffer = TensorBuffer.create_from_cuda_array(x)
    np.testing.assert_array_equal(buffer.read(), X)
    assert buffer.read(2, np.float32).tolist() == [0, 1]
    buffer.write(X + 1)
    np.testing.assert_array_equal(x.read(), X + 1)
    assert buffer.__dlpack_device__() == (2, 0)
    described = buffer.__cuda_array_interface__
    assert described["data"] == (x.address, False) and described["typestr"] == "<f4" and described["shape"] == (2, 3)
    for use in (buffer.view, lambda: np.asarray(buffer)):
        with pytest.raises(TensorError, match=r"lies on GPU 0, where numpy does not reach it; read\(\) copies it"):
            use()
    on_host = np.from_dlpack(buffer, device="cpu")
    np.testing.assert_array_equal(on_host, X + 1)
    half = TensorBuffer.create_from_dlpack(buffer.__dlpack__(dl_device=(1, 0)))
    assert half.place.gpu < 0


def test_the_array_lives_as_long_as_buffers_and_bindings_need_it(driver: Library) -> None:
    running = session(driver)
    x, y = TensorBuffer.create_from_dlpack(DlpackArray(X, driver)), TensorBuffer.create("float32", (3, 2))
    binding = running.bind([x.place, y.place])
    capsule = x.__dlpack__()
    x.destroy()
    gc.collect()
    running.run_bound(binding)
    np.testing.assert_array_equal(y.view(), answer(X))
    del binding
    again = TensorBuffer.create_from_dlpack(capsule)
    np.testing.assert_array_equal(again.read(), X)


def test_an_opengl_buffer_is_mapped_for_runs_alone(driver: Library) -> None:
    running = session(driver)
    driver.gl_buffers = {7: GlBuffer(bytes(8) + X.tobytes()), 8: GlBuffer(bytes(100))}
    x = TensorBuffer.create_from_gl_buffer(0x90D2, 7, "float32", (2, 3), size_bytes=24, offset=8)
    y = TensorBuffer.create_from_gl_buffer(0x90D2, 8, "float32", (3, 2), offset=16)
    binding = running.bind([x.place, y.place])
    before = driver.calls.copy()
    running.run_bound(binding)
    np.testing.assert_array_equal(np.frombuffer(driver.gl_buffers[8].content[16:40], np.float32), answer(X).ravel())
    assert [(driver.calls - before)[name] for name in COPIES] == [0, 0, 1]  # eight bytes past an aligned address
    assert not any(buffer.address for buffer in driver.gl_buffers.values())
    np.testing.assert_array_equal(y.read(), answer(X))
    x.write(X + 1)
    running.run_bound(binding)
    np.testing.assert_array_equal(y.read(), answer(X + 1))
    with pytest.raises(BufferError, match="an OpenGL buffer has an address only during runs"):
        x.__dlpack__()
    assert not hasattr(x, "__cuda_array_interface__")
    long = TensorBuffer.create_from_gl_buffer(0x90D2, 8, "float32", (26,))
    with pytest.raises(DeviceError, match="the OpenGL buffer has 100 bytes, expected 104"):
        long.read()
    with pytest.raises(TensorError, match="a tensor of 24 bytes is to lie in 20 bytes"):
        TensorBuffer.create_from_gl_buffer(0x90D2, 8, "float32", (2, 3), size_bytes=20)
    with pytest.raises(DeviceError, match="cuGraphicsGLRegisterBuffer failed"):
        TensorBuffer.create_from_gl_buffer(0x90D2, 9, "float32", (2, 3))


@pytest.mark.parametrize(
    "name", ["cuGraphicsMapResources", "cuStreamBeginCapture_v2", "cuLaunchKernel", "cuStreamSynchronize"]
)
def test_a_run_that_fails_leaves_the_binding_usable(name: str, driver: Library) -> None:
    running = session(driver)
    driver.gl_buffers = {7: GlBuffer(X.tobytes()), 8: GlBuffer(bytes(24))}
    places = [TensorBuffer.create_from_gl_buffer(0x90D2, n, "float32", (2, 3)).place for n in (7, 8)]
    binding = running.bind(places)
    driver.fail(name, INVALID_VALUE, after=1 if "Map" in name else 0)
    try:
        running.run_bound(binding)
    except DeviceError as error:
        assert name in str(error)
    assert not driver.live[running._stream].pending or "Map" in name
    running.run_bound(binding)
    np.testing.assert_array_equal(np.frombuffer(driver.gl_buffers[8].content, np.float32), answer(X).ravel())


def test_a_model_on_the_cpu_takes_buffers_on_a_gpu_by_way_of_the_host(driver: Library) -> None:
    running, x, y = Session(opened(tiny_program())), GpuArray(X, driver), GpuArray(np.zeros((3, 2), np.float32), driver)
    running.run_bound(running.bind([TensorBuffer.create_from_cuda_array(each).place for each in (x, y)]))
    np.testing.assert_array_equal(y.read().ravel(), X.ravel() * np.float32(TINY_SCALE))
    running.close()


def test_a_session_takes_arrays_on_its_gpu_as_inputs(driver: Library) -> None:
    running, x = session(driver), GpuArray(X, driver, stream=LEGACY_STREAM)
    before = driver.calls.copy()
    for turn in range(3):
        driver.memory.write(x.address, (X + turn).tobytes())
        (found,) = running.run([x])
        np.testing.assert_array_equal(np.asarray(found), answer(X + turn))
    assert [(driver.calls - before)[name] for name in COPIES] == [0, 1, 3]  # that of the output is in the graph
    assert (driver.calls - before)["cuGraphInstantiateWithFlags"] == 1
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), answer(X))
    with pytest.raises(TensorError, match=r"tensor 'x': found float32\[3, 2\], expected float32\[2, 3\]"):
        running.run([GpuArray(X.reshape(3, 2), driver)])
    with pytest.raises(DeviceError, match="memory of GPU 1, expected GPU 0"):
        running.run([GpuArray(X, driver, gpu=1)])
    given = TensorBuffer(running.make_place(1, on_device=True), "float32", (3, 2))
    before = driver.calls.copy()
    assert run_into(running, [x], [given]) == (given,)
    assert copies(driver, before) == 0
    np.testing.assert_array_equal(given.read(), answer(X + 2))


def test_threads_of_the_caller_take_turns_with_bindings_of_their_own(driver: Library) -> None:
    running = session(driver)

    def work(number: int) -> bool:
        x, y = GpuArray(X + number, driver), GpuArray(np.zeros((3, 2), np.float32), driver)
        binding = running.bind([TensorBuffer.create_from_cuda_array(each).place for each in (x, y)])
        for _ in range(10):
            running.run_bound(binding)
        return np.array_equal(y.read(), answer(X + number))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_a_forked_child_gives_nothing_back_and_is_told(driver: Library) -> None:
    running, x = session(driver), GpuArray(X, driver)
    place = TensorBuffer.create_from_cuda_array(x).place
    y = TensorBuffer(running.make_place(1), "float32", (3, 2))
    binding, unused = running.bind([place, y.place]), TensorBuffer(running.make_place(1), "float32", (3, 2))
    child = os.fork()
    if child == 0:
        before, told = driver.calls.copy(), 0
        for use in (lambda: running.run_bound(binding), lambda: running.make_place(1)):
            try:
                use()
            except DeviceError as error:
                told += "CUDA does not survive that" in str(error)
        unused.destroy()
        os._exit(0 if told == 2 and driver.calls == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    running.run_bound(binding)
    np.testing.assert_array_equal(y.view(), answer(X))


def test_memory_of_a_gpu_that_was_reset_is_refused(driver: Library) -> None:
    running, x = session(driver), GpuArray(X, driver)
    place = TensorBuffer.create_from_cuda_array(x).place
    running.close()
    lost = driver.live.pop(x.start)
    driver.reset()
    fresh = session(driver)
    with pytest.raises(DeviceError, match="the memory of tensor 'x' was lost when another library reset the GPU"):
        fresh.bind([place, TensorBuffer.create("float32", (3, 2)).place])
    driver.live[x.start] = lost


def test_ctypes_arrays_lie_where_the_driver_says(driver: Library) -> None:
    room = ctypes.create_string_buffer(24)
    running = session(driver)
    place = Place(ctypes.addressof(room), 24, room)
    running.run_bound(running.bind([place, TensorBuffer.create("float32", (3, 2)).place]))
    assert driver.calls["cuMemHostAlloc"] == 2
