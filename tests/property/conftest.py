"""At the end of a run: which compositions of operators it covered."""

from __future__ import annotations

import pytest
from tests.property.models.composed_runs import COVERED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in COVERED:
        terminalreporter.write_line(line)
