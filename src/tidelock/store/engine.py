"""The engine, as the store knows it: where Spark comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelock.store.spark.types import SparkSession


class Engine(Protocol):
    """Where Spark comes from, started on first need."""

    @property
    def zone(self) -> str: ...

    def get(self) -> SparkSession: ...

    def small(self) -> SparkSession | None:
        """A session for queries over a few rows of this process, where that makes a difference."""

    def follow_settings(self) -> None:
        """Give that session the settings that the other has now."""

    def peek(self) -> SparkSession | None:
        """The session if there is one. Starts nothing."""
