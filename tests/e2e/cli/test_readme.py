"""What is documented does what it says: its Python blocks run in order and print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```python\n((?:(?!```).)*)```\n```text\n(.*?)```", re.DOTALL)


DOCUMENTS = [
    ("README.md", 8),
    ("docs/branches.md", 9),
    ("docs/ingest.md", 2),
    ("docs/isolation.md", 4),
    ("docs/schema.md", 6),
    ("docs/sql.md", 5),
]


@pytest.mark.parametrize(("name", "count"), DOCUMENTS)
def test_every_block_prints_what_is_shown(tmp_path: Path, name: str, count: int) -> None:
    blocks = BLOCK.findall((ROOT / name).read_text("utf-8"))
    assert len(blocks) >= count
    marker = "-- next block --"
    script = "\n".join(f"{code}\nprint({marker!r}, flush=True)" for code, _ in blocks)
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(marker + "\n")
    for (code, expected), actual in zip(blocks, printed, strict=False):
        assert actual == expected, code
