"""docs/cli.md shows what happens: its session is typed into a shell, and answers as it is shown."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from tidelock.cli.failures import EXIT_CODES

DOC = Path(__file__).parents[3] / "docs" / "cli.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
TIDELOCK = (
    f"tidelock() {{ '{sys.executable}' -c 'from tidelock.cli.main import main; main()' \"$@\"; }}"
)
# What is different every time.
VARYING = (
    (r"^.*: line .* Killed .*$", "Killed"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"[0-9a-f]{12,}", "ID"),
    (r"host:\d+", "OWNER"),
    (r"[\d.]+ (bytes|kB)", "SIZE"),
    (r"ended \d+ s ago", "ended"),
    (r"\d+\.\d\d(?= s,| +\d+ +main-)", "SECONDS"),
    (r"─+", "─"),
    (r" +", " "),
    (r" $", ""),
)


def masked(text: str) -> str:
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text.strip("\n")


def test_the_session_in_the_documentation_happens_as_it_is_shown(tmp_path: Path) -> None:
    session = "".join(BLOCK.findall(DOC.read_text("utf-8")))
    steps = re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]
    shown = [step.partition("\n")[::2] for step in steps]
    assert len(shown) > 25
    marker = "-- next --"
    lines = [f"{command}\necho '{marker}'" for command, _ in shown]
    environment = {key: text for key, text in os.environ.items() if "TIDELOCK" not in key}
    done = subprocess.run(
        ["bash", "-c", "\n".join(["exec 2>&1", TIDELOCK, *lines])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    told = done.stdout.replace(str(tmp_path), "/data").replace(socket.gethostname(), "host")
    answers = told.split(marker + "\n")
    for (command, expected), actual in zip(shown, answers, strict=False):
        assert masked(actual) == masked(expected), command


def test_the_exit_codes_in_the_documentation_are_those_there_are() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", DOC.read_text("utf-8"), re.MULTILINE)
    assert [(int(code), meaning) for code, meaning in rows] == list(EXIT_CODES)
