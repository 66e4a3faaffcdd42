"""The door of the command line. Everything else is imported behind it.

Invariant: Ctrl-C ends the program with one line and exit code 130 from the first moment on; so
nothing but its handler is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidelock.cli import interrupts


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    from tidelock.cli import program

    return program.run(arguments)


def main() -> None:
    interrupts.end_at_once()
    sys.exit(run(sys.argv[1:]))
