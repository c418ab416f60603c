"""Breaks the cache in many ways and counts the failures that it does not survive.

    python -m scripts.fault_injection [--seed N] [--rounds N] [--only SWEEP]

Each system call of a cold start, of a warm one and of their runs fails, once or from then on, with each error that
matters, or writes only a part; the process is killed before each call; memory runs out; entries are written, truncated,
restored and removed while a process runs from them; entries are damaged; many processes start cold at the same time;
signed programs are exported, imported, pushed to a remote, and fetched from there.
After each fault the result must be right, nothing may be raised, and the next starts must recover: a right result, and
then a hit. If a start needs what failed (the model's file, memory), one clear error of this project may end it. A
prebuilt folder must stay as it was.

--rounds limits the number of faults of each sweep, chosen at random; without it, all are tried.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from jitdelegate.program.write import write
from jitdelegate.runtime.cache.store import open_store
from scripts.faults.carried import COMMANDS, DONE, REFUSED, Carried
from scripts.faults.child import Child, Ended, run_child
from scripts.faults.entries import CHANGES, damaged, sample, served
from scripts.faults.injector import (
    CACHE,
    COUNT,
    FAIL,
    FAIL_EVER_AFTER,
    KILL,
    MEMORY,
    MODEL,
    PREBUILT,
    PRELOADED,
    REMOTE,
    SHORT,
    compiled_library,
    injector,
)
from scripts.faults.starts import (
    ALL_STARTS,
    BY_OTHER_CODE,
    FETCHED,
    RIGHT,
    STARTS,
    Scene,
    infer,
    live,
    model,
    outcome,
    prepare,
)

ERRORS = (
    *(errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENOMEM),
    *(errno.ENOENT, errno.ESTALE, errno.EINVAL, errno.ENOSYS, errno.EINTR),
)
TRANSFERS = ("read", "readv", "preadv", "write")
FOR_MEMORY = ("mmap-memory", "mprotect", "malloc", "calloc")
HOW = {FAIL: "fails", FAIL_EVER_AFTER: "fails, as all after it", SHORT: "is done by half", KILL: "kills"}
LIVES, DAMAGES, STAMPEDES, ADDRESS_SPACES = 300, 2000, 20, 160
"""How many faults a sweep has of which there could be any number."""
PROCESSES = 16
SHOWN = 20
Item = TypeVar("Item")


class Fault(NamedTuple):
    """One call of a start that does not do what it should."""

    start: str
    call: str
    at: int
    mode: int
    error: int

    def __str__(self) -> str:
        return f"{self.start}: call {self.at}, {self.call}, {HOW[self.mode]} {errno.errorcode.get(self.error, '')}"


class Result(NamedTuple):
    """What came of one fault: the outcome, and what is wrong with it, "" for nothing."""

    fault: str
    outcome: str
    trouble: str


class Sweeps:
    """All sweeps, in one folder; each gives one result per fault."""

    def __init__(self, folder: Path, rounds: int | None, chance: random.Random) -> None:
        self._scene, self._rounds, self._chance = Scene(folder), rounds, chance
        self._injector = injector()
        self._injector.watch(CACHE, self._scene.cache)
        self._injector.watch(MODEL, self._scene.models)
        self._injector.watch(PREBUILT, self._scene.prebuilt)
        self._injector.watch(REMOTE, self._scene.remote)
        self._scene.models.mkdir()
        for start in ALL_STARTS.values():
            self._scene.model(start).write_bytes(model(signatures=bool(start.signature)))
        self._expected: dict[str, bytes] = {}
        self._calls_of: dict[tuple[str, bool], list[str]] = {}

    def cold_calls(self) -> Iterator[Result]:
        """Every call of a cold start fails."""
        return self._calls(is_warm=False)

    def warm_calls(self) -> Iterator[Result]:
        """Every call of a warm start fails."""
        return self._calls(is_warm=True)

    def fetches(self) -> Iterator[Result]:
        """Every call of a start that fetches its programs from a remote fails."""
        return self._calls(is_warm=False, starts=(FETCHED,))

    def carries(self) -> Iterator[Result]:
        """Every call of an export, an import and a push fails, or the process is killed before it."""
        carried = self._carried()
        for name, command in COMMANDS.items():
            self._prepare(carried, name)

            def count() -> list[str]:
                self._injector.arm(COUNT)
                how = command.do(carried)  # noqa: B023  # forked at once
                names = self._injector.disarm()[2]
                assert how == DONE, how
                return names

            calls = run_child(count).answer
            assert isinstance(calls, list), f"{name} fails without a fault"
            faults = [
                Fault(name, call, at, mode, error)
                for at, call in enumerate(calls, 1)
                if call not in FOR_MEMORY  # of the parser of arguments, nearly all
                for mode, error in (*_ways_to_fail(call), (KILL, 0))
            ]
            for fault in self._chosen(faults):
                self._prepare(carried, name)
                yield self._carry(carried, fault)

    def _carried(self) -> Carried:
        """The scene of signed programs, which share weights."""
        scene, name = self._scene, "further signature"
        self._fill(name)
        carried = Carried(scene.filled(name), scene.cache, scene.remote, scene.keys)
        carried.write_keys()
        carried.reset(is_filled=True)
        assert carried.export() == DONE
        carried.bundle.rename(carried.keys / "good.tar")
        return carried

    def _prepare(self, carried: Carried, name: str) -> None:
        carried.reset(is_filled=COMMANDS[name].begins_filled)
        if not COMMANDS[name].begins_filled:
            shutil.copy(carried.keys / "good.tar", carried.bundle)

    def _carry(self, carried: Carried, fault: Fault) -> Result:
        """What comes of a command with a fault, and of the same command after it."""
        command = COMMANDS[fault.start]

        def work() -> str:
            self._injector.arm(fault.mode, fault.at, fault.error)
            how = command.do(carried)
            self._injector.disarm()
            return how

        ended = run_child(work)
        good = ("ended by SIGKILL",) if fault.mode == KILL else (DONE, REFUSED)
        trouble = "" if ended.text in good else ended.text
        trouble = trouble or command.trouble(carried, ended.text)
        if not trouble and ended.text != DONE:
            if fault.start == "export":
                carried.bundle.unlink(missing_ok=True)
            again = run_child(lambda: command.do(carried)).text
            trouble = command.trouble(carried, again) if again == DONE else f"the next one: {again}"
        return Result(str(fault), ended.text.partition(":")[0], trouble)

    def _calls(self, *, is_warm: bool, starts: Sequence[str] = tuple(STARTS)) -> Iterator[Result]:
        faults = [
            Fault(name, call, at, mode, error)
            for name in self._chosen(starts)
            for at, call in enumerate(self._calls_without_fault(name, is_warm=is_warm), 1)
            for mode, error in _ways_to_fail(call)
        ]
        for fault in self._chosen(faults):
            self._scene.set(fault.start if is_warm else "")
            ended, folder = self._start_with(fault)
            is_clear = ended.text.startswith("clear error") and folder in (MODEL, MEMORY)
            is_good = ended.text in ("hit", "miss", BY_OTHER_CODE) or is_clear
            yield self._result(str(fault), fault.start, ended, is_good=is_good)

    def kills(self) -> Iterator[Result]:
        """Before every call of a cold start the process is killed."""
        faults = [
            Fault(name, call, at, KILL, 0)
            for name in self._chosen([*STARTS])
            for at, call in enumerate(self._calls_without_fault(name, is_warm=False), 1)
        ]
        for fault in self._chosen(faults):
            self._scene.set()
            ended, _ = self._start_with(fault)
            result = self._result(str(fault), fault.start, ended, is_good=ended.text == "ended by SIGKILL")
            yield result._replace(trouble=result.trouble or self._litter(fault.start))

    def memory(self) -> Iterator[Result]:
        """Address space ends in the midst of a warm start."""
        names = ("compiled, token", "compiled, private weights", "further signature")
        for name, step in self._chosen([(name, step) for name in names for step in range(ADDRESS_SPACES)]):
            self._fill(name)
            self._scene.set(name)
            ended = self._start_within(name, step << 16)
            is_good = ended.text in ("hit", "miss") or ended.text.startswith("clear error")
            yield self._result(f"{name}: {step << 6} KB are left", name, ended, is_good=is_good)

    def lives(self) -> Iterator[Result]:
        """While a process runs from an entry, that is written, cut, restored, replaced or removed."""
        names = [name for name, start in STARTS.items() if not start.remembered]
        for number in self._chosen(range(LIVES)):
            name = names[number % len(names)]
            expected, scene, start = self._fill(name), self._scene, STARTS[name]
            scene.set(name)
            for path in (scene.ready, scene.stop):
                path.unlink(missing_ok=True)
            child = Child(lambda: (prepare(start, scene), live(start, scene, expected))[1])  # noqa: B023  # forked at once
            child.wait_until(scene.ready.exists)
            entries = scene.entries(start)
            changes = self._chance.choices(CHANGES, k=self._chance.randint(1, 4))
            for change in changes:
                time.sleep(self._chance.random() * 0.02)
                entry = self._chance.choice(entries)
                change(entry, scene.filled(name) / entry.name, self._chance)
            scene.stop.touch()
            ended = child.end()
            what = ", ".join(change.__name__ for change in changes)
            yield self._result(f"{name}: {what}", name, ended, is_good=ended.text == RIGHT)

    def damages(self) -> Iterator[Result]:
        """An entry is damaged between two starts."""
        key, content = sample(self._chance.randbytes(30_000))
        folder = self._scene.folder / "damages"
        store, path = open_store(str(folder)), folder / key.entry_name()
        for number in self._chosen(range(DAMAGES)):
            path.unlink(missing_ok=True)
            path.write_bytes(damaged(content, self._chance))
            path.chmod(0o600)
            is_healed = served(store, key, content) == content == path.read_bytes()
            yield Result(f"damage {number}", "healed" if is_healed else "not healed", "" if is_healed else "not healed")

    def stampedes(self) -> Iterator[Result]:
        """Processes start cold together: one compiles, all get the whole program."""
        key, content = sample(self._chance.randbytes(30_000))
        folder = self._scene.folder / "stampedes"
        open_store(str(folder))
        for number in self._chosen(range(STAMPEDES))[: max(1, (self._rounds or LIVES) // 10)]:
            (folder / key.entry_name()).unlink(missing_ok=True)
            log = folder / "compiled"
            log.write_bytes(b"")
            start_cold = _cold_start(folder, log, time.time() + 0.2)
            children = [Child(lambda: start_cold(key, content)) for _ in range(PROCESSES)]  # noqa: B023  # forked at once
            bad = sum(child.end().answer is not True for child in children)
            compiled = len(log.read_bytes())
            found = f"{bad} of {PROCESSES} wrong, compiled {compiled} times"
            yield Result(f"stampede {number}", found, "" if not bad and compiled == 1 else found)

    def _chosen(self, every: Sequence[Item]) -> Sequence[Item]:
        """All of them, or one by chance from each of as many equal parts as there are rounds, in their order."""
        if self._rounds is None or self._rounds >= len(every):
            return every
        ends = [number * len(every) // self._rounds for number in range(self._rounds + 1)]
        return [every[self._chance.randrange(*part)] for part in pairwise(ends)]

    def _fill(self, name: str) -> bytes:
        """Make the filled cache for a start, at its first use; the right answer."""
        start, scene = ALL_STARTS[name], self._scene
        if name not in self._expected:
            scene.set()
            ended = run_child(lambda: (prepare(start, scene), bytes(infer(start, scene)[0]))[1])
            assert isinstance(ended.answer, bytes), f"{name}: {ended.text} without a fault"
            self._expected[name] = ended.answer
            if start.fetched:
                self._push()
            scene.cache.rename(scene.filled(name))
        return self._expected[name]

    def _push(self) -> None:
        """Push the entries of the cache to the remote."""
        scene = self._scene
        carried = Carried(scene.cache, scene.cache, scene.remote, scene.keys)
        carried.write_keys()
        assert carried.push() == DONE

    def _calls_without_fault(self, name: str, *, is_warm: bool) -> list[str]:
        """The calls of a start without a fault, in order."""
        if (name, is_warm) not in self._calls_of:
            self._calls_of[name, is_warm] = self._count_calls(name, is_warm=is_warm)
        return self._calls_of[name, is_warm]

    def _count_calls(self, name: str, *, is_warm: bool) -> list[str]:
        expected, start, scene = self._fill(name), ALL_STARTS[name], self._scene
        scene.set(name if is_warm else "")

        def work() -> list[str]:
            prepare(start, scene)
            self._injector.arm(COUNT)
            found = outcome(start, scene, expected, self._injector.disarm)
            assert found == ("hit" if is_warm or start.fetched else "miss"), found
            return self._injector.disarm()[2]

        ended = run_child(work)
        assert isinstance(ended.answer, list), f"{name}: {ended.text} without a fault"
        return ended.answer

    def _start_with(self, fault: Fault) -> tuple[Ended, int]:
        """How a start ends, and which folder the fault met first."""
        expected, start, scene = self._fill(fault.start), ALL_STARTS[fault.start], self._scene

        def work() -> tuple[str, int]:
            prepare(start, scene)
            self._injector.arm(fault.mode, fault.at, fault.error)
            found = outcome(start, scene, expected, self._injector.disarm)
            return found, self._injector.disarm()[1]

        before = scene.prebuilt_state()
        ended = run_child(work)
        if scene.prebuilt_state() != before:
            return Ended("the prebuilt folder is not as it was", ended.status), -1
        if not isinstance(ended.answer, tuple):
            return ended, -1
        return Ended(ended.answer[0], ended.status), ended.answer[1]

    def _start_within(self, name: str, nbytes: int) -> Ended:
        """A start that gets so much more address space."""
        expected, start, scene = self._fill(name), ALL_STARTS[name], self._scene

        def work() -> str:
            prepare(start, scene)
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + nbytes
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            return outcome(start, scene, expected, _lift_limit)

        return run_child(work)

    def _result(self, fault: str, name: str, ended: Ended, *, is_good: bool) -> Result:
        trouble = "" if is_good else ended.text
        return Result(fault, ended.text.partition(":")[0], trouble or self._heals(name))

    def _heals(self, name: str) -> str:
        """ "" if the next start is right, and the one after it a hit; else what they are."""
        expected, start, scene = self._fill(name), ALL_STARTS[name], self._scene
        ended = run_child(lambda: (prepare(start, scene), *(outcome(start, scene, expected) for _ in range(2)))[1:])
        found = ended.answer
        if isinstance(found, tuple) and found[0] in ("hit", "miss") and found[1] == "hit":
            return ""
        return f"the next starts: {ended.text}"

    def _litter(self, name: str) -> str:
        """What a killed process has left, once another one has compiled and written some seconds later."""
        for path in self._scene.cache.iterdir():
            if path.suffix in (".lock", ".tmp"):
                os.utime(path, (0, 0))
            if path.suffix == ".jitd":
                path.unlink()
        trouble = self._heals(name)
        left = [path.name for path in self._scene.cache.iterdir() if path.suffix in (".lock", ".tmp")]
        return trouble or (f"left {left}" if left else "")


def _ways_to_fail(call: str) -> Iterator[tuple[int, int]]:
    """(mode, error) pairs for a call of this name."""
    for error in (errno.ENOMEM,) if call in FOR_MEMORY else ERRORS:
        yield FAIL, error
        if error != errno.EINTR:  # after which Python calls again, for ever
            yield FAIL_EVER_AFTER, error
    if call in TRANSFERS:
        yield SHORT, 0


def _lift_limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _cold_start(folder: Path, log: Path, begin: float) -> Callable[..., bool]:
    """A function that compiles slowly from `begin` on, or waits for the one who does; whether it got the program."""

    def start(key: object, content: bytes) -> bool:
        def compile_slowly() -> tuple[bytes]:
            with log.open("ab") as file:
                file.write(b".")
            time.sleep(0.1)
            return (content,)

        time.sleep(max(0.0, begin - time.time()))
        lookup = open_store(str(folder)).fetch(key, compile_slowly)  # type: ignore[arg-type]
        return lookup.program is not None and write(lookup.program) == content

    return start


MODULES = (
    *("jitdelegate.api.delegate_warning", "jitdelegate.api.model", "jitdelegate.api.report"),
    *("jitdelegate.runtime.cache.lock", "jitdelegate.runtime.cache.trouble", "jitdelegate.runtime.cache.litter"),
    *("jitdelegate.runtime.cache.limit", "jitdelegate.runtime.cache.outdated", "jitdelegate.runtime.cache.use_log"),
    "jitdelegate.compiler.compile",
    *("jitdelegate.compiler.entry", "jitdelegate.engine.decisions", "jitdelegate.engine.delegate_message"),
    *("jitdelegate.engine.hosted_model", "jitdelegate.engine.miss", "jitdelegate.engine.specializations"),
    "jitdelegate.base.user_warning",
    *("jitdelegate.program.check", "jitdelegate.runtime.cpu.session", "jitdelegate.runtime.fallback"),
    *("jitdelegate.runtime.partitioned_session", "jitdelegate.runtime.profile", "jitdelegate.runtime.shared_file"),
    *("jitdelegate.runtime.cache.prebuilt_store", "jitdelegate.runtime.cache.shared_weights"),
    *("jitdelegate.runtime.mapped_model", "jitdelegate.runtime.string_guard"),
    *("jitdelegate.base.option_file", "jitdelegate.program.shared_pages"),
    *("jitdelegate.targets.cpu.target", "jitdelegate.targets.litert.target", "llvmlite.binding"),
    *("cache_tools.archive", "cache_tools.push", "jitdelegate.runtime.cache.remote"),
    *("cryptography.exceptions", "fsspec.core", "fsspec.implementations.local"),
)
"""What starts would read when they need it."""
SWEEPS = ("cold_calls", "warm_calls", "kills", "memory", "lives", "damages", "stampedes", "fetches", "carries")


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 everything was survived, 1 not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, help="faults of each sweep; without it, all there are")
    parser.add_argument("--patched", action="store_true", help="let Python's functions fail, as without a C compiler")
    parser.add_argument("--only", choices=SWEEPS, action="append", help="this sweep, and others that are named too")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        is_ready = arguments.patched or PRELOADED in os.environ
        library = None if is_ready else compiled_library(Path(folder))
        if library is not None:
            environment = os.environ | {"LD_PRELOAD": str(library), PRELOADED: str(library)}
            command = [sys.executable, "-m", "scripts.fault_injection", *(sys.argv[1:] if argv is None else argv)]
            return subprocess.run(command, env=environment).returncode
        return _sweep(arguments)


def _sweep(arguments: argparse.Namespace) -> int:
    for name in MODULES:
        importlib.import_module(name)
    kind = "preloaded library" if PRELOADED in os.environ else "patched functions of Python"
    print(f"calls fail by: {kind}")
    failed = 0
    for name in arguments.only or SWEEPS:
        with tempfile.TemporaryDirectory() as folder:
            sweeps = Sweeps(Path(folder), arguments.rounds, random.Random(arguments.seed))
            results = list(getattr(sweeps, name)())
        troubles = [f"{result.fault}: {result.trouble}" for result in results if result.trouble]
        ends = ", ".join(f"{count} {end}" for end, count in Counter(each.outcome for each in results).most_common())
        print(f"{name}: {len(results)} faults ({ends}), {len(troubles)} not survived", flush=True)
        for trouble in troubles[:SHOWN]:
            print(f"  {trouble}")
        failed += len(troubles)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
