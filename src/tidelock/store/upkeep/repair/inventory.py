"""Inventory: every object of Tidelock's in a lake, what it is, and whether it is whole.

Owns: what each kind of object endangers when it is damaged, and so what is to be done about it:

    kind            damaged, it endangers                    so that
    lake            nothing                                  it is written anew at the next open
    record          the commits in it                        what needs them stops and names it
    checkpoint      those that no record has any more        what needs them stops and names it
    published       nothing: it follows from the log         the whole log is searched instead
    branch          its commits                              its use and garbage collection stop
    tag, hold       the version that it keeps                its use and garbage collection stop
    operation       that an operation is published once      the whole log is searched instead
    intent          work that was staged                     writing stops
    recovery        knowing what became of somebody          it is passed over
    lease           nobody: its owner is fenced off by name  it has run out
    collection      nobody for longer than a lease           it is waited for that long
    mirror          knowing whose Lance's HEAD is            HEAD counts as foreign
    definition      a stream table's next refresh            that stops and names it
    declaration     knowing the rules of a table             using that table stops and names it
    renumbering     merges of tables without a key           the merge stops and names it
    attempt, post   nothing                                  they are passed over
    sink            what it sends next                       that sink stops and names it

Whatever has no name of ours is foreign: it is named, and left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from tidelock.errors import CorruptObject, FormatError, NewerFormat, ObjectMissing
from tidelock.store.leases.leases import CLOCK
from tidelock.store.objects import layout
from tidelock.store.objects.checksums import checksum, unstamped
from tidelock.store.objects.entries import is_entry
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import content

THREADS = 16
ROOT = "_tidelock"

What = Literal["damaged", "missing", "newer", "foreign", "unchecked"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a lake that is not as it should be."""

    key: str
    what: What
    why: str
    advice: str
    kind: str = ""
    table: str | None = None

    @property
    def is_damage(self) -> bool:
        return self.what in ("damaged", "missing", "newer")


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    pattern: str
    advice: str


_MENDED = "`tidelock repair` deals with it."
_DISCARD = "Restore it from a copy, or give it up with `tidelock repair --discard-object {}`."

_SINK = r"sinks/(names/[^/]+|[\w-]+/[a-z]+\.json|[\w-]+/(plans|progress|quarantine|skipped)/[^/]+)"
KINDS = (
    _Kind("lake", r"lake\.json", "It is written anew when the lake is next opened for writing."),
    _Kind("record", r"log/[^/]+/[0-9]{20}\.json", f"{_DISCARD} Only the newest can be given up."),
    _Kind("checkpoint", r"past/[^/]+/[0-9]{20}-[0-9]{1,9}\.json", f"{_MENDED} Else restore it."),
    _Kind("published", r"published/[^/]+/[0-9]{20}-[0-9]{6}\.json", f"It does no harm. {_MENDED}"),
    _Kind("branch", r"branches/[^/]+/[0-9]{8}\.json", f"{_MENDED} {_DISCARD}"),
    _Kind("tag", r"tags/[^/]+\.json", _DISCARD),
    _Kind("operation", r"operations/[^/]+/[^/]+\.json", f"It does no harm. {_MENDED}"),
    _Kind("intent", r"intents/[^/]+\.json", _DISCARD),
    _Kind("recovery", r"recoveries/[^/]+/[^/]+\.json", f"It does no harm. {_MENDED}"),
    _Kind("lease", r"leases/[^/]+\.json", f"It does no harm. {_MENDED}"),
    _Kind("collection", r"collections/[^/]+\.json", f"It does no harm. {_MENDED}"),
    _Kind("hold", r"holds/[^/]+\.json", _DISCARD),
    _Kind("mirror", r"mirrors/[^/]+\.json", "Decide on the foreign commit: `tidelock repair`."),
    _Kind(
        "definition",
        r"definitions/[^/]+\.json",
        "Restore it; or define its stream table again, which `tidelock stream list` names.",
    ),
    _Kind(
        "declaration",
        r"schemas/[^/]+\.json",
        "Restore it from a copy. The table that has it can be dropped.",
    ),
    _Kind(
        "renumbering",
        r"renumberings/[^/]+\.json",
        "Restore it; without it, branches cannot be merged that have rows of a table without a "
        "key in common which an earlier merge brought from one to the other.",
    ),
    _Kind("attempt", r"attempts/[^/]+/[^/]+/[^/]+\.json", f"It does no harm. {_MENDED}"),
    _Kind("post", r"posts/[^/]+/[0-9]+\.json", f"It does no harm. {_MENDED}"),
    _Kind("sink", _SINK, "Restore it; `tidelock sink status` says whether it can go on."),
)
_PATTERNS = [(kind, re.compile(f"{ROOT}/{kind.pattern}")) for kind in KINDS]
_NOT_LOOKED_AT = (f"{layout.TURNS}/", f"{layout.DISCARDED}/", CLOCK, layout.RESERVE)


def kind_of(key: str) -> _Kind | None:
    """What an object is, by its key; None for what is not ours."""
    if not is_entry(key, key.rsplit("/", 1)[0]) and not key.endswith((".arrow", ".body")):
        return None
    return next((kind for kind, pattern in _PATTERNS if pattern.fullmatch(key)), None)


def advice_for(key: str) -> str:
    """What is to be done about an object of ours that is not what it was, or gone."""
    kind = kind_of(key)
    return "" if kind is None else kind.advice.format(key)


def examine(objects: Objects) -> tuple[int, list[Finding]]:
    """Read every object of Tidelock's; how many there are, and what is wrong with which."""
    keys = [info.key for info in objects.list(ROOT)]
    keys = [key for key in keys if not key.startswith(_NOT_LOOKED_AT)]
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda key: list(_examine(objects, key)), keys)
        return len(keys), [finding for findings in found for finding in findings]


def _examine(objects: Objects, key: str) -> Iterator[Finding]:
    kind = kind_of(key)
    try:
        _read(objects, key)
    except ObjectMissing:
        return  # removed since it was listed
    except FormatError as error:
        if kind is None:
            yield Finding(key, "foreign", "its name is none that Tidelock gives", "Remove it.")
            return
        what: What = "newer" if isinstance(error, NewerFormat) else "damaged"
        why = str(error.evidence.get("cause", error.message))
        yield Finding(key, what, why, kind.advice.format(key), kind.name)


def _read(objects: Objects, key: str) -> None:
    """FormatError unless an object is whole."""
    if key.endswith(".arrow"):
        unstamped(objects.get(key), key)
        return
    if key.endswith(".body"):
        beside = key.removesuffix(".body") + ".json"
        if checksum(objects.get(key)) != _told(objects, beside).get("body_checksum"):
            raise CorruptObject(f"The object {key!r} is damaged.", cause="checksum")
        return
    content(objects.get(key), key)


def _told(objects: Objects, key: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(content(objects.get(key), key))
    except ObjectMissing:
        return {}
    return found if isinstance(found, dict) else {}
