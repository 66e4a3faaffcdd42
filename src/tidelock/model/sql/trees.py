"""From the text of a query to its syntax tree, and from trees back to text.

Every function stays the call that was written (dialect.py). What it means is Spark's business; what
kind it is (aggregate, generator, ...) is looked up by its name in functions.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from tidelock.errors import InvalidExpression, TidelockError
from tidelock.model.names import fold, quote
from tidelock.model.sql.dialect import OWN_SYNTAX, Exact
from tidelock.model.sql.text import QueryText, read_tokens

_EXACT = Exact()


def read_query(query: QueryText) -> exp.Expr:
    """The syntax tree of one query, or InvalidExpression that says where it ends to be one."""
    tokens = list(query.tokens)
    if not tokens:
        raise InvalidExpression("The query is empty. Write a SELECT.", query=query.text)
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise query.error(
                InvalidExpression,
                query.place(token.start),
                "a second statement begins after the semicolon. A stream table is defined by one "
                "query.",
            )
    try:
        trees = _EXACT.parser().parse(_with_selects(_with_names(tokens)), query.text)
    except ParseError as error:
        raise _unreadable(query, error) from None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query | exp.Values):
        raise query.error(
            InvalidExpression,
            query.place(tokens[0].start),
            "this is not a query. A stream table is defined by a SELECT.",
        )
    for select in tree.find_all(exp.Select):
        if not select.expressions:
            raise query.error(
                InvalidExpression, query.place_of(select), "A SELECT names no columns. Name some."
            )
    _refuse_lost_words(query, tree)
    _drop_what_says_nothing(tree)
    _settle_units(tree)
    _name_fields(tree)
    return tree


_SAID_OTHERWISE = frozenset({"nulls", "first", "last", *(name.lower() for name in OWN_SYNTAX)})
"""What the tree may say in other words, or need not say."""


def _refuse_lost_words(query: QueryText, tree: exp.Expr) -> None:
    """A name or value that stands in the text and not in the tree was taken for something else."""
    told = _names_and_values(read_tokens(text_of(tree)))
    lost = [one for one in _names_and_values(query.tokens) - told if one not in _SAID_OTHERWISE]
    if lost:
        raise query.error(
            InvalidExpression,
            (1, 1),
            f"the meaning of {', '.join(sorted(lost))} is not understood.",
        )


def _names_and_values(tokens: Sequence[Token]) -> Counter[str]:
    kinds = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING)
    found = Counter(fold(token.text) for token in tokens if token.token_type in kinds)
    # `.5` is a point and a number, and 0.5 in the tree.
    numbers = (token.text for token in tokens if token.token_type is TokenType.NUMBER)
    found.update(fold(number).removeprefix("0.") for number in numbers)
    return found


def _drop_what_says_nothing(tree: exp.Expr) -> None:
    """Hints, which look like calls of functions, and how many rows an EXISTS looks at."""
    for select in tree.find_all(exp.Select):
        select.set("hint", None)
    for test in tree.find_all(exp.Exists):
        query = test.this
        if isinstance(query, exp.Select) and not query.args.get("offset"):
            limit = query.args.get("limit")
            rows = limit.expression if isinstance(limit, exp.Limit) else None
            if isinstance(rows, exp.Literal) and rows.is_int and int(rows.name) > 0:
                query.set("limit", None)


_QUANTIFIERS = (TokenType.ALL, TokenType.DISTINCT)
_BEFORE_VALUES = frozenset(
    {
        *(TokenType.SELECT, TokenType.WHERE, TokenType.ON, TokenType.HAVING, TokenType.DOT),
        *(TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.COMMA, TokenType.L_PAREN),
        *(TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.CASE, TokenType.WHEN),
        *(TokenType.THEN, TokenType.ELSE, TokenType.PLUS, TokenType.DASH, TokenType.SLASH),
        *(TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE),
    }
)
_AROUND_NAMES = (
    (TokenType.SELECT, TokenType.COMMA),
    (TokenType.L_PAREN, TokenType.COMMA),
    (TokenType.L_PAREN, TokenType.R_PAREN),
)


def _with_names(tokens: list[Token]) -> list[Token]:
    """ALL and DISTINCT are names where nothing follows that they could be said of, and AS where a
    value must follow, as in Spark."""
    named = list(tokens)
    for position in range(1, len(tokens) - 1):
        before, token, after = tokens[position - 1 : position + 2]
        around = (before.token_type, after.token_type)
        quantifier = token.token_type in _QUANTIFIERS and around in _AROUND_NAMES
        alias = token.token_type is TokenType.ALIAS and before.token_type in _BEFORE_VALUES
        if quantifier or alias:
            named[position] = Token(
                TokenType.IDENTIFIER, token.text, token.line, token.col, token.start, token.end
            )
    return named


_SET_OPERATIONS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


def _with_selects(tokens: list[Token]) -> list[Token]:
    """TABLE t, where a query begins, as the SELECT * FROM t that it is short for."""
    written: list[Token] = []
    for position, token in enumerate(tokens):
        if not _is_table_query(tokens, position):
            written.append(token)
            continue
        for kind, text in (
            (TokenType.SELECT, "SELECT"),
            (TokenType.STAR, "*"),
            (TokenType.FROM, "FROM"),
        ):
            written.append(Token(kind, text, token.line, token.col, token.start, token.end))
    return written


def _is_table_query(tokens: list[Token], position: int) -> bool:
    kinds = [one.token_type for one in tokens[max(0, position - 2) : position + 2]]
    if tokens[position].token_type is not TokenType.TABLE or kinds[-1] not in _NAMES:
        return False
    before = kinds[:-2]
    match before:
        case []:
            return True
        case [*earlier, TokenType.L_PAREN]:
            # Not what is given to a function: there it is a column.
            return not earlier or earlier[0] not in (*_NAMES, TokenType.STRUCT)
        case [kind, quantifier] if quantifier in _QUANTIFIERS:
            return kind in _SET_OPERATIONS
    return before[-1] in (*_SET_OPERATIONS, TokenType.R_PAREN)


def _name_fields(tree: exp.Expr) -> None:
    """Give the fields of a struct the names that Spark takes from what is written in it.

    The columns of operators have other names than those of the text.
    """
    for call in list(tree.find_all(exp.Anonymous, exp.Tuple)):
        if isinstance(call, exp.Anonymous):
            if function_name(call) != "struct":
                continue
        elif not isinstance(call.parent, exp.Alias | exp.Select | exp.Anonymous):
            continue
        if any(one.is_star for one in call.expressions):
            continue
        fields: list[exp.Expr] = []
        for position, one in enumerate(call.expressions, 1):
            fields += [exp.Literal.string(_field_name(one, position)), one.unalias()]
        call.replace(exp.Anonymous(this="named_struct", expressions=fields))


def _field_name(node: exp.Expr, position: int) -> str:
    if isinstance(node, exp.Alias):
        return str(node.alias)
    node = bare(node)
    if isinstance(node, exp.Column | exp.Dot | exp.Identifier):
        return str(node.name)
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
        (key,) = node.expressions
        if isinstance(key, exp.Literal) and key.is_string:
            return str(key.this)
    return f"col{position}"


def _unreadable(query: QueryText, error: ParseError) -> TidelockError:
    detail = error.errors[0] if error.errors else {}
    line, column = detail.get("line") or 1, detail.get("col") or 1
    word = str(detail.get("highlight") or "")
    # sqlglot counts to the end of the word.
    column = max(1, column - max(len(word), 1) + 1)
    near = f" near {word!r}" if word.strip() else ""
    return query.error(
        InvalidExpression,
        (line, column),
        f"the query is no Spark SQL that can be read{near}. Correct it there; names that are no "
        "plain words need backticks.",
    )


_WITH_UNIT = frozenset(
    {"timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff"}
)


def _settle_units(tree: exp.Expr) -> None:
    """Make `month` in `dateadd(month, 1, d)` a word; it looks like a column."""
    for call in list(tree.find_all(exp.Anonymous)):
        arguments = call.expressions
        if function_name(call) in _WITH_UNIT and len(arguments) == 3:
            unit = arguments[0]
            if isinstance(unit, exp.Column) and len(unit.parts) == 1:
                unit.replace(exp.Var(this=unit.name))


def function_name(call: exp.Anonymous) -> str:
    """The name of the function that is called, in lower case."""
    return str(call.name).lower()


# Expressions over the columns of operators -----------------------------------------------------


def column(name: str) -> exp.Column:
    """A column of an operator as a tree."""
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def text_of(tree: exp.Expr) -> str:
    """The tree as Spark SQL on one line."""
    return str(_EXACT.generate(tree, comments=False, normalize_functions=False, pretty=False))


@lru_cache(maxsize=4096)
def expression(sql: str) -> exp.Expr:
    """The tree of an expression that `text_of` gave. Shared: copy it before changing it."""
    tree = _EXACT.parser().parse_into(exp.Condition, read_tokens(sql), sql)[0]
    assert tree is not None
    _settle_units(tree)
    return tree


def columns_of(*trees: exp.Expr) -> tuple[str, ...]:
    """The columns of operators that the trees read, in order of appearance."""
    found: dict[str, None] = {}
    for tree in trees:
        for node in outside_queries(tree):
            if isinstance(node, exp.Column):
                found.setdefault(node.parts[0].name)
    return tuple(found)


def outside_queries(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression from left to right, without what is inside of subqueries."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, exp.Query):
            stack.extend(reversed(list(node.iter_expressions())))


def rewrite(tree: exp.Expr, change: Callable[[exp.Expr], exp.Expr | None]) -> exp.Expr:
    """A copy of the tree in which each node that `change` answers is replaced by the answer.

    Goes from the root down, and neither into what was replaced nor into subqueries.
    """
    holder = exp.Paren(this=tree.copy())
    stack: list[exp.Expr] = [holder.this]
    while stack:
        node = stack.pop()
        changed = change(node)
        if changed is not None:
            node.replace(changed)
        elif not isinstance(node, exp.Query):
            stack.extend(reversed(list(node.iter_expressions())))
    result: exp.Expr = holder.this
    result.pop()
    return result


def substitute(tree: exp.Expr, replacements: dict[str, exp.Expr]) -> exp.Expr:
    """The tree with columns replaced by expressions; a field of a column stays a field of it."""

    def change(node: exp.Expr) -> exp.Expr | None:
        if not isinstance(node, exp.Column) or node.parts[0].name not in replacements:
            return None
        result = wrapped(replacements[node.parts[0].name])
        for part in node.parts[1:]:
            result = exp.Dot(this=result, expression=part.copy())
        return result

    return rewrite(tree, change)


def rename_column(sql: str, old: str, new: str) -> str:
    """A condition on one row of a table, after a column of it was renamed. Columns are named in it
    without their table; all else stays as it was written."""
    spans = [
        (part.meta["start"], part.meta["end"] + 1, quote(new))
        for part in _first_parts(sql)
        if fold(part.name) == fold(old)
    ]
    return _spliced(sql, spans)


def without_table(sql: str, table: str) -> str:
    """A condition on one row of a table, in which columns are named without the table."""
    spans = []
    for node in outside_queries(expression(sql)):
        if isinstance(node, exp.Column) and len(node.parts) > 1:
            first, second = node.parts[:2]
            if fold(first.name) == fold(table):
                spans.append((first.meta["start"], second.meta["start"], ""))
    return _spliced(sql, spans)


def _first_parts(sql: str) -> Iterator[exp.Expr]:
    """What a condition names columns by. Behind a column there may be fields of it."""
    for node in outside_queries(expression(sql)):
        if isinstance(node, exp.Column):
            yield node.parts[0]


def _spliced(sql: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """The text with other words in some places."""
    parts, at = [], 0
    for start, end, word in sorted(spans):
        parts += [sql[at:start], word]
        at = end
    return "".join([*parts, sql[at:]])


_NEED_NO_PARENTHESES = (
    exp.Column,
    exp.Literal,
    exp.Paren,
    exp.Anonymous,
    exp.Cast,
    exp.Null,
    exp.Boolean,
    exp.Case,
)


def wrapped(tree: exp.Expr) -> exp.Expr:
    """A copy that can stand anywhere inside another expression."""
    copy = tree.copy()
    return copy if isinstance(copy, _NEED_NO_PARENTHESES) else exp.Paren(this=copy)


def bare(node: exp.Expr) -> exp.Expr:
    """The node without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node
