"""The layers of docs/ARCHITECTURE.md, held by reading every import statement."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from jitdelegate.base.targets import ROWS
from jitdelegate.targets import target_named

ROOT = Path(__file__).resolve().parents[1]
LAYERS = (
    ("errors", "targets.table", "tables"),
    ("options",),
    ("ir", "program"),
    ("cache", "runtime"),
    ("tflite",),
    ("ops",),
    ("passes",),
    ("targets",),
    ("compiler",),
    ("litert_delegate",),
    ("engine",),
    ("api",),
    ("analysis", "measurement"),
    ("commands",),
    (
        *("warm", "demo", "analyze", "replay", "benchmark", "diff", "__main__"),
        *("interpreter", "compiled_model", "tensor_buffer", "environment", "hardware_accelerator"),
        *("cpu_kernel_mode", "cpu_options", "gpu_options"),
    ),
)
"""Parts of the package, lowest first; a part imports its own layer's and lower ones. The table of targets names modules
and imports none."""
TARGET_FLOORS = (
    ("", "maths", "planning"),
    ("cpu.code", "cuda.code"),
    ("cpu.entry", "cpu.multiply", "cuda.compile", "cuda.multiply"),
    ("cpu.sources", "cuda.sources"),
    ("cpu.forms", "cpu.walks", "cuda.walks"),
    ("cpu", "cpu.products", "cuda.forms", "cuda.products"),
    ("cuda.plan", "litert", "reference"),
    ("cuda",),
)
"""Rooms of `targets`, lowest first; a module imports its own room and rooms of lower floors."""
MOST_FILES = 22
"""Modules of a room of `targets`."""
WARM_PARTS = {"errors", "options", "program", "cache", "runtime", "litert_delegate", "engine", "api"}
WARM_TARGETS = {"jitdelegate.targets", "jitdelegate.base.targets"}
COLD_MODULES = {
    "jitdelegate.program.borrow",
    "jitdelegate.program.write",
    "jitdelegate.engine.litert_delegate.probe",
    "jitdelegate.engine.litert_delegate.probe_model",
    "jitdelegate.engine.choose_precision",
    "jitdelegate.engine.example_values",
    "jitdelegate.engine.precompile",
    "jitdelegate.base.flags",
    "jitdelegate.base.user_warning",
    "jitdelegate.api.dynamic_batcher",
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


def _own(path: Path) -> set[str]:
    """The modules of ours that one imports, whenever and for whomever."""
    found = _imports(ast.parse(path.read_text()), deferred=True, typed=True)
    return {module for module in found if module.startswith("jitdelegate.")}


def _layer(module: str) -> int:
    names = {".".join(module.split(".")[1:3]), module.split(".")[1]}
    found = [place for place, parts in enumerate(LAYERS) if names & {*parts}]
    assert found, f"{module} is in no layer; enter it in LAYERS"
    return found[0]


def _is_warm(path: Path) -> bool:
    name = _name(path)
    return _loads_warm(name)


def _loads_warm(module: str) -> bool:
    """Whether a warm start may load it."""
    if module.startswith("jitdelegate.targets"):
        is_folder = (ROOT.joinpath(*module.split(".")) / "__init__.py").exists() and module.count(".") == 2
        return module in WARM_TARGETS or is_folder or (module.endswith(".target") and module.count(".") == 3)
    return module.count(".") > 0 and module.split(".")[1] in WARM_PARTS and module not in COLD_MODULES


@pytest.mark.parametrize("path", _modules("jitdelegate"), ids=_name)
def test_a_module_imports_only_its_own_layer_and_lower_ones(path: Path) -> None:
    name = _name(path)
    assert [module for module in _own(path) if _layer(module) > _layer(name)] == []


def _target_room(module: str) -> str:
    """The room of a module of `targets`: "cpu.code", or "" for `targets` itself."""
    is_room = ROOT.joinpath(*module.split(".")).is_dir()
    return ".".join(module.split(".")[2 : None if is_room else -1])


@pytest.mark.parametrize("path", _modules("jitdelegate/targets"), ids=_name)
def test_a_room_of_targets_imports_only_rooms_of_lower_floors(path: Path) -> None:
    floors = {room: floor for floor, rooms in enumerate(TARGET_FLOORS) for room in rooms}
    own = _target_room(_name(path))
    others = {_target_room(module) for module in _own(path) if module.startswith("jitdelegate.targets")} - {own}
    assert [room for room in others if floors[room] >= floors[own]] == []


def test_a_room_of_targets_can_be_looked_over() -> None:
    sizes = Counter(path.parent for path in _modules("jitdelegate/targets") if path.name != "__init__.py")
    assert {path.name: size for path, size in sizes.items() if size > MOST_FILES} == {}


def test_no_modules_import_each_other() -> None:
    graph = {_name(path): _own(path) - {_name(path)} for path in _modules("jitdelegate")}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names a circle


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


@pytest.mark.parametrize("path", list(filter(_is_warm, _modules("jitdelegate"))), ids=_name)
def test_a_module_of_the_load_path_imports_only_light_modules(path: Path) -> None:
    found = {module for module in _imports(ast.parse(path.read_text()), deferred=False) if module != "__future__"}
    own = {module for module in found if module.startswith("jitdelegate")}
    assert {module for module in own if not _loads_warm(module)} == set()
    assert found - own - WARM_IMPORTS == set()


def test_only_the_cpu_target_knows_llvmlite() -> None:
    users = {
        _name(path)
        for path in _modules("jitdelegate")
        if any(module.split(".")[0] == "llvmlite" for module in _imports(ast.parse(path.read_text()), deferred=True))
    }
    allowed = {
        name for name in users if name.startswith("jitdelegate.targets.") or name == "jitdelegate.runtime.cpu.library"
    }
    assert users == allowed


def test_only_the_cuda_target_knows_numba_and_nvidias_packages() -> None:
    for path in _modules("jitdelegate"):
        modules = {module.split(".")[0] for module in _imports(ast.parse(path.read_text()), deferred=True)}
        assert not modules & {"numba", "numba_cuda", "cuda"} or _name(path).startswith("jitdelegate.targets.cuda."), (
            path
        )


@pytest.mark.parametrize("path", _modules("cache_tools"), ids=_name)
def test_the_cache_tools_need_only_program_and_cache(path: Path) -> None:
    allowed = {"errors", "options", "program", "cache", "tables"}
    own = [
        module for module in _imports(ast.parse(path.read_text()), deferred=True) if module.startswith("jitdelegate.")
    ]
    assert [module for module in own if module.split(".")[1] not in allowed] == []
