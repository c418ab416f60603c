"""A network's file, and a cache that has its prepared program, as after a user's first run."""

from __future__ import annotations

import zlib
from pathlib import Path

from jitdelegate.base.options import DelegateOptions
from jitdelegate.engine.load_path import find_key
from jitdelegate.errors import CacheError
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from jitdelegate.runtime.cache.key import fingerprint
from jitdelegate.runtime.cache.store import open_store
from jitdelegate.targets.cuda.target import CudaDevice
from scripts.gpu_check.bundle import Prepared
from scripts.gpu_check.gpu import gpu


def filled_cache(prepared: Prepared, folder: Path) -> tuple[Path, Path]:
    """The file and the cache's directory, in `folder`. The program is stored as the entry that this machine looks for:
    its versions of compilers and numpy may be others.

    Raises:
        JitDelegateError: the cache cannot be written, or the program cannot be read.
    """
    model, cache = folder / Path(prepared.case.model).stem, folder / prepared.precision
    if not model.exists():
        model.write_bytes(zlib.decompress((prepared.folder / prepared.case.model).read_bytes()))
    store = open_store(str(cache))
    options = DelegateOptions(target="cuda", precision=prepared.precision)
    key = find_key(CudaDevice(gpu().kind), options, fingerprint(str(model)))
    program = read(prepared.content)
    program.key = key.parts
    trouble = store.put(key, write(program))
    if trouble:
        raise CacheError(trouble)
    return model, cache
