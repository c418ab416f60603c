"""Folder: a bundle that is being filled, as far as there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import ModuleType
from zipfile import ZIP_DEFLATED, ZipFile

import flatbuffers
import llvmlite
import numpy as np
from xxhash import xxh3_128_hexdigest

from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.compile import compile_model
from jitdelegate.engine.load_path import find_key
from jitdelegate.errors import JitDelegateError, OptionError
from jitdelegate.program.read import read as read_program
from jitdelegate.program.write import write as write_program
from jitdelegate.runtime.cache.key import fingerprint, variant_parts
from jitdelegate.targets.cuda.target import CudaDevice
from scripts.gpu_check.bundle import REPEATS, Bundle, Case, Entry, Values, pack, write_bundle
from scripts.gpu_check.ceiling_kernels import ceilings_program
from scripts.gpu_check.weights import plan_of
from scripts.prepare_gpu_check.source import Feed, Source, limits

PACKAGES = "python.zip"


@dataclass
class Folder:
    """The folder being filled.

    Attributes:
        path: of the folder.
        gpus: kinds of GPU to compile for.
        room: bytes that it may hold.
        repeats: as in `Bundle`.
        templates: where the kernels' IR is kept, which programs have in common; False for nowhere.
        nbytes: bytes that it holds.
        cases, left_out: as in `Bundle`.
    """

    path: Path
    gpus: Sequence[str]
    room: int
    templates: str | bool = False
    repeats: int = REPEATS
    nbytes: int = 0
    cases: list[Case] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    _written: dict[str, int] = field(default_factory=dict)

    def add(self, source: Source) -> None:
        """Compile the source and keep its programs and values, as far as there is room for all of them."""
        print(source.name, flush=True)
        shared = {f"models/{_plain(source.shared)}.tflite.z": pack(source.content)} if source.shared else {}
        try:
            outputs = source.expected()
        except RuntimeError as error:  # as LiteRT raises it
            self.left_out[source.name] = f"{source.reference}: {' '.join(str(error).split())}"
            return
        data = {**self._packed(source, "in", source.feeds), **self._packed(source, "out", outputs)}
        programs = {}
        for gpu in self.gpus:
            for precision in source.precisions:
                entry = self._program(source, gpu, precision, {**shared, **data})
                if entry:
                    programs[f"{gpu} {precision}"] = entry
        if programs:
            self.cases.append(self._case(source, outputs, programs, next(iter(shared), "")))

    def _program(self, source: Source, gpu: str, precision: str, others: Mapping[str, bytes]) -> Entry | None:
        """A program, None where it is left out.

        Args:
            others: files that it needs beside it.
        """
        name = f"{source.name}, {precision}"
        try:
            content = compiled(source, gpu, precision, self.templates)
            kept, entry = stored(source, content, gpu, precision, f"programs/{_plain(f'{name}, {gpu}')}.jitd.z")
        except JitDelegateError as error:
            self.left_out[name] = f"{gpu}: {error}"
            return None
        files = {**others, entry.path: pack(kept)}
        needed = sum(len(content) for path, content in files.items() if path not in self._written)
        if self.nbytes + needed > self.room:
            self.left_out[name] = f"{gpu}: it takes {needed / 2**20:.1f} MiB, more than there was room for"
            return None
        for path, packed in files.items():
            self._write(path, packed)
        return entry

    def _packed(self, source: Source, which: str, feeds: Sequence[Feed]) -> dict[str, bytes]:
        """Values, by their files; those of images are the same for every batch."""
        return {
            self._place(source, which, number, feed): pack(np.ascontiguousarray(feed.array).tobytes())
            for number, feed in enumerate(feeds)
        }

    @staticmethod
    def _place(source: Source, which: str, number: int, feed: Feed) -> str:
        name = f"{source.shared} images" if feed.blocks else source.name
        return f"data/{_plain(name)}-{which}-{number}.bin.z"

    def _case(self, source: Source, outputs: Sequence[Feed], programs: Mapping[str, Entry], model: str) -> Case:
        def values(which: str, feeds: Sequence[Feed]) -> list[Values]:
            places = (self._place(source, which, number, feed) for number, feed in enumerate(feeds))
            return [Values(place, feed.blocks) for place, feed in zip(places, feeds, strict=True)]

        return Case(
            name=source.name,
            group=source.group,
            reference=source.reference,
            inputs=values("in", source.feeds),
            outputs=values("out", outputs),
            programs=programs,
            limits=limits(source.content),
            batch=source.batch,
            model=model,
            shapes=source.shapes,
            steps=source.steps,
            carried=source.carried,
        )

    def _write(self, name: str, content: bytes) -> str:
        if name not in self._written:
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            self._written[name] = len(content)
            self.nbytes += len(content)
        return name

    def finish(self) -> None:
        """Write the ceilings' programs, the packages that a GPU machine may lack, and the manifest."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._write(PACKAGES, sources_of(flatbuffers, llvmlite))
        ceilings = {
            gpu: self._write(f"programs/{_plain(f'ceilings, {gpu}')}.jitd.z", pack(ceilings_program(gpu)))
            for gpu in self.gpus
        }
        write_bundle(Bundle(self.path, self.cases, self.left_out, ceilings, self.repeats))


def sources_of(*packages: ModuleType) -> bytes:
    """An archive that Python imports the packages from, without what is compiled: the check writes no code, and so it
    needs nothing of LLVM."""
    content = BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED) as archive:
        for package in packages:
            root = Path(str(package.__file__)).parent
            for path in sorted(root.rglob("*.py")):
                archive.write(path, path.relative_to(root.parent))
    return content.getvalue()


def compiled(source: Source, gpu: str, precision: str, templates: str | bool = False) -> bytes:
    """The program of a source for a kind of GPU.

    Args:
        templates: the folder of the kernels' IR, False for none.
    Raises:
        JitDelegateError: the model, or part of it, is not compiled.
    """
    options = DelegateOptions(target="cuda", precision=precision, serialization_dir=templates)
    key = find_key(CudaDevice(gpu), options, fingerprint(source.content), variant_parts(0, source.shapes))
    content = b"".join(compile_model(source.content, options, key, {}))
    found = read_program(content)
    if found.target != "cuda" or found.loader != "cubin":
        reasons = dict.fromkeys(operator.reason for operator in found.operators if operator.reason)
        raise OptionError(f"it is not compiled as a whole: {' '.join(reasons)}")
    return content


def stored(source: Source, content: bytes, gpu: str, precision: str, path: str) -> tuple[bytes, Entry]:
    """A program as the bundle keeps it, and what the manifest says of it: without the weights that it shares."""
    program = read_program(content)
    launches = [
        (launch.template.family, round(launch.cycles))
        for launch in plan_of(source.content, source.shapes, gpu, precision).launches
    ]
    entry = Entry(path, xxh3_128_hexdigest(program.weights), launches)
    if not source.shared:
        return content, entry
    program.weights = bytes(len(program.weights))
    return write_program(program), entry


def _plain(name: str) -> str:
    """The name for a file."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
