"""Names of delivered files: which files are a sink's, and what their names say.

    <column>=<value>/…/<first>-<last>.<format>

Law: the name of a chunk's file follows from the chunk, and gives its range back. A file is a
sink's only if it lies as deep as the sink has partition columns, in folders of those columns, and
has the sink's format: what others put beside it is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidelock.deliver.destinations.partitions import (
    WHOLE,
    column_prefix,
    encoded,
    folder_of,
    path_of_folder,
)
from tidelock.deliver.destinations.protocol import show_range
from tidelock.model.positions import position_of
from tidelock.model.sinks import Chunk, Feed, SinkDefinition

_NAMES: dict[Feed, str] = {
    "inserts": r"([0-9]{19})-([0-9]{19})",
    "changes": r"v([0-9]{10})\.([0-9]{10})-v([0-9]{10})\.([0-9]{10})",
}


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file of a sink's, as its name tells."""

    key: str
    folder: str
    after: int
    until: int

    @property
    def partition(self) -> str | None:
        """The logical path of its partition; None when its folder has a shortened name."""
        return path_of_folder(self.folder)


class FileNames:
    """The names of one sink's files."""

    def __init__(self, definition: SinkDefinition, suffix: str) -> None:
        self._feed = definition.feed
        self._suffix = suffix
        self._folders = [column_prefix(column) for column in definition.partition_by]
        self._pattern = re.compile(rf"{_NAMES[definition.feed]}\.{re.escape(suffix)}")

    def key_of(self, path: str, chunk: Chunk) -> str:
        """The file of a chunk of a partition."""
        folder = f"{folder_of(path)}/" if path != WHOLE else ""
        return f"{folder}{show_range(self._feed, chunk)}.{self._suffix}"

    def read(self, key: str) -> NamedFile | None:
        """What a name tells; None if it is none of this sink's."""
        *folders, name = key.split("/")
        match = self._pattern.fullmatch(name)
        if match is None or len(folders) != len(self._folders):
            return None
        if not all(map(str.startswith, map(encoded, folders), self._folders)):
            return None
        numbers = [int(text) for text in match.groups()]
        if self._feed == "inserts":
            first, last = numbers
        else:
            first, last = position_of(*numbers[:2]), position_of(*numbers[2:])
        return NamedFile(key, "/".join(folders), first - 1, last)
