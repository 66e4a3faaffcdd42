"""Text from data on its way to a terminal, which acts on some characters."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
