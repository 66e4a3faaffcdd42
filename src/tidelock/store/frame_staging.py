"""Staging of Spark frames."""

from __future__ import annotations

from typing import Any


def append_frame(view: Any, staged: Any, frame: Any) -> None: ...
def upsert_frame(view: Any, staged: Any, frame: Any) -> None: ...
def overwrite_frame(view: Any, staged: Any, frame: Any) -> None: ...
