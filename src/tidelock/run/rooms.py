"""What a Lake handle is made of: its store, its engine, and a door to each room above the store.

A door is opened, and what is behind it imported, when it is first asked for. To open a lake and to
ask for its history takes neither Arrow nor Lance nor a parser of SQL, and less time than importing
any of them. For the same reason the methods of the handle import functions where they call them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelock.model.once import once
from tidelock.run.engine.session import Engine
from tidelock.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelock.deliver.delivery.ledger import Ledger
    from tidelock.deliver.sinks import Sinks
    from tidelock.derive.attempts.failures import Failures
    from tidelock.derive.catalog import Catalog
    from tidelock.derive.definitions.define import StreamDefinitions
    from tidelock.derive.refresh.refreshes import StreamRefreshes
    from tidelock.derive.status import Reporting
    from tidelock.ingest.registry import Registry
    from tidelock.ingest.sources import Sources


class Rooms:
    """The parts that the methods of a Lake handle share."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        catalog: Catalog,
        open_elsewhere: Callable[[SparkSession], Any],
    ) -> None:
        """`open_elsewhere` opens the same lake in another process, on a session of that; it
        pickles."""
        self._store = store
        self._engine = engine
        self._catalog = catalog
        self._open_elsewhere = open_elsewhere

    @once
    def _failures(self) -> Failures:
        from tidelock.derive.attempts.failures import Failures

        return Failures(self._store)

    @once
    def _reporting(self) -> Reporting:
        from tidelock.derive.status import Reporting

        return Reporting(self._store, self._catalog, self._failures)

    @once
    def _definitions(self) -> StreamDefinitions:
        from tidelock.derive.definitions.define import StreamDefinitions

        return StreamDefinitions(self._store, self._catalog, self._failures)

    @once
    def _refreshes(self) -> StreamRefreshes:
        from tidelock.derive.refresh.refreshes import StreamRefreshes

        return StreamRefreshes(self._store, self._definitions, self._failures)

    @once
    def _ledger(self) -> Ledger:
        from tidelock.deliver.delivery.ledger import Ledger

        return Ledger(self._store.objects, self._store.together)

    @once
    def _sinks(self) -> Sinks:
        from tidelock.deliver.sinks import Sinks

        return Sinks(self._store, self._ledger)

    @once
    def _registry(self) -> Registry:
        from tidelock.ingest.registry import Registry

        return Registry(self._store.objects)

    @once
    def _sources(self) -> Sources:
        from tidelock.ingest.sources import Sources

        return Sources(self._store)
