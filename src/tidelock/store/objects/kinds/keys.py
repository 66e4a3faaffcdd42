"""The keys of objects: names that files and S3 take alike, and give back as they were."""

from __future__ import annotations

import re
import unicodedata

from tidelock.errors import InvalidName

KEY_BYTES_MAX = 1024
SEGMENT_BYTES_MAX = 255

_PLAIN_SEGMENT = r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]{0,199}"
_PLAIN = re.compile(rf"{_PLAIN_SEGMENT}(?:/{_PLAIN_SEGMENT}){{0,4}}")
_UNFINISHED = re.compile(r"#[0-9]+\Z")


def check_key(key: str) -> str:
    """The key itself, or InvalidName with the reason why no store takes it."""
    reason = reason_against(key)
    if reason:
        raise InvalidName(
            f"{key!r} cannot be the key of an object: {reason}. Choose another.",
            name=key,
            reason=reason,
        )
    return key


def reason_against(key: str) -> str | None:
    """Why no store takes a key; None if every one does."""
    if _PLAIN.fullmatch(key):
        return None
    if any(map(_is_unprintable, key)):
        return "it holds a control character or half a character"
    if len(key.encode()) > KEY_BYTES_MAX:
        return f"it is longer than {KEY_BYTES_MAX} bytes"
    for segment in key.split("/"):
        if not segment:
            return "it is empty, begins or ends with a slash, or has two in a row"
        if segment in (".", ".."):
            return f"it has {segment!r} in its path"
        if _UNFINISHED.search(segment):
            return "'#' and digits at the end of a name mark a file that is being written"
        if len(segment.encode()) > SEGMENT_BYTES_MAX:
            return f"a name in it is longer than {SEGMENT_BYTES_MAX} bytes"
    return None


def _is_unprintable(character: str) -> bool:
    # U+FFFE and U+FFFF have no place in XML, in which S3 answers a list.
    return unicodedata.category(character) in ("Cc", "Cs") or character in "\ufffe\uffff"
