"""Repair: a manifest that is gone or cannot be read, written anew.

What was delivered is told by two that are still there: the names of the files, which carry their
partitions and ranges, and the lake's own state, which tells up to where it had delivered.

    a file up to the watermark of its partition     is listed
    a file of the plan that is open                 is not: it is written again, and then listed
    any other                                       nobody knows it: nothing is rebuilt

Law: what is rebuilt lists only what this lake delivered, no two of its files overlap, and nothing
at the destination is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

import pyarrow as pa

from tidelock.deliver.destinations.files.contents import count_rows, first_values
from tidelock.deliver.destinations.files.folder import FileFolder, StoredFile
from tidelock.deliver.destinations.files.inventory import Inventory
from tidelock.deliver.destinations.files.manifests import Manifest, ManifestEntry, order_of
from tidelock.deliver.destinations.files.names import NamedFile
from tidelock.deliver.destinations.partitions import DIGEST_SIGN, path_of, values_of
from tidelock.deliver.reports import ManifestReport
from tidelock.errors import Advice, InvalidOption
from tidelock.model.positions import version_of
from tidelock.model.sinks import Feed, SinkDefinition, Standing, first_position


def repair(inventory: Inventory, standing: Standing) -> ManifestReport:
    """Put a manifest in the place of one that is gone or cannot be read."""
    definition = inventory.definition
    if inventory.manifest() is not None and inventory.has_all_entries():
        raise InvalidOption(
            f"The manifest {inventory.folder.manifest_uri} can be read; nothing was changed.",
            Advice(
                f"lake.sink_status({definition.name!r}, verify=True) compares it with the files.",
                f"`tidelock sink status {definition.name} --verify` compares it with the files.",
            ),
            sink=definition.name,
        )
    manifest, report = rebuild(inventory, standing)
    inventory.replace(inventory.read(), manifest)
    return report


def rebuild(inventory: Inventory, standing: Standing) -> tuple[Manifest, ManifestReport]:
    """The manifest for what is there; InvalidOption when that cannot be told. Writes nothing."""
    definition, folder, state = inventory.definition, inventory.folder, standing.state
    key_of = folder.names.key_of
    entries = [describe_file(folder, definition, file, state.plan) for file in folder.files()]
    opened = {
        key_of(part.path, chunk)
        for part in (standing.open.parts if standing.open else ())
        for chunk in part.chunks
    }
    # What is written again in its place was delivered before.
    again = {key_of(path, chunk) for path, lag in state.lagging.items() for chunk in lag.chunks}
    known = sorted(
        (
            entry
            for entry in entries
            if entry.path in again or entry.until <= state.watermark_of(entry.partition)
        ),
        key=order_of,
    )
    unknown = [entry.path for entry in entries if entry not in known and entry.path not in opened]
    refuse_unknown(definition, unknown, find_overlaps(known))
    left_by = state.left_by[-1] if state.left_by else ""
    manifest = inventory.describe(state, tuple(known), left_by=left_by)
    gaps = []
    if not definition.partition_by:
        # A partition has no file for a range in which it got no row.
        gaps = find_gaps(known, first_position(definition), state.watermark)
    missing = tuple(_ends(definition.feed, after, until) for after, until in gaps)
    rows = sum(entry.rows for entry in known)
    return manifest, ManifestReport(definition.name, len(known), rows, missing)


def _ends(feed: Feed, after: int, until: int) -> tuple[int, int]:
    """The first and the last of a range, as users know positions: sequences, or versions."""
    if feed == "inserts":
        return after + 1, until
    return version_of(after + 1), version_of(until)


def refuse_unknown(
    definition: SinkDefinition, unknown: Sequence[str], overlaps: Sequence[tuple[str, str]]
) -> None:
    """InvalidOption when the lake does not know of files, or they hold the same rows."""
    if overlaps:
        what = f"{overlaps[0][0]} and {overlaps[0][1]} hold the same positions"
    elif unknown:
        what = (
            f"this lake knows nothing of {len(unknown)} of the files there, such as {unknown[0]}: "
            "they are beyond what it has delivered"
        )
    else:
        return
    name, to = definition.name, definition.to
    raise InvalidOption(
        f"The manifest of sink {name!r} cannot be written anew: {what}. Nothing was changed. Move "
        f"away from {to} what is not wanted there, and repair again.",
        Advice(
            "Or replace everything by what the lake has now: "
            f"lake.replay({name!r}, lose_rows=True).",
            "Or replace everything by what the lake has now: "
            f"`tidelock sink replay {name} --lose-rows`.",
        ),
        sink=name,
        files=list(unknown),
    )


def find_overlaps(listed: Iterable[ManifestEntry]) -> list[tuple[str, str]]:
    """Files of one partition whose ranges meet, in pairs; `listed` is in order."""
    return [
        (one.path, following.path)
        for _, mine in groupby(listed, key=lambda one: one.partition)
        for one, following in pairwise(mine)
        if following.after < one.until
    ]


def find_gaps(listed: Sequence[ManifestEntry], begin: int, end: int) -> list[tuple[int, int]]:
    """The ranges in (begin, end] that no file covers; `listed` is in order."""
    ends = [begin, *(one.until for one in listed)]
    begins = [*(one.after for one in listed), end]
    return [(a, b) for a, b in zip(ends, begins, strict=True) if a < b]


def describe_file(
    folder: FileFolder, definition: SinkDefinition, file: StoredFile, plan: int
) -> ManifestEntry:
    """A file that is there, as a manifest would list it; InvalidOption when it cannot be read."""
    named = file.named
    try:
        partition = named.partition
        if partition is None:
            partition = _whole_path(folder, definition, named)
        with folder.open(named.key) as content:
            rows = count_rows(definition.kind, content)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InvalidOption(
            f"{named.key} at {definition.to} cannot be read: {error}. Nothing was changed. Move it "
            "away, and try again.",
            sink=definition.name,
            file=named.key,
        ) from error
    return ManifestEntry(
        named.key, partition, named.after, named.until, rows, file.size_bytes, plan
    )


def _whole_path(folder: FileFolder, definition: SinkDefinition, named: NamedFile) -> str:
    """The logical path of a partition whose folder has a shortened name: its rows tell it."""
    segments = named.folder.split("/")
    short = [
        column
        for column, segment in zip(definition.partition_by, segments, strict=True)
        if DIGEST_SIGN in segment
    ]
    with folder.open(named.key) as content:
        told_by_rows = first_values(definition.kind, content, short)
    values = [
        told_by_rows[column] if column in told_by_rows else values_of(segment)[0]
        for column, segment in zip(definition.partition_by, segments, strict=True)
    ]
    return path_of(definition.partition_by, values)
