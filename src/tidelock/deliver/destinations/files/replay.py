"""A replay into files: those that hold what is to be sent again are written anew, in their place.

| the manifest | then |
|---|---|
| is as this lake left it | each file that holds such rows is written again, under its name |
| is gone, and the files' names tell what it was | it is written anew first, then likewise |
| is another lake's, or nobody can tell | all files go, if rows may be lost, and are made anew |

A replay sends what the lake has now. Rows that were deleted or pruned since they were delivered are
not there to be sent, and what is written again is written without them.
Invariant: nothing is removed, and nothing that the lake has lost is overwritten, unless rows may be
lost. Files of a plan that is given up are set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelock.deliver.destinations.files.inventory import Inventory
from tidelock.deliver.destinations.files.manifests import Manifest, ManifestEntry
from tidelock.deliver.destinations.files.repair import describe_file, rebuild
from tidelock.deliver.destinations.partitions import folder_of
from tidelock.deliver.destinations.protocol import Ranges, ReplayRequest, SinkReplay, go_back
from tidelock.errors import Advice, InvalidOption, SinkStopped
from tidelock.model.names import suggest
from tidelock.model.positions import NOTHING
from tidelock.model.sinks import (
    NOBODY,
    Chunk,
    Lag,
    SinkDefinition,
    SinkState,
    first_position,
    told,
)


def plan_replay(inventory: Inventory, request: ReplayRequest) -> SinkReplay:
    """How files are replayed; InvalidOption when they cannot be. Changes nothing."""
    state, manifest = request.state, inventory.manifest()
    rebuilt = None
    if manifest is None and not request.lose_rows:
        # Their names tell what is there, so that it is not destroyed.
        manifest = rebuilt = _rebuild(inventory, request)
    if manifest is None or manifest.left_by not in (state.left_by or (NOBODY,)):
        return _replace_all(inventory, manifest, request)
    listed = inventory.listed() if rebuilt is None else list(rebuilt.files)
    partition = _delivered_partition(inventory.definition, request, listed)
    if manifest.plan > state.plan:
        # A plan that is given up here had ended.
        floor = manifest.watermark
        behind = {path: Lag(at, again=floor) for path, at in manifest.lagging.items()}
        state = replace(state, watermark=floor, lagging=behind)
    again = same_files(listed, partition, request.since, request.version)
    _refuse_behind(inventory.definition, state, again)
    return RewrittenFiles(
        replace(state, lagging={**state.lagging, **again}),
        partition,
        request.since,
        request.version,
        inventory=inventory,
        listed=tuple(listed),
        rebuilt=rebuilt,
    )


@dataclass(frozen=True, kw_only=True)
class RewrittenFiles(SinkReplay):
    """The files that are there are written again, each in its place."""

    inventory: Inventory
    listed: tuple[ManifestEntry, ...]
    rebuilt: Manifest | None
    """The manifest that takes the place of one that is gone."""

    def replaced(self) -> Sequence[Ranges]:
        """Every file that is there counts, listed or not; one that is gone does not."""
        folder, definition = self.inventory.folder, self.inventory.definition
        files = {file.named.key: file for file in folder.files()}
        there = [entry for entry in self.listed if entry.path in files]
        known = {entry.path for entry in self.listed}
        # All of them are set aside, wherever they are.
        unlisted = [
            describe_file(folder, definition, file, 0)
            for key, file in files.items()
            if key not in known
        ]
        again = same_files(there, self.partition, self.since, 0)
        aside = same_files(unlisted, None, NOTHING, 0)
        return [{path: lag.chunks for path, lag in lags.items()} for lags in (again, aside)]

    def prepare(self) -> None:
        inventory = self.inventory
        if self.rebuilt is not None:
            inventory.replace(inventory.read(), self.rebuilt)
        inventory.folder.make()
        inventory.folder.set_aside(inventory.unlisted())


@dataclass(frozen=True, kw_only=True)
class RemovedFiles(SinkReplay):
    """What this lake did not deliver, or cannot tell, is removed, and delivered anew."""

    inventory: Inventory

    def prepare(self) -> None:
        self.inventory.take_back(self.since)


def same_files(
    listed: Iterable[ManifestEntry], partition: str | None, since: int, version: int
) -> dict[str, Lag]:
    """The files that hold what is to be sent again, each to be written in its place."""
    again: dict[str, list[Chunk]] = {}
    for entry in listed:
        if entry.until > since and partition in (None, entry.partition):
            chunk = Chunk(entry.after, entry.until, entry.rows)
            again.setdefault(entry.partition, []).append(chunk)
    lags = {}
    for path, chunks in again.items():
        ordered = tuple(sorted(chunks, key=lambda chunk: chunk.after))
        lags[path] = Lag(ordered[0].after, ordered, version)
    return lags


def _rebuild(inventory: Inventory, request: ReplayRequest) -> Manifest | None:
    """What the manifest must have been; None when there is nothing that it could tell of."""
    definition, standing = inventory.definition, request.standing
    if not inventory.folder.files():
        return None
    if isinstance(standing, SinkStopped):
        raise InvalidOption(
            f"Neither the lake ({standing.evidence['reason']}) nor the manifest tells what of "
            f"{definition.to} was delivered. Put one of them back.",
            Advice(
                "Or let its files go, and deliver everything anew, with lose_rows=True.",
                "Or let its files go, and deliver everything anew, with --lose-rows.",
            ),
            sink=definition.name,
        ) from standing
    return rebuild(inventory, standing)[0]


def _delivered_partition(
    definition: SinkDefinition, request: ReplayRequest, listed: Iterable[ManifestEntry]
) -> str | None:
    """A partition by its path, which may be given as its folder is named."""
    if request.partition is None:
        return None
    known = sorted({entry.partition for entry in listed if entry.until > request.since})
    by_folder = {folder_of(path): path for path in known}
    path = by_folder.get(request.partition, request.partition)
    if path not in known:
        raise InvalidOption(
            f"Sink {definition.name!r} has delivered nothing of partition {request.partition!r} "
            f"after {told(definition.feed, request.since)}. {suggest(request.partition, known)}",
            partition=request.partition,
        )
    return path


def _replace_all(
    inventory: Inventory, manifest: Manifest | None, request: ReplayRequest
) -> SinkReplay:
    definition, to = inventory.definition, inventory.definition.to
    if request.partition is not None:
        raise InvalidOption(
            f"{to} is not as this lake left it, and not in this partition alone. Replay all of it.",
            partition=request.partition,
        )
    if inventory.folder.files() and not request.lose_rows:
        raise InvalidOption(
            f"{to} is not as this lake left it: another wrote there since, or this lake was put "
            "back. A replay would remove its files, and rows with them that this lake does not "
            "know. To keep them, drop the sink, and create one with another address.",
            Advice("Let them go with lose_rows=True.", "Let them go with --lose-rows."),
            sink=definition.name,
            to=to,
        )
    if manifest is None and request.since > first_position(definition):
        raise InvalidOption(
            f"The manifest at {to} is gone, so that nobody knows what is there up to "
            f"{told(definition.feed, request.since)}. Replay from the beginning.",
            since=request.since,
        )
    since = request.since
    listed = inventory.listed() if inventory.manifest() is not None else []
    # An earlier one where a file holds positions on both sides.
    while torn := [entry.after for entry in listed if entry.after < since < entry.until]:
        since = min(torn)
    left_by = (manifest.left_by,) if manifest is not None else (NOBODY,)
    state = go_back(replace(request.state, left_by=left_by), since)
    return RemovedFiles(state, None, since, inventory=inventory)


def _refuse_behind(definition: SinkDefinition, state: SinkState, again: Mapping[str, Lag]) -> None:
    """What is planned for a partition that is behind would be forgotten by a replay."""
    for path in sorted(again.keys() & state.lagging.keys()):
        if state.lagging[path].chunks or state.lagging[path].skipped:
            raise InvalidOption(
                f"Partition {path!r} of sink {definition.name!r} is behind. Deliver first, or "
                "replay another partition.",
                partition=path,
            )
