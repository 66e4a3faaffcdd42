"""Files as a destination: one object for each chunk, and a manifest that lists them.

    <to>/<partition folder>/<first>-<last>.<format>   the rows of one chunk
    <to>/_tidelock/manifest.json                      what is there, and up to where
    <to>/_tidelock/manifest-<plan>.json               earlier entries of the manifest

Invariants: a file is there completely or not at all; its name carries the positions that it covers;
no two files of one partition overlap; without partitions, the ranges of all that is listed follow
each other without gaps (a partition has no file for a range in which it got no row). Names and
content follow from the chunk, so that writing it again gives the same object.
After a crash: files that the manifest does not list belong to a plan that is sent again; if it is
given up, for a replay, they are removed.
"""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from tidelock.deliver.formats import FORMATS, Where
from tidelock.deliver.partitions import WHOLE, folder_of
from tidelock.deliver.sink import Recovered, SentChunk, is_left_by, rows_option
from tidelock.errors import (
    CorruptObject,
    DestinationFailed,
    InvalidOption,
    ObjectExists,
    ObjectMissing,
    SinkStopped,
)
from tidelock.model.sinks import Chunk, Plan, SinkDefinition, SinkState
from tidelock.store.location import locate
from tidelock.store.objects import LocalObjects, ObstoreObjects
from tidelock.store.records import decode, encode

ROWS_PER_FILE = 1_000_000
OWN = "_tidelock"
MANIFEST = f"{OWN}/manifest.json"
LISTED_MAX = 1000
_OURS = re.compile(r"(^|/)([0-9]{19}|v[0-9]{10}\.[0-9]{10})-[v.0-9]{19,22}\.[a-z]+$")


@dataclass(frozen=True, slots=True)
class Listed:
    """One file, as the manifest lists it."""

    path: str
    partition: str
    after: int
    until: int
    rows: int
    size_bytes: int
    plan: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a destination holds. Positions are those of `docs/sinks.md`."""

    sink: str
    sink_id: str
    table: str
    feed: str
    format_of_files: str
    plan: int
    watermark: int
    lagging: dict[str, int]
    generation: int
    written: datetime
    files: tuple[Listed, ...]
    previous: str | None = None
    """The manifest with the entries before these."""
    left_by: str = ""
    """The identity of the plan that it was written by; empty before the first."""
    format: int = 1


@dataclass
class FileSink:
    """A folder or a bucket that gets one file per chunk."""

    definition: SinkDefinition
    objects: LocalObjects | ObstoreObjects
    rows_per_chunk: int = ROWS_PER_FILE
    _written: dict[str, Listed] = field(default_factory=dict)
    _plan: int = 0

    @classmethod
    def open(cls, definition: SinkDefinition, secrets_of: Mapping[str, str]) -> FileSink:
        location = locate(definition.to, storage_options=secrets_of or None)
        objects = location.objects()
        if not isinstance(objects, LocalObjects | ObstoreObjects):
            raise InvalidOption(f"{definition.to} cannot hold files.", to=definition.to)
        rows = rows_option(definition.options, "rows_per_file", ROWS_PER_FILE)
        return cls(definition, objects, rows)

    def plan(self, plan: Plan, schema: pa.Schema) -> None:
        self._plan = plan.number
        self._written = {}
        if self.manifest() is None and not plan.before.left_by:
            # The place is taken before anything is put there: names would be the same.
            with suppress(ObjectExists):
                manifest = self._manifest(plan, plan.before, (), None)
                first = replace(manifest, plan=plan.before.plan, left_by="")
                self.objects.put_new(MANIFEST, encode(first))
        self._expected(plan)
        if isinstance(self.objects, LocalObjects):
            # Whoever was killed left these; one process at a time delivers.
            for path in Path(self.objects.uri, OWN).glob("unfinished-*"):
                path.unlink(missing_ok=True)

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        suffix, write = FORMATS[self.definition.kind]
        key = self._key(chunk, suffix)
        counted = _Counted(rows)
        size_bytes = self._put(key, lambda where: write(where, chunk.schema, counted))
        self._written[key] = Listed(
            key,
            chunk.path,
            chunk.chunk.after,
            chunk.chunk.until,
            counted.rows,
            size_bytes,
            self._plan,
        )
        return size_bytes

    def listed(self) -> list[Listed]:
        """Every file that the manifest and those before it list, as the newest of them has it."""
        found: dict[str, Listed] = {}
        manifest = self.manifest()
        while manifest is not None:
            for one in manifest.files:
                found.setdefault(one.path, one)
            key = manifest.previous
            manifest = None if key is None else decode(self.objects.get(key), Manifest, key)
        return list(found.values())

    def recover(self) -> Recovered | None:
        """What the manifest lists; files of a plan that nobody knows any more are removed."""
        manifest = self.manifest()
        if manifest is None:
            return None
        self.remove_unlisted()
        lagging = {}
        for path, reached in manifest.lagging.items():
            # While files are written again in their place, those to come are there as they were.
            ends = [one.until for one in self.listed() if one.partition == path]
            reached = max([reached, *ends])
            if reached < manifest.watermark:
                lagging[path] = reached
        return Recovered(
            manifest.watermark, lagging, manifest.plan, manifest.generation, manifest.left_by
        )

    def take_back(self, since: int) -> int:
        """Remove every file with a position after this one; the position after which none is left.

        That is an earlier one where a file holds positions on both sides.
        """
        manifest, listed = self.manifest(), self.listed()
        while torn := [one.after for one in listed if one.after < since < one.until]:
            since = min(torn)
        if manifest is not None:
            # The manifest first: what it does not list is nobody's.
            kept = tuple(sorted((one for one in listed if one.until <= since), key=_order))
            behind = {path: at for path, at in manifest.lagging.items() if at < since}
            less = replace(manifest, watermark=since, files=kept, lagging=behind, previous=None)
            self.objects.put(MANIFEST, encode(less))
        self.remove_unlisted()
        return since

    def remove_unlisted(self) -> None:
        """Remove the files of a plan that was begun and will not be sent as it was."""
        listed = {one.path for one in self.listed()}
        for info in self.objects.list(""):
            if _OURS.search(info.key) and info.key not in listed:
                self.objects.delete(info.key)

    def _key(self, chunk: SentChunk, suffix: str) -> str:
        folder = f"{folder_of(chunk.path)}/" if chunk.path != WHOLE else ""
        return f"{folder}{chunk.range}.{suffix}"

    def _put(self, key: str, write: Callable[[Where], None]) -> int:
        """Make one object of what is written, completely or not at all; its size in bytes."""
        if not isinstance(self.objects, LocalObjects):
            # Without a name, so that nothing of it is left by whoever is killed.
            with tempfile.TemporaryFile() as file:
                write(file)
                size_bytes = file.tell()
                file.seek(0)
                self.objects.put_file(key, file)
                return size_bytes
        folder = Path(self.objects.uri) / OWN
        folder.mkdir(parents=True, exist_ok=True)
        # Where it can be moved from without being copied.
        path = folder / f"unfinished-{secrets.token_hex(8)}"
        try:
            write(path)
            size_bytes = path.stat().st_size
            self.objects.put_file(key, path)
            return size_bytes
        finally:
            path.unlink(missing_ok=True)

    def confirm(self, plan: Plan, state: SinkState) -> None:
        """List what was written. Files that an earlier attempt wrote are found by their plan."""
        known = self._expected(plan)
        wanted = {
            self._named(plan, part.path, chunk)
            for part in plan.parts
            for chunk in part.chunks
            if chunk.until <= state.watermark_of(part.path)
        }
        files = {one.path: one for one in known.files}
        for one in wanted:
            if one.path in self._written:
                files[one.path] = self._written[one.path]
            elif one.path not in files:
                info = self.objects.info(one.path)
                if info is not None:
                    files[one.path] = Listed(
                        one.path,
                        one.partition,
                        one.after,
                        one.until,
                        one.rows,
                        info.size_bytes,
                        plan.number,
                    )
        self._publish(plan, state, tuple(sorted(files.values(), key=_order)), known)

    def _named(self, plan: Plan, path: str, chunk: Chunk) -> Listed:
        sent = SentChunk(
            plan.sink_id, self.definition.feed, path, chunk, plan.generation, pa.schema([])
        )
        suffix, _ = FORMATS[self.definition.kind]
        key = self._key(sent, suffix)
        return Listed(key, path, chunk.after, chunk.until, chunk.rows, 0, plan.number)

    def _publish(
        self, plan: Plan, state: SinkState, files: tuple[Listed, ...], known: Manifest
    ) -> None:
        previous = known.previous
        if len(known.files) > LISTED_MAX and known.plan < plan.number:
            # What is listed there need not be written again and again.
            previous = f"{OWN}/manifest-{known.plan:012d}.json"
            self.objects.put(previous, encode(known))
            listed = {one.path for one in known.files}
            files = tuple(
                one for one in files if one.path not in listed or one.path in self._written
            )
        self.objects.put(MANIFEST, encode(self._manifest(plan, state, files, previous)))

    def _manifest(
        self, plan: Plan, state: SinkState, files: tuple[Listed, ...], previous: str | None
    ) -> Manifest:
        return Manifest(
            self.definition.name,
            plan.sink_id,
            self.definition.table,
            self.definition.feed,
            self.definition.kind,
            plan.number,
            state.watermark,
            {path: lag.watermark for path, lag in state.lagging.items()},
            plan.generation,
            datetime.now(UTC),
            files,
            previous,
            plan.identity,
        )

    def _expected(self, plan: Plan) -> Manifest:
        """The manifest, if it is as this lake left it or as this plan leaves it."""
        found = self.manifest()
        name, to = self.definition.name, self.definition.to
        if found is None:
            raise DestinationFailed(
                f"The manifest at {to} is gone, and what was delivered may be with it. Put it "
                f"back; or run `tidelock sink replay {name}`, which delivers everything anew.",
                sink=name,
                to=to,
            )
        if not is_left_by(found.left_by, plan):
            raise DestinationFailed(
                f"{to} holds files that this lake did not deliver: plan {found.plan}, of "
                f"{found.written:%Y-%m-%d %H:%M:%S} UTC. The lake was put back to an earlier "
                "state, or is a copy of the one that delivered. Nothing was written. To replace "
                f"everything by what this lake has, run `tidelock sink replay {name} --lose-rows`; "
                "to leave it, drop the sink and create one with another place.",
                sink=name,
                to=to,
            )
        return found

    def manifest(self) -> Manifest | None:
        try:
            found = decode(self.objects.get(MANIFEST), Manifest, MANIFEST)
        except ObjectMissing:
            return None
        except CorruptObject as error:
            raise SinkStopped(
                f"The manifest of sink {self.definition.name!r} at {self.definition.to} cannot be "
                f"read: {error.message}",
                sink=self.definition.name,
            ) from error
        if found.sink_id != self.definition.id:
            raise SinkStopped(
                f"{self.definition.to} holds the files of another sink, {found.sink!r}. Choose "
                "another place, or empty it first.",
                sink=self.definition.name,
                other=found.sink,
            )
        return found

    def close(self) -> None:
        return


class _Counted:
    """Rows on their way, counted."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._batches = rows
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.rows += batch.num_rows
        return batch


def _order(one: Listed) -> tuple[str, int]:
    return one.partition, one.after
