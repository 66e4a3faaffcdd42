"""The inventory of a destination of files: what is there, by its manifest.

Owns: reading, comparing and replacing the manifest of one sink, with the entries that earlier
manifests hold. folder.py does what is done at the destination; manifests.py knows the bytes.
Invariant: a manifest is replaced only if it is the one that was read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tidelock.deliver.destinations.files.folder import FileFolder, ManifestCopy
from tidelock.deliver.destinations.files.manifests import Manifest, ManifestEntry, order_of
from tidelock.errors import Advice, CorruptObject, DestinationFailed, ObjectExists, SinkStopped
from tidelock.model.sinks import NOBODY, SinkDefinition, SinkState, Standing
from tidelock.model.time.durations import show_moment

_ANEW = "write the manifest anew from the names of the files that are there."


@dataclass(frozen=True, slots=True)
class Inventory:
    """What one destination of files has."""

    definition: SinkDefinition
    folder: FileFolder

    # Reading

    def read(self) -> ManifestCopy:
        """The manifest as it is; SinkStopped when it is another sink's."""
        copy = self.folder.read_manifest()
        manifest = copy.manifest
        if manifest is not None and manifest.sink_id != self.definition.id:
            raise SinkStopped(
                f"{self.definition.to} holds the files of another sink, {manifest.sink!r}. Choose "
                "another address, or empty it first.",
                sink=self.definition.name,
                other=manifest.sink,
            )
        return copy

    def manifest(self) -> Manifest | None:
        """The manifest; None when it is gone or cannot be read."""
        return self.read().manifest

    def damage_of(self, copy: ManifestCopy) -> str:
        """What is wrong with a manifest that is not there or cannot be read, as a sentence."""
        return copy.damage or (
            f"The manifest {self.folder.manifest_uri} of sink {self.definition.name!r} is gone."
        )

    def listed(self) -> list[ManifestEntry]:
        """Every file that the manifest and those before it list, as the newest of them has it."""
        entries: dict[str, ManifestEntry] = {}
        manifest = self.manifest()
        while manifest is not None:
            for entry in manifest.files:
                entries.setdefault(entry.path, entry)
            earlier = manifest.previous
            manifest = None if earlier is None else self._earlier(earlier)
        return list(entries.values())

    def _earlier(self, name: str) -> Manifest:
        try:
            return self.folder.read_earlier(name)
        except CorruptObject as error:
            sink = self.definition.name
            raise SinkStopped(
                error.message,
                Advice(
                    f"Put it back; or let lake.repair_sink({sink!r}) {_ANEW}",
                    f"Put it back; or let `tidelock sink repair {sink}` {_ANEW}",
                ),
                sink=sink,
            ) from error

    def has_all_entries(self) -> bool:
        """Whether what the manifest leaves to earlier ones is there and can be read."""
        try:
            self.listed()
        except SinkStopped:
            return False
        return True

    def unlisted(self) -> list[str]:
        """The sink's files that no manifest lists: of a plan that is open, or was given up."""
        listed = {entry.path for entry in self.listed()}
        return [file.named.key for file in self.folder.files() if file.named.key not in listed]

    def find_damage(self, standing: Standing) -> list[str]:
        """What is not as it was delivered, by names and sizes, a sentence for each."""
        if not standing.state.left_by:
            return []
        copy = self.read()
        if copy.manifest is None:
            name = self.definition.name
            return [f"{self.damage_of(copy)} `tidelock sink repair {name}` writes it anew."]
        try:
            listed = self.listed()
        except SinkStopped as stopped:
            return [stopped.told("shell")]
        sentences = []
        ours = {*standing.given_up().left_by}
        if copy.manifest.left_by not in ours:
            sentences.append(
                f"{self.definition.to} was last written by another lake, or by this one before it "
                f"was put back: plan {copy.manifest.plan}, of "
                f"{show_moment(copy.manifest.written)}."
            )
        there = {file.named.key: file.size_bytes for file in self.folder.files()}
        for entry in listed:
            size_bytes = there.pop(entry.path, None)
            if size_bytes is None:
                sentences.append(f"{entry.path} with {entry.rows} rows is gone.")
            elif size_bytes != entry.size_bytes:
                sentences.append(
                    f"{entry.path} has {size_bytes} bytes, and was delivered with "
                    f"{entry.size_bytes}."
                )
        planned = standing.open.parts if standing.open is not None else ()
        names = self.folder.names
        expected = {names.key_of(part.path, chunk) for part in planned for chunk in part.chunks}
        return sentences + [f"{key} is in no manifest." for key in sorted(there.keys() - expected)]

    # Replacing

    def replace(self, copy: ManifestCopy, manifest: Manifest) -> None:
        """Put a manifest in the place of one that was read; DestinationFailed if that changed."""
        try:
            self.folder.replace_manifest(copy, manifest)
        except ObjectExists as error:
            raise self.failed(
                f"The manifest {self.folder.manifest_uri} was replaced by somebody else while this "
                "process wrote. It is left as it is; the next try looks at it first"
            ) from error

    def describe(
        self,
        state: SinkState,
        files: tuple[ManifestEntry, ...],
        *,
        left_by: str,
        previous: str | None = None,
    ) -> Manifest:
        """The manifest of these files, at a state of the sink."""
        definition = self.definition
        return Manifest(
            definition.name,
            definition.id,
            definition.table,
            definition.feed,
            definition.kind,
            state.plan,
            state.watermark,
            {path: lag.watermark for path, lag in state.lagging.items()},
            state.generation,
            datetime.now(UTC),
            files,
            previous,
            left_by,
        )

    def take_back(self, since: int) -> None:
        """Remove every file with a position after this one, which no file spans."""
        copy = self.read()
        listed = self.listed() if copy.manifest is not None else []
        kept = tuple(sorted((entry for entry in listed if entry.until <= since), key=order_of))
        before = copy.manifest or self.describe(SinkState(0, since), (), left_by=NOBODY)
        behind = {path: at for path, at in before.lagging.items() if at < since}
        # The manifest first: what it does not list is nobody's.
        less = replace(before, watermark=since, files=kept, lagging=behind, previous=None)
        self.replace(copy, less)
        keys = {entry.path for entry in kept}
        self.folder.remove(
            file.named.key for file in self.folder.files() if file.named.key not in keys
        )

    def failed(self, what: str, **evidence: object) -> DestinationFailed:
        return DestinationFailed(
            f"{what}.", sink=self.definition.name, to=self.definition.to, **evidence
        )
