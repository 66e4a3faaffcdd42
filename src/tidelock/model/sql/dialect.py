"""Spark's grammar as sqlglot reads and writes it, corrected where that changes what a query means.

sqlglot's Spark dialect translates functions into its own and back, and sometimes gives back another
one. `Exact` leaves every function the call that was written, and knows only the syntax that is no
plain call (CAST, EXTRACT, TRIM, ...).

Invariant: the text of a tree has the words of the query in their order, but for spellings that mean
the same; so Spark binds operators in it as it does in the query.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

OWN_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "SUBSTR", "TRIM")

_UNIT = (
    *("NANOSECOND", "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR"),
    *("DAY", "WEEK", "MONTH", "YEAR"),
)
_UNITS = frozenset((*_UNIT, *(f"{unit}S" for unit in _UNIT)))


_COMPARISONS = {**SparkParser.EQUALITY, **SparkParser.COMPARISON}


class _ExactParser(SparkParser):
    FUNCTIONS = {}  # noqa: RUF012
    FUNCTION_PARSERS = {n: SparkParser.FUNCTION_PARSERS[n] for n in OWN_SYNTAX}  # noqa: RUF012
    NO_PAREN_FUNCTIONS = {}  # noqa: RUF012
    NO_PAREN_FUNCTION_PARSERS = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}  # noqa: RUF012
    # `array(a, b)[0]` is an element, and so is `list[0]` of a column with that name.
    ARRAY_CONSTRUCTORS = {}  # noqa: RUF012
    # A comma binds less than JOIN, and the tree must tell the two apart.
    JOINS_HAVE_EQUAL_PRECEDENCE = False

    def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:
        # `a = b IN (c)` asks whether `a = b` is among them; so do LIKE, BETWEEN and IS.
        return self._parse_range(self._parse_comparison(), parse_is=parse_is)

    def _parse_comparison(self, this: exp.Expr | None = None) -> exp.Expr | None:
        # All comparisons bind alike, from left to right.
        this = this or self._parse_bitwise()
        while self._match_set(_COMPARISONS):
            kind = _COMPARISONS[self._prev.token_type]
            this = self.expression(kind(this=this, expression=self._parse_bitwise()))
        return this

    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Interval | None:
        # sqlglot makes a sum of an interval of several units, and cuts those in strings; a value
        # behind it, as in `INTERVAL 1 DAY + 2`, counts as one of them.
        index = self._index
        if not self._match(TokenType.INTERVAL):
            return None
        words = self._interval_words()
        if not words:
            self._retreat(index)
            return None
        return self.expression(exp.Interval(this=exp.Var(this=" ".join(words))))

    def _interval_words(self) -> list[str]:
        """What belongs to an interval: values with units, or one string that says all."""
        words: list[str] = []
        while self._curr is not None:
            index, value = self._index, []
            if self._match_set((TokenType.DASH, TokenType.PLUS)):
                value.append(self._prev.text)
            if not self._match_set((TokenType.STRING, TokenType.NUMBER)):
                self._retreat(index)
                break
            token = self._prev
            value.append(self._find_sql(token, token))
            if self._curr is not None and self._curr.text.upper() in _UNITS:
                value.append(self._curr.text)
                self._advance()
            elif words or token.token_type is not TokenType.STRING or len(value) > 1:
                self._retreat(index)
                break
            else:
                return value
            words += value
            if len(words) == len(value) and self._match_text_seq("TO"):
                assert self._curr is not None
                words += ["TO", self._curr.text]
                self._advance()
                break
        return words


class _ExactGenerator(SparkGenerator):
    TRANSFORMS = {  # noqa: RUF012
        **SparkGenerator.TRANSFORMS,
        # sqlglot makes calls of these, of all that it takes for their operands.
        exp.BitwiseLeftShift: lambda self, e: self.binary(e, "<<"),
        exp.BitwiseRightShift: lambda self, e: self.binary(e, ">>"),
        exp.NullSafeEQ: lambda self, e: self.binary(e, "<=>"),
    }

    def interval_sql(self, expression: exp.Interval) -> str:
        return f"INTERVAL {expression.name}"

    def lateral_sql(self, expression: exp.Lateral) -> str:
        # sqlglot writes the name of a LATERAL VIEW without its backticks.
        if not expression.args.get("view"):
            return str(super().lateral_sql(expression))
        outer = " OUTER" if expression.args.get("outer") else ""
        alias = expression.args["alias"]
        name = self.sql(alias, "this")
        columns = self.expressions(alias, key="columns", flat=True)
        told = [self.sql(expression, "this"), name, f"AS {columns}" if columns else ""]
        return f" LATERAL VIEW{outer} {' '.join(filter(None, told))}"


class Exact(Spark):
    """Spark's dialect, with every function call left as it was written."""

    Parser = _ExactParser
    Generator = _ExactGenerator
    # A column may be named so.
    SUPPORTS_ORDER_BY_ALL = False
