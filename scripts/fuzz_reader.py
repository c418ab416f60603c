"""Reads many damaged .tflite files; each has to end in a well-formed Model or a ModelError, in little time and memory.

    python scripts/fuzz_reader.py --rounds 20000 --seed 1 MODEL [MODEL ...]

Besides flips, truncations and copies anywhere, some damage is targeted: the positions of offsets, counts, field offsets
and scalars are found by walking the file with the schema, and offsets are pointed to other tables of the same file.
Exit status: 0 all well, 1 some case was not (its bytes are kept with --keep).
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jitdelegate.errors import ModelError
from jitdelegate.ir.verify import verify
from jitdelegate.tflite.read import read
from jitdelegate.tflite.schema import TABLES, UNIONS

INTERESTING = (0, 1, 2, 3, 4, 8, 16, 127, 128, 255, 256, 32767, 65535, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


class Place(NamedTuple):
    """`width` bytes of a file that mean something; a value is no offset, count or field's place."""

    position: int
    width: int
    is_offset: bool = False
    is_value: bool = False


class Places(NamedTuple):
    """Where to aim in one file."""

    places: list[Place]
    targets: list[int]


def survey(content: bytes) -> Places:
    """The places of a well-formed file: what stands at them, and where its tables and vectors start."""
    found = Places([Place(0, 4, True)], [])
    _survey_table(content, _u32(content, 0), "Model", found)
    return found


def _u32(content: bytes, position: int) -> int:
    return int(struct.unpack_from("<I", content, position)[0])


def _survey_table(content: bytes, position: int, kind: str, found: Places) -> None:
    slots = position - struct.unpack_from("<i", content, position)[0]
    found.targets.append(position)
    found.places.extend((Place(position, 4), Place(slots, 2), Place(slots + 2, 2)))
    before = 0
    for slot, field in enumerate(TABLES[kind]):
        entry = slots + 4 + 2 * slot
        offset = struct.unpack_from("<H", content, entry)[0] if entry < slots + _u16(content, slots) else 0
        if field is None or not offset:
            before = 0
            continue
        found.places.append(Place(entry, 2))
        _, code, of, _ = field
        if len(code) == 1 and code not in "stu":
            found.places.append(Place(position + offset, struct.calcsize(code), is_value=True))
            before = content[position + offset]
        else:
            of = UNIONS[of].get(before, "") if code == "u" else of
            _survey_reference(content, position + offset, code, of, found)


def _u16(content: bytes, position: int) -> int:
    return int(struct.unpack_from("<H", content, position)[0])


def _survey_reference(content: bytes, position: int, code: str, of: str, found: Places) -> None:
    target = position + _u32(content, position)
    found.places.append(Place(position, 4, True))
    if code in "tu":
        if of:
            _survey_table(content, target, of, found)
        return
    count = _u32(content, target)
    found.targets.append(target)
    found.places.append(Place(target, 4))
    if code == "[t]":
        for index in range(count):
            _survey_reference(content, target + 4 + 4 * index, "t", of, found)
    elif code in ("[i]", "[q]", "[f]"):
        width = struct.calcsize(code[1])
        values = (Place(target + 4 + width * index, width, is_value=True) for index in range(min(count, 16)))
        found.places.extend(values)


def _aim(content: bytearray, places: Places, rng: random.Random) -> None:
    place = rng.choice(places.places)
    if place.is_offset and rng.random() < 0.7:
        value = rng.choice(places.targets) - place.position
    elif rng.random() < 0.3:
        value = int.from_bytes(content[place.position : place.position + place.width], "little") + rng.choice(
            (-2, -1, 1, 2)
        )
    else:
        value = rng.choice((*INTERESTING, len(content), len(content) // 4, rng.getrandbits(32)))
    value &= (1 << 8 * place.width) - 1
    content[place.position : place.position + place.width] = value.to_bytes(place.width, "little")


def _flip(content: bytearray, places: Places, rng: random.Random) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _write(content: bytearray, places: Places, rng: random.Random) -> None:
    position = rng.randrange(len(content))
    content[position : position + 4] = rng.choice(INTERESTING).to_bytes(4, "little")[: len(content) - position]


def _copy(content: bytearray, places: Places, rng: random.Random) -> None:
    size = rng.choice((2, 4, 8, 16, 64))
    source, target = rng.randrange(len(content)), rng.randrange(len(content))
    partition = content[source : source + size][: len(content) - target]
    content[target : target + len(partition)] = partition


def _truncate(content: bytearray, places: Places, rng: random.Random) -> None:
    del content[rng.randrange(1, len(content)) :]


DAMAGE: tuple[Callable[[bytearray, Places, random.Random], None], ...] = (_aim, _aim, _aim, _aim, _flip, _write, _copy)


def damaged(content: bytes, places: Places, rng: random.Random) -> bytes:
    """A copy of `content` with one to four wounds; now and then cut off."""
    copy = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(DAMAGE)(copy, places, rng)
    if rng.random() < 0.05:
        _truncate(copy, places, rng)
    return bytes(copy)


def outcome(content: bytes) -> str:
    """ "read" or "refused".

    Raises:
        Exception: whatever else happened; a bug of the reader.
    """
    try:
        model = read(content)
    except ModelError as error:
        assert str(error), "a refusal without a message"
        return "refused"
    for graph in model.graphs:
        verify(graph, "reading")
    return "read"


def _too_slow(signum: int, frame: object) -> None:
    raise TimeoutError("the case ran over its time")


@contextmanager
def limits(seconds: float, megabytes: int) -> Iterator[None]:
    """Inside, the process may grow by `megabytes`, and after `seconds` a TimeoutError is raised (main thread, Unix)."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (megabytes << 20), before[1]))
    handler = signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def sweep(path: Path, arguments: argparse.Namespace, counts: Counter[str]) -> None:
    """Damage one file `--rounds` times."""
    content = path.read_bytes()
    places = survey(content)
    rng = random.Random(f"{arguments.seed} {path.name}")
    for number in range(arguments.rounds):
        case = damaged(content, places, rng)
        start = time.perf_counter()
        try:
            with limits(arguments.seconds, arguments.megabytes):
                counts[outcome(case)] += 1
        except Exception as error:  # noqa: BLE001 - what comes here is what the sweep is looking for
            counts["failed"] += 1
            print(f"{path.name} case {number}: {type(error).__name__}: {error}")
            if arguments.keep:
                (arguments.keep / f"{path.stem}.{arguments.seed}.{number}.tflite").write_bytes(case)
        counts["slowest, ms"] = max(counts["slowest, ms"], round(1e3 * (time.perf_counter() - start)))


def main() -> int:
    """Exit status: 0 all well, 1 some case was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", metavar="MODEL", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=1000, help="damaged copies of every model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0, help="longest time of one case")
    parser.add_argument("--megabytes", type=int, default=512, help="most memory that one case may add")
    parser.add_argument("--keep", type=Path, help="an existing folder for the bytes of failed cases")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    for path in arguments.models:
        sweep(path, arguments, counts)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
