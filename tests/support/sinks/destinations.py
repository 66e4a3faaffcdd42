"""What file destinations hold, and whether that is what the lake says: row by row, by identity."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tidelock import Lake
from tidelock.deliver.destinations.files.destination import FileSink
from tidelock.deliver.destinations.files.folder import FileFolder
from tidelock.deliver.destinations.files.manifests import ManifestEntry
from tidelock.deliver.destinations.kinds import open_sink
from tidelock.deliver.destinations.protocol import SentChunk, Sink
from tidelock.errors import DestinationFailed
from tidelock.model.sinks import DeliveryPlan, SinkDefinition, SinkState
from tidelock.store.leases.holds import holds

Row = dict[str, Any]


def file_sink(lake: Lake, name: str) -> FileSink:
    sink = open_sink(lake._sinks.ledger.definition(name))
    assert isinstance(sink, FileSink)
    return sink


def files_at(lake: Lake, name: str) -> dict[str, bytes]:
    """The files of a destination that hold rows."""
    place = file_sink(lake, name).folder
    return {key: read(place, key) for key in everything_at(place)}


def everything_at(place: FileFolder) -> list[str]:
    """Every file in the folder of a sink, whosever it is."""
    begin = f"{place._name}/"
    return [info.key.removeprefix(begin) for info in place._objects.list(place._name)]


def read(place: FileFolder, key: str) -> bytes:
    with place.open(key) as file:
        return file.read()


def manifest_at(folder: str | Path) -> Path:
    """The manifest of what was delivered to a folder."""
    return Path(folder).parent / "_tidelock" / Path(folder).name / "manifest.json"


def rows_in(key: str, data: bytes) -> list[Row]:
    rows: list[Row]
    if key.endswith(".parquet"):
        rows = pq.read_table(io.BytesIO(data)).to_pylist()
    elif key.endswith(".jsonl"):
        rows = [json.loads(line) for line in data.decode().splitlines()]
    else:
        rows = pa_csv.read_csv(io.BytesIO(data)).to_pylist()
    return rows


def rows_at(lake: Lake, name: str) -> list[Row]:
    """Every row of a destination, as whoever reads all of its files finds them, file by file."""
    return [row for key, data in sorted(files_at(lake, name).items()) for row in rows_in(key, data)]


def rows_of_lake(lake: Lake, table: str, after: int = -1, **options: Any) -> list[Row]:
    found: list[Row] = lake.read_since(table, after, limit=10_000_000, **options).rows.to_pylist()
    return found


def as_multiset(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)


def check_same(lake: Lake, name: str, expected: Iterable[Row]) -> None:
    """A destination holds each of these rows once: by value, by identity, by count."""
    found, wanted = rows_at(lake, name), list(expected)
    sequences = Counter(row["_sequence"] for row in found)
    twice = sorted(one for one, times in sequences.items() if times > 1)
    assert not twice, f"delivered twice: {twice[:10]}"
    missing = sorted({row["_sequence"] for row in wanted} - set(sequences))
    assert not missing, f"not delivered: {missing[:10]}"
    assert len(found) == len(wanted)
    assert as_multiset(found) == as_multiset(wanted)


def check_inserts(lake: Lake, name: str, table: str = "o") -> None:
    """A destination holds what the lake's table does."""
    check_same(lake, name, rows_of_lake(lake, table))
    check_manifest(lake, name)


def check_manifest(lake: Lake, name: str, state: str = "current") -> list[ManifestEntry]:
    """The manifest lists the files that are there, whose ranges follow each other."""
    sink = file_sink(lake, name)
    files = files_at(lake, name)
    listed = sink.inventory.listed()
    assert {one.path: one.size_bytes for one in listed} == {
        key: len(data) for key, data in files.items()
    }
    assert len(listed) == len(files)
    by_partition: defaultdict[str, list[ManifestEntry]] = defaultdict(list)
    for one in listed:
        by_partition[one.partition].append(one)
        assert len(rows_in(one.path, files[one.path])) == one.rows
    for partition, mine in by_partition.items():
        for one, following in pairwise(sorted(mine, key=lambda one: one.after)):
            assert one.after < one.until <= following.after
            # A partition has no file for what came while it got no row.
            assert partition or one.until == following.after, (one, following)
    manifest, status = sink.inventory.manifest(), lake.sink_status(name)
    assert manifest is not None
    if status.feed == "inserts":
        assert manifest.watermark == status.watermark
    assert not manifest.lagging
    assert status.state == state, status
    left = [hold.name for hold in holds(lake._store.objects) if hold.name.startswith("sink ")]
    assert not [hold for hold in left if not hold.endswith(" changes")], left
    return listed


def age_posts(uri: str | Path, seconds: float = 3600.0) -> None:
    """Let time pass for whoever delivered and was killed."""
    moment = time.time() - seconds
    for path in Path(uri, "_tidelock", "posts").rglob("*.json"):
        os.utime(path, (moment, moment))


CONFIRMATION = "the confirmation"


@dataclass
class FussySink(Sink):
    """A folder with one file for each chunk, which its readers know once it is confirmed.

    It takes nothing for partitions that are refused (`g=a`), or only so many chunks in a tick
    (`g=a@2`), and confirms nothing if that is refused. What it was sent is noted: `attempts` tells
    the ids of chunks in their order.
    """

    folder: Path
    rows_per_chunk: int = 3
    taken: Counter[str] = field(default_factory=Counter)

    def plan(self, plan: DeliveryPlan, schema: pa.Schema) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        with (self.folder / "attempts").open("a") as attempts:
            attempts.write(f"{chunk.id}\n")
        self.taken[chunk.path] += 1
        limits = dict(one.partition("@")[::2] for one in refused(self.folder))
        if self.taken[chunk.path] > int(limits.get(chunk.path, sys.maxsize) or 0):
            raise DestinationFailed(f"{chunk.path} is not wanted", sink="fussy")
        text = "".join(json.dumps(row) + "\n" for batch in rows for row in batch.to_pylist())
        for path in (self._path(chunk, "written"), self._path(chunk, "jsonl")):
            assert not path.exists() or path.read_text() == text, "repeated otherwise"
        self._path(chunk, "written").write_text(text)
        return len(text)

    def confirm(self, plan: DeliveryPlan, state: SinkState) -> None:
        if CONFIRMATION in refused(self.folder):
            raise DestinationFailed("nothing is confirmed now", sink="fussy")
        for part in plan.parts:
            for one in part.chunks:
                if one.until <= state.watermark_of(part.path):
                    named = (plan.sink_id, "inserts", part.path, one, plan.generation)
                    chunk = SentChunk(*named, pa.schema([]), pin=plan.pin)  # type: ignore[arg-type]
                    if not self._path(chunk, "jsonl").exists():
                        self._path(chunk, "written").rename(self._path(chunk, "jsonl"))

    def close(self) -> None:
        """Nothing is open."""

    def _path(self, chunk: SentChunk, suffix: str) -> Path:
        return self.folder / f"{quote(chunk.id, safe='')}.{suffix}"

    def rows(self) -> list[tuple[str, Row]]:
        """Every row that is confirmed, with the path of its partition."""
        found = []
        for path in sorted(self.folder.glob("*.jsonl")):
            partition = unquote(path.name).split("/", 1)[1].rsplit("/", 1)[0]
            found += [(partition, json.loads(line)) for line in path.read_text().splitlines()]
        return found

    def attempts(self) -> list[str]:
        return (self.folder / "attempts").read_text().splitlines()


def refuse(folder: str | Path, *paths: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "refused").write_text("\n".join(paths))


def refused(folder: Path) -> list[str]:
    path = folder / "refused"
    return path.read_text().splitlines() if path.exists() else []


def open_fussy(definition: SinkDefinition, options: Mapping[str, Any]) -> FussySink:
    return FussySink(Path(definition.to))
