"""Names of tables, columns, branches and tags.

Names keep the case they were given and are found without regard to case, as in Spark SQL. Any
printable name may be used; what needs quoting in SQL is quoted with backticks.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence

from tidelock.errors import InvalidName, InvalidOption
from tidelock.model.arguments import check_text

NAME_LENGTH_MAX = 64
"""In characters; a name of three-byte characters still fits a file name when it is encoded."""


def check_name(name: object, what: str) -> str:
    """The name, normalized to NFC, or an error that says why it cannot be one."""
    if not isinstance(name, str):
        raise InvalidName(
            f"A {what} name must be a string, not {type(name).__name__} ({name!r}).", name=str(name)
        )
    normal = unicodedata.normalize("NFC", name)
    reason = _reason_against(normal)
    if reason:
        raise InvalidName(f"{name!r} cannot be a {what} name: {reason}.", name=name, reason=reason)
    return normal


def check_table_name(name: object) -> str:
    """A name for a table of a user's."""
    checked = check_name(name, "table")
    if is_hidden(checked):
        raise InvalidName(
            f"{name!r} cannot be a table name: what begins with {HIDDEN!r} is Tidelock's own.",
            name=checked,
        )
    return checked


def _reason_against(name: str) -> str | None:
    if not name or name.isspace():
        return "it is empty"
    if name != name.strip():
        return "it begins or ends with white space"
    if len(name) > NAME_LENGTH_MAX:
        return f"it is longer than {NAME_LENGTH_MAX} characters"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "it holds a control character"
    return None


def names_of(value: str | Sequence[str], what: str) -> list[str]:
    """One name or several, as a list of different ones."""
    if not isinstance(value, str | Sequence) or isinstance(value, bytes):
        raise InvalidOption(f"{what} is a list of names, not {value!r}.", actual=repr(value))
    names: dict[str, str] = {}
    for name in [value] if isinstance(value, str) else value:
        if fold(name) in names:
            raise InvalidOption(f"{what} names {name!r} twice.", actual=repr(value))
        names[fold(name)] = name
    return list(names.values())


def fold(name: str) -> str:
    """The form under which a name is found: two names with one fold are the same name."""
    if not isinstance(name, str):
        check_text(name, "A name")
    return unicodedata.normalize("NFC", name).lower()


def quote(name: str) -> str:
    """The name as a Spark SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def suggest(name: str, known: Iterable[str]) -> str:
    """A sentence that helps with a misspelt name: the closest one, or what there is."""
    names = sorted(name for name in known if not is_hidden(name))
    if not names:
        return "There are none yet."
    folded = {fold(known_name): known_name for known_name in names}
    close = difflib.get_close_matches(fold(name), folded, n=1)
    if close:
        return f"Did you mean {folded[close[0]]!r}?"
    shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return f"There are: {shown}."


HIDDEN = "__tidelock_"
"""What tables and columns are called that Tidelock keeps for itself, in lower case."""


ROW_HASH = f"{HIDDEN}hash"
"""The column by which the rows of a stream table are found again."""


_INTERNAL = re.compile(f"{HIDDEN}(.+)_[0-9]+")


def internal_name(table_id: str, number: int) -> str:
    """What a table is called in which a part of a stream table is kept."""
    return f"{HIDDEN}{table_id}_{number}"


def kept_for(name: str) -> str | None:
    """The id of the stream table that a table is kept for, by its name; None of any other table."""
    found = _INTERNAL.fullmatch(name)
    return None if found is None else found[1]


def is_hidden(name: str) -> bool:
    return name[: len(HIDDEN)].lower() == HIDDEN
