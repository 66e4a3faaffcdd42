"""`tidelock apply` on a terminal: it asks before it drops."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import tidelock

TIDELOCK = [sys.executable, "-c", "from tidelock.cli.main import main; main()"]


@pytest.mark.parametrize(
    ("answer", "left", "told"),
    [(b"y\n", [], "Applied: version 3"), (b"n\n", ["old"], "Nothing was changed.")],
    ids=["yes", "no"],
)
def test_a_terminal_asks_before_it_drops(
    tmp_path: Path, answer: bytes, left: list[str], told: str
) -> None:
    folder = tmp_path / "pipe"
    folder.mkdir()
    (folder / "a.sql").write_text("CREATE MATERIALIZED VIEW old AS SELECT id FROM orders")
    with tidelock.open(tmp_path / "shop.lake", create=True, engine="sail") as lake:
        lake.create_table("orders", "id BIGINT NOT NULL", key="id")
        lake.apply(folder)
        (folder / "a.sql").write_text("-- nothing is defined here any more\n")
        shown = typed(["apply", str(folder), "--lake", lake.uri, "--engine", "sail"], answer)
        assert [stream.name for stream in lake.stream_tables()] == left
    assert shown.count("- drop       old") == 1
    assert "Drop 1 stream table, and apply the rest?" in shown
    assert told in shown


def typed(arguments: list[str], answer: bytes) -> str:
    """What a terminal shows when the answer is typed into it at the first question."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [*TIDELOCK, *arguments],
        stdin=writer,
        stdout=writer,
        stderr=writer,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(writer)
    shown, asked = b"", False
    try:
        # A terminal whose programs have all gone is an error to read from.
        with contextlib.suppress(OSError):
            while piece := os.read(reader, 65536):
                shown += piece
                if b"[y/N]" in shown and not asked:
                    asked = True
                    os.write(reader, answer)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
    return shown.decode()
