"""What a source is: the part that knows a database, a folder, a queue; and what it is given.

To feed a lake from a place of your own, write a subclass of `Source`:

    class Orders(Source):
        @classmethod
        def open(cls, definition): return cls(definition.options["url"])
        def discover(self):
            return [SourceTable("orders", pa.schema({"id": pa.int64(), "v": pa.string()}), ("id",))]
        def poll(self, desk):
            for batch in api.changes(since=desk.position):
                incoming = desk.begin()
                incoming.upsert("orders", batch.rows)
                yield incoming.finish(position=batch.cursor)

Law: whatever `poll` gives for a position comes after all that was given up to it, and is given
again, the same, until it is acknowledged. So what is read twice is known by its position, and what
is published once is never read again. `testing/source_contract.py` tests that a source keeps it.

Each transaction that `poll` gives becomes one commit, with its position, before the next is asked
for. It is acknowledged after that, and not before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from tidelock.errors import InvalidOption
from tidelock.ingest.intake.incoming import SPILL_BYTES, Incoming
from tidelock.ingest.ledger import Entry, Ledger
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sources import Reading, SourceDefinition

if TYPE_CHECKING:
    from tidelock.store.store import Store


@dataclass(frozen=True)
class SourceTable:
    """A table that a source feeds: what the source calls it, and the columns and the key it has."""

    name: str
    schema: pa.Schema | Callable[[], object]
    """Its columns, or what tells them, which is asked when the table is created."""
    key: tuple[str, ...] = ()
    namespace: str = ""
    hidden: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """Columns that are kept for the source itself, and shown to nobody."""
    called: str | None = None
    """What the lake calls it, where that does not follow from `into`."""


@dataclass
class Desk:
    """What a source is given to work with while it is read."""

    definition: SourceDefinition
    store: Store
    ledger: Ledger
    stopped: Callable[[], bool]
    live: bool
    """Whether it goes on until it is stopped; else what there is by now is read."""
    tables: dict[str, str]
    """What the lake calls each table."""
    tell: Callable[[Reading], None] = lambda reading: None
    """Takes what is to be shown of the source."""
    begin: Callable[[], Incoming] = field(kw_only=True)

    def refresh(self) -> None:
        """See what was published since."""
        head = self.store.branches.head(self.definition.branch)
        self.ledger = Ledger(self.store, self.definition, head)

    @property
    def position(self) -> str:
        """How far the source was read, by what the lake holds."""
        return self.ledger.position

    def entries(self, items: Iterable[str]) -> dict[str, Entry]:
        """What the ledger remembers of some items."""
        return self.ledger.find(items)


class Source(ABC):
    """A place that feeds tables of a lake."""

    is_live: ClassVar[bool] = False
    """Whether `poll` waits by itself for what comes; else it is asked again and again."""

    @classmethod
    def settle(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options as they are kept with the definition: so that they mean the same to every
        process, wherever it runs."""
        return dict(options)

    @classmethod
    @abstractmethod
    def open(cls, definition: SourceDefinition) -> Self:
        """A source that is ready to be read, with its options checked and secrets read."""

    @abstractmethod
    def discover(self) -> Sequence[SourceTable]:
        """The tables that it feeds."""

    def accept(self, table: SourceTable, schema: TableSchema) -> None:  # noqa: B027
        """Refuse a table of the lake that it cannot feed."""

    @abstractmethod
    def poll(self, desk: Desk) -> Iterator[Incoming]:
        """What came after `desk.position`, one transaction after the other."""

    fragment_bytes: int = SPILL_BYTES
    """Of a transaction with more changes than this, those that came first go to storage."""
    unknown: Callable[[Incoming, str, pa.Table], None] | None = None
    """Told of keys whose rows are left out, because updates did not bring all of their values, and
    the lake does not have the rows; None where that is an error."""

    def snapshot(self, table: SourceTable) -> Iterator[pa.RecordBatch]:
        """The rows that a table has before the first transaction; none unless the source says."""
        return iter(())

    def resnapshot(self, desk: Desk, tables: Sequence[str]) -> Iterator[Incoming]:
        """What brings tables to what the source has, where the lake has something else; each by the
        name that `discover` gave it. InvalidOption unless the source says how."""
        raise InvalidOption(
            f"A source of kind {desk.definition.kind!r} cannot load its tables anew.",
            source=desk.definition.name,
            kind=desk.definition.kind,
        )

    def acknowledge(self, position: str) -> None:  # noqa: B027
        """Everything up to a position is in the lake, and is never asked for again."""

    def close(self) -> None:  # noqa: B027
        """It is not read any more for now."""

    def drop(self) -> None:  # noqa: B027
        """It is never read again: what was left for it at the source is removed."""

    def status(self) -> dict[str, Any]:
        """What the source itself tells of how far it is, for `lake.source_status`."""
        return {}
