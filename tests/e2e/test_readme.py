"""The README does what it says: its Python blocks run in order and print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"```python\n(.*?)```\n```text\n(.*?)```", re.DOTALL)


def test_every_block_prints_what_the_readme_shows(tmp_path: Path) -> None:
    blocks = BLOCK.findall(README.read_text("utf-8"))
    assert len(blocks) >= 7
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
