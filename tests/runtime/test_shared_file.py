"""A file that is shared with other processes is used as long as nobody changes it, and every change is noticed."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jitdelegate.errors import DeviceError
from jitdelegate.runtime import shared_file as module
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.memory import LARGE_PAGE, TRIES, machine, shared_file, undisturbed
from jitdelegate.runtime.shared_file import SharedFile, keep, share, tells_changes
from tests.child import answer_of
from tests.runtime.tiny import SCALE, opened_from, tiny_program

START = mmap.ALLOCATIONGRANULARITY
CONTENT = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def begins_at_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of any size begin where they can be mapped."""
    monkeypatch.setattr("jitdelegate.program.write.LEAST_PAGES", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file whose content begins after one page."""
    found = tmp_path / "file"
    found.write_bytes(bytes(START) + CONTENT)
    return found


def shared(path: Path, **options: bool) -> SharedFile:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = share([(descriptor, START, os.fstat(descriptor).st_size - START)], **options)
    finally:
        os.close(descriptor)
    if found is None:
        reason = "this file system does not tell changes"
        if not machine():
            reason = "files are shared only where our machine code runs"
        pytest.skip(reason)
    return found


def address(file: SharedFile) -> int:
    return Borrowed(file).address


def resident(file: SharedFile) -> tuple[int, int]:
    """Kilobytes in memory of the process's own, and in the file's, as the system says."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"{address(file):x}-"))
    found = {
        name: int(size.split()[0]) for name, _, size in (line.partition(":") for line in lines[first + 1 : first + 20])
    }
    return found["Anonymous"], found["Rss"] - found["Anonymous"]


def test_the_bytes_are_those_of_the_file_from_the_start_on_and_no_copy(path: Path) -> None:
    file = shared(path)
    view = memoryview(file).cast("B").toreadonly()[5:]
    assert bytes(view) == CONTENT[5:] and shared_file(view) is file
    assert resident(file)[0] == 0 and resident(file)[1] > 0


def test_a_large_file_lies_where_the_system_can_map_large_pages(path: Path) -> None:
    content = np.random.default_rng(0).bytes(LARGE_PAGE * 2 + 5)
    path.write_bytes(bytes(START) + content)
    files = [shared(path) for _ in range(3)]  # neighbours have other addresses
    for file in files:
        at = Borrowed(file.content).address
        assert (at - START) % LARGE_PAGE == 0 and bytes(file.content) == content
        file.unload(file.content[START : 3 * START])
        file.own()
        assert Borrowed(file.content).address == at and bytes(file.content) == content
    assert len(shared(path, by_large_pages=False)) == len(content)


def test_private_bytes_are_shared_with_no_file() -> None:
    assert shared_file(b"bytes") is None
    assert shared_file(memoryview(mmap.mmap(-1, 100))) is None


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"other")
    os.replace(other, path)


def rewrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(path.read_bytes())


def write_through_mapping(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[START] ^= 1


def copy_back_with_times(path: Path) -> None:
    before = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: list[Callable[[Path], object]] = [
    *(rewrite, write_through_mapping, copy_back_with_times, replace, Path.unlink),
    lambda path: os.truncate(path, 0),
    lambda path: os.truncate(path, START + 10),
    lambda path: path.open("ab").write(b"more"),
    lambda path: path.chmod(0o444),
    lambda path: path.touch(),
    lambda path: path.rename(path.with_name("elsewhere")),
    lambda path: path.with_name("link").hardlink_to(path),
]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_happens_to_the_file_is_noticed_once(path: Path, change: Callable[[Path], object]) -> None:
    file = shared(path)
    file.look()
    assert file.changes == 0
    change(path)
    file.look()
    file.look()
    assert (file.changes, file.shared) == (1, True)


def test_reading_the_file_is_no_change(path: Path) -> None:
    file = shared(path)
    assert path.read_bytes()[START:] == bytes(file)
    file.look()
    assert file.changes == 0


def test_a_read_past_the_end_of_a_cut_file_is_a_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shared(path)
    stamp = module._stamp(file._files[0][0])
    os.truncate(path, START)
    assert bytes(file) == bytes(len(CONTENT))
    monkeypatch.setattr(module, "_stamp", lambda descriptor: stamp)  # as where a disk fails: the file is as it was
    file.look()
    assert file.changes == 1


def test_private_bytes_stay_where_they_are_and_as_they_are(path: Path) -> None:
    file = shared(path)
    before = address(file)
    file.own()
    assert (address(file), file.shared, file.changes) == (before, False, 1)
    assert resident(file)[0] > 0 and resident(file)[1] == 0
    os.truncate(path, 0)
    file.look()
    assert bytes(file) == CONTENT and file.changes == 1
    file.own()
    assert file.changes == 1


def test_a_new_stamp_is_taken_when_a_further_change_would_move_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    stamps = path.stat()
    written = max(stamps.st_mtime_ns, stamps.st_ctime_ns)
    monkeypatch.setattr(module.time, "sleep", slept.append)
    for age in (0, 5_000_000, module._TICK, 10 * module._TICK, -module._TICK):
        monkeypatch.setattr(module.time, "time_ns", lambda age=age: written + age)
        shared(path)
    fresh, later = module._TICK / 1e9, (module._TICK - 5_000_000) / 1e9
    assert slept == [*(module._TICKS * [fresh]), *(module._TICKS * [later])]  # the clock stands still here


def test_a_file_system_that_counts_whole_seconds_shares_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared(path)
    found = path.stat()
    whole = SimpleNamespace(st_size=found.st_size, st_mtime_ns=5_000_000_000, st_ctime_ns=6_000_000_000)
    monkeypatch.setattr(module.os, "fstat", lambda _: whole)
    with path.open("rb") as opened:
        assert share([(opened.fileno(), START, len(CONTENT))]) is None


def test_a_file_system_that_does_not_tell_changes_shares_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared(path)
    monkeypatch.setattr(module, "tells_changes", lambda _: False)
    with path.open("rb") as opened:
        assert share([(opened.fileno(), START, len(CONTENT))]) is None


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no file system in memory")
def test_a_file_in_memory_does_not_tell_changes() -> None:
    descriptor = os.memfd_create("file") if hasattr(os, "memfd_create") else os.open("/dev/shm", os.O_RDONLY)
    assert not tells_changes(descriptor)
    os.close(descriptor)


def test_a_closed_descriptor_tells_nothing() -> None:
    assert not tells_changes(-1)


def test_without_a_net_nothing_is_shared_and_no_descriptor_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared(path)
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(module, "spread_net", lambda *_: None)
    with path.open("rb") as opened:
        assert share([(opened.fileno(), START, len(CONTENT))]) is None
    assert os.listdir("/proc/self/fd") == before


def test_a_file_that_is_let_go_leaves_no_descriptor_and_no_net(path: Path) -> None:
    file = shared(path)
    net, descriptor = file._net, file._files[0][0]
    del file
    assert net._guard is None
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_a_descriptor_that_somebody_closes_makes_the_bytes_private(path: Path) -> None:
    file = shared(path)
    os.close(file._files[0][0])
    file.look()
    assert (file.shared, file.changes, bytes(file)) == (False, 1, CONTENT)


def test_a_descriptor_that_is_somebody_elses_by_now_is_not_closed(path: Path, tmp_path: Path) -> None:
    file = shared(path)
    (tmp_path / "theirs").write_bytes(b"theirs")
    theirs = os.open(tmp_path / "theirs", os.O_RDONLY)
    os.dup2(theirs, file._files[0][0])
    kept = file._files[0][0]
    file.look()
    assert (file.shared, bytes(file)) == (False, CONTENT)
    del file
    assert os.read(kept, 6) == b"theirs"
    os.close(kept)
    os.close(theirs)


class Run:
    """Counts how often it is asked; the file changes in the first `disturbed` runs."""

    def __init__(self, path: Path, disturbed: int) -> None:
        self.path, self.disturbed, self.count = path, disturbed, 0

    def __call__(self) -> None:
        self.count += 1
        if self.count <= self.disturbed:
            self.path.touch()


@pytest.mark.parametrize(("disturbed", "runs", "still_shared"), [(0, 1, True), (1, 2, True), (9, TRIES + 1, False)])
def test_a_run_is_repeated_until_the_file_stays_as_it_is_or_is_private(
    path: Path, disturbed: int, runs: int, still_shared: bool
) -> None:
    file, run = shared(path), Run(path, disturbed)
    undisturbed(file, run)
    assert (run.count, file.shared) == (runs, still_shared)
    undisturbed(file, run)
    assert run.count == runs + 1


def test_two_looks_a_run_are_all_that_the_system_is_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, calls = shared(path), []
    real = os.fstat
    monkeypatch.setattr(module.os, "fstat", lambda descriptor: (calls.append(descriptor), real(descriptor))[1])
    undisturbed(file, lambda: None)
    assert calls == 2 * [file._files[0][0]]
    file.own()
    calls.clear()
    undisturbed(file, lambda: None)
    undisturbed(None, lambda: None)
    assert calls == []


def fork_and_truncate(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    file = share([(descriptor, START, os.fstat(descriptor).st_size - START)])
    assert file is not None
    child = os.fork()
    if not child:
        os.truncate(path, 0)
        file.look()
        assert bytes(file) == bytes(len(file)) and file.changes == 1
        file.own()
        del file
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    file.look()
    assert file.shared and file.changes == 1 and bytes(file) == bytes(len(file))


def test_a_forked_child_and_its_parent_notice_each_for_itself(path: Path) -> None:
    shared(path)
    answer_of(fork_and_truncate, path)


FIRST, SHARED = 16, 128
"""Of the pages that are shared. The system maps some pages around one that is read."""
PAGES = b"".join(bytes([each]) * START for each in range(FIRST + SHARED + 16))


def kept(path: Path) -> SharedFile:
    """A private copy."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return keep([(descriptor, START, os.fstat(descriptor).st_size - START)])
    finally:
        os.close(descriptor)


def test_private_bytes_do_without_large_pages_where_the_kernel_has_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EINVAL, "there are none")

    content = bytes(START) + bytes(LARGE_PAGE) + CONTENT
    path.write_bytes(content)
    monkeypatch.setattr(SharedFile, "madvise", refuse)
    monkeypatch.setattr(module.libc, "madvise", lambda *_: -1)
    assert bytes(kept(path)) == content[START:]


def whole(file: SharedFile) -> bytes:
    """The bytes, each read where it is to be read."""
    return b"".join(map(bytes, file.parts(address(file), len(file))))


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A file whose content begins after one page."""
    found = tmp_path / "pages"
    found.write_bytes(bytes(START) + PAGES)
    return found


def present(file: SharedFile) -> int:
    """Number of the shared pages that are in memory at the file's own addresses."""
    first = address(file) // START + FIRST
    with open("/proc/self/pagemap", "rb") as pagemap:
        pagemap.seek(8 * first)
        return sum(byte >> 7 for byte in pagemap.read(8 * SHARED)[7::8])


def sharing(pages: Path, source: SharedFile, make: Callable[[Path], SharedFile] = shared) -> SharedFile:
    """Another object on the same file, which reads some pages where the source has them."""
    made = make(pages)
    assert made.elsewhere(address(made) + FIRST * START, SHARED * START) == address(source) + FIRST * START
    return made


def test_what_is_mapped_already_is_read_there_and_is_resident_once(pages: Path) -> None:
    source = shared(pages)
    other = sharing(pages, source)
    assert whole(other) == whole(source) == PAGES
    assert present(source) == SHARED and present(other) < SHARED / 2
    again = other.elsewhere(address(other) + FIRST * START, SHARED * START)
    assert again == address(source) + FIRST * START


def test_a_source_lives_as_long_as_those_that_read_it(pages: Path) -> None:
    source = shared(pages)
    other, gone = sharing(pages, source), weakref.ref(source)
    del source
    assert gone() is not None and whole(other) == PAGES
    del other
    assert gone() is None
    alone = shared(pages)
    assert alone.elsewhere(address(alone), START) == address(alone)


def test_an_object_that_becomes_private_shares_its_source_s_copy(pages: Path) -> None:
    source = shared(pages)
    other = sharing(pages, source)
    other.own()
    assert not source.shared and not other.shared
    assert (present(source), present(other)) == (SHARED, 0)
    os.truncate(pages, 0)
    assert whole(other) == whole(source) == PAGES


def test_a_private_source_shares_its_copy(pages: Path) -> None:
    source = shared(pages)
    source.own()
    other = sharing(pages, source)
    assert other.shared and whole(other) == PAGES
    third = sharing(pages, source, kept)
    assert present(third) == 0 and whole(third) == PAGES


def test_private_copies_of_a_file_are_one_where_they_are_read_elsewhere(pages: Path) -> None:
    source = kept(pages)
    other = sharing(pages, source, kept)
    assert (present(source), present(other)) == (SHARED, 0)
    os.truncate(pages, 0)
    assert whole(other) == PAGES


def test_a_private_object_makes_its_source_private(pages: Path) -> None:
    source = shared(pages)
    other = sharing(pages, source, kept)
    assert not source.shared
    os.truncate(pages, 0)
    assert whole(other) == PAGES


def become_private(file: SharedFile, pages: Path) -> None:
    file.own()


def lose_pages(file: SharedFile, pages: Path) -> None:
    os.truncate(pages, 0)
    assert bytes(file)[:START] == bytes(START)
    pages.write_bytes(bytes(START) + PAGES)


@pytest.mark.parametrize("happens", [become_private, lose_pages])
def test_what_happens_to_the_memory_of_a_source_is_a_change(
    pages: Path, happens: Callable[[SharedFile, Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = shared(pages)
    other = sharing(pages, source)
    stamps = {descriptor: module._stamp(descriptor) for descriptor, _ in other._files}
    other.look()
    assert other.changes == 0
    happens(source, pages)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_stamp", stamps.__getitem__)  # the file alone does not tell
        for _ in range(2):
            other.look()
            assert other.changes == 1


@pytest.mark.parametrize("change", CHANGES)
def test_memory_of_a_file_that_was_touched_is_not_lent(pages: Path, change: Callable[[Path], object]) -> None:
    source = shared(pages)
    change(pages)
    if not pages.exists() or pages.stat().st_size <= len(PAGES):
        return
    other = shared(pages)
    assert other.elsewhere(address(other), START) == address(other)
    assert whole(other) == bytes(other) and whole(source) == bytes(source)


def test_what_was_lost_is_not_lent_though_the_file_is_as_it_was(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, stamp = shared(pages), os.stat(pages)
    lose_pages(source, pages)
    now = module._stamp
    monkeypatch.setattr(module, "_stamp", lambda one: (*now(one)[:3], stamp.st_mtime_ns, stamp.st_ctime_ns))
    other = shared(pages)
    assert other.elsewhere(address(other), START) == address(other)


def test_a_copy_that_may_be_damaged_is_not_lent(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, now, later = shared(pages), module._stamp, []
    real = source._copy
    monkeypatch.setattr(source, "_copy", lambda distance: (real(distance), later.append(1)))
    monkeypatch.setattr(module, "_stamp", lambda one: (*now(one)[:4], now(one)[4] + len(later)))
    source.own()
    later.clear()
    other = shared(pages)
    assert other.elsewhere(address(other), START) == address(other)
    sharing(pages, other)


def test_a_source_that_lost_its_pages_after_all_is_not_read(pages: Path) -> None:
    source = shared(pages)
    other = shared(pages)
    lose_pages(source, pages)
    assert other.elsewhere(address(other), START) == address(other) and whole(other) == PAGES


def test_what_is_read_elsewhere_is_not_offered_again(pages: Path) -> None:
    first = shared(pages)
    others = [sharing(pages, first) for _ in range(2)]
    first.changes += 1
    third = shared(pages)
    assert third.elsewhere(address(third) + FIRST * START, START) == address(third) + FIRST * START
    assert all(whole(other) == PAGES for other in others)


def test_without_memory_for_a_copy_a_private_object_reads_its_own(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = shared(pages)

    def refuse(*_: object, **__: object) -> None:
        raise DeviceError("no memory")

    monkeypatch.setattr(module, "Memory", refuse)
    other = kept(pages)
    assert other.elsewhere(address(other), START) == address(other) and source.shared
    monkeypatch.undo()
    source.own()
    assert other.elsewhere(address(other), START) == address(other)  # what reads it stays there
    assert whole(other) == PAGES


def test_a_forked_child_whose_parent_was_busy_with_the_lock_becomes_private(pages: Path) -> None:
    source = shared(pages)
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with module._lock:
            held.set()
            end.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(30)
        source.own()
        os._exit(0 if not source.shared else 1)
    end.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0 and source.shared


@pytest.fixture(params=[4096, 16384, 65536])
def page_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The pages of a system, which maps files from multiples of them only, and to such places."""
    size: int = request.param
    if size % mmap.PAGESIZE:
        pytest.skip("this system has larger pages")
    given = module.libc.mmap

    def checked(address: int, nbytes: int, *rest: int) -> int:
        assert not rest[-1] % size
        return int(given(address, nbytes, *rest))

    monkeypatch.setattr(mmap, "PAGESIZE", size)
    monkeypatch.setattr(module.libc, "mmap", checked)
    return size


def test_a_part_that_begins_within_a_page_is_mapped_from_the_page_s_beginning(path: Path, page_size: int) -> None:
    file = shared(path)
    assert file.shared and bytes(file.content) == CONTENT
    assert len(file) - len(CONTENT) == START % page_size
    assert Borrowed(file.content).address % START == 0
    assert b"".join(map(bytes, file.parts(Borrowed(file.content).address, len(CONTENT)))) == CONTENT
    file.own()
    assert not file.shared and file.is_intact and bytes(file.content) == CONTENT


def test_a_truncated_file_gives_zeros_from_the_first_page_on(path: Path, page_size: int) -> None:
    file = shared(path)
    os.truncate(path, 0)
    assert bytes(file.content) == bytes(len(CONTENT))
    file.look()
    assert file.changes


def test_parts_within_pages_are_read_where_they_are_mapped_already(pages: Path, page_size: int) -> None:
    """As far as pages reach: the bytes around them stay."""
    source, other = shared(pages), shared(pages)
    first, there = (Borrowed(file.content).address + FIRST * START for file in (other, source))
    assert other.elsewhere(first, SHARED * START) == there
    assert bytes(other.content) == PAGES
    private = kept(pages)
    assert private.elsewhere(Borrowed(private.content).address + FIRST * START, SHARED * START) == there
    content = bytes(private.content)
    assert content[: FIRST * START] == PAGES[: FIRST * START]
    assert content[(FIRST + SHARED) * START :] == PAGES[(FIRST + SHARED) * START :]


@pytest.mark.parametrize("starts", [(1, 5), (4, 8), (5, 16), (16, 48)])
def test_parts_that_no_pages_hold_are_not_mapped(pages: Path, page_size: int, starts: tuple[int, int]) -> None:
    """Two parts of eleven pages of 4 KB each: where the first one ends, a page has to, and the second one to begin."""
    length, unit = 11 * 4096, 4096
    pieces = [(os.open(pages, os.O_RDONLY), start * unit, length) for start in starts]
    fits = not (starts[0] * unit + length) % page_size and not starts[1] * unit % page_size
    found = share(pieces)
    assert (found is not None) == fits
    content = pages.read_bytes()
    expected = b"".join(content[start * unit :][:length] for start in starts)
    assert bytes((found or keep(pieces)).content) == expected
    for descriptor, *_ in pieces:
        os.close(descriptor)


def test_a_program_reads_its_weights_where_pages_are_larger_than_those_of_its_file(
    tmp_path: Path, page_size: int
) -> None:
    session = Session(opened_from(tmp_path / "program", tiny_program()))
    assert session.shared is not None and session.shared.shared
    (y,) = session.run([np.ones((2, 3), np.float32)])
    np.testing.assert_array_equal(np.asarray(y), np.full((3, 2), SCALE, np.float32))
    session.close()
