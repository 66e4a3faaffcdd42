"""The door of the command line. Everything else is imported behind it.

Invariant: Ctrl-C ends the program with one line and exit code 130 from the first moment on; so
nothing but its handler is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from tidelock.cli import interrupts


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    from tidelock.cli import program

    return program.run(arguments)


def _keep_libraries_quiet() -> None:
    """PySpark's gateway logs, with its trace, every command that Ctrl-C breaks off. What Tidelock
    has to say itself is shown."""
    import logging

    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("tidelock").addHandler(logging.StreamHandler())


class PandasWithSpark:
    """Keeps pandas out until PySpark is there, which alone needs it. PyArrow would import it for no
    more than to know whether it is there, and every command would take twice as long to start."""

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas" and "pyspark" not in sys.modules:
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return None


def main() -> None:
    interrupts.end_at_once()
    sys.meta_path.insert(0, PandasWithSpark())
    _keep_libraries_quiet()
    sys.exit(run(sys.argv[1:]))
