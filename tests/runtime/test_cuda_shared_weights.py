"""Programs of one model on a GPU: what a further program has in common with the main one is uploaded once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jitdelegate.errors import ProgramError
from jitdelegate.program.program import Launch, Program
from jitdelegate.program.write import parts
from jitdelegate.runtime.cache.key import Key, KeyParts, model_key, this_machine, variant_parts
from jitdelegate.runtime.cache.store import open_store
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.driver import Driver
from jitdelegate.runtime.cuda.session import CudaSession
from tests.gpu.stub.library import Library
from tests.gpu.stub.programs import SHIFT, X, scale_and_shift

PAGE, PAGES = 4096, 20
FIRST, SECOND, OWN = (np.full(PAGES * PAGE // 4, value, np.float32).tobytes() for value in (3, 5, 7))
SMALL = np.full(PAGE // 4, 2, np.float32).tobytes()


def key(subgraph: int) -> Key:
    own = KeyParts("cuda", "sm_90", "cubin", this_machine(), toolchain="")
    return model_key("0" * 32, own, options=variant_parts(subgraph))


def program(subgraph: int, constants: list[bytes], scale: int) -> Program:
    """y = x * (the first number of constant `scale`) + SHIFT."""
    places = [sum(map(len, constants[:number])) // PAGE for number in range(len(constants))]
    large = [(place, len(each) // PAGE) for place, each in zip(places, constants, strict=True) if len(each) > PAGE]
    first, second = scale_and_shift().launches
    values = (*first.values[:2], places[scale] * PAGE, first.values[3])
    launch = Launch(kernel=0, grid=first.grid, block=first.block, kinds=first.kinds, values=values)
    return scale_and_shift(
        key=key(subgraph).parts,
        weights=b"".join(constants),
        launches=(launch, second),
        large_constants=tuple(number for pair in large for number in pair),
    )


def stored(folder: Path, subgraph: int, made: Program) -> Program:
    """The program from its entry."""
    store = open_store(str(folder))
    sources = store.weight_sources(key(subgraph))
    found = store.fetch(key(subgraph), lambda: parts(made, sources)).program
    assert found is not None
    return found


@pytest.fixture
def main(tmp_path: Path) -> Program:
    return stored(tmp_path, 0, program(0, [FIRST, SECOND], 1))


def session(driver: Library, made: Program) -> CudaSession:
    return CudaSession(made, Device(Driver(driver), 0))


def uploaded(driver: Library, made: Program) -> tuple[CudaSession, int]:
    """A session, and the bytes of weights that its opening copied."""
    before, real = [], Driver.upload
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "upload", lambda *named: (before.append(named[3]), real(*named))[1])
        running = session(driver, made)
    return running, sum(nbytes for nbytes in before if nbytes >= PAGE)


@pytest.mark.parametrize(("scale", "factor"), list(enumerate((7, 5, 2, 3))))
def test_a_further_program_uploads_what_the_main_one_lacks(
    tmp_path: Path, driver: Library, main: Program, scale: int, factor: int
) -> None:
    further = stored(tmp_path, 1, program(1, [OWN, SECOND, SMALL, FIRST], scale))
    assert len(further.shared) == 2
    first, all_of_main = uploaded(driver, main)
    second, rest = uploaded(driver, further)
    assert (all_of_main, rest) == (2 * PAGES * PAGE, (PAGES + 1) * PAGE)
    again, nothing = uploaded(driver, further)
    assert nothing == 0
    first.close()  # what is shared stays
    for running in (second, again):
        np.testing.assert_array_equal(np.asarray(running.run([X])[0]).ravel(), X.ravel() * factor + SHIFT)
        running.close()
    assert driver.leaks() == []


def test_without_the_main_program_on_the_device_all_is_uploaded(tmp_path: Path, driver: Library, main: Program) -> None:
    further = stored(tmp_path, 1, program(1, [OWN, SECOND], 1))
    running, nbytes = uploaded(driver, further)
    assert nbytes == 2 * PAGES * PAGE
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]).ravel(), X.ravel() * 5 + SHIFT)
    running.close()
    session(driver, main).close()
    assert uploaded(driver, further)[1] == 2 * PAGES * PAGE


def test_a_constant_of_which_a_part_is_equal_is_uploaded_whole(tmp_path: Path, driver: Library, main: Program) -> None:
    other = OWN[: 2 * PAGE] + SECOND[2 * PAGE :]
    further = stored(tmp_path, 1, program(1, [other, FIRST], 0))
    assert sum(pages for *_, pages in further.shared) == 2 * PAGES - 2
    first = session(driver, main)
    running, nbytes = uploaded(driver, further)
    assert nbytes == PAGES * PAGE
    first.close()
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]).ravel(), X.ravel() * 7 + SHIFT)


def test_damaged_weights_are_refused_though_the_device_has_the_right_ones(
    tmp_path: Path, driver: Library, main: Program
) -> None:
    further = stored(tmp_path, 1, program(1, [OWN, SECOND], 1))
    weights = bytearray(further.weights)
    weights[PAGES * PAGE] ^= 1
    further.weights = bytes(weights)
    running = session(driver, main)
    with pytest.raises(ProgramError, match="weights: hash"):
        session(driver, further)
    running.close()
    assert driver.leaks() == []
