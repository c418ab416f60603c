"""The folder that is carried to a GPU machine: programs, inputs, expected outputs, and one manifest that names them.

The weights of a network are in its model, once, though every program of it lays them out in its own way: `weights.py`
puts them back into the programs, which are kept with zeros instead.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jitdelegate.errors import ProgramError
from jitdelegate.runtime.cuda.architectures import is_portable, parsed
from jitdelegate.runtime.cuda.device import Device, runs
from scripts.gpu_check.weights import restored

MANIFEST = "manifest.json"
FORMAT = 3
FORM, MODEL = "form", "model"
EXAMPLE = "example MobileNet v1 1.0 224"
"""The case that latency, start-up and the comparisons with other software are measured on."""
PRECISIONS = ("float32", "tf32", "float16")
BATCHES = (1, 8, 32)
REPEATS = 1000


@dataclass(frozen=True, slots=True)
class Values:
    """A tensor's values in a file.

    Attributes:
        path: of raw little-endian values, packed: what the tensor holds, or what it holds for each of two images.
        blocks: of the values for an image, how many bytes lie together in a batch, where those of the next image
            follow; () where the file is what the tensor holds.
    """

    path: str
    blocks: Sequence[int] = ()

    def read(self, folder: Path, batch: int) -> bytes:
        """What the tensor of a batch holds."""
        content = zlib.decompress((folder / self.path).read_bytes())
        return batch_of(content, self.blocks, batch) if self.blocks else content


@dataclass(frozen=True, slots=True)
class Entry:
    """A program.

    Attributes:
        path: of its file, packed.
        weights: xxh3-128 of its weights, in hex.
        launches: the family of each launch, and the cycles that the cost model expects it to take.
    """

    path: str
    weights: str
    launches: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One graph with values to run it on.

    Attributes:
        name: unique in the bundle.
        group: "form" for a few operators, "model" for a whole network.
        reference: what computed the expected outputs.
        inputs, outputs: in the graph's order.
        programs: by kind of GPU and precision ("sm_90 float16").
        limits: by precision, the largest NRMSE of an output.
        batch: images in one inference.
        model: the packed file of the model that has the programs' weights; "" where the programs have them themselves.
        shapes: of the inputs, where they are others than the model says.
        steps: runs that the outputs are expected after. Each takes its own part of an input's values.
        carried: (input, output) for each input that is an output of the step before; its values are the first step's.
    """

    name: str
    group: str
    reference: str
    inputs: Sequence[Values]
    outputs: Sequence[Values]
    programs: Mapping[str, Entry] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    batch: int = 1
    model: str = ""
    shapes: Sequence[Sequence[int]] = ()
    steps: int = 1
    carried: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """One program of a bundle, for the GPU at hand.

    Attributes:
        case: what it computes.
        precision: how.
        kind: of the GPU that it is for.
        folder: of the bundle.
    """

    case: Case
    precision: str
    kind: str
    folder: Path

    @property
    def name(self) -> str:
        """The case and the precision."""
        return f"{self.case.name}, {self.precision}"

    @property
    def entry(self) -> Entry:
        """What the bundle knows of it."""
        return self.case.programs[f"{self.kind} {self.precision}"]

    @property
    def limit(self) -> float:
        """The largest NRMSE that an output may have."""
        return self.case.limits[self.precision]

    @property
    def content(self) -> bytes:
        """The program with its weights, as `jitdelegate.program.read` takes it."""
        kept = zlib.decompress((self.folder / self.entry.path).read_bytes())
        if not self.case.model:
            return kept
        return restored(kept, self.folder / self.case.model, self.case.shapes, self.kind, self.precision)

    @property
    def inputs(self) -> list[bytes]:
        """The values of the case's inputs."""
        return [values.read(self.folder, self.case.batch) for values in self.case.inputs]

    def fed(self, inputs: Sequence[bytes], step: int) -> list[tuple[int, bytes]]:
        """The positions and values of inputs to set before a step, those that are carried only before the first.

        Args:
            inputs: what `inputs` says.
        """
        carried = {position for position, _ in self.case.carried}
        sizes = [len(value) // (1 if at in carried else self.case.steps) for at, value in enumerate(inputs)]
        own = [at for at in range(len(inputs)) if not step or at not in carried]
        return [(at, inputs[at][step * sizes[at] : (step + 1) * sizes[at]]) for at in own]

    @property
    def outputs(self) -> list[bytes]:
        """The values that its outputs should have."""
        return [values.read(self.folder, self.case.batch) for values in self.case.outputs]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A prepared folder.

    Attributes:
        folder: where it is.
        cases: what is in it.
        left_out: what was to be in it and is not, with the reason, by name and precision.
        ceilings: by kind of GPU, the program whose launches say what the GPU can do.
        repeats: how often each program runs in each order.
    """

    folder: Path
    cases: Sequence[Case]
    left_out: Mapping[str, str]
    ceilings: Mapping[str, str] = field(default_factory=dict)
    repeats: int = REPEATS

    @property
    def name(self) -> str:
        """The folder's."""
        return self.folder.resolve().name

    @property
    def kinds(self) -> list[str]:
        """The kinds of GPU that there are programs for."""
        return sorted({place.split()[0] for case in self.cases for place in case.programs})

    def kind(self, device: Device) -> str:
        """The one of `kinds` that suits a device best.

        Raises:
            ProgramError: the code of none runs there.
        """
        usable = [each for each in self.kinds if runs(parsed(each)[0], device.capability)]
        if not usable:
            there, own = ", ".join(self.kinds) or "no GPU", "sm_{}{}".format(*device.capability)
            raise ProgramError(f"the programs are for {there}, the GPU is {own}: prepare with --architectures {own}")
        newest = max(
            (parsed(each)[0] for each in usable), key=lambda name: (not is_portable(name), int(name.rpartition("_")[2]))
        )
        nearest = (each for each in usable if parsed(each)[0] == newest)
        return min(nearest, key=lambda each: abs(parsed(each)[1] - device.multiprocessors))

    def prepared(self, kind: str, group: str = "") -> Iterator[Prepared]:
        """The programs for a kind of GPU, those of one group or all."""
        for case in self.cases:
            for precision in PRECISIONS:
                if f"{kind} {precision}" in case.programs and group in ("", case.group):
                    yield Prepared(case, precision, kind, self.folder)

    def example(self, kind: str, precision: str, batch: int = 1) -> Prepared:
        """The example network.

        Raises:
            ProgramError: it is not in the folder.
        """
        name = named(EXAMPLE, batch)
        for one in self.prepared(kind, MODEL):
            if (one.case.name, one.precision) == (name, precision):
                return one
        reason = self.left_out.get(f"{name}, {precision}", "it was not prepared")
        raise ProgramError(f"no program of {name} in {precision} for {kind}: {reason}")

    def ceiling(self, kind: str) -> bytes:
        """The program of `ceilings` for a kind of GPU."""
        return zlib.decompress((self.folder / self.ceilings[kind]).read_bytes())


def named(model: str, batch: int) -> str:
    """What the case of a model is called that takes so many images."""
    return model if batch == 1 else f"{model}, batch {batch}"


def order(batch: int) -> list[int]:
    """Which of two images each image of a batch is: an order without a period, so that none may stand where another
    belongs."""
    return [number.bit_count() % 2 for number in range(batch)]


def batch_of(content: bytes, blocks: Sequence[int], batch: int) -> bytes:
    """A batch made of what a tensor holds for two images; `blocks` as `Values` has them."""
    images, start, joined = (content[: len(content) // 2], content[len(content) // 2 :]), 0, []
    for size in blocks:
        joined += [images[image][start : start + size] for image in order(batch)]
        start += size
    return b"".join(joined)


def pack(content: bytes) -> bytes:
    """A file as a bundle holds it: machine code shrinks to a quarter."""
    return zlib.compress(content, 9)


def write_bundle(bundle: Bundle) -> None:
    """Write the manifest; the files that it names are written by who made the cases."""
    values = {
        "format": FORMAT,
        "cases": [asdict(case) for case in bundle.cases],
        "left_out": dict(bundle.left_out),
        "ceilings": dict(bundle.ceilings),
        "repeats": bundle.repeats,
    }
    (bundle.folder / MANIFEST).write_text(json.dumps(values) + "\n")


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
    return Bundle(folder, list(map(_case, values["cases"])), values["left_out"], values["ceilings"], values["repeats"])


def _case(values: dict[str, object]) -> Case:
    case = Case(**values)  # type: ignore[arg-type]
    lists = {name: [Values(**each) for each in getattr(case, name)] for name in ("inputs", "outputs")}
    programs = {place: Entry(**entry) for place, entry in case.programs.items()}  # type: ignore[arg-type]
    return Case(**{**values, **lists, "programs": programs})  # type: ignore[arg-type]
