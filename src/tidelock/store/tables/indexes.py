"""The indexes of a pin, as its manifest lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class IndexSegment:
    """One segment of one of Lance's indexes."""

    name: str
    column: str
    field: int
    uuid: str
    fragments: frozenset[int]
    built_at: int


def index_segments(dataset: Any) -> list[IndexSegment]:
    return [
        IndexSegment(
            name=index.name,
            column=index.field_names[0],
            field=index.fields[0],
            uuid=str(segment.uuid),
            fragments=frozenset(segment.fragment_ids),
            built_at=segment.dataset_version_at_last_update,
        )
        for index in dataset.describe_indices()
        for segment in index.segments
    ]
