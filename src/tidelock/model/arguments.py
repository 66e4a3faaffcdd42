"""Arguments of the plainest kinds, checked before anything is done with them."""

from __future__ import annotations

from tidelock.errors import InvalidOption


def check_text(value: object, what: str) -> str:
    """Text that can be written down, or an error that says what it was for."""
    if not isinstance(value, str):
        raise InvalidOption(
            f"{what} must be a string, not {type(value).__name__} ({value!r}).", actual=repr(value)
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidOption(
            f"{what} holds half a character, which no file can: {value!r}.", actual=repr(value)
        ) from None
    return value


def check_count(value: object, what: str) -> int:
    """A whole number that is not negative, or an error that says what it was for."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidOption(
            f"{what} is a whole number from 0 on, not {value!r}.", actual=repr(value)
        )
    return value
