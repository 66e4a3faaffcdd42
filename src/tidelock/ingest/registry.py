"""The sources of a lake, as objects.

    _tidelock/sources/names/<name>.json          definition, which gives the source's id
    _tidelock/sources/<id>/suspended.json        exists while the source is suspended
    _tidelock/sources/<id>/resumed.json          when it was resumed last
    _tidelock/sources/<id>/reading.json          what the process that reads it has last told

How far a source was read is in its ledger (ledger.py), which is a table. What is here may be
written at any time: a reading is a note, that may be old or missing without harm.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TypeVar

from tidelock.errors import (
    CorruptObject,
    FormatError,
    ObjectExists,
    ObjectMissing,
    SourceExists,
    SourceNotFound,
)
from tidelock.model.names import suggest
from tidelock.model.sources import Reading, SourceDefinition, Suspension
from tidelock.store.objects import layout
from tidelock.store.objects.entries import entries, is_entry
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode

logger = logging.getLogger("tidelock")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Traces:
    """The objects of sources, by which it is noticed what others do about them: whatever that is
    makes, dates or removes one. What a reader tells is none."""

    names: dict[str, str]
    """By the key of the definition."""
    objects: dict[str, frozenset[str]]
    """By the id of the source."""

    def of(self, definition: SourceDefinition) -> frozenset[str]:
        mine = self.objects.get(definition.id, frozenset())
        return mine | {self.names.get(layout.source_name(definition.name), "")}


class Registry:
    """All objects of all sources of one lake."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def create(self, definition: SourceDefinition) -> None:
        try:
            self._objects.put_new(layout.source_name(definition.name), encode(definition))
        except ObjectExists as error:
            raise SourceExists(
                f"There is a source {definition.name!r} already. Drop it first, or choose another "
                "name.",
                source=definition.name,
            ) from error

    def replace(self, definition: SourceDefinition) -> None:
        self._objects.put(layout.source_name(definition.name), encode(definition))

    def definition(self, name: str) -> SourceDefinition:
        key = layout.source_name(name)
        try:
            return decode(self._objects.get(key), SourceDefinition, key)
        except ObjectMissing as error:
            known = suggest(name, [one.name for one in self.definitions()])
            raise SourceNotFound(f"There is no source {name!r}. {known}", source=name) from error

    def is_there(self, definition: SourceDefinition) -> bool:
        """Whether it is still what its name defines."""
        found = self.definition_at(layout.source_name(definition.name))
        return found is not None and found.id == definition.id

    def definition_at(self, key: str) -> SourceDefinition | None:
        """What a key of `traces` defines; None if it is gone, or under a name that is not its."""
        found = self._find(key, SourceDefinition)
        return found if found is not None and layout.source_name(found.name) == key else None

    def traces(self) -> Traces:
        """What there is of sources, in one list of which nothing is read."""
        names: dict[str, str] = {}
        objects: dict[str, frozenset[str]] = {}
        for info in self._objects.list(layout.SOURCES):
            owner, _, rest = info.key.removeprefix(f"{layout.SOURCES}/").partition("/")
            trace = f"{info.key} {info.modified.timestamp()}"
            if is_entry(info.key, f"{layout.SOURCES}/names"):
                names[info.key] = trace
            elif rest in ("suspended.json", "resumed.json"):
                objects[owner] = objects.get(owner, frozenset()) | {trace}
        return Traces(names, objects)

    def definitions(self) -> list[SourceDefinition]:
        """All sources but those whose definition cannot be read: one of them stops no other."""
        found: list[SourceDefinition] = []
        for info in entries(self._objects, f"{layout.SOURCES}/names"):
            try:
                one = self._find(info.key, SourceDefinition)
            except FormatError as error:
                logger.warning("a source is passed over: %s", error)
                continue
            if one is not None and layout.source_name(one.name) == info.key:
                found.append(one)
        return sorted(found, key=lambda one: one.name)

    def forget(self, definition: SourceDefinition) -> None:
        """Remove all objects of a source, its name last."""
        for name in ("suspended", "resumed", "reading"):
            self._objects.delete(f"{layout.source(definition.id)}/{name}.json")
        self._objects.delete(layout.source_name(definition.name))

    # Suspended

    def suspension(self, definition: SourceDefinition) -> Suspension | None:
        return self._find(self._key(definition, "suspended"), Suspension)

    def suspend(self, definition: SourceDefinition, suspension: Suspension) -> None:
        self._objects.put(self._key(definition, "suspended"), encode(suspension))

    def resume(self, definition: SourceDefinition, resumption: Suspension) -> None:
        """That it may go on. Also one that is not suspended but stopped is tried again then."""
        self._objects.put(self._key(definition, "resumed"), encode(resumption))
        self._objects.delete(self._key(definition, "suspended"))

    # What its reader tells

    def reading(self, definition: SourceDefinition) -> Reading | None:
        try:
            return self._find(self._key(definition, "reading"), Reading)
        except CorruptObject:
            return None

    def tell(self, definition: SourceDefinition, reading: Reading) -> None:
        self._objects.put(self._key(definition, "reading"), encode(reading))

    def _key(self, definition: SourceDefinition, name: str) -> str:
        return f"{layout.source(definition.id)}/{name}.json"

    def _find(self, key: str, kind: type[T]) -> T | None:
        try:
            return decode(self._objects.get(key), kind, key)
        except ObjectMissing:
            return None
