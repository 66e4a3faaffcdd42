"""From Spark SQL text to one scalar expression and the columns that it reads.

Refuses, as invalid, what can never be a filter or an assignment: several statements, aggregates,
window functions, generators, subqueries, stars and parameters. Everything else that parses is
handed on, with `why_spark` set when the text itself already says that only Spark may run it: the
tree of sqlglot forgets such details (a unary plus, an escape, a comment), so they are looked for in
the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.errors import ColumnNotFound, InvalidExpression
from tidelock.model.names import fold, suggest
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.expressions.constants import PythonValue, literal_tree
from tidelock.model.sql.text import Unreadable, join_doubled_quotes, read_tokens

_SPARK = Dialect.get_or_raise("spark")

_REFUSED: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Window, "a window function"),
    (exp.RowNumber, "a window function"),
    (exp.AggFunc, "an aggregate"),
    (exp.Query, "a subquery"),
    (exp.UDTF, "a generator"),
    (exp.Star, "a star"),
    (exp.Parameter, "a parameter"),
    (exp.Placeholder, "a parameter"),
)
_REFUSED_KINDS = tuple(kind for kind, _ in _REFUSED)

# After one of these, a plus sign is a sign and not an addition.
_OPERAND_ENDS = {
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
}


# Words that may stand before a parenthesis without being called as a function.
_OPERATORS = {
    TokenType.AND,
    TokenType.OR,
    TokenType.NOT,
    TokenType.IN,
    TokenType.LIKE,
    TokenType.BETWEEN,
}
_CASTS = ("CAST", "TRY_CAST")

NO_PARAMETERS: Mapping[str, PythonValue] = MappingProxyType({})


class NeedsSpark(Exception):
    """Not an error: says, while translating, which part only Spark can evaluate."""


@dataclass(frozen=True)
class Syntax:
    """One expression, parsed: its tree, and the columns it reads in the order of the schema."""

    sql: str
    tree: exp.Expr
    columns: tuple[str, ...]
    why_spark: str | None


@dataclass(frozen=True)
class Scope:
    """Where names are looked up: the columns of a table, which may be qualified by its name."""

    schema: TableSchema
    table_name: str | None = None
    zone: str = "UTC"
    parameters: Mapping[str, PythonValue] = field(default_factory=dict)
    """The values of parameters, by name."""

    def find(self, node: exp.Expr) -> Column | None:
        """The column that the node is, as a whole; None for everything else."""
        if not isinstance(node, exp.Column):
            return None
        column, nested = _resolve(node, self)
        return None if nested else column


def parse(sql: str, scope: Scope) -> Syntax:
    tokens = _tokenize(sql)
    why_spark = _reason_in_text(sql, tokens)
    tree = _parse_tokens(sql, join_doubled_quotes(sql, tokens))
    if scope.parameters:
        tree, unspoken = _bound(tree, scope.parameters)
        why_spark = why_spark or unspoken
    read = set()
    for node in _walk(tree):
        if isinstance(node, _REFUSED_KINDS):
            what = next(what for kind, what in _REFUSED if isinstance(node, kind))
            raise InvalidExpression(
                f"{sql!r} holds {what} ({shown(node)}). Only expressions over the columns of "
                "one row can be used here.",
                expression=sql,
            )
        if isinstance(node, exp.Column):
            read.add(_resolve(node, scope)[0].name)
    columns = tuple(name for name in scope.schema.names if name in read)
    return Syntax(sql, tree, columns, why_spark)


def check_readable(sql: str) -> None:
    """InvalidExpression if the text is no expression, whatever its names stand for."""
    _parse_tokens(sql, join_doubled_quotes(sql, _tokenize(sql)))


def _bound(tree: exp.Expr, parameters: Mapping[str, PythonValue]) -> tuple[exp.Expr, str | None]:
    """The tree with constants in the place of parameters, and why Spark must evaluate it if one
    has a value that SQL has no literal for."""
    why_spark: str | None = None
    holder = exp.Paren(this=tree)
    for node in list(holder.find_all(exp.Placeholder)):
        if node.name not in parameters:
            continue
        constant = literal_tree(parameters[node.name])
        if constant is None:
            why_spark = f"the value of :{node.name}"
        node.replace(exp.Null() if constant is None else constant)
    bound: exp.Expr = holder.this
    bound.pop()
    return bound, why_spark


def bare(node: exp.Expr) -> exp.Expr:
    """The node without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def has_only(node: exp.Expr, *names: str) -> bool:
    """No other part of the node is set: nothing that this code does not know of changes it."""
    return all(name in names for name, value in node.args.items() if value not in (None, False, []))


def shown(node: exp.Expr) -> str:
    text = node.sql(dialect="spark", comments=False)
    return text if len(text) <= 80 else text[:79] + "…"


def _tokenize(sql: object) -> list[Token]:
    if not isinstance(sql, str):
        raise InvalidExpression(
            f"An expression must be Spark SQL text, not {type(sql).__name__} ({sql!r}).",
            expression=str(sql),
        )
    try:
        tokens = read_tokens(sql)
    except Unreadable:
        raise InvalidExpression(
            f"{sql!r} cannot be read: a quote or a comment in it is not closed.", expression=sql
        ) from None
    if not tokens:
        raise InvalidExpression("The expression is empty. Write Spark SQL.", expression=sql)
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise InvalidExpression(
                f"{sql!r} holds a semicolon. Write one expression, without one.",
                expression=sql,
                position=token.start + 1,
            )
    return tokens


def _reason_in_text(sql: str, tokens: Sequence[Token]) -> str | None:
    if "${" in sql:
        return "Spark substitutes variables written as ${...}"
    previous: Token | None = None
    for token in tokens:
        reason = _reason_in_token(sql[token.start : token.end + 1], token, previous)
        if reason is not None:
            return reason
        previous = token
    return None


def _reason_in_token(raw: str, token: Token, previous: Token | None) -> str | None:
    kind = token.token_type
    before = None if previous is None else previous.token_type
    if token.comments:
        return "it holds a comment"
    if kind == TokenType.STRING and "\\" in raw:
        return f"the escape in {raw}"
    if kind == TokenType.HEX_STRING and raw[0] not in "xX":
        return f"the number {raw}"
    if kind in (TokenType.ISNULL, TokenType.NOTNULL):
        return raw
    if kind == TokenType.PLUS and before not in _OPERAND_ENDS:
        return "a unary plus"
    if before == TokenType.COMMA and kind == TokenType.R_PAREN:
        return "a comma before a closing parenthesis"
    if kind == TokenType.L_PAREN and previous is not None and previous.text[:1].isalpha():
        # sqlglot makes plain operators and literals of some functions, and may drop arguments.
        called = before not in _OPERATORS and before != TokenType.STRING
        if called and previous.text.upper() not in _CASTS:
            return f"the function {previous.text}"
    if kind in (TokenType.AND, TokenType.OR, TokenType.LIKE) and (
        before is None
        or before in (TokenType.L_PAREN, TokenType.COMMA, *_OPERATORS - {TokenType.NOT})
    ):
        return f"the function {raw}"
    return None


def _parse_tokens(sql: str, tokens: list[Token]) -> exp.Expr:
    try:
        trees = _SPARK.parser().parse_into(exp.Condition, tokens, sql)
    except ParseError as error:
        detail = error.errors[0] if error.errors else {}
        highlight = detail.get("highlight") or ""
        position = _position(sql, detail.get("line"), detail.get("col"), highlight)
        where = f" near {highlight!r}" if highlight.strip() else ""
        raise InvalidExpression(
            f"{sql!r} is not a Spark SQL expression: it cannot be read{where}"
            + (f", at character {position}." if position else ".")
            + " Names that are no plain words need backticks.",
            expression=sql,
            position=position,
        ) from None
    except RecursionError:
        raise InvalidExpression(
            f"{sql[:80]!r}… is nested too deeply to be read.", expression=sql
        ) from None
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise InvalidExpression(f"{sql!r} is not one expression.", expression=sql)
    return tree


def _position(sql: str, line: int | None, column: int | None, highlight: str) -> int | None:
    """The place of a token, counted from 1, from the line and column at which it ends."""
    if line is None or column is None:
        return None
    start_of_line = sum(len(text) for text in sql.splitlines(keepends=True)[: line - 1])
    return max(1, start_of_line + column - max(len(highlight), 1) + 1)


def _walk(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Every node but those inside of types: a collation there looks like a column."""
    return tree.walk(prune=lambda node: isinstance(node, exp.DataType))


def _resolve(node: exp.Column, scope: Scope) -> tuple[Column, bool]:
    """The column that a name reads, and whether it reads a field inside of it.

    As in Spark, a qualifier is first taken as the table's name, then as a column with fields.
    """
    schema = scope.schema
    parts = [part.name for part in node.parts]
    if len(parts) == 1:
        return schema.column(parts[0]), False
    outer = schema.find(parts[0])
    if scope.table_name is not None and fold(parts[0]) == fold(scope.table_name):
        qualified = schema.find(parts[1])
        if qualified is not None:
            # Where a column has the name of the table, Spark decides which of them is meant.
            return qualified, len(parts) > 2 or outer is not None
        if outer is None:
            return schema.column(parts[1]), len(parts) > 2
    if outer is None:
        name = ".".join(parts)
        raise ColumnNotFound(
            f"There is no column {name!r}. {suggest(parts[-1], schema.names)}", column=name
        )
    return outer, True
