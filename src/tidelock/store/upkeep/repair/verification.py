"""Verifying: whether everything in a lake is what was written.

Owns: the comparison of every object with its own checksum, of every manifest with the commit that
names it, and of every data, deletion and index file with the checksum that was kept when it was
committed. Looked at is all that is there, of old versions too, for as long as garbage collection
leaves it; what the heads of branches, tags and holds need must be there, and so must every version
of a log below its head. Nothing is changed.

Law: a bit that changed anywhere in what a reader reads is found and named.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from tidelock.errors import (
    BranchDeleted,
    FormatError,
    SnapshotExpired,
    TidelockError,
    VersionNotFound,
)
from tidelock.model.history.commit import BranchRef, Tables, TableState
from tidelock.model.names import fold, names_of
from tidelock.store.branches import Tag
from tidelock.store.leases.holds import Hold, holds
from tidelock.store.objects import layout
from tidelock.store.parts import Parts
from tidelock.store.tables.damage import Damage, TableFile, check_file, check_index, fragment_files
from tidelock.store.tables.datasets import manifest_file
from tidelock.store.tables.indexes import index_segments
from tidelock.store.upkeep.repair.inventory import Finding, advice_for, examine

THREADS = 8
SAMPLE_TABLES = 4
SAMPLE_FILES = 8
SAMPLE_BYTES_MAX = 64 * 1024 * 1024

NOT_THERE = "it is not there"
_RESTORE = "Restore it from a copy of the lake."
_ADVICE = (
    "Restore it from a copy of the lake, read an earlier version that is still whole, or overwrite "
    "or drop the table."
)


@dataclass(frozen=True)
class VerifyReport:
    """What was looked at, and what is wrong."""

    findings: tuple[Finding, ...]
    objects: int
    files: int
    size_bytes: int

    @property
    def damaged(self) -> tuple[Finding, ...]:
        """What is not what was written, or gone."""
        return tuple(finding for finding in self.findings if finding.is_damage)

    @property
    def ok(self) -> bool:
        return not self.damaged

    def __repr__(self) -> str:
        told = "all whole" if self.ok else f"{len(self.damaged)} damaged"
        return (
            f"VerifyReport({self.objects} objects and {self.files} files, {self.size_bytes} bytes: "
            f"{told})"
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """A file, an index or a manifest of a table."""

    table: str
    table_id: str
    file: TableFile | None = None
    index: tuple[str, frozenset[int]] | None = None
    manifest: TableState | None = None
    needed: bool = False
    """Whether it is an error that it is not there, or that it has no checksum."""


def verify(
    store: Parts,
    tables: str | Sequence[str] | None = None,
    sample: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Verify a lake; with `tables` those alone, with `sample` so many of their files by chance."""
    names = None if tables is None else {fold(name) for name in names_of(tables, "tables")}
    count, findings = (0, []) if names is not None else examine(store.objects)
    states = [one for one in _states(store) if names is None or fold(one.name) in names]
    needed, broken = _needed(store, states)
    pins, holes = _pins(store)
    broken += [*holes, *_missing_objects(store, states)]
    known = {finding.key for finding in findings}
    findings += [finding for finding in broken if finding.key not in known]
    parts = list({**_present(store, states, pins, whole=names is None), **needed}.values())
    if sample is not None:
        parts = random.sample(parts, min(sample, len(parts)))
    size_bytes = 0
    with ThreadPoolExecutor(THREADS) as pool:
        checked = pool.map(lambda part: list(_check(store, part)), parts)
        for number, damages in enumerate(checked, start=1):
            part = parts[number - 1]
            size_bytes += part.file.size_bytes or 0 if part.file is not None else 0
            findings += [_finding(damage, part.table) for damage in damages]
            if progress is not None:
                progress(number, len(parts))
    ordered = sorted(findings, key=lambda one: (not one.is_damage, one.key))
    return VerifyReport(tuple(ordered), count, len(parts), size_bytes)


def missing_objects(store: Parts) -> list[Finding]:
    """What the log and the newest states need, and is not there."""
    return [*_pins(store)[1], *_missing_objects(store, _states(store))]


def sample_damage(store: Parts) -> tuple[Finding, ...]:
    """Some files of some tables, by chance: what maintenance looks at whenever it runs."""
    states = _states(store)
    parts, found = _needed(store, random.sample(states, min(SAMPLE_TABLES, len(states))))
    small = [
        part
        for part in parts.values()
        if part.file is None or (part.file.size_bytes or 0) <= SAMPLE_BYTES_MAX
    ]
    chosen = random.sample(small, min(SAMPLE_FILES, len(small)))
    checked = store.together.map(lambda part: list(_check(store, part)), chosen)
    for part, damages in zip(chosen, checked, strict=True):
        found += [_finding(damage, part.table) for damage in damages]
    return tuple(finding for finding in found if finding.is_damage)


_Parts = dict[tuple[str, str], _Part]


def _needed(store: Parts, states: Iterable[TableState]) -> tuple[_Parts, list[Finding]]:
    """Every file that some states need, and the pins that cannot be opened."""
    parts: _Parts = {}
    broken: dict[str, Finding] = {}
    for found in store.together.map(lambda state: _parts_of(store, state), states):
        if isinstance(found, Finding):
            broken[found.key] = found
        else:
            parts.update(found)
    return parts, list(broken.values())


def _parts_of(store: Parts, state: TableState) -> _Parts | Finding:
    try:
        store.files.forget(state.id)
        dataset = store.files.read(state)
    except TidelockError as error:
        return _unopened(state, error)
    parts: _Parts = {}
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    for file in fragment_files(fragments):
        parts[state.id, file.path] = _Part(state.name, state.id, file, needed=True)
    for one in index_segments(dataset):
        index = (one.uuid, one.fragments)
        parts[state.id, one.uuid] = _Part(state.name, state.id, index=index, needed=True)
    return parts


def _present(store: Parts, states: Sequence[TableState], pins: _Pins, whole: bool) -> _Parts:
    """Everything that is there: of these tables, or of all if the lake is verified as a whole."""
    names = {state.id: state.name for state in states}
    parts: _Parts = {}
    folders = [layout.TABLES] if whole else [layout.table(table_id) for table_id in names]
    for info in (info for folder in folders for info in store.files.objects.list(folder)):
        if not layout.is_table_file(info.key):
            continue
        _, table_id, path = info.key.split("/", 2)
        name = names.get(table_id, table_id)
        if path.startswith(("data/", "_deletions/")):
            parts[table_id, path] = _Part(name, table_id, TableFile(path, info.size_bytes))
        elif path.startswith("_indices/"):
            uuid = path.split("/")[1]
            parts[table_id, uuid] = _Part(name, table_id, index=(uuid, frozenset()))
        elif (state := pins.get((table_id, path))) is not None:
            parts[table_id, path] = _Part(name, table_id, manifest=state)
    return parts


_Pins = dict[tuple[str, str], TableState]


def _pins(store: Parts) -> tuple[_Pins, list[Finding]]:
    """Every state that the log tells of, by the file of its manifest; and what is not in the log
    although something later is."""
    found: _Pins = {}
    holes: list[Finding] = []
    for ref in store.branches.refs(whole=False):
        try:
            for commit in store.log.walk(ref, store.log.head(ref).version):
                for change in commit.tables:
                    if change.after is not None:
                        key = (change.after.id, manifest_file(change.after.pin))
                        found[key] = change.after
        except (BranchDeleted, VersionNotFound):
            continue
        except FormatError as error:
            key_of_it = str(error.evidence.get("key", ""))
            if store.objects.info(key_of_it) is None:
                holes.append(Finding(key_of_it, "missing", NOT_THERE, _RESTORE, "record"))
    return found, holes


def _missing_objects(store: Parts, states: Iterable[TableState]) -> list[Finding]:
    """What the states need beside their files, and is not there."""
    needed: dict[str, TableState] = {}
    for state in states:
        if state.schema:
            needed[layout.schema(state.schema)] = state
        if state.stream is not None:
            needed[layout.definition(state.stream.definition)] = state
    infos = store.together.map(store.objects.info, needed)
    return [
        Finding(key, "missing", NOT_THERE, advice_for(key), "", state.name)
        for (key, state), info in zip(needed.items(), infos, strict=True)
        if info is None
    ]


def _states(store: Parts) -> list[TableState]:
    """The states that heads, tags and holds show, each once."""
    found = {(state.id, state.pin): state for tables in _shown(store) for state in tables.states()}
    return sorted(found.values(), key=lambda state: (state.name, state.pin))


def _shown(store: Parts) -> Iterator[Tables]:
    """What cannot be read of the log is named by the inventory."""
    together = store.together

    def head(ref: BranchRef) -> Tables | None:
        with suppress(BranchDeleted, FormatError):
            return store.log.head(ref).tables
        return None

    def kept(one: Tag | Hold) -> Tables | None:
        with suppress(FormatError, VersionNotFound):
            return store.log.tables_at(one.as_branch(), one.version)
        return None

    def held() -> list[Hold]:
        with suppress(FormatError):
            return holds(store.objects, together)
        return []

    asks: list[Callable[[], list[Tables | None]]] = [
        lambda: together.map(head, store.branches.refs(whole=False)),
        lambda: together.map(kept, store.branches.tags(whole=False)),
        lambda: together.map(kept, held()),
    ]
    for found in together.map(lambda ask: ask(), asks):
        yield from (tables for tables in found if tables is not None)


def _unopened(state: TableState, error: TidelockError) -> Finding:
    key = str(error.evidence.get("key", f"{layout.table(state.id)} at pin {state.pin}"))
    gone = isinstance(error, SnapshotExpired)
    return Finding(key, "missing" if gone else "damaged", error.message, _ADVICE, "", state.name)


def _check(store: Parts, part: _Part) -> Iterator[Damage]:
    objects, root = store.files.objects, layout.table(part.table_id) + "/"
    found: list[Damage | None] = []
    if part.file is not None:
        found.append(check_file(objects, root, part.file))
    if part.index is not None:
        found += check_index(objects, root, *part.index)
    if part.manifest is not None:
        found.append(_check_manifest(store, part.manifest))
    for damage in found:
        if damage is not None and (part.needed or damage.what == "damaged"):
            yield damage


def _check_manifest(store: Parts, state: TableState) -> Damage | None:
    try:
        store.files.open(state.id, state.pin, state.checksum)
    except SnapshotExpired:
        return None
    except FormatError as error:
        return Damage(str(error.evidence.get("key")), "damaged", str(error.evidence.get("cause")))
    return None


def _finding(damage: Damage, table: str) -> Finding:
    return Finding(damage.key, damage.what, damage.why, _ADVICE, "file", table)
