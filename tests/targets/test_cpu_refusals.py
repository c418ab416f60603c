"""Status words of compiled code: on every level, by many threads, of the first operator that refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest

from jitdelegate.errors import RefusedValueError
from jitdelegate.program.program import MOST_REFUSALS, Program
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.status import FOUND_BITS, LARGEST_FOUND, formats, refusal
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.write import ModelBuilder
from tests.api.refusing_models import REFUSING, built
from tests.targets.execute import program_of, run
from tests.targets.levels import RUNNABLE
from tests.targets.test_cuda_refusals import graph_of

ROWS, COUNT = 300, 4000


def session_of(content: bytes, features: str, threads: int = 1) -> Session:
    graph = graph_of(content)
    return Session(program_of(graph, generate(graph, features), features), threads)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize(
    "name", ["GATHER int64", "GATHER of bytes", "GATHER_ND", "SCATTER_ND", "UNSORTED_SEGMENT_MAX", "DIV int8"]
)
def test_every_level_refuses(name: str, features: str) -> None:
    case, session = REFUSING[name], session_of(REFUSING[name].content, features)
    for bad in case.bad:
        with pytest.raises(RefusedValueError, match=re.escape(case.words)):
            session.run(case.inputs(bad))
        session.run(case.good)
    session.close()


def many() -> bytes:
    """Rows gathered twice: at the places in the third input, then at those in the second."""

    def build(model: ModelBuilder) -> int:
        rows, second = model.input((ROWS, 40)), model.input((COUNT,), "int32")
        first = model.input((COUNT,), "int32")
        found = model.op("GATHER", [rows, first], (COUNT, 40), options={"axis": 0})
        return model.op("GATHER", [found, second], (COUNT, 40), options={"axis": 0})

    return built(build)


@pytest.mark.parametrize("place", [0, 1, COUNT // 2, COUNT - 2, COUNT - 1])
def test_one_index_among_thousands_is_found_by_any_thread(place: int) -> None:
    session = session_of(many(), RUNNABLE[0], 3)
    dice = np.random.default_rng(0)
    rows, second = dice.normal(size=(ROWS, 40)).astype(np.float32), np.arange(COUNT, dtype=np.int32)
    first = dice.integers(0, ROWS, COUNT).astype(np.int32)
    (expected,) = run_graph(graph_of(many()), [rows, second, first])
    for _ in range(5):
        wrong = first.copy()
        wrong[place] = ROWS + 7
        with pytest.raises(RefusedValueError, match=r"found 307, expected an index from 0 to 299 \(operator 0"):
            session.run([rows, second, wrong])
        np.testing.assert_array_equal(np.array(session.run([rows, second, first])[0]), expected)
    session.close()


def test_the_first_operator_that_refuses_is_told() -> None:
    session = session_of(many(), RUNNABLE[0])
    rows, good, bad = np.ones((ROWS, 40), np.float32), np.zeros(COUNT, np.int32), np.full(COUNT, -5, np.int32)
    for second, first, operator in ((bad, good, 1), (good, bad, 0), (bad, bad, 0)):
        with pytest.raises(RefusedValueError, match=rf"\(operator {operator}, GATHER\)"):
            session.run([rows, second, first])
    session.close()


def test_a_scatter_of_panels_and_rows_finds_indices_in_the_table_of_a_matrix() -> None:
    """Tokens whose table is a matrix as well: it is read from the panels of the product."""

    def build(model: ModelBuilder) -> int:
        table = model.constant(np.arange(150 * 23, dtype=np.float32).reshape(150, 23))
        places = model.input((8,), "int32")
        rows = model.op("GATHER", [table, places], (8, 23), options={"axis": 0})
        data = model.input((60, 23))
        scores = model.op("FULLY_CONNECTED", [data, table, None], (60, 150))
        model.output(scores)
        return rows

    session, good = session_of(built(build), RUNNABLE[0]), np.arange(8, dtype=np.int32)
    data = np.zeros((60, 23), np.float32)
    for bad in (150, -1):
        with pytest.raises(RefusedValueError, match=f"found {bad}, expected an index from 0 to 149"):
            session.run([np.where(good == 5, bad, good).astype(np.int32), data])
    session.run([good, data])
    session.close()


@pytest.mark.parametrize("found", [0, 5, -1, LARGEST_FOUND, -LARGEST_FOUND])
@pytest.mark.parametrize("number", [1, 2])
def test_a_status_word_has_a_sentence_and_a_number(number: int, found: int) -> None:
    program = Program(key=(), target="cpu", refusals=("one: {}", "100 % of {}, {}"))
    word = (number << FOUND_BITS) | (found & ((1 << FOUND_BITS) - 1))
    assert str(refusal(program, word)) == program.refusals[number - 1].replace("{}", str(found))
    assert formats(program.refusals)[1] == b"jitdelegate: 100 %% of %lld, {}. \0"


def test_a_word_without_a_sentence_is_an_error_all_the_same() -> None:
    word = MOST_REFUSALS << FOUND_BITS
    signed = word - (1 << 64)  # as the code returns it
    assert f"reason {MOST_REFUSALS}" in str(refusal(Program(key=(), target="cpu"), signed))


def test_an_index_of_64_bits_is_told_as_the_nearest_number() -> None:
    case = REFUSING["GATHER int64"]
    session = session_of(case.content, RUNNABLE[0])
    with pytest.raises(RefusedValueError, match=f"found {LARGEST_FOUND}"):
        session.run(case.inputs(np.full(4, (1 << 63) - 1)))
    with pytest.raises(RefusedValueError, match=f"found {-LARGEST_FOUND}"):
        session.run(case.inputs(np.full(4, -(1 << 63))))
    session.close()


def test_programs_that_refuse_nothing_have_no_status_word() -> None:
    graph = graph_of(built(lambda model: model.op("NEG", [model.input((4, 4))], (4, 4))))
    made = generate(graph, RUNNABLE[0])
    assert made.refusals == () and b"\0" in made.code
    (found,) = run(Session(program_of(graph, made, RUNNABLE[0])), graph, [np.ones((4, 4), np.float32)])
    assert found.tolist() == (-np.ones((4, 4))).tolist()
