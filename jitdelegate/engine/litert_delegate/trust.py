"""Decides whether the delegate may access the installed LiteRT: in verified wheels, or after a successful probe.

LiteRT does not promise the layout of its structures. Verified wheels are listed; for any other a child process tries
the delegate on a tiny model, and the verdict is stored beside the programs.
"""

from __future__ import annotations

import os
import sys

from xxhash import xxh3_128_hexdigest

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import close_quietly
from jitdelegate.runtime.litert_layout import LAYOUT
from jitdelegate.runtime.memory import machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.cache.directory import CacheDirectory
    from jitdelegate.runtime.litert_layout import Layout

VERIFIED = ("2.2.0", "2.3.0")
"""Versions of the package ai-edge-litert whose wheels for Linux on x86-64 and AArch64 have the structures of LAYOUT."""
ACCEPTED = "accepted"
"""The probe's last line after success."""
LONGEST_PROBE = 20.0
"""Seconds after which the probe counts as hanging."""
_LARGEST_RECORD = 1 << 20
_LARGEST_VERDICT = 4096
_KILLED = 9

_verdicts: dict[tuple[str, str], str] = {}
_libraries: dict[str, tuple[str, ...]] = {}
probes = 0
"""Number of child processes that this process started; for tests."""


def refusal(directory: CacheDirectory | None, layout: Layout = LAYOUT) -> str:
    """ "" if the delegate may be used with the installed LiteRT, else one sentence.

    Args:
        directory: directory for verdicts of probes; None probes once per process.
        layout: the assumed layout of the structures.
    """
    try:
        folder = litert_folder()
        key = folder, layout.digest()
        if key not in _verdicts:
            _verdicts[key] = platform_refusal() or _decide(folder, directory, layout)
        return _verdicts[key]
    except (ImportError, OSError) as error:
        return f"LiteRT's libraries cannot be found: {error}"


def platform_refusal() -> str:
    """ "" if the delegate's machine code runs on this system, else one sentence."""
    if machine() and sys.implementation.name == "cpython":
        return ""
    name = os.uname().machine if hasattr(os, "uname") else ""
    return (
        "LiteRT's structures are known on 64-bit Linux on x86_64 and aarch64 with CPython, and this is "
        f"{sys.platform} on {name or 'an unknown machine'} with {sys.implementation.name}"
    )


def litert_folder() -> str:
    """The folder of the package ai_edge_litert.

    Raises:
        ImportError: it is not installed.
    """
    import ai_edge_litert

    return str(ai_edge_litert.__path__[0])


def libraries(folder: str) -> tuple[str, ...]:
    """The shared objects in the folder of LiteRT's package; one of them has the interpreter.

    Raises:
        OSError: the folder cannot be read.
    """
    if folder not in _libraries:
        names = sorted(name for name in os.listdir(folder) if "litert" in name.lower() and ".so" in name)
        _libraries[folder] = tuple(os.path.join(folder, name) for name in names)
    return _libraries[folder]


def probe(folder: str, layout: Layout = LAYOUT) -> tuple[str, bool]:
    """Run a child process now: ("" or the reason to refuse, whether a later probe would give the same verdict)."""
    import subprocess

    global probes
    if getattr(sys, "frozen", False) or not sys.executable:
        return "the probe of LiteRT's structures needs a Python interpreter, and this program is none", False
    probes += 1
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", "jitdelegate.engine.litert_delegate.probe"],
            input=layout.text(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST_PROBE,
            env=_environment(folder),
        )
    except subprocess.TimeoutExpired:
        return f"the probe of LiteRT's structures did not end within {LONGEST_PROBE:g} s", False
    except OSError as error:
        return f"the probe of LiteRT's structures cannot be started: {error}", False
    if child.returncode < 0:
        return f"the probe of LiteRT's structures died of signal {-child.returncode}", child.returncode != -_KILLED
    return _verdict_of(child.stdout, child.returncode), True


def accept(layout: Layout) -> None:
    """Accept this layout without a probe: for the probe's own process."""
    _verdicts[litert_folder(), layout.digest()] = ""


def forget() -> None:
    """Forget all verdicts of this process; for tests."""
    _verdicts.clear()
    _libraries.clear()


def _decide(folder: str, directory: CacheDirectory | None, layout: Layout) -> str:
    if layout.digest() == LAYOUT.digest() and _is_verified(folder):
        return ""
    key = _key(folder, layout)
    known = _load(directory, key)
    if known is not None:
        return known
    verdict, lasting = probe(folder, layout)
    if lasting:
        _store(directory, key, verdict)
    return verdict


def _is_verified(folder: str) -> bool:
    """Whether it is a listed wheel whose libraries have the recorded sizes."""
    for version in VERIFIED:
        record = _read(
            os.path.join(os.path.dirname(os.path.abspath(folder)), f"ai_edge_litert-{version}.dist-info", "RECORD")
        )
        if record:
            return all(_is_recorded(library, record) for library in libraries(folder))
    return False


def _is_recorded(library: str, record: bytes) -> bool:
    name = os.fsencode(os.path.basename(library))
    start = record.find(b"ai_edge_litert/" + name + b",")
    line = record[start:].split(b"\n", 1)[0].strip()
    return start >= 0 and line.rpartition(b",")[2] == str(os.stat(library).st_size).encode()


def _read(path: str) -> bytes:
    """The content of a file; b"" for a missing file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _LARGEST_RECORD)
    except OSError:
        return b""
    finally:
        close_quietly(descriptor)


def _key(folder: str, layout: Layout) -> str:
    """Everything that a verdict depends on."""
    lines = [layout.digest(), f"{sys.version_info[0]}.{sys.version_info[1]}"]
    for library in libraries(folder):
        status = os.stat(library)
        lines.append(f"{library} {status.st_size} {status.st_mtime_ns} {status.st_ino}")
    return "\n".join(lines)


def _load(directory: CacheDirectory | None, key: str) -> str | None:
    """The stored verdict; None where there is none."""
    if directory is None:
        return None
    try:
        descriptor = directory.open(_name(key))
    except (OSError, CacheError):
        return None
    try:
        seal, _, verdict = os.read(descriptor, _LARGEST_VERDICT).decode("utf-8", "replace").partition("\n")
    except OSError:
        return None
    finally:
        close_quietly(descriptor)
    return verdict if seal == _seal(key, verdict) else None


def _store(directory: CacheDirectory | None, key: str, verdict: str) -> None:
    if directory is None:
        return
    try:  # noqa: SIM105 - contextlib is not imported on the load path
        directory.write(_name(key), f"{_seal(key, verdict)}\n{verdict}".encode(), flush=False)
    except OSError:
        pass  # the next process probes again


def _name(key: str) -> str:
    return f".litert-{xxh3_128_hexdigest(key.encode())[:16]}"


def _seal(key: str, verdict: str) -> str:
    """Hash of a verdict and its key, so that damage reads as "not known"."""
    return xxh3_128_hexdigest(f"{key}\0{verdict}".encode())


def _environment(folder: str) -> dict[str, str]:
    """Environment in which the child finds the same packages; -P keeps the working directory out."""
    paths = [
        os.path.dirname(os.path.abspath(folder)),
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))),
    ]
    paths += [path for path in sys.path if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _verdict_of(output: str, status: int) -> str:
    last = output.strip().rpartition("\n")[2]
    if last == ACCEPTED and status == 0:
        return ""
    return f"the probe of LiteRT's structures answered: {last[:300] or f'nothing, and status {status}'}"
