"""What a PostgreSQL source is told: its options, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelock.errors import Advice, InvalidOption
from tidelock.ingest.intake.incoming import SPILL_BYTES
from tidelock.model.arguments import check_count
from tidelock.model.sources import SourceDefinition
from tidelock.store.secrets import is_reference, resolve

OPTIONS = frozenset(
    {"dsn", "password", "tables", "slot", "publication", "columns", "work_memory"}
    | {"fragment_bytes"}
)
WORK_MEMORY = "4MB"
_NAME = re.compile(r"[a-z0-9_]{1,63}")


@dataclass(frozen=True)
class Settings:
    """How to reach a database, and what of it is followed."""

    dsn: str
    password: str | None
    tables: tuple[str, ...]
    """Patterns of `schema.table`, where `*` stands for any letters."""
    slot: str
    owns_slot: bool
    publication: str
    owns_publication: bool
    """Whether the publication was made for this source, and goes with it."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Types of columns that are mapped otherwise, by `schema.table.column`."""
    work_memory: str = WORK_MEMORY
    fragment_bytes: int = SPILL_BYTES


def read_settings(definition: SourceDefinition) -> Settings:
    options = resolve(definition.options)
    dsn = options.get("dsn")
    if not isinstance(dsn, str) or not dsn:
        raise InvalidOption(
            "A source of kind 'postgres' needs the address of a database.",
            Advice(
                "Give dsn='postgresql://user@host/database', or dsn='env:NAME'.",
                "Give --option dsn=postgresql://user@host/database, or dsn=env:NAME.",
            ),
            option="dsn",
        )
    tables = options.get("tables", "public.*")
    patterns = (tables,) if isinstance(tables, str) else tuple(tables)
    own = _own_name(definition)
    publication = options.get("publication")
    return Settings(
        dsn,
        options.get("password"),
        tuple(one if "." in one else f"public.{one}" for one in patterns),
        _name(options.get("slot") or own, "slot"),
        not options.get("slot"),
        publication or own,
        not publication,
        dict(options.get("columns") or {}),
        options.get("work_memory") or WORK_MEMORY,
        check_count(options.get("fragment_bytes", SPILL_BYTES), "fragment_bytes"),
    )


def refuse_password(options: Mapping[str, Any]) -> None:
    """InvalidOption when a password would be kept in the lake as it is."""
    dsn = options.get("dsn")
    if isinstance(dsn, str) and not is_reference(dsn) and _has_password(dsn):
        raise InvalidOption(
            "The address of the database holds a password, which is not kept in a lake.",
            Advice(
                "Leave it out, and give password='env:NAME' or password='file:PATH'; or give the "
                "whole address as dsn='env:NAME'.",
                "Leave it out, and give --option password=env:NAME or password=file:PATH; or give "
                "the whole address as --option dsn=env:NAME.",
            ),
            option="dsn",
        )


def _has_password(dsn: str) -> bool:
    from psycopg.conninfo import conninfo_to_dict

    try:
        return bool(conninfo_to_dict(dsn).get("password"))
    except Exception as error:
        raise InvalidOption(
            f"The address of the database cannot be read: {str(error).strip()}.", option="dsn"
        ) from error


def _own_name(definition: SourceDefinition) -> str:
    """A name for what is made for a source in its database."""
    return "tidelock_" + re.sub(r"[^a-z0-9]+", "_", definition.id)


def _name(value: object, what: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidOption(
            f"A {what} is named with lower-case letters, digits and underscores, not {value!r}.",
            **{what: str(value)},
        )
    return value


def matches(patterns: Sequence[str], namespace: str, name: str) -> bool:
    """Whether one of these patterns means a table."""
    told = f"{namespace}.{name}"
    return any(
        re.fullmatch(".*".join(map(re.escape, one.split("*"))), told) is not None
        for one in patterns
    )
