"""Expressions that resolve conflicts: SQL over the same row at the base, the source and the target.

Owns: how `target.amount + source.amount - base.amount` becomes values. As everywhere, what Arrow
computes with Spark's meaning is computed here, and the rest by the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from tidelock.errors import ColumnNotFound, InvalidExpression
from tidelock.model.names import fold, suggest
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.expressions import Assignment, check_readable, parse_assignment
from tidelock.model.sql.trees import expression, rewrite, text_of
from tidelock.model.types import type_name
from tidelock.store.engine import Engine
from tidelock.store.spark.sessions import could_not, engine_errors

SIDES = ("base", "source", "target")


@dataclass(frozen=True)
class Evaluator:
    """Computes the expressions of one table."""

    table: str
    schema: TableSchema
    """The merged columns."""
    engine: Engine

    def check(self, expressions: Mapping[str, str]) -> dict[str, str]:
        """The expressions by what their columns are called, or the error that says what is wrong
        with one."""
        found = {}
        for name, sql in expressions.items():
            column = self.schema.column(name)
            if column.name in self.schema.key:
                raise InvalidExpression(
                    f"Column {column.name!r} is in the key of table {self.table!r}, by which rows "
                    "are matched: there is nothing to resolve.",
                    table=self.table,
                    column=column.name,
                )
            self._parse(column, sql)
            found[column.name] = sql
        return found

    def compute(
        self, name: str, sql: str, base: pa.Table, source: pa.Table, target: pa.Table
    ) -> pa.ChunkedArray:
        """The values of a column for rows that stand side by side."""
        column = self.schema.column(name)
        assignment = self._parse(column, sql)
        columns = {
            _label(side, one): rows.column(one)
            for side, rows in zip(SIDES, (base, source, target), strict=True)
            for one in rows.column_names
        }
        rows = pa.table({label: columns[label] for label in assignment.columns})
        if not assignment.columns:
            rows = pa.table({"_": pa.nulls(base.num_rows)})
        if assignment.native is not None:
            return assignment.evaluate(rows)
        return self._on_engine(column, assignment, rows)

    def _parse(self, column: Column, sql: str) -> Assignment:
        labels = [
            Column(_label(side, one.name), one.type)
            for side in SIDES
            for one in self.schema.columns
        ]
        scope = TableSchema((*labels, column))
        return parse_assignment(column.name, self._relabelled(sql), scope, zone=self.engine.zone)

    def _relabelled(self, sql: str) -> str:
        def change(node: exp.Expr) -> exp.Expr | None:
            if not isinstance(node, exp.Column):
                return None
            parts = [part.name for part in node.parts]
            if len(parts) < 2 or fold(parts[0]) not in SIDES:
                name = ".".join(parts)
                raise ColumnNotFound(
                    f"{sql!r} names {name!r}. Say whose column it is: base.{name}, source.{name} "
                    f"or target.{name}.",
                    column=name,
                    expression=sql,
                )
            known = self.schema.find(parts[1])
            if known is None:
                raise ColumnNotFound(
                    f"Table {self.table!r} has no column {parts[1]!r}. "
                    f"{suggest(parts[1], self.schema.names)}",
                    column=parts[1],
                    expression=sql,
                )
            label = exp.Identifier(this=_label(fold(parts[0]), known.name), quoted=True)
            fields = [exp.Identifier(this=part, quoted=True) for part in parts[2:]]
            return exp.Dot.build([label, *fields]) if fields else exp.Column(this=label)

        # Read once as it was written, so that whatever is wrong with it is told of that text.
        return text_of(rewrite(expression(_readable(sql)), change))

    def _on_engine(self, column: Column, assignment: Assignment, rows: pa.Table) -> pa.ChunkedArray:
        session = self.engine.get()
        doing = f"could not evaluate {assignment.sql!r} for table {self.table!r}"
        with engine_errors(session, could_not(doing, " Nothing was written.", table=self.table)):
            frame = session.createDataFrame(rows)
            cast = f"CAST(({assignment.sql}) AS {type_name(column.type)}) AS value"
            found = frame.selectExpr(cast).toArrow()
        return found.column(0).cast(column.type)


def _label(side: str, name: str) -> str:
    """A name that no column has, since none has a dot in it, and that can be shown."""
    return f"{side}.{name}"


def _readable(sql: str) -> str:
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidExpression("The expression is empty. Write Spark SQL.", expression=str(sql))
    check_readable(sql)
    return sql
