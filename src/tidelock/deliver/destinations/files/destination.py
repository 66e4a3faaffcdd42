"""Files as a destination: one object for each chunk, and a manifest that lists them.

folder.py shows where everything is; manifests.py what the manifest holds; inventory.py reads and
replaces it; replay.py and repair.py go back and make good.

Invariants: a file is there completely or not at all; its name carries the positions that it covers;
no two files of one partition overlap; without partitions, the ranges of all that is listed follow
each other without gaps (a partition has no file for a range in which it got no row). Names and
content follow from the chunk, so that writing it again gives the same object.
After a crash: files that the manifest does not list belong to a plan that is sent again; if it is
given up, they are set aside. Nothing is removed unless somebody said that rows may go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tidelock.deliver.destinations.files.contents import count_rows
from tidelock.deliver.destinations.files.folder import FileFolder, ManifestCopy
from tidelock.deliver.destinations.files.formats import FORMATS
from tidelock.deliver.destinations.files.inventory import Inventory
from tidelock.deliver.destinations.files.manifests import Manifest, ManifestEntry, order_of
from tidelock.deliver.destinations.files.names import FileNames
from tidelock.deliver.destinations.files.repair import repair
from tidelock.deliver.destinations.files.replay import plan_replay
from tidelock.deliver.destinations.protocol import (
    DestinationPosition,
    ReplayRequest,
    SentChunk,
    Sink,
    SinkReplay,
    Terms,
    is_left_by,
    rows_option,
)
from tidelock.deliver.reports import ManifestReport
from tidelock.errors import SinkStopped
from tidelock.model.sinks import NOBODY, Chunk, DeliveryPlan, SinkDefinition, SinkState, Standing
from tidelock.model.time.durations import show_moment
from tidelock.store.rows.batch_stream import BatchStream
from tidelock.store.secrets import resolve

ROWS_PER_FILE = 1_000_000
LISTED_MAX = 1000


@dataclass
class FileSink(Sink):
    """A folder or a bucket that gets one file per chunk.

    Owns: the files of a plan until the manifest lists them.
    """

    definition: SinkDefinition
    folder: FileFolder
    inventory: Inventory
    rows_per_chunk: int = ROWS_PER_FILE
    _written: dict[str, ManifestEntry] = field(default_factory=dict)
    _plan: int = 0
    _copy: ManifestCopy | None = None
    """The manifest as it was read when the plan began; None once it was replaced."""

    @classmethod
    def open(cls, definition: SinkDefinition) -> FileSink:
        suffix, _ = FORMATS[definition.kind]
        storage_options = resolve(definition.options).get("storage_options") or {}
        folder = FileFolder(definition.to, FileNames(definition, suffix), storage_options)
        rows = rows_option(definition.options, "rows_per_file", ROWS_PER_FILE)
        return cls(definition, folder, Inventory(definition, folder), rows)

    def accept(self, terms: Terms) -> None:
        self.folder.accept(terms.guard)

    # Delivering

    def plan(self, plan: DeliveryPlan, schema: pa.Schema) -> None:
        self._plan = plan.number
        self._written = {}
        copy = self.inventory.read()
        if copy.tagged is None and NOBODY in (plan.before.left_by or (NOBODY,)):
            self._begin(plan)
            copy = self.inventory.read()
        self._check(copy, plan)
        self._copy = copy
        self.folder.sweep_unfinished()

    def _begin(self, plan: DeliveryPlan) -> None:
        """Take the folder before anything is put there: names would be the same."""
        self._refuse_files()
        first = SinkState(plan.before.plan, plan.before.watermark, generation=plan.generation)
        self.folder.take(self.inventory.describe(first, (), left_by=NOBODY))

    def refuse_occupied(self) -> None:
        copy = self.inventory.read()
        if copy.damage:
            raise SinkStopped(
                f"{copy.damage} It tells of what another sink delivered to {self.definition.to}. "
                "Choose another address, or empty it first.",
                sink=self.definition.name,
            )
        self._refuse_files()

    def _refuse_files(self) -> None:
        """SinkStopped when files are there before the first plan: nobody tells whose they are."""
        keys = [file.named.key for file in self.folder.files()]
        if keys:
            raise SinkStopped(
                f"{self.definition.to} holds files with the names that a sink gives, such as "
                f"{keys[0]}, and no manifest that tells whose they are. Choose another address, or "
                "empty it first.",
                sink=self.definition.name,
                files=keys,
            )

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        _, write = FORMATS[self.definition.kind]
        key = self.folder.names.key_of(chunk.path, chunk.chunk)
        stream = BatchStream(rows)
        size_bytes = self.folder.put(key, lambda where: write(where, chunk.schema, stream))
        self._written[key] = self._entry(key, chunk.path, chunk.chunk, stream.rows, size_bytes)
        return size_bytes

    def confirm(self, plan: DeliveryPlan, state: SinkState) -> None:
        """List what was written. Files that an earlier attempt wrote are found by their plan."""
        copy, self._copy = self._copy or self.inventory.read(), None
        known = self._check(copy, plan)
        files = {entry.path: entry for entry in known.files}
        for part in plan.parts:
            for chunk in part.chunks:
                if chunk.until <= state.watermark_of(part.path):
                    key = self.folder.names.key_of(part.path, chunk)
                    files[key] = self._written.get(key) or self._there(key, part.path, chunk)
        listed = tuple(sorted(files.values(), key=order_of))
        previous = known.previous
        if len(known.files) > LISTED_MAX and known.plan < plan.number:
            # What is listed there need not be written again and again.
            previous = f"manifest-{known.plan:012d}.json"
            self.folder.keep_earlier(previous, known)
            before = {entry.path for entry in known.files}
            listed = tuple(
                entry for entry in listed if entry.path not in before or entry.path in self._written
            )
        manifest = self.inventory.describe(state, listed, left_by=plan.identity, previous=previous)
        self.inventory.replace(copy, manifest)

    def _there(self, key: str, path: str, chunk: Chunk) -> ManifestEntry:
        """A file that an earlier attempt wrote, as it is."""
        size_bytes = self.folder.size_of(key)
        if size_bytes is None:
            raise self.inventory.failed(
                f"{key} was written to {self.definition.to} and is not there any more. What was "
                "planned is written again",
                send_again=True,
            )
        # Counted, not taken from the plan: a replay writes those rows that the lake still has.
        with self.folder.open(key) as file:
            rows = count_rows(self.definition.kind, file)
        return self._entry(key, path, chunk, rows, size_bytes)

    def _entry(
        self, key: str, path: str, chunk: Chunk, rows: int, size_bytes: int
    ) -> ManifestEntry:
        return ManifestEntry(key, path, chunk.after, chunk.until, rows, size_bytes, self._plan)

    def close(self) -> None:
        return

    def _check(self, copy: ManifestCopy, plan: DeliveryPlan) -> Manifest:
        """The manifest that was read, if it is as this lake left it or as this plan leaves it."""
        manifest = copy.manifest
        name, to = self.definition.name, self.definition.to
        if manifest is None:
            raise self.inventory.failed(
                f"{self.inventory.damage_of(copy)} Nothing was sent. `tidelock sink repair {name}` "
                "writes it anew from the names of the files that are there; `tidelock sink replay "
                f"{name}` delivers everything again"
            )
        if not is_left_by(manifest.left_by, plan):
            raise self.inventory.failed(
                f"{to} holds files that this lake did not deliver: plan {manifest.plan}, of "
                f"{show_moment(manifest.written)}. The lake was put back to an earlier "
                "state, or is a copy of the one that delivered. Nothing was written. To replace "
                f"everything by what this lake has, run `tidelock sink replay {name} --lose-rows`; "
                "to leave it, drop the sink and create one with another address"
            )
        if manifest.files and self.folder.is_gone():
            raise self.inventory.failed(
                f"The folder {to} is gone, and what was delivered with it. Nothing was sent. "
                f"`tidelock sink replay {name}` delivers it again; if it is meant to be empty, "
                "make the folder"
            )
        return manifest

    # What is there

    def recover(self) -> DestinationPosition | None:
        """What the manifest lists; files of a plan that nobody knows any more are set aside."""
        manifest = self.inventory.manifest()
        if manifest is None:
            return None
        self.folder.set_aside(self.inventory.unlisted())
        lagging = {}
        for path, reached in manifest.lagging.items():
            # While files are written again in their place, those to come are there as they were.
            ends = [entry.until for entry in self.inventory.listed() if entry.partition == path]
            reached = max([reached, *ends])
            if reached < manifest.watermark:
                lagging[path] = reached
        return DestinationPosition(
            manifest.watermark, lagging, manifest.plan, manifest.generation, manifest.left_by
        )

    def find_damage(self, standing: Standing) -> list[str]:
        return self.inventory.find_damage(standing)

    def replay(self, request: ReplayRequest) -> SinkReplay:
        return plan_replay(self.inventory, request)

    def repair(self, standing: Standing) -> ManifestReport:
        return repair(self.inventory, standing)
