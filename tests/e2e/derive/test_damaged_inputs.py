"""Files that are damaged which only the state before a delta needs: they make no row wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelock
from tidelock import errors


def flip(path: Path) -> None:
    """Change one bit of the rows."""
    data = bytearray(path.read_bytes())
    data[8] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", ["a bit", "empty"])
def test_what_the_state_before_needs_is_looked_at_and_done_without(
    tmp_path: Path, spark: object, damage: str
) -> None:
    uri = tmp_path / "lake"
    with tidelock.open(uri, create=True, spark=spark) as lake:
        for name in ("a", "b"):
            lake.create_table(name, "k BIGINT, v BIGINT")
            lake.run(lambda tx, name=name: tx.append(name, [{"k": 1, "v": 1}]))
        query = "SELECT a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k"
        lake.create_stream_table("j", query, refresh_mode="incremental")
        lake.refresh()
        table = lake.snapshot().states()["b"].id
        (file,) = (uri / "tables" / table / "data").iterdir()
        lake.run(lambda tx: tx.append("a", [{"k": 1, "v": 2}]))
        lake.run(lambda tx: tx.overwrite("b", [{"k": 1, "v": 5}]))
    if damage == "empty":
        file.write_bytes(b"")
    else:
        flip(file)
    with tidelock.open(uri, spark=spark) as lake:
        (done,) = lake.refresh()
        assert done.action == "full"
        assert "is damaged" in done.reason
        assert file.name in done.reason
        rows = sorted(row["av"] * 10 + row["bv"] for row in lake.table("j").to_arrow().to_pylist())
        assert rows == [15, 25]
        with pytest.raises(errors.CorruptObject):
            lake.snapshot(version=4).table("b").to_arrow()
