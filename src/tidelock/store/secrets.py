"""Secrets: where they are, never what they are.

An option that is secret is written as a reference, and read when it is used:

    env:NAME      the environment variable of the process that delivers
    file:PATH     the content of a file, without the line end

Invariant: no secret is in a lake, an error, a status or a log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidelock.errors import Advice, InvalidOption

_SECRET_WORDS = (
    "token",
    "password",
    "passwd",
    "secret",
    "authorization",
    "basic_auth",
    "x_auth",
    "credential",
    "cookie",
    "api_key",
    "apikey",
    "private_key",
    "key_id",
)


def is_secret(name: str) -> bool:
    folded = name.lower().replace("-", "_")
    return any(word in folded for word in _SECRET_WORDS)


def check_secrets(options: Mapping[str, Any], to: str) -> None:
    """InvalidOption when a secret is given as it is, and not as where it can be found."""
    parts = urlsplit(to)
    if parts.username or parts.password:
        raise InvalidOption(
            "The address to deliver to holds a user name or password. Leave it out.",
            Advice(
                "Give the option token='env:NAME' or basic_auth='env:NAME' instead.",
                "Give --option token=env:NAME or --option basic_auth=env:NAME instead.",
            ),
        )
    for name, value in options.items():
        if isinstance(value, Mapping):
            check_secrets(value, "")
        elif is_secret(name) and not is_reference(value):
            raise InvalidOption(
                f"Option {name!r} is a secret and is kept in the lake only as a reference.",
                refer_to(name),
                option=name,
            )


def refer_to(name: str) -> Advice:
    """How an option that is a secret is given."""
    return Advice(
        f"Write {name}='env:NAME' for an environment variable, or {name}='file:PATH'.",
        f"Write --option {name}=env:NAME for an environment variable, or {name}=file:PATH.",
    )


def is_reference(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("env:", "file:"))


def resolve(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with what their references stand for now."""
    return {name: _resolved(name, value) for name, value in options.items()}


def _resolved(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return resolve(value)
    if not is_reference(value):
        return value
    kind, source = value.split(":", 1)
    if kind == "env":
        value = os.environ.get(source)
        if value is None:
            raise InvalidOption(
                f"Option {name!r} refers to the environment variable {source}, which is not set "
                "here. Set it for the process that delivers.",
                option=name,
            )
        return value
    try:
        return Path(source).read_text().rstrip("\r\n")
    except OSError as error:
        raise InvalidOption(
            f"Option {name!r} refers to the file {source}, which cannot be read: {error.strerror}.",
            option=name,
        ) from error
