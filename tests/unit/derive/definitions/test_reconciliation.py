"""Plans: what the files define against what the lake has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tidelock.derive.definitions.apply_plan import ApplyPlan
from tidelock.derive.definitions.folder import read_definitions
from tidelock.derive.definitions.reconciliation import plan_changes
from tidelock.derive.definitions.written import Defined
from tidelock.errors import CircularDefinition, InvalidDefinition
from tidelock.model.streams import Definition


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop"


def reads(one: Defined) -> tuple[str, ...]:
    """The tables after FROM and JOIN, enough for the queries of these tests."""
    words = one.definition.query.replace(",", " ").split()
    return tuple(after for word, after in pairwise(words) if word in READING)


READING = ("FROM", "JOIN")


def plan(
    folder: Path,
    text: str,
    current: Mapping[str, Definition] | None = None,
    tables: tuple[str, ...] = ("orders",),
) -> ApplyPlan:
    (folder / "a.sql").write_text(text)
    return plan_changes(read_definitions(folder), current or {}, tables, reads, pipeline="shop")


def applied(
    folder: Path, text: str, tables: tuple[str, ...] = ("orders",)
) -> dict[str, Definition]:
    """The stream tables of a lake after a first apply."""
    return {change.name: change.definition for change in plan(folder, text, tables=tables).changes}


def outline(found: ApplyPlan) -> list[tuple[str, str]]:
    return [(change.action, change.name) for change in found.changes]


def view(name: str, source: str, clauses: str = "") -> str:
    return f"CREATE STREAM TABLE {name} {clauses} AS\nSELECT *\nFROM {source};\n"


def test_new_definitions_are_created_sources_first(folder: Path) -> None:
    found = plan(folder, view("a", "b") + view("b", "c") + view("c", "Orders"))
    assert outline(found) == [("create", "c"), ("create", "b"), ("create", "a")]
    assert found.changes[0].reason == "new in shop/a.sql:7"


def test_what_is_as_defined_is_left(folder: Path) -> None:
    current = applied(folder, view("a", "orders"))
    found = plan(folder, "-- moved down\n\n" + view("a", "orders -- same\n  "), current)
    assert outline(found) == [("unchanged", "a")]
    assert found.pending == ()
    assert found.to_text() == "shop: nothing to do, 1 unchanged"


def test_options_alone_are_altered_and_told(folder: Path) -> None:
    current = applied(folder, view("a", "orders", "SCHEDULE '1m'"))
    properties = "TBLPROPERTIES ('schedule'='5m', 'refresh_mode'='full')"
    (change,) = plan(folder, view("a", "orders", properties), current).changes
    assert (change.action, change.diff) == ("alter", ())
    assert change.reason == "schedule 1m → 5m; refresh_mode auto → full"
    assert change.definition.schedule == "5m"


def test_a_changed_query_replaces_and_shows_the_difference(folder: Path) -> None:
    current = applied(folder, view("a", "orders", "SCHEDULE 'manual'"))
    (change,) = plan(folder, view("a", "orders WHERE x"), current).changes
    assert (change.action, change.reason) == (
        "replace",
        "query changed; schedule manual → upstream",
    )
    assert change.diff == ("@@ -1,2 +1,2 @@", " SELECT *", "-FROM orders", "+FROM orders WHERE x")


def test_a_long_difference_is_cut(folder: Path) -> None:
    current = applied(folder, view("a", "orders"))
    columns = ",\n".join(f"c{n}" for n in range(100))
    text = f"CREATE STREAM TABLE a AS SELECT {columns}\nFROM orders"
    (change,) = plan(folder, text, current).changes
    assert len(change.diff) == 21
    assert change.diff[-1].startswith("… 8")


def test_what_is_no_longer_defined_is_dropped_readers_first(folder: Path) -> None:
    current = applied(folder, view("a", "orders") + view("b", "a") + view("c", "b"))
    found = plan(folder, view("d", "orders"), current)
    assert outline(found) == [("drop", "c"), ("drop", "b"), ("drop", "a"), ("create", "d")]
    assert found.drops[0].reason == "no longer defined (was shop/a.sql:7)"


@pytest.mark.parametrize("origin", [None, "other/a.sql:1", "shopping/a.sql:1", "a.sql:1"])
def test_what_was_created_elsewhere_is_never_dropped(folder: Path, origin: str | None) -> None:
    elsewhere = Definition("SELECT * FROM orders", origin=origin)
    assert outline(plan(folder, "", {"mine": elsewhere})) == []


def test_what_was_created_elsewhere_is_taken_over_in_plain_sight(folder: Path) -> None:
    current = {
        "a": Definition("SELECT * FROM orders"),
        "b": Definition("SELECT * FROM orders", origin="shop/x.sql:4"),
    }
    found = plan(folder, view("a", "orders") + view("b", "orders"), current)
    assert [(change.action, change.reason) for change in found.changes] == [
        ("alter", "now defined in shop/a.sql:1"),
        ("alter", "moved from shop/x.sql:4 to shop/a.sql:4"),
    ]


def test_what_another_pipeline_defines_is_not_taken_from_it(folder: Path) -> None:
    current = {"Totals": Definition("SELECT * FROM orders", origin="other/x.sql:4")}
    with pytest.raises(InvalidDefinition, match=r"another pipeline, in other/x\.sql:4") as raised:
        plan(folder, "-- ours\n" + view("totals", "orders"), current)
    assert raised.value.line == 2


def test_names_are_matched_without_regard_to_case(folder: Path) -> None:
    current = applied(folder, view("Totals", "ORDERS"))
    found = plan(folder, view("totals", "ORDERS"), current, ("orders", "Totals"))
    assert outline(found) == [("unchanged", "totals")]


def refused(folder: Path, text: str, current: Mapping[str, Definition]) -> InvalidDefinition:
    with pytest.raises(InvalidDefinition) as raised:
        plan(folder, text, current)
    return raised.value


def test_an_unknown_table_is_told_where_it_is_used(folder: Path) -> None:
    error = refused(folder, view("a", "orders") + view("b", "ordres"), {})
    assert (error.file, error.line) == (str(folder / "a.sql"), 6)
    assert "Did you mean 'orders'?" in error.message


def test_an_unknown_table_that_only_the_analysis_finds_is_told_at_the_definition(
    folder: Path,
) -> None:
    (folder / "a.sql").write_text("\n" + view("a", "orders"))
    with pytest.raises(InvalidDefinition) as raised:
        plan_changes(
            read_definitions(folder), {}, ["orders"], lambda one: ("hidden",), pipeline="shop"
        )
    assert (raised.value.line, raised.value.table) == (2, "hidden")


def test_a_table_that_the_plan_drops_cannot_be_read(folder: Path) -> None:
    current = applied(folder, view("a", "orders") + view("b", "a"))
    error = refused(folder, view("b", "a"), current)
    assert (error.line, "would be dropped" in error.message) == (3, True)


def test_a_table_that_others_read_cannot_be_dropped(folder: Path) -> None:
    current = applied(folder, view("a", "orders")) | {"mine": Definition("SELECT * FROM a")}
    error = refused(folder, view("b", "orders"), current)
    assert (error.file, error.line) == (str(Path("shop/a.sql")), 1)
    assert "drop 'mine' first" in error.message


def test_a_table_of_rows_is_not_taken_for_a_stream_table(folder: Path) -> None:
    error = refused(folder, view("a", "orders") + view("Orders", "a"), {})
    assert (error.line, "no stream table" in error.message) == (4, True)


def test_a_circle_is_told_with_its_file_and_line(folder: Path) -> None:
    with pytest.raises(CircularDefinition) as raised:
        plan(folder, view("x", "orders") + view("a", "b") + view("b", "a"))
    assert (raised.value.file, raised.value.line) == (str(folder / "a.sql"), 4)
    assert raised.value.path == ("a", "b", "a")


def test_a_circle_through_a_table_created_elsewhere_is_refused(folder: Path) -> None:
    current = {"mine": Definition("SELECT * FROM a")}
    with pytest.raises(CircularDefinition) as raised:
        plan(folder, view("a", "mine"), current)
    assert raised.value.line == 1


def test_a_plan_reads_as_text_and_as_json(folder: Path) -> None:
    current = applied(folder, view("old", "orders") + view("same", "orders") + view("q", "orders"))
    found = plan(
        folder, view("same", "orders") + view("q", "orders o") + view("fresh", "same"), current
    )
    assert found.to_text() == (
        "shop: 1 to drop, 1 to create, 1 to replace, 1 unchanged\n"
        "- drop       old    no longer defined (was shop/a.sql:1)\n"
        "~ replace    q      query changed\n"
        "      @@ -1,2 +1,2 @@\n"
        "       SELECT *\n"
        "      -FROM orders\n"
        "      +FROM orders o\n"
        "+ create     fresh  new in shop/a.sql:7"
    )
    document = json.loads(json.dumps(found.to_dict()))
    assert document["counts"] == {
        "drop": 1, "create": 1, "replace": 1, "alter": 0, "unchanged": 1,
    }  # fmt: skip
    assert document["changes"][0] == {
        "action": "drop",
        "name": "old",
        "reason": "no longer defined (was shop/a.sql:1)",
        "origin": "shop/a.sql:1",
        "diff": [],
    }
