"""What people are told while an engine starts."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path


def starting(
    engine: str | None = None, master: str | None = None, remote: str | None = None
) -> str:
    """`Starting Spark…`, or what else is about to be waited for."""
    from tidelock.run.engine.session import EngineSettings, read_settings

    settings = read_settings(EngineSettings(engine, master, None, remote), os.environ, Path.cwd())
    if settings.engine == "sail":
        return "Starting Sail…"
    if settings.remote:
        return f"Connecting to {settings.remote}…"
    quicker = " (--engine sail starts sooner)" if find_spec("pysail") else ""
    return f"Starting Spark…{quicker}"
