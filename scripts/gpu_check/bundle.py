"""The folder that is carried to a GPU machine: programs, inputs, expected outputs, and one manifest that names them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jitdelegate.errors import ProgramError
from jitdelegate.runtime.cuda_device import runs

MANIFEST = "manifest.json"
FORMAT = 1
FORM, MODEL = "form", "model"
EXAMPLE = "example MobileNet v1 1.0 224"
"""The case that latency, start-up and the comparisons with other software are measured on."""
PRECISIONS = ("float32", "float16")


@dataclass(frozen=True, slots=True)
class Case:
    """One graph with values to run it on.

    Attributes:
        name: unique in the bundle.
        group: "form" for a few operators, "model" for a whole network.
        reference: what computed the expected outputs.
        inputs, outputs: files of raw little-endian values, in the graph's order.
        programs: by architecture and precision ("sm_90 float16"), the program's file, packed by `pack`.
        limits: by precision, the largest NRMSE of an output.
    """

    name: str
    group: str
    reference: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    programs: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """One program of a bundle, for the GPU at hand.

    Attributes:
        case: what it computes.
        precision: how.
        folder, path: of the bundle, and of the program's file in it.
    """

    case: Case
    precision: str
    folder: Path
    path: str

    @property
    def name(self) -> str:
        """The case and the precision."""
        return f"{self.case.name}, {self.precision}"

    @property
    def limit(self) -> float:
        """The largest NRMSE that an output may have."""
        return self.case.limits[self.precision]

    @property
    def content(self) -> bytes:
        """The program, as `jitdelegate.program.read` takes it."""
        return zlib.decompress((self.folder / self.path).read_bytes())

    @property
    def inputs(self) -> list[bytes]:
        """The values of the case's inputs."""
        return [(self.folder / path).read_bytes() for path in self.case.inputs]

    @property
    def outputs(self) -> list[bytes]:
        """The values that its outputs should have."""
        return [(self.folder / path).read_bytes() for path in self.case.outputs]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A prepared folder.

    Attributes:
        folder: where it is.
        cases: what is in it.
        left_out: what was to be in it and is not, with the reason, by name and precision.
    """

    folder: Path
    cases: Sequence[Case]
    left_out: Mapping[str, str]

    @property
    def architectures(self) -> list[str]:
        """The GPU architectures that there are programs for."""
        return sorted({place.split()[0] for case in self.cases for place in case.programs})

    def architecture(self, capability: tuple[int, int]) -> str:
        """The newest of `architectures` that runs on a device of this capability.

        Raises:
            ProgramError: none does.
        """
        usable = [each for each in self.architectures if runs(each, capability)]
        if not usable:
            there, own = ", ".join(self.architectures) or "no GPU", f"sm_{capability[0]}{capability[1]}"
            raise ProgramError(f"the programs are for {there}, the GPU is {own}: prepare with --architectures {own}")
        return usable[-1]

    def prepared(self, architecture: str, group: str = "") -> Iterator[Prepared]:
        """The programs for an architecture, those of one group or all."""
        for case in self.cases:
            for precision in PRECISIONS:
                path = case.programs.get(f"{architecture} {precision}")
                if path and group in ("", case.group):
                    yield Prepared(case, precision, self.folder, path)

    def example(self, architecture: str, precision: str) -> Prepared:
        """The example network.

        Raises:
            ProgramError: it is not in the folder.
        """
        for one in self.prepared(architecture, MODEL):
            if one.case.name == EXAMPLE and one.precision == precision:
                return one
        reason = self.left_out.get(f"{EXAMPLE}, {precision}", "it was not prepared")
        raise ProgramError(f"no program of {EXAMPLE} in {precision} for {architecture}: {reason}")


def pack(program: bytes) -> bytes:
    """A program as a bundle holds it: machine code shrinks to a quarter."""
    return zlib.compress(program)


def write_bundle(bundle: Bundle) -> None:
    """Write the manifest; the files that it names are written by who made the cases."""
    values = {
        "format": FORMAT,
        "cases": [asdict(case) for case in bundle.cases],
        "left_out": dict(bundle.left_out),
    }
    (bundle.folder / MANIFEST).write_text(json.dumps(values, indent=1) + "\n")


def read_bundle(folder: Path) -> Bundle:
    """What a folder holds.

    Raises:
        ProgramError: there is no manifest in it, or one of another version of this script.
    """
    try:
        values = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise ProgramError(f"{folder} was not prepared: {error}") from error
    if values.get("format") != FORMAT:
        raise ProgramError(f"{folder / MANIFEST} has format {values.get('format')!r}, expected {FORMAT}")
    return Bundle(folder, [Case(**case) for case in values["cases"]], values["left_out"])
