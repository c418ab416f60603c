"""The layers of docs/ARCHITECTURE.md, held by reading every import statement."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = (
    ("errors", "options"),
    ("ir", "program"),
    ("cache", "runtime"),
    ("tflite",),
    ("ops",),
    ("passes",),
    ("targets",),
    ("compiler",),
    ("litert_delegate", "engine", "api"),
    ("analysis",),
    ("commands",),
    ("warm", "demo", "analyze", "replay"),
)
"""Parts of the package, lowest first; a part imports its own layer's and lower ones."""
WARM_PARTS = {"errors", "options", "program", "cache", "runtime", "litert_delegate", "engine", "api"}
COLD_MODULES = {
    "jitdelegate.program.write",
    "jitdelegate.litert_delegate.probe",
    "jitdelegate.litert_delegate.probe_model",
    "jitdelegate.engine.precompile",
    "jitdelegate.options.user_warning",
}
WARM_IMPORTS = {
    "_signal",
    "_thread",
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
"""What the warm road may import as it loads; each costs next to nothing."""


def _modules(package: str) -> list[Path]:
    """Every module but the package itself, which names everything and imports nothing until asked."""
    return sorted(path for path in (ROOT / package).rglob("*.py") if path != ROOT / package / "__init__.py")


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports(node: ast.AST, deferred: bool) -> Iterator[str]:
    """Modules that the statements under `node` import, those for type checkers left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import of {child.module}"
            assert child.module
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names if child.module == "jitdelegate")
        elif deferred or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _imports(child, deferred)


def _layer(module: str) -> int:
    part = module.split(".")[1]
    found = [place for place, parts in enumerate(LAYERS) if part in parts]
    assert found, f"{module} is in no layer; enter it in LAYERS"
    return found[0]


def _is_warm(path: Path) -> bool:
    name = _name(path)
    return name.count(".") > 0 and name.split(".")[1] in WARM_PARTS and name not in COLD_MODULES


@pytest.mark.parametrize("path", _modules("jitdelegate"), ids=_name)
def test_a_module_imports_only_its_own_layer_and_lower_ones(path: Path) -> None:
    name = _name(path)
    own = [
        module for module in _imports(ast.parse(path.read_text()), deferred=True) if module.startswith("jitdelegate.")
    ]
    assert [module for module in own if _layer(module) > _layer(name)] == []


@pytest.mark.parametrize("path", list(filter(_is_warm, _modules("jitdelegate"))), ids=_name)
def test_a_module_of_the_warm_road_loads_only_what_is_nearly_free(path: Path) -> None:
    found = {module for module in _imports(ast.parse(path.read_text()), deferred=False) if module != "__future__"}
    own = {module for module in found if module.startswith("jitdelegate")}
    assert {module for module in own if module.split(".")[1] not in WARM_PARTS or module in COLD_MODULES} == set()
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
    allowed = {"errors", "options", "program", "cache"}
    own = [
        module for module in _imports(ast.parse(path.read_text()), deferred=True) if module.startswith("jitdelegate.")
    ]
    assert [module for module in own if module.split(".")[1] not in allowed] == []
