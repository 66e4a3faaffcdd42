"""A definition that cannot be read stops its own stream table, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelock
from tidelock import Lake, errors


@pytest.fixture
def lake(tmp_path: Path, spark: object) -> Lake:
    with tidelock.open(tmp_path / "lake", create=True, spark=spark) as made:
        made.create_table("t", "id BIGINT")
        made.create_stream_table("whole", "SELECT id FROM t")
        made.create_stream_table("lost", "SELECT id, id + 1 AS more FROM t")
        made.run(lambda tx: tx.append("t", [{"id": 1}]))
        made.refresh()
        definition = made.snapshot().states()["lost"].stream
        assert definition is not None
        (tmp_path / f"lake/_tidelock/definitions/{definition.definition}.json").write_bytes(b"")
    return tidelock.open(tmp_path / "lake", spark=spark)


def test_others_are_refreshed_and_the_lost_one_is_named(lake: Lake) -> None:
    lake.run(lambda tx: tx.append("t", [{"id": 2}]))
    assert {one.table for one in lake.refresh(due=True)} == {"whole", "lost"}
    assert lake.table("whole").count() == 2
    assert lake.table("lost").count() == 1
    told = {one.name: one.status for one in lake.stream_tables()}
    assert told["whole"] == "refreshed"
    assert "cannot be read" in told["lost"]
    assert "'lost'" in lake.explain("lost").reason
    assert lake.explain("whole").mode == "none"
    report = {one.table: one for one in lake.refresh()}
    assert {name: one.action for name, one in report.items()} == {"whole": "none", "lost": "failed"}
    assert "'lost'" in report["lost"].reason
    with pytest.raises(errors.CorruptObject, match="Define it again"):
        lake.alter_stream_table("lost", schedule="5m")
    lake.close()


def test_one_of_a_newer_format_is_not_refreshed_nor_suspended(lake: Lake) -> None:
    state = lake.snapshot().states()["lost"].stream
    assert state is not None
    path = Path(lake.uri, f"_tidelock/definitions/{state.definition}.json")
    path.write_bytes(b'{"format": 9, "shape": "unheard of"}')
    lake.run(lambda tx: tx.append("t", [{"id": 2}]))
    report = {one.table: one for one in lake.refresh()}
    assert {name: one.action for name, one in report.items()} == {
        "whole": "incremental",
        "lost": "failed",
    }
    assert "Upgrade Tidelock" in report["lost"].reason
    told = {one.name: one for one in lake.stream_tables()}
    assert told["whole"].status == "refreshed"
    assert "cannot be read" in told["lost"].status
    # Whoever can read it goes on with it: nothing was decided here.
    state = lake.snapshot().states()["lost"].stream
    assert state is not None
    assert state.suspended is None
    assert "Upgrade Tidelock" in lake.explain("lost").reason
    lake.close()


def test_one_that_is_gone_is_named_by_verify(lake: Lake) -> None:
    state = lake.snapshot().states()["lost"].stream
    assert state is not None
    key = f"_tidelock/definitions/{state.definition}.json"
    Path(lake.uri, key).unlink()
    assert [(one.key, one.what) for one in lake.verify().damaged] == [(key, "missing")]
    lake.close()


def test_it_is_defined_again_in_the_same_words_and_goes_on(lake: Lake) -> None:
    lake.run(lambda tx: tx.append("t", [{"id": 2}]))
    assert "failed" in {one.action for one in lake.refresh()}
    lake.create_or_replace_stream_table("lost", "SELECT id, id + 1 AS more FROM t")
    lake.refresh("lost")
    rows = lake.table("lost").to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "more": 2}, {"id": 2, "more": 3}]
    lake.close()


def test_it_is_applied_again_from_its_file(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "lost.sql").write_text(
        "CREATE STREAM TABLE lost AS SELECT id, id + 2 AS more FROM t;\n"
    )
    lake.apply(folder)
    lake.refresh("lost")
    assert lake.table("lost").to_arrow().to_pylist() == [{"id": 1, "more": 3}]
    lake.close()


def test_it_is_dropped(lake: Lake) -> None:
    lake.drop_stream_table("lost")
    assert [one.name for one in lake.stream_tables()] == ["whole"]
    lake.close()
