"""The repository keeps its own rules: sizes, names, words, openings."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES_MAX = 600
ROOM_MAX = 16
"""So many modules lie side by side in one folder, its `__init__.py` included."""
BANNED_MODULES = {"utils", "util", "helpers", "common", "manager", "misc", "base2"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b|NotImplementedError")
BEYOND_CONNECT = re.compile(r"\b(_jvm|_jdf|sparkContext|SparkContext)\b|\.rdd\b")
LOOKS_BEHIND = {"jvm_remains.py"}
"""What clears away a JVM that died has to name what PySpark keeps of it."""
SHOWN_BY = {("tidelock.model.history.diff_text", "tidelock.model.history.diffs")}
"""Types of values that are shown by functions in a file of their own, which the values call."""
GUIDES = ("CONTRIBUTING.md", "docs/architecture.md", "docs/glossary.md", "tests/README.md")
MACHINE_PATH = re.compile(r"/(work|farm|root|home/[a-z]+)/")


def tracked(*patterns: str) -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


SOURCES = tracked("src/*.py")
PYTHON = tracked("*.py")


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 20


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= LINES_MAX
    assert path.stem not in BANNED_MODULES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_what_it_owns_and_is_finished(path: Path) -> None:
    text = path.read_text("utf-8")
    assert ast.get_docstring(ast.parse(text)), "a module opens with what it owns"
    assert not UNFINISHED.search(text)
    assert path.name in LOOKS_BEHIND or not BEYOND_CONNECT.search(text)
    assert "import pandas" not in text


def test_a_room_is_seen_at_a_glance() -> None:
    sizes = Counter(path.parent.relative_to(ROOT) for path in SOURCES)
    assert {str(room): size for room, size in sizes.items() if size > ROOM_MAX} == {}


def test_no_file_names_a_path_of_a_machine() -> None:
    this = Path(__file__)
    texts = [
        p for p in tracked() if p != this and p.suffix in {".py", ".md", ".toml", ".sh", ".txt"}
    ]
    found = [str(path.relative_to(ROOT)) for path in texts if MACHINE_PATH.search(path.read_text())]
    assert found == []


def test_no_two_files_of_tests_have_one_name() -> None:
    names = Counter(path.name for path in tracked() if path.match("tests/**/test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_modules_know_each_other_not_even_by_types() -> None:
    modules = {".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in SOURCES}
    known: dict[str, set[str]] = {}
    for path in SOURCES:
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        tree = ast.parse(path.read_text("utf-8"))
        named = {
            name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for name in (node.module, *(f"{node.module}.{one.name}" for one in node.names))
        }
        known[module] = {name for name in named & modules if (module, name) not in SHOWN_BY}
    TopologicalSorter(known).prepare()


def test_what_guides_name_is_there() -> None:
    """Paths as they are in the repository, below `src/tidelock`, or from the room just named."""
    tree = {str(path.relative_to(ROOT)) for path in tracked()}
    missing = [
        f"{guide}: {name}"
        for guide in GUIDES
        for name in re.findall(r"`([\w./]+\.(?:py|md|sh|toml))`", (ROOT / guide).read_text("utf-8"))
        if "NAME" not in name and not any(f"/{path}".endswith(f"/{name}") for path in tree)
    ]
    assert missing == []


def test_contributing_names_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rooms = {path.parent for path in SOURCES if path.name != "__init__.py"}
    names = {
        (room.relative_to(ROOT / "src/tidelock").as_posix(), room.name)
        for room in rooms - {ROOT / "src/tidelock"}
    }
    assert [whole for whole, last in names if not re.search(rf"`({whole}|{last})/`", text)] == []


def test_a_room_lists_the_modules_that_it_has() -> None:
    missing = []
    for path in SOURCES:
        opening = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        if path.name == "__init__.py":
            for listed in re.findall(r"^ *([a-z_]+(?:, [a-z_]+)*) {2,}\w", opening, re.MULTILINE):
                for name in listed.split(", "):
                    if (
                        not (path.parent / name).is_dir()
                        and not (path.parent / f"{name}.py").exists()
                    ):
                        missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []


def test_import_contracts_speak_of_every_room_of_the_store() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    contracts = {one["name"]: one for one in told["contracts"]}
    store = ROOT / "src/tidelock/store"
    parts = {
        path.relative_to(store).parts[0].removesuffix(".py")
        for path in SOURCES
        if store in path.parents
    }
    rooms = {f"tidelock.store.{part}" for part in parts - {"__init__"}}
    below = contracts["Objects are below every other room of the store"]
    assert set(below["forbidden_modules"]) == rooms - {"tidelock.store.objects"}
    engineless = contracts["Of the store, its Spark room alone imports PySpark"]
    assert set(engineless["source_modules"]) == rooms - {"tidelock.store.spark"}
