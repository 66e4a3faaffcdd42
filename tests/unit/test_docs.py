"""The documentation names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tidelock
from tidelock.derive.refresh import costs
from tidelock.store.leases.leases import LEASE_SECONDS
from tidelock.store.upkeep.fold_plan import INDEX_ROWS_MIN

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


def test_the_model_of_costs_is_told_as_it_is() -> None:
    page = " ".join((ROOT / "docs" / "stream-tables.md").read_text("utf-8").split())
    told = (
        f"by delta, {costs.QUERY_SECONDS:g} s for each segment and "
        f"{costs.SECONDS_PER_CHANGE * 1e6:g} µs for each changed row",
        f"in full, {costs.FULL_QUERY_SECONDS:g} s for each segment and "
        f"{costs.SECONDS_PER_ROW * 1e6:g} µs for each row",
        f"more than {costs.LOCAL_CHANGES_MAX:,} changes",
    )
    assert costs.TRUST == 4
    for sentence in told:
        assert sentence in page.replace("(commits record how many there are)", "")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    file = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", file.read_text("utf-8")):
        if "://" not in target:
            assert (file.parent / target).exists(), target
