"""Starting: what the command line costs before it does anything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from bench.idling import TIDELOCK
from bench.measure import Claim, in_turns, middle

ARROW = [sys.executable, "-c", "import pyarrow"]
RUNS = 9


def help_texts() -> Iterator[Claim]:
    for arguments in (["--version"], ["--help"], ["load", "--help"]):
        # Once before the clock runs, so that both sides find their modules compiled.
        _run([*TIDELOCK, *arguments])
        ours, arrow = in_turns(
            lambda _, given=arguments: _run([*TIDELOCK, *given]), lambda _: _run(ARROW), RUNS
        )
        yield Claim(
            f"`tidelock {' '.join(arguments)}` against `import pyarrow` (medians)",
            middle(ours) / middle(arrow),
            2,
            detail=f"{middle(ours) * 1e3:.0f} ms against {middle(arrow) * 1e3:.0f} ms",
        )


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


CLAIMS = [help_texts]
