"""The layers of docs/ARCHITECTURE.md, held by reading every import statement."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from jitdelegate.base.targets import ROWS
from jitdelegate.targets import target_named

ROOT = Path(__file__).resolve().parents[1]
LAYERS = (
    ("errors",),
    ("base",),
    ("ir", "program"),
    ("runtime",),
    ("tflite",),
    ("ops",),
    ("passes",),
    ("targets",),
    ("compiler",),
    ("engine.litert_delegate",),
    ("engine",),
    ("api",),
    ("commands.analysis", "commands.measurement"),
    ("commands",),
    (
        *("interpreter", "compiled_model", "tensor_buffer", "environment", "hardware_accelerator", "cpu_kernel_mode"),
        *("cpu_options", "gpu_options", "qualcomm_options", "intel_openvino_options", "options"),
        *("warm", "demo", "analyze", "replay", "benchmark", "diff", "telemetry", "__main__"),
    ),
)
"""Parts of the package, lowest first; a part imports its own layer's and lower ones. The table of targets names modules
and imports none."""
TARGET_FLOORS = (
    ("", "maths", "planning"),
    ("cuda.code.tuned", "litert", "reference"),
    ("cpu.code", "cuda.code"),
    ("cpu.entry", "cpu.multiply", "cuda.compile", "cuda.multiply"),
    ("cpu.sources", "cuda.sources"),
    ("cpu.forms", "cpu.walks", "cuda.walks"),
    ("cpu", "cpu.products", "cuda.forms", "cuda.products"),
    ("cuda.plan",),
    ("cuda",),
)
"""Rooms of `targets`, lowest first; a module imports its own room and rooms of lower floors."""
MOST_FILES = 22
"""Modules of a room of `targets`."""
WARM_PARTS = {"errors", "base", "program", "runtime", "engine", "api"}
WARM_TARGETS = {"jitdelegate.targets", "jitdelegate.targets.host"}
COLD_MODULES = {
    "jitdelegate.base.exit_status",
    "jitdelegate.base.html_tables",
    "jitdelegate.base.progress",
    "jitdelegate.base.tables",
    "jitdelegate.program.write",
    "jitdelegate.runtime.cache.public_key",
    "jitdelegate.runtime.cache.remote",
    "jitdelegate.runtime.cache.remote_files",
    "jitdelegate.runtime.cache.statements",
    "jitdelegate.engine.litert_delegate.probe",
    "jitdelegate.engine.litert_delegate.probe_model",
    "jitdelegate.runtime.cache.limit",
    "jitdelegate.engine.choose_precision",
    "jitdelegate.engine.example_values",
    "jitdelegate.engine.precompile",
    "jitdelegate.engine.verified",
    "jitdelegate.base.litert_options",
    "jitdelegate.base.npu_options",
    "jitdelegate.base.option_types",
    "jitdelegate.base.user_warning",
    "jitdelegate.api.dynamic_batcher",
    "jitdelegate.api.metrics",
    "jitdelegate.api.tracing",
}
WARM_IMPORTS = {
    "_signal",
    "_thread",
    "_weakref",
    "atexit",
    "ctypes",
    "errno",
    "fcntl",
    "mmap",
    "os",
    "stat",
    "struct",
    "sys",
    "time",
    "xxhash",
}
"""What the load path may import as it loads; each costs next to nothing."""


def _modules(package: str) -> list[Path]:
    """Every module but the package itself, which names everything and imports nothing until asked."""
    return sorted(path for path in (ROOT / package).rglob("*.py") if path != ROOT / package / "__init__.py")


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports(node: ast.AST, *, deferred: bool, typed: bool = False) -> Iterator[str]:
    """Modules that the statements under `node` import.

    Args:
        deferred: also within functions.
        typed: also for type checkers only.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not typed:
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import of {child.module}"
            assert child.module
            yield from (_module(child.module, alias.name) for alias in child.names)
        elif deferred or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _imports(child, deferred=deferred, typed=typed)


def _module(package: str, name: str) -> str:
    """What `from package import name` imports: a module of ours, or the package."""
    path = ROOT.joinpath(*package.split("."), name)
    return f"{package}.{name}" if path.with_suffix(".py").exists() or path.is_dir() else package


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _own(path: Path, package: str = "jitdelegate") -> set[str]:
    """The modules of a package of ours that one imports, whenever and for whomever."""
    modules = _imports(_tree(path), deferred=True, typed=True)
    return {module for module in modules if module.startswith(f"{package}.")}


def _layer(module: str) -> int:
    layers = {part: number for number, parts in enumerate(LAYERS) for part in parts}
    room, folder = module.split(".")[1], ".".join(module.split(".")[1:3])
    assert room in layers, f"{module} is in no layer; enter it in LAYERS"
    return layers.get(folder, layers[room])


def _is_warm(path: Path) -> bool:
    name = _name(path)
    return _loads_warm(name)


def _loads_warm(module: str) -> bool:
    """Whether a warm start may load it."""
    if module.startswith("jitdelegate.targets"):
        is_folder = (ROOT.joinpath(*module.split(".")) / "__init__.py").exists() and module.count(".") == 2
        return module in WARM_TARGETS or is_folder or (module.endswith(".target") and module.count(".") == 3)
    return module.count(".") > 0 and module.split(".")[1] in WARM_PARTS and module not in COLD_MODULES


def test_modules_import_only_their_own_layer_and_lower_ones() -> None:
    names = {path: _name(path) for path in _modules("jitdelegate")}
    upwards = {name: {one for one in _own(path) if _layer(one) > _layer(name)} for path, name in names.items()}
    assert {name: modules for name, modules in upwards.items() if modules} == {}


def _target_room(module: str) -> str:
    """The room of a module of `targets`: "cpu.code", or "" for `targets` itself."""
    is_room = ROOT.joinpath(*module.split(".")).is_dir()
    return ".".join(module.split(".")[2 : None if is_room else -1])


def test_rooms_of_targets_import_only_rooms_of_lower_floors() -> None:
    floors = {room: floor for floor, rooms in enumerate(TARGET_FLOORS) for room in rooms}
    upwards = set()
    for path in _modules("jitdelegate/targets"):
        own = _target_room(_name(path))
        others = {_target_room(module) for module in _own(path) if module.startswith("jitdelegate.targets")} - {own}
        upwards |= {(_name(path), room) for room in others if floors[room] >= floors[own]}
    assert upwards == set()


def test_a_room_of_targets_can_be_looked_over() -> None:
    sizes = Counter(path.parent for path in _modules("jitdelegate/targets") if path.name != "__init__.py")
    assert {path.name: size for path, size in sizes.items() if size > MOST_FILES} == {}


@pytest.mark.parametrize("package", ["jitdelegate", "scripts"])
def test_no_modules_import_each_other(package: str) -> None:
    graph = {_name(path): _own(path, package) - {_name(path)} for path in _modules(package)}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names a circle


def test_no_folders_of_scripts_import_each_other() -> None:
    def folder(module: str) -> str:
        is_package = ROOT.joinpath(*module.split(".")).is_dir()
        return module if is_package else module.rpartition(".")[0]

    arrows = {(folder(_name(path)), folder(other)) for path in _modules("scripts") for other in _own(path, "scripts")}
    assert {(one, other) for one, other in arrows if one < other and (other, one) in arrows} == set()


QUESTION = re.compile(r"""[=!]= ?["'](?:cuda|cpu)["']|["'](?:cuda|cpu)["'] ?(?:if|in) """)


def test_only_targets_ask_which_target_it_is() -> None:
    elsewhere = [path for path in _modules("jitdelegate") if not {"targets", "runtime"} & {*path.parts}]
    assert [
        (_name(path), QUESTION.findall(path.read_text())) for path in elsewhere if QUESTION.search(path.read_text())
    ] == []


def test_every_target_is_a_folder_and_a_row() -> None:
    folders = {path.parent.name for path in (ROOT / "jitdelegate" / "targets").glob("*/target.py")}
    assert folders == ROWS.keys()
    assert [target_named(name).name for name in ROWS] == [*ROWS]


def test_modules_of_the_load_path_import_only_light_modules() -> None:
    heavy = {}
    for path in filter(_is_warm, _modules("jitdelegate")):
        modules = set(_imports(_tree(path), deferred=False)) - {"__future__"}
        own = {module for module in modules if module.startswith("jitdelegate")}
        heavy[_name(path)] = {module for module in own if not _loads_warm(module)} | (modules - own - WARM_IMPORTS)
    assert {name: modules for name, modules in heavy.items() if modules} == {}


def test_only_the_cpu_target_knows_llvmlite() -> None:
    users = {
        _name(path)
        for path in _modules("jitdelegate")
        if any(module.split(".")[0] == "llvmlite" for module in _imports(_tree(path), deferred=True))
    }
    allowed = {
        name for name in users if name.startswith("jitdelegate.targets.") or name == "jitdelegate.runtime.memory"
    }
    assert users == allowed


def test_only_the_cuda_target_knows_numba_and_nvidias_packages() -> None:
    for path in _modules("jitdelegate"):
        modules = {module.split(".")[0] for module in _imports(_tree(path), deferred=True)}
        assert not modules & {"numba", "numba_cuda", "cuda"} or _name(path).startswith("jitdelegate.targets.cuda."), (
            path
        )


@pytest.mark.parametrize("path", _modules("cache_tools"), ids=_name)
def test_the_cache_tools_need_only_program_and_cache(path: Path) -> None:
    allowed = ("errors.", "base.", "program.", "runtime.cache.")
    own = [module for module in _imports(_tree(path), deferred=True) if module.startswith("jitdelegate.")]
    assert [module for module in own if not f"{module.removeprefix('jitdelegate.')}.".startswith(allowed)] == []
