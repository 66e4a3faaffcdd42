"""The documentation names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tidelock
from tidelock.store.folding import INDEX_ROWS_MIN
from tidelock.store.intents import LEASE_SECONDS

ROOT = Path(__file__).parents[2]
PYTHON = (ROOT / "docs" / "python.md").read_text("utf-8")
DOCUMENTS = ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("kind", [tidelock.Lake, tidelock.Snapshot], ids=lambda kind: kind.__name__)
def test_every_method_is_in_the_reference(kind: type) -> None:
    public = {name for name in dir(kind) if not name.startswith("_")}
    internal = {"states", "branch_id"}
    named = set(re.findall(r"[`.](\w+)[(`]", PYTHON))
    assert public - internal <= named


def test_the_defaults_that_are_told_are_those_there_are() -> None:
    assert f"`lease_seconds` ({LEASE_SECONDS:g} by default)" in PYTHON
    assert f"from {INDEX_ROWS_MIN:,} rows on" in PYTHON


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    file = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", file.read_text("utf-8")):
        if "://" not in target:
            assert (file.parent / target).exists(), target
