"""Breaks the cache in many seeded ways and counts what it does not survive.

    python scripts/fault_injection.py [--seed N] [--rounds N]

Four sweeps: damaged entries, system calls that fail, writers killed at every call, cold starts of many processes at
once. After each fault the answer must be right, nothing may be raised, and the next start must be a hit.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jitdelegate.cache.key import Key, model_key
from jitdelegate.cache.store import Store, open_store
from jitdelegate.errors import ProgramError
from jitdelegate.program.program import Operator, Port, Program
from jitdelegate.program.read import verify_weights
from jitdelegate.program.write import write

CALLS = ("open", "fchmod", "write", "fsync", "replace", "unlink", "listdir", "fstat", "close", "stat")
ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.EACCES, errno.ENOENT, errno.EINTR)
PROCESSES = 16


def sample(weights: bytes) -> tuple[Key, bytes]:
    """A key, and a program for it that has a bit of everything."""
    key = model_key(fingerprint="0" * 32, target="cpu", features="x86-64-v3", loader="flat")
    port = Port(name="x", index=0, shape=(1, 4), dtype="float32", nbytes=16)
    operators = tuple(Operator(index=index, op="CONV_2D", place="cpu") for index in range(20))
    program = Program(
        key=key.parts,
        target="cpu",
        features="x86-64-v3",
        loader="flat",
        inputs=(port,),
        outputs=(port,),
        operators=operators,
        code=b"\xc3" * 10_000,
        weights=weights,
    )
    return key, write(program)


def served(store: Store, key: Key, content: bytes) -> bytes:
    """What a user of the cache ends up with: a damaged entry is refused and compiled again, as `load` does."""
    lookup = store.fetch(key, lambda: content)
    assert lookup.program is not None
    try:
        verify_weights(lookup.program)
    except ProgramError as error:
        store.refuse(key, str(error))
        lookup = store.fetch(key, lambda: content)
    assert lookup.program is not None
    return write(lookup.program)


def damage(content: bytes, chance: random.Random) -> bytes:
    """The bytes after one accident: a bit, some bytes, a zeroed page, a doubled block, a cut or an extension."""
    data, at = bytearray(content), chance.randrange(len(content))
    kind = chance.randrange(6)
    if kind == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data[at : at + 8] = chance.randbytes(8)
    elif kind == 2:
        data[at & ~4095 : (at & ~4095) + 4096] = bytes(4096)
    elif kind == 3:
        data[at:at] = data[at : at + 512]
    elif kind == 4:
        del data[at:]
    else:
        data += chance.randbytes(1 + at % 100)
    return bytes(data)


def sweep_damage(folder: Path, rounds: int, chance: random.Random) -> Iterator[str]:
    """Damaged entries are healed."""
    key, content = sample(chance.randbytes(30_000))
    store, path = open_store(str(folder)), folder / key.entry_name()
    for number in range(rounds):
        path.write_bytes(damage(content, chance))
        path.chmod(0o600)
        if served(store, key, content) != content:
            yield f"damage {number}: wrong content"
        if path.read_bytes() != content:
            yield f"damage {number}: the entry was not healed"


@contextmanager
def fault(name: str, after: int, act: Callable[[], None]) -> Iterator[None]:
    """`act` instead of the call of `os.name` that follows `after` good ones."""
    real, left = getattr(os, name), [after]

    def call(*arguments: object, **options: object) -> object:
        left[0] -= 1
        if left[0] == -1:
            act()
        return real(*arguments, **options)

    setattr(os, name, call)
    try:
        yield
    finally:
        setattr(os, name, real)


def fail_with(number: int) -> Callable[[], None]:
    """Raises what the system call would."""

    def act() -> None:
        raise OSError(number, os.strerror(number))

    return act


def sweep_errors(folder: Path, rounds: int, chance: random.Random) -> Iterator[str]:
    """System calls that fail cost at most the entry."""
    key, content = sample(chance.randbytes(3_000))
    for number in range(rounds):
        name, error, after = chance.choice(CALLS), chance.choice(ERRORS), chance.randrange(4)
        what = f"{name} call {after} fails with {errno.errorcode[error]}"
        try:
            with fault(name, after, fail_with(error)):
                found = served(open_store(str(folder)), key, content)
        except OSError as raised:
            yield f"{what}: raised {raised}"
            continue
        if found != content:
            yield f"{what}: wrong content"
        yield from check_next_start(folder, key, content, what)
        if number % 2:
            (folder / key.entry_name()).unlink()


def sweep_kills(folder: Path, chance: random.Random) -> Iterator[str]:
    """A writer that is killed at any call leaves the old entry or the new one."""
    key, old = sample(chance.randbytes(3_000))
    _, new = sample(chance.randbytes(3_000))
    for name in CALLS:
        for after in range(8):
            what = f"killed at {name} call {after}"
            open_store(str(folder)).put(key, old)
            run_child(lambda name=name, after=after: put_and_die(folder, key, new, name, after))  # type: ignore[misc]
            if (folder / key.entry_name()).read_bytes() not in (old, new):
                yield f"{what}: neither the old entry nor the new one"
            yield from check_next_start(folder, key, new, what)


def put_and_die(folder: Path, key: Key, content: bytes, name: str, after: int) -> None:
    """Replace an entry, and be killed on the way."""
    with fault(name, after, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        open_store(str(folder)).put(key, content)


def sweep_stampedes(folder: Path, rounds: int, chance: random.Random) -> Iterator[str]:
    """Processes that start cold together compile once and all get the whole program."""
    key, content = sample(chance.randbytes(30_000))
    for number in range(rounds):
        (folder / key.entry_name()).unlink(missing_ok=True)
        log = folder / "compiled"
        log.unlink(missing_ok=True)
        start = time.time() + 0.2
        children = [start_child(lambda: start_cold(folder, key, content, log, start)) for _ in range(PROCESSES)]  # noqa: B023
        bad = sum(wait_for(child) != 0 for child in children)
        if bad:
            yield f"stampede {number}: {bad} of {PROCESSES} processes failed"
        if len(log.read_bytes()) != 1:
            yield f"stampede {number}: compiled {len(log.read_bytes())} times"


def start_cold(folder: Path, key: Key, content: bytes, log: Path, start: float) -> None:
    """Compile slowly, or wait for the one who does."""

    def compile_slowly() -> bytes:
        with log.open("ab") as file:
            file.write(b".")
        time.sleep(0.1)
        return content

    time.sleep(max(0.0, start - time.time()))
    lookup = open_store(str(folder)).fetch(key, compile_slowly)
    assert lookup.program is not None
    assert write(lookup.program) == content


def check_next_start(folder: Path, key: Key, content: bytes, what: str) -> Iterator[str]:
    """After a fault, one start heals at the latest and the one after it is a hit."""
    for name in [".lock", ".tmp"]:
        for path in folder.glob(f".*{name}"):
            os.utime(path, (0, 0))  # as if an hour had passed
    served(open_store(str(folder)), key, content)
    if not open_store(str(folder)).get(key).hit:
        yield f"{what}: the second start after it is no hit"
    open_store(str(folder)).put(key, content)
    litter = [name for name in os.listdir(folder) if name.endswith((".lock", ".tmp"))]
    if litter:
        yield f"{what}: left {litter}"


def start_child(work: Callable[[], None]) -> int:
    """A forked process that does `work` and ends; its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def wait_for(child: int) -> int:
    """The child's exit status, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_child(work: Callable[[], None]) -> int:
    """The exit status of a forked process that does `work`."""
    return wait_for(start_child(work))


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 everything was survived, 1 not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1000)
    arguments = parser.parse_args(argv)
    chance, failed = random.Random(arguments.seed), 0
    sweeps: tuple[tuple[str, Callable[[Path], Iterator[str]]], ...] = (
        ("damaged entries", lambda folder: sweep_damage(folder, arguments.rounds, chance)),
        ("failing system calls", lambda folder: sweep_errors(folder, arguments.rounds, chance)),
        ("killed writers", lambda folder: sweep_kills(folder, chance)),
        ("stampedes", lambda folder: sweep_stampedes(folder, max(1, arguments.rounds // 100), chance)),
    )
    for name, sweep in sweeps:
        with tempfile.TemporaryDirectory() as folder:
            troubles = list(sweep(Path(folder)))
        print(f"{name}: {len(troubles)} not survived")
        for trouble in troubles[:20]:
            print(f"  {trouble}")
        failed += len(troubles)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
