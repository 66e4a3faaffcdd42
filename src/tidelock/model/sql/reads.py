"""What a query reads: which tables of a snapshot, which of their columns, and which rows.

Owns: the reading of a query's text before it runs. The text itself goes to Spark as it was given;
what is decided here only makes the tables smaller that it runs over.

Invariants:
- a table is read if and only if a name in the text means it, by SQL's rules of scope;
- `columns` holds every column that the query can refer to, `None` being all;
- rows that a `filter` leaves out would not have reached the result.
In doubt everything is read. A text that sqlglot does not understand is left to Spark, over all
columns of every table whose name occurs in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.errors import InvalidExpression, TableNotFound
from tidelock.model.names import fold, suggest
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql.row_filters import row_filters
from tidelock.model.sql.tables import is_named, tables_in
from tidelock.model.sql.text import Unreadable, read_tokens

Translate = Callable[[str, TableSchema], str | None]

_BEGINNINGS = (
    TokenType.SELECT,
    TokenType.WITH,
    TokenType.VALUES,
    TokenType.FROM,
    TokenType.TABLE,
    TokenType.L_PAREN,
)
# In a text that is not understood these words are taken for what they look like, but for where no
# statement can begin.
_CHANGING_WORDS = frozenset({"insert", "update", "delete", "merge", "create", "drop", "alter"})
_NO_STATEMENT_AFTER = frozenset(
    {TokenType.DOT, TokenType.ALIAS, TokenType.SELECT, TokenType.COMMA, TokenType.PIPE_GT}
)


@dataclass(frozen=True)
class TableRead:
    """One table that a query reads. `written` is how the text spells its name."""

    name: str
    written: str
    columns: tuple[str, ...] | None = None
    filter: str | None = None


@dataclass(frozen=True)
class QueryReads:
    """A query and its tables. `text` is the user's, without a semicolon at its end."""

    text: str
    reads: tuple[TableRead, ...]
    begins_with: bool
    """Whether the text defines names of its own in front (WITH)."""


def find_reads(text: str, schemas: Mapping[str, TableSchema], translate: Translate) -> QueryReads:
    """What `text` reads of the tables in `schemas`.

    `translate` gives a condition of Spark SQL over one table in Lance's words, or None.
    """
    tokens, text = _tokens(text)
    names = {fold(name): name for name in schemas}
    begins_with = tokens[0].token_type is TokenType.WITH
    root = _parse(text, tokens)
    if root is None:
        _refuse_changes(tokens)
        reads = _reads_by_words(tokens, names)
    else:
        reads = _reads(root, tokens, names, schemas, translate)
    return QueryReads(text, reads, begins_with)


def _tokens(text: str) -> tuple[list[Token], str]:
    """The words of one query, and its text up to a closing semicolon."""
    try:
        tokens = read_tokens(text)
    except Unreadable as error:
        raise _invalid(text, f"it cannot be read ({error})") from error
    end = len(text)
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        end = tokens.pop().start
    if not tokens:
        raise _invalid(text, "it is empty")
    if any(token.token_type is TokenType.SEMICOLON for token in tokens):
        raise _invalid(text, "it holds several statements; run them one by one")
    if tokens[0].token_type not in _BEGINNINGS:
        raise _invalid(
            text, f"it begins with {tokens[0].text.upper()}, and only queries can be run here"
        )
    return tokens, text[:end]


def _parse(text: str, tokens: Sequence[Token]) -> exp.Expr | None:
    """The syntax tree, or None where sqlglot would see something else than Spark does."""
    kinds = [token.token_type for token in tokens]
    if TokenType.PIPE_GT in kinds or TokenType.TABLE in kinds:
        return None
    try:
        root = sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError):
        return None
    if isinstance(root, exp.DML | exp.DDL | exp.MultitableInserts | exp.Command):
        raise _invalid(text, "it changes something, and only queries can be run here")
    return root if isinstance(root, exp.Query | exp.Values) else None


def _refuse_changes(tokens: Sequence[Token]) -> None:
    depth = 0
    for before, token in pairwise(tokens):
        depth += (before.token_type is TokenType.L_PAREN) - (before.token_type is TokenType.R_PAREN)
        if depth or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if before.token_type in _NO_STATEMENT_AFTER:
            continue
        if fold(token.text) in _CHANGING_WORDS:
            raise _invalid(
                token.text, f"{token.text.upper()} changes something, and only queries can be run"
            )


def _reads_by_words(tokens: Sequence[Token], names: Mapping[str, str]) -> tuple[TableRead, ...]:
    written: dict[str, str] = {}
    for token in tokens:
        name = names.get(fold(token.text))
        if name is not None:
            written.setdefault(name, token.text)
    return tuple(TableRead(name, spelling) for name, spelling in written.items())


def _reads(
    root: exp.Expr,
    tokens: Sequence[Token],
    names: Mapping[str, str],
    schemas: Mapping[str, TableSchema],
    translate: Translate,
) -> tuple[TableRead, ...]:
    found: dict[str, list[exp.Table]] = {}
    for table in filter(_is_name, tables_in(root)):
        found.setdefault(_resolve(table, names), []).append(table)
    meant = {id(table): schemas[name] for name, tables in found.items() for table in tables}
    columns = _columns(root, tokens, found, schemas)
    filters = row_filters(root, meant, translate)
    return tuple(
        TableRead(name, tables[0].name, columns[name], _either([filters[id(t)] for t in tables]))
        for name, tables in found.items()
    )


def _either(filters: Sequence[str | None]) -> str | None:
    """A table that occurs several times is read once, for all occurrences."""
    distinct = list(dict.fromkeys(filters))
    if None in distinct:
        return None
    if len(distinct) == 1:
        return distinct[0]
    return " OR ".join(f"({one})" for one in distinct)


def _is_name(table: exp.Table) -> bool:
    """Whether this is a table's name, and not a function that gives rows."""
    if not is_named(table) and fold(table.this.name) == "identifier":
        raise _invalid(table.sql("spark"), "a table must be named in the text itself")
    return is_named(table)


def _resolve(table: exp.Table, names: Mapping[str, str]) -> str:
    written = ".".join(part.name for part in table.parts)
    if table.args.get("version") or table.args.get("when") or table.args.get("changes"):
        raise _invalid(
            table.sql("spark"),
            "a query reads one snapshot; take the snapshot of that version or time instead",
        )
    name = None if table.args.get("db") else names.get(fold(table.name))
    if name is None:
        raise TableNotFound(
            f"There is no table {written!r} in this snapshot. {suggest(written, names.values())}",
            table=written,
        )
    return name


# Columns ---------------------------------------------------------------------------------------


def _columns(
    root: exp.Expr,
    tokens: Sequence[Token],
    found: Mapping[str, Sequence[exp.Table]],
    schemas: Mapping[str, TableSchema],
) -> dict[str, tuple[str, ...] | None]:
    """The columns of each table that the text can mean.

    A column that is used is written somewhere, unless a star stands for it. So every word of the
    text counts, except behind the alias of another table. A word that is no column of any table
    is for Spark to refuse, and Spark suggests what is close only if all columns are there.
    """
    aliases = {
        fold(table.alias_or_name): name for name, tables in found.items() for table in tables
    }
    qualified: set[tuple[str, str]] = set()
    explained: set[int] = set()
    for column in root.find_all(exp.Column):
        if column.table and fold(column.table) in aliases and not column.args.get("db"):
            qualified.add((fold(column.table), fold(column.name)))
            if "start" in column.this.meta:
                explained.add(column.this.meta["start"])
    if _names_unknown(root, found, schemas):
        return dict.fromkeys(found)
    words = {fold(token.text) for token in tokens if token.start not in explained}
    starred = _starred(root)
    result: dict[str, tuple[str, ...] | None] = {}
    for name, tables in found.items():
        if any(_needs_all(table, starred) for table in tables):
            result[name] = None
            continue
        own = {fold(table.alias_or_name) for table in tables}
        needed = words | {column for alias, column in qualified if alias in own}
        kept = tuple(column for column in schemas[name].names if fold(column) in needed)
        result[name] = None if len(kept) == len(schemas[name].names) else kept
    return result


def _names_unknown(
    root: exp.Expr,
    found: Mapping[str, Sequence[exp.Table]],
    schemas: Mapping[str, TableSchema],
) -> bool:
    """Whether the text names a column that no table has and that the text itself does not define.

    Names that come from elsewhere, such as `range`'s `id`, count as unknown: columns are then read
    in vain, and nothing else happens.
    """
    by_alias: dict[str, set[str]] = {}
    for name, tables in found.items():
        for table in tables:
            own = by_alias.setdefault(fold(table.alias_or_name), set())
            own.update(map(fold, schemas[name].names))
    known = {column for columns in by_alias.values() for column in columns}
    defined = {fold(one.name) for one in root.find_all(exp.Identifier) if one.arg_key == "alias"}
    for columns in (alias.columns for alias in root.find_all(exp.TableAlias)):
        defined.update(fold(column.name) for column in columns)
    for column in root.find_all(exp.Column):
        if isinstance(column.this, exp.Star):
            continue
        name, behind = fold(column.name), fold(column.table)
        if not behind and name not in known | defined | set(by_alias):
            return True
        if behind in by_alias and name not in by_alias[behind] | defined:
            return True
    return False


@dataclass(frozen=True)
class _Stars:
    selects: frozenset[int]
    aliases: frozenset[str]


def _starred(root: exp.Expr) -> _Stars:
    """Where `*` stands for columns: in which SELECTs, and behind which aliases."""
    selects, aliases = set(), set()
    for star in root.find_all(exp.Star):
        parent = star.parent
        if isinstance(parent, exp.Count) and parent.this is star:
            continue
        if isinstance(parent, exp.Column):
            aliases.add(fold(parent.table))
            continue
        select = star.find_ancestor(exp.Select)
        # EXISTS (SELECT * ...) asks for no column.
        if select is not None and not (parent is select and isinstance(select.parent, exp.Exists)):
            selects.add(id(select))
    for join in root.find_all(exp.Join):
        if join.method.upper() == "NATURAL" and isinstance(join.parent, exp.Select):
            selects.add(id(join.parent))
    return _Stars(frozenset(selects), frozenset(aliases))


def _needs_all(table: exp.Table, starred: _Stars) -> bool:
    select = table.find_ancestor(exp.Select)
    return bool(
        select is None
        or id(select) in starred.selects
        or fold(table.alias_or_name) in starred.aliases
        or table.args.get("pivots")
        or table.alias_column_names
        # `(orders JOIN customers) t`: behind another name, which `t.*` or a pivot may use.
        or not isinstance(table.parent, exp.From | exp.Join)
        or table.parent.parent is not select
        or table.args.get("joins")
    )


def _invalid(text: str, reason: str) -> InvalidExpression:
    shown = text.strip()
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return InvalidExpression(f"{shown!r} cannot be run: {reason}.", query=text, reason=reason)
