"""Which names a path with wildcards means.

    *        anything within a name          ?        one character
    [ab] [!ab]   one of these, none of them  {a,b}    one of these
    **       any folders, none too

A path without any is a folder, of which the files directly in it are meant, if it ends with a slash
or its last name tells no format; else it is one file.
Invariant: a name is relative to the part of the path before the first wildcard. What begins with
`.` or `_`, and whatever is in such a folder, is hidden, and never meant.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tidelock.errors import InvalidOption
from tidelock.ingest.files.find import format_of_name
from tidelock.store.objects.kinds.location import locate

HIDDEN = r"(^|/)[._]"
_WILD = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class Pattern:
    """Names below a folder or a bucket. `regex` is one that Arrow takes."""

    text: str
    base: str
    """A URI or a path: all names are below it."""
    regex: str
    depth: int | None
    """How many folders deep a name may lie; None for any."""

    @property
    def is_local(self) -> bool:
        return not self.base.startswith("s3://")

    def shown(self, name: str) -> str:
        """A name as users know the file."""
        return f"{self.base.rstrip('/')}/{name}"


def parse_path(text: object) -> Pattern:
    """A path as a user gives it; a relative one is of this process's folder."""
    if not isinstance(text, str | os.PathLike) or not os.fspath(text):
        raise InvalidOption(f"path is a path or a pattern, not {text!r}.", option="path")
    given = os.fspath(text)
    parts = str(given).split("/")
    wild = next((n for n, part in enumerate(parts) if _WILD.search(part)), None)
    if wild is not None:
        base, names = "/".join(parts[:wild]), parts[wild:]
    elif given.endswith("/") or format_of_name(given) is None or os.path.isdir(given):
        base, names = str(given).rstrip("/"), ["*"]
    else:
        base, names = "/".join(parts[:-1]), parts[-1:]
    location = locate(base or ("/" if given.startswith("/") else "."))
    if location.kind == "memory":
        raise InvalidOption("Files land in a folder or a bucket, not in memory.", option="path")
    return Pattern(
        f"{location.uri}/{'/'.join(names)}",
        location.uri,
        f"^{_regex(names)}$",
        None if "**" in names else len(names) - 1,
    )


def _regex(names: list[str]) -> str:
    found = ""
    for number, name in enumerate(names):
        end = number + 1 == len(names)
        if name == "**":
            found += ".*" if end else "(?:[^/]+/)*"
        else:
            found += _of_name(name) + ("" if end else "/")
    return found


def _of_name(name: str) -> str:
    found, position = "", 0
    while position < len(name):
        one = name[position]
        position += 1
        if one == "*":
            found += "[^/]*"
        elif one == "?":
            found += "[^/]"
        elif one in "[{" and (end := name.find("]" if one == "[" else "}", position + 1)) > 0:
            inside, position = name[position:end], end + 1
            if one == "[":
                no = inside[0] in "!^"
                listed = re.sub(r"([\\\]\[^])", r"\\\1", inside[no:])
                found += f"[{'^/' if no else ''}{listed}]"
            else:
                found += f"(?:{'|'.join(map(_of_name, inside.split(',')))})"
        else:
            found += re.escape(one)
    return found
