"""A sweep: the problems of networks, and for each candidate all that is needed to run it.

Two files for a kind of GPU: a list of problems, and the machine code of all kernels. Candidates have no weights,
because values do not change the time.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jitdelegate.errors import ProgramError
from jitdelegate.program.program import CUBIN_ALIGNMENT, Kernel, Launch, Program
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from jitdelegate.runtime.cache.tuned import SUFFIX, table_name

LISTED, CODE, CEILINGS = ".problems.z", ".cubins.z", ".ceilings.z"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a problem.

    Attributes:
        kernels: names, in the order in which launches refer to them.
        launches: the attributes of each.
        moved: of each launch, as `Launch` of the CUDA target has it.
    """

    arena_bytes: int
    weight_bytes: int
    kernels: Sequence[str]
    launches: Sequence[Mapping[str, Any]]
    moved: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem.

    Attributes:
        text: its line in tables.
        cycles: of the cost model's candidate, times the number of nodes that have the problem.
        candidates: by name, the cost model's first.
    """

    text: str
    cycles: float
    candidates: Mapping[str, Candidate]


@dataclass(frozen=True, slots=True)
class Sweep:
    """All of a kind of GPU.

    Attributes:
        code: by kernel, its binary.
        ceilings: the program whose launches say what the GPU can do.
    """

    kind: str
    problems: Sequence[Problem]
    code: Mapping[str, bytes]
    ceilings: bytes

    def program(self, candidate: Candidate) -> Program:
        """A candidate, ready to run."""
        code, entries, kernels = bytearray(), [], []
        launches = [Launch(**{name: _plain(value) for name, value in one.items()}) for one in candidate.launches]
        threads = {launch.kernel: launch.block[0] for launch in launches}
        for number, name in enumerate(candidate.kernels):
            code.extend(bytes(-len(code) % CUBIN_ALIGNMENT))
            entries.append((name, len(code)))
            code.extend(self.code[name])
            kernels.append(Kernel(name=name, form="", chunks=1, threads=threads[number]))
        return read(
            write(
                Program(
                    key=(("model", "0" * 32), ("target", "cuda")),
                    target="cuda",
                    features=self.kind.partition(":")[0],
                    loader="cubin",
                    arena_bytes=candidate.arena_bytes,
                    entries=tuple(entries),
                    kernels=tuple(kernels),
                    launches=tuple(launches),
                    code=bytes(code),
                    weights=bytes(candidate.weight_bytes),
                )
            )
        )


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def write_sweep(sweep: Sweep, folder: Path) -> int:
    """Write the files of a sweep; returns their bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {name: len(image) for name, image in sweep.code.items()}
    listed = {"format": FORMAT, "code": sizes, "problems": [asdict(problem) for problem in sweep.problems]}
    contents = {LISTED: json.dumps(listed).encode(), CODE: b"".join(sweep.code.values()), CEILINGS: sweep.ceilings}
    written = 0
    for suffix, content in contents.items():
        written += (folder / f"{_stem(sweep.kind)}{suffix}").write_bytes(zlib.compress(content, 9))
    return written


def read_sweep(folder: Path, kind: str) -> Sweep:
    """The sweep for a kind of GPU in a folder.

    Raises:
        ProgramError: there is none, or one of another version of this script.
    """
    try:
        listed, code, ceilings = (
            zlib.decompress((folder / f"{_stem(kind)}{suffix}").read_bytes()) for suffix in (LISTED, CODE, CEILINGS)
        )
        values = json.loads(listed)
    except (OSError, ValueError, zlib.error) as error:
        raise ProgramError(f"{folder} has nothing prepared for {kind}: {error}") from error
    if values["format"] != FORMAT:
        raise ProgramError(f"{folder} has format {values['format']!r}, expected {FORMAT}")
    images, at = {}, 0
    for name, size in values["code"].items():
        images[name] = code[at : at + size]
        at += size
    return Sweep(kind, [_problem(each) for each in values["problems"]], images, ceilings)


def _problem(values: Mapping[str, object]) -> Problem:
    candidates = values["candidates"]
    assert isinstance(candidates, dict)
    found = {name: Candidate(**each) for name, each in candidates.items()}
    return Problem(**{**values, "candidates": found})  # type: ignore[arg-type]


def kinds_in(folder: Path) -> list[str]:
    """The kinds of GPU that a folder was prepared for."""
    names = sorted(path.name.removesuffix(LISTED) for path in folder.glob(f"*{LISTED}"))
    return [name.replace("-", ":") for name in names]


def _stem(kind: str) -> str:
    return table_name(kind).removesuffix(SUFFIX)
