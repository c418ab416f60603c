"""Sessions of programs in partitions: what crosses, what is damaged, what is closed, and LiteRT changing its mind."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.errors import DeviceError, ProgramError, TensorError
from jitdelegate.program.program import Partition, Program
from jitdelegate.runtime import partitioned_session as hybrid_session
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.partitioned_session import PartitionedSession
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial

Change = Callable[[Program], None]


@pytest.fixture(autouse=True)
def in_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    partial.choose_loader(monkeypatch, "partitions")


def program_of(content: bytes, **options: Any) -> Program:
    with jitdelegate.load(content, options=partial.options(**options)) as model:
        program = model._opened.program
    assert program.loader == "partitions"
    return program


def opened(program: Program) -> PartitionedSession:
    return PartitionedSession(program, lambda each: Session(each, 1))


@pytest.fixture
def program() -> Program:
    """cpu, litert, cpu, litert, cpu; f32[1,4] to two outputs."""
    return program_of(partial.alternating())


@pytest.fixture
def session(program: Program) -> Iterator[PartitionedSession]:
    made = opened(program)
    yield made
    made.close()


def answers(session: PartitionedSession, content: bytes, count: int = 3) -> None:
    rounds = partial.rounds_for(content, count)
    found = [[np.asarray(each) for each in session.run(values)] for values in rounds]
    partial.assert_same(found, partial.expected(content, rounds))


def test_it_runs_partition_after_partition(session: PartitionedSession) -> None:
    answers(session, partial.alternating())


def test_a_partition_of_litert_s_is_what_was_hashed_whatever_its_file_holds_then(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = next(each for each in program.partitions if each.place == hybrid_session.LITERT)
    ports = {port.index: port for port in (*program.inputs, *program.outputs, *program.between)}
    content, real = bytearray(program.content(partition)), hybrid_session.xxh3_128_hexdigest

    def hash_and_change(hashed: bytes) -> str:
        found = str(real(hashed))
        content[:] = bytes(len(content))
        return found

    monkeypatch.setattr(hybrid_session, "xxh3_128_hexdigest", hash_and_change)
    own = [ports[index] for index in (*partition.inputs, *partition.outputs)]
    hybrid_session._LiteRT(partition, memoryview(content), own, 1).close()


def test_inputs_are_checked_as_in_every_session(session: PartitionedSession) -> None:
    with pytest.raises(TensorError, match="2 inputs were given, expected 1"):
        session.run([np.zeros((1, 4), np.float32)] * 2)
    with pytest.raises(TensorError):
        session.run([np.zeros((1, 5), np.float32)])
    answers(session, partial.alternating())


def test_the_caller_s_memory_may_lie_anywhere(session: PartitionedSession) -> None:
    content = partial.alternating()
    ((values,),) = partial.rounds_for(content, 1)
    (wanted,) = partial.expected(content, [[values]])
    room = (ctypes.c_char * 256)()
    start = ctypes.addressof(room) + 4  # aligned for a float alone
    ctypes.memmove(start, values.tobytes(), values.nbytes)
    session.run_on([start, start + 64, start + 128])
    for offset, output in ((64, wanted[0]), (128, wanted[1])):
        found = np.frombuffer(ctypes.string_at(start + offset, output.nbytes), np.float32).reshape(output.shape)
        np.testing.assert_allclose(found, output, rtol=1e-5)
    assert ctypes.string_at(start, values.nbytes) == values.tobytes()


def test_one_output_twice_is_written_twice() -> None:
    model = ModelBuilder()
    soft = model.op("NEG", [model.op("TANH", [model.input((3,))], (3,))], (3,))
    model.output(soft, soft)
    content = model.finish()
    answers(opened(program_of(content)), content)


def test_persistent_memory_is_read_and_written(session: PartitionedSession) -> None:
    content = partial.alternating()
    for values in partial.rounds_for(content, 2):
        session.set_input(0, values[0])
        session.invoke()
        found = [np.asarray(session.output_memory(position)) for position in range(2)]
        partial.assert_same([found], partial.expected(content, [values]))


def test_threads_may_share_it(session: PartitionedSession) -> None:
    content = partial.alternating()
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        rounds = partial.rounds_for(content, 30, seed)
        try:
            found = [[np.asarray(each) for each in session.run(values)] for values in rounds]
            partial.assert_same(found, partial.expected(content, rounds))
        except BaseException as error:  # noqa: BLE001 - it belongs to the test, not to the thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_fork_during_a_run_leaves_the_child_usable(session: PartitionedSession) -> None:
    given = np.ones((1, 4), np.float32)
    wanted = [bytes(output) for output in session.run([given])]
    with session._own_lock():  # as a run in another thread holds it
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if [bytes(output) for output in session.run([given])] == wanted else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_closed_one_refuses_and_closing_again_is_harmless(program: Program) -> None:
    session = opened(program)
    session.close()
    session.close()
    with pytest.raises(DeviceError, match="closed"):
        session.run([np.zeros((1, 4), np.float32)])


def test_memory_goes_with_the_last_reference(program: Program) -> None:
    session = opened(program)
    own = list(session._memories)
    assert all(memory.address for memory in own)
    del session
    assert own
    assert not any(memory.address for memory in own)


def test_states_are_those_of_the_partitions() -> None:
    content = partial.remembering()
    program = program_of(content)
    assert [state.name for state in program.states] == ["hidden", "cell"]
    session = opened(program)
    rounds = partial.rounds_for(content, 3)
    first = [np.asarray(each).tobytes() for each in session.run(rounds[0])]
    kept = [session.read_state(place) for place in range(2)]
    second = [np.asarray(each).tobytes() for each in session.run(rounds[1])]
    for place, content_of_state in enumerate(kept):
        assert session.read_state(place) != content_of_state
        session.write_state(place, content_of_state)
    assert [np.asarray(each).tobytes() for each in session.run(rounds[1])] == second
    session.reset_states(resources=False)
    assert session.read_state(0) == bytes(len(kept[0]))
    assert [np.asarray(each).tobytes() for each in session.run(rounds[0])] == first


def test_a_run_that_fails_leaves_states_as_they_were_in_the_partitions_before_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(places: object) -> bool:
        raise DeviceError("no luck")

    content = partial.remembering()
    session = opened(program_of(content))
    rounds = partial.rounds_for(content, 2)
    session.run(rounds[0])
    kept = [session.read_state(place) for place in range(2)]
    assert len(session._partitions) > 1 and session._sessions()[0] is session._states[0][0]
    with monkeypatch.context() as patch:
        patch.setattr(session._partitions[-1], "run", refuse)
        with pytest.raises(DeviceError, match="no luck"):
            session.run(rounds[1])
    assert [session.read_state(place) for place in range(2)] == kept


def partition_with(partition: Partition, **changes: Any) -> Partition:
    return partition.altered(**changes)


def replaced(number: int, **changes: Any) -> Change:
    def change(program: Program) -> None:
        partitions = list(program.partitions)
        partitions[number] = partition_with(partitions[number], **changes)
        program.partitions = tuple(partitions)

    return change


def flipped(number: int, place: int) -> Change:
    def change(program: Program) -> None:
        partition, content = program.partitions[number], bytearray(program.weights)
        content[partition.offset + place % partition.nbytes] ^= 1
        program.weights = bytes(content)

    return change


def swapped(program: Program) -> None:
    first, second, third, *rest = program.partitions
    places = {"offset": third.offset, "nbytes": third.nbytes}
    program.partitions = (partition_with(first, **places), second, third, *rest)


def backwards(program: Program) -> None:
    program.partitions = program.partitions[::-1]


def stateful(program: Program) -> None:
    program.states = program_of(partial.remembering()).states


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (replaced(0, inputs=(99,)), "tensor 99, which is described nowhere"),
        (replaced(1, outputs=(77,)), "tensor 77, which is described nowhere"),
        (replaced(1, hash="0" * 32), "hash [0-9a-f]{32}, expected 0{32}"),
        (flipped(1, 100), "hash"),
        (flipped(3, -1), "hash"),
        (flipped(0, 0), "not a program"),
        (flipped(2, 60), "hash"),
        (swapped, "a partition has the tensors"),
        (backwards, "read before a partition has written it"),
        (replaced(1, inputs=(3, 3)), r"a partition on LiteRT has \(1, 1\) inputs and outputs, expected \(2, 1\)"),
        (stateful, "the partitions have 0 states, expected 2"),
    ],
)
def test_partitions_that_are_damaged_or_do_not_fit_are_refused(program: Program, change: Change, words: str) -> None:
    made: list[Session] = []

    def counted(each: Program) -> Session:
        made.append(Session(each, 1))
        return made[-1]

    change(program)
    with pytest.raises(ProgramError, match=words):
        PartitionedSession(program, counted)
    for each in made:
        with pytest.raises(DeviceError, match="closed"):
            each.read_state(0)


def test_weights_are_hashed_before_the_first_result(program: Program) -> None:
    flipped(0, -1)(program)  # a program's file ends with its weights
    session = opened(program)
    given, outputs = np.ones((1, 4), np.float32), np.full((2, 4), 7, np.float32)
    with pytest.raises(ProgramError, match="weights"):
        session.run_on([given.ctypes.data, *(row.ctypes.data for row in outputs)])
    assert (outputs == 7).all()
    with pytest.raises(ProgramError, match="weights"):
        session.verify()


def test_litert_s_shape_that_is_another_than_the_program_s_is_refused(program: Program) -> None:
    between = list(program.between)
    (port,) = (port for port in (*program.outputs, *between) if port.index == program.partitions[1].outputs[0])
    port.shape = (4, 1)
    with pytest.raises((DeviceError, ProgramError), match="expected"):
        opened(program)


class Refusing:
    """LiteRT's interpreter, whose XNNPACK refuses the first run."""

    def __init__(self, interpreter: Any, words: str) -> None:
        self._interpreter = interpreter
        self._words = words

    def __getattr__(self, name: str) -> Any:
        return getattr(self._interpreter, name)

    def invoke(self) -> None:
        raise RuntimeError(self._words)


def refuse(session: PartitionedSession, number: int, words: str) -> None:
    fallback = session._partitions[number]._fallback  # type: ignore[union-attr]
    fallback.interpreter = Refusing(fallback.interpreter, words)


@pytest.mark.parametrize("numbers", [(1,), (3,), (1, 3)])
def test_a_partition_that_xnnpack_refuses_as_it_runs_goes_on_without(
    session: PartitionedSession, numbers: tuple[int, ...]
) -> None:
    for number in numbers:
        refuse(session, number, "Node 0 (XNNPack) failed to invoke")
    answers(session, partial.alternating(), 5)


def test_tensors_without_dimensions_survive_that_too() -> None:
    model = ModelBuilder()
    total = model.op("TANH", [model.input((), name="x")], ())
    less = model.op("NEG", [total], ())
    model.output(model.op("MUL", [less, total], ()), model.op("NEG", [less], ()))
    content = model.finish()
    session = opened(program_of(content))
    answers(session, content)
    refuse(session, 1, "XNNPack")
    answers(session, content)


def test_what_litert_cannot_run_at_all_is_an_error_in_its_words(session: PartitionedSession) -> None:
    refuse(session, 1, "no such luck")
    with pytest.raises(DeviceError, match="LiteRT cannot run this model: no such luck"):
        session.run([np.zeros((1, 4), np.float32)])


def test_a_result_of_litert_without_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitdelegate.passes.delegation.unsure_tensors", lambda graph: set())
    model = ModelBuilder()
    soft = model.op("TANH", [model.input((4,))], (4,))
    above = model.op("GREATER", [soft, model.constant(np.float32(0))], (4,), dtype="bool")
    for rows in (0, 1):
        found = model.op("WHERE", [above], (rows, 1), dtype="int64")
        model.output(soft, found)
        with jitdelegate.load(model.finish(), options=partial.options()) as loaded:
            assert loaded.report().target == "litert"
            assert "shape of" in loaded.report().operators[0].reason
