"""The committed digest is that of the sources, so a changed generator never meets its old programs."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

from jitdelegate.program.generator_digest import GENERATOR_DIGEST

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "update_generator_digest.py"


def copy_tree(folder: Path) -> Path:
    """A copy of what the digest covers; answers the copied script."""
    shutil.copytree(ROOT / "jitdelegate", folder / "jitdelegate", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    return folder / "scripts" / SCRIPT.name


def digest(script: Path) -> str:
    found: str = runpy.run_path(str(script))["digest"]()
    return found


def test_the_committed_digest_is_current() -> None:
    assert digest(SCRIPT) == GENERATOR_DIGEST, f"run python {SCRIPT.relative_to(ROOT)}"


def test_a_changed_added_or_renamed_source_changes_the_digest(tmp_path: Path) -> None:
    script = copy_tree(tmp_path)
    seen = {digest(script)}
    ops = tmp_path / "jitdelegate" / "ops"
    with (ops / "__init__.py").open("a") as file:
        file.write("# changed\n")
    seen.add(digest(script))
    (ops / "added.py").write_text("")
    seen.add(digest(script))
    (ops / "added.py").rename(ops / "renamed.py")
    seen.add(digest(script))
    assert len(seen) == 4


def test_what_does_not_change_the_code_does_not_change_the_digest(tmp_path: Path) -> None:
    script = copy_tree(tmp_path)
    before = digest(script)
    (tmp_path / "jitdelegate" / "runtime" / "session.py").write_text("")
    (tmp_path / "jitdelegate" / "ops" / "notes.txt").write_text("")
    assert digest(script) == before
