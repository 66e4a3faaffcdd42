"""Parameters: values that are bound to a text of SQL, and never become a part of it.

Owns: where in a text parameters stand (`:name` and `?`), which values they may have, and that every
one has a value and every value is used. A `?` becomes a name of Tidelock's own, so that parts of a
text can be put in another order and keep their values. A local time is bound as text that the
statement casts: engines disagree on what it is otherwise.

Invariant: what comes out differs from the given text where parameters stand, and nothing of their
values is in it.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

from sqlglot.tokenizer_core import Token, TokenType

from tidelock.errors import Advice, InvalidExpression, InvalidOption
from tidelock.model.arguments import check_text
from tidelock.model.names import HIDDEN, suggest
from tidelock.model.sql.expressions.constants import PythonValue
from tidelock.model.sql.expressions.literals import DECIMAL_DIGITS_MAX
from tidelock.model.sql.text import Unreadable, line_of, read_tokens

BIGINT_BITS = 64
_PLAIN = (type(None), bool, int, float, decimal.Decimal, str, bytes, dt.date)
_CLOSING = frozenset(
    {TokenType.IDENTIFIER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET}
)


@dataclass(frozen=True)
class BoundText:
    """SQL in which every parameter is `:name`, and the values of all names."""

    text: str
    values: Mapping[str, PythonValue]

    def within(self, text: str) -> dict[str, PythonValue]:
        """The values of the parameters of a part of the text."""
        if not self.values:
            return {}
        return {one.name: self.values[one.name] for one in _placeholders(text) if one.name}


@dataclass(frozen=True)
class _Placeholder:
    """One parameter in a text, from `start` up to `stop`; None for `?`."""

    name: str | None
    start: int
    stop: int


Parameters: TypeAlias = Mapping[str, Any] | Sequence[Any] | None
"""The values of parameters: a mapping for `:name`, a sequence for `?`."""


def bind(text: str, params: Parameters) -> BoundText:
    """A text with the values of its parameters: a mapping for `:name`, a sequence for `?`."""
    # Most texts have none, and need not be read for that.
    found = list(_placeholders(text)) if ":" in text or "?" in text else []
    named = {one.name for one in found if one.name is not None}
    positional = [one for one in found if one.name is None]
    if named and positional:
        raise InvalidExpression(
            f"Line {line_of(text, positional[0].start)}: a text has parameters by name (:name) or "
            "by position (?), not both. Write all of them in one way.",
            query=text,
        )
    if positional:
        names = [f"{HIDDEN}parameter_{number}" for number in range(1, len(found) + 1)]
        values = dict(zip(names, _by_position(len(found), params), strict=True))
    else:
        names = [one.name or "" for one in found]
        values = _by_name(named, params)
    written = [_written(name, values[name]) for name in names]
    return BoundText(_replaced(text, found, written), {n: _told(v) for n, v in values.items()})


def _replaced(text: str, found: Sequence[_Placeholder], written: Sequence[str]) -> str:
    pieces: list[str] = []
    end = 0
    for one, new in zip(found, written, strict=True):
        pieces += [text[end : one.start], new]
        end = one.stop
    return "".join([*pieces, text[end:]])


def _is_local(value: PythonValue) -> TypeGuard[dt.datetime]:
    return isinstance(value, dt.datetime) and value.tzinfo is None


def _written(name: str, value: PythonValue) -> str:
    return f"CAST(:{name} AS TIMESTAMP_NTZ)" if _is_local(value) else f":{name}"


def _told(value: PythonValue) -> PythonValue:
    return value.isoformat(sep=" ") if _is_local(value) else value


def _by_name(
    names: set[str], params: Mapping[str, Any] | Sequence[Any] | None
) -> dict[str, PythonValue]:
    given = params or {}
    if not isinstance(given, Mapping):
        raise InvalidOption(
            "The values of parameters by name are a mapping, such as {'id': 5}, not "
            f"{type(given).__name__}. A list is for parameters that are written as ?.",
            actual=type(given).__name__,
        )
    for name in sorted(names - set(given)):
        raise InvalidOption(
            f"The parameter :{name} has no value.",
            Advice(f"Give it: params={{{name!r}: ...}}.", f"Give it: --param {name}=VALUE."),
            parameter=name,
        )
    for name in given:
        if name not in names:
            raise InvalidOption(
                f"There is no parameter :{name} in the text. {suggest(str(name), names)}",
                parameter=str(name),
            )
    return {name: plain_value(value, f":{name}") for name, value in given.items()}


def _by_position(count: int, params: Mapping[str, Any] | Sequence[Any] | None) -> list[PythonValue]:
    given = () if params is None else params
    if isinstance(given, Mapping | str | bytes) or not isinstance(given, Sequence):
        raise InvalidOption(
            f"The values of parameters that are written as ? are a list, not "
            f"{type(given).__name__}. Write them as :name to give them by name.",
            actual=type(given).__name__,
        )
    if len(given) != count:
        raise InvalidOption(
            f"The text has {count} parameters (?), and {len(given)} values were given.",
            expected=count,
            actual=len(given),
        )
    return [plain_value(value, f"number {n}") for n, value in enumerate(given, start=1)]


def _placeholders(text: str) -> Iterator[_Placeholder]:
    try:
        tokens = read_tokens(text)
    except Unreadable:
        raise InvalidExpression(
            "The text cannot be read: a quote or a comment in it is not closed. Close it.",
            query=text,
        ) from None
    for position, token in enumerate(tokens):
        if token.token_type is TokenType.PLACEHOLDER:
            yield _Placeholder(None, token.start, token.end + 1)
        elif token.token_type is TokenType.COLON:
            before = tokens[position - 1] if position else None
            after = tokens[position + 1] if position + 1 < len(tokens) else None
            if after is not None and _is_parameter(text, before, token, after):
                yield _Placeholder(after.text, token.start, after.end + 1)


def _is_parameter(text: str, before: Token | None, colon: Token, after: Token) -> bool:
    """Whether a colon begins a parameter. Behind an operand it reads a field: `payload:id`."""
    word = text[after.start : after.end + 1]
    if after.start != colon.end + 1 or not word.replace("_", "a").isalnum():
        return False
    if before is None or before.end + 1 != colon.start:
        return True
    return before.token_type not in _CLOSING and not before.text[-1:].isalnum()


def plain_value(value: Any, what: str) -> PythonValue:
    """A value that SQL has a constant for, or InvalidOption that says which parameter it is of."""
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, _PLAIN):
        raise InvalidOption(
            f"The parameter {what} cannot be {value!r} ({type(value).__name__}). Give text, a "
            "number, a Decimal, a bool, bytes, a date, a datetime or None; rows are given as a "
            "relation, by keyword.",
            parameter=what,
            actual=type(value).__name__,
        )
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check_text(value, f"The parameter {what}")
    if isinstance(value, int) and not -(1 << BIGINT_BITS - 1) <= value < 1 << BIGINT_BITS - 1:
        value = decimal.Decimal(value)
    if isinstance(value, decimal.Decimal):
        return _decimal(value, what)
    if isinstance(value, dt.datetime):
        return _moment(value)
    plain: PythonValue = value
    return plain


def _decimal(value: decimal.Decimal, what: str) -> decimal.Decimal:
    if value.is_finite():
        # Without an exponent, as SQL writes it.
        plain = decimal.Decimal(f"{value:f}")
        _, digits, exponent = plain.as_tuple()
        if max(len(digits), -int(exponent)) <= DECIMAL_DIGITS_MAX:
            return plain
    raise InvalidOption(
        f"The parameter {what} cannot be {value}: a DECIMAL has up to {DECIMAL_DIGITS_MAX} "
        "digits. Give it as text or as a float.",
        parameter=what,
    )


def _moment(value: dt.datetime) -> dt.datetime:
    """A plain datetime, in UTC if it has a zone."""
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    return dt.datetime(
        *(value.year, value.month, value.day),
        *(value.hour, value.minute, value.second, value.microsecond),
        tzinfo=value.tzinfo,
    )
