"""The mapping as a table in Markdown, made from the mapping itself.

Owns: what is said of kinds of types that no entry stands for: numerics, what users define, arrays.
The lake's type in each row is asked of `map_column`, so the table cannot promise another.
"""

from __future__ import annotations

from tidelock.ingest.postgres.types.columns import NO_TYPMOD, Kind, PgColumn, PgType
from tidelock.ingest.postgres.types.mapping import ENTRIES, NUMERIC, map_column

_HEAD = ("PostgreSQL type", "lake type", "values kept as text", "text")
_NOT_FINITE = "`NaN`, `Infinity`, `-Infinity`"
_NO_OID = 0


def mapping_table() -> str:
    """Each type of PostgreSQL, what the lake holds it as, what it keeps as text, and the text."""
    rows = [
        *[(one.name, _lake(PgType(one.oid, one.name)), one.kept, one.text) for one in ENTRIES],
        *_numerics(),
        *[(what, _lake(_user_type(kind)), "", text) for kind, what, text in _USER_TYPES],
        ("domain", "its base type's", "its base type's", "its base type's"),
        (
            "T[]",
            "ARRAY<what T is>",
            "several dimensions, bounds such as `[0:1]={1,2}`, an element that is kept",
            '`{1,NULL,3}`, `{"a,b","NULL",NULL}`',
        ),
        ("any other", _lake(PgType(_NO_OID, "any other")), "", "PostgreSQL's text"),
    ]
    lines = [_line(_HEAD), _line(("---",) * len(_HEAD)), *map(_line, rows)]
    return "\n".join(lines) + "\n"


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _lake(type_: PgType) -> str:
    return map_column(PgColumn("shown", 1, type_)).lake_type


def _numerics() -> list[tuple[str, str, str, str]]:
    def lake(precision: int, scale: int) -> str:
        typmod = ((precision << 16) | (scale & 0x7FF)) + 4
        return _lake(PgType(NUMERIC, f"numeric({precision},{scale})", typmod))

    usual = lake(10, 2).replace("10,2", "p,s")
    beyond = {lake(39, 2), lake(3, 5), lake(3, -2)}
    return [
        ("numeric(p,s), 0 <= s <= p <= 38", usual, "`NaN`", "with s digits after the point"),
        (
            "numeric(p,s), any other",
            ", ".join(sorted(beyond)),
            "`NaN`; more than 20 digits before or 18 after the point",
            "with s digits after the point",
        ),
        (
            "numeric",
            _lake(PgType(NUMERIC, "numeric", NO_TYPMOD)),
            f"{_NOT_FINITE}; more than 20 digits before or 18 after the point; "
            "beside its value, one that ends in 0 after the point, as `1.50`",
            "with as many digits as it was given",
        ),
    ]


_USER_TYPES: tuple[tuple[Kind, str, str], ...] = (
    ("enum", "enum", "the label"),
    ("composite", "composite", '`(1,"x,y")`'),
    ("range", "range", "`[1,6)`, `empty`"),
    ("multirange", "multirange", "`{[1,3),[5,8)}`"),
)


def _user_type(kind: Kind) -> PgType:
    return PgType(_NO_OID, kind, kind=kind)
