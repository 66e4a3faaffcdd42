"""A table at one pin, read by the labels that a view knows its columns by.

Owns: the one place where labels become names. Two pins of a table may call a column by two names,
and the view by a third; whatever is read here comes back under the labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from tidelock.derive.refresh.delta.lookup import LeafTable
from tidelock.derive.seen import SeenInput
from tidelock.derive.sight import label_schema
from tidelock.model.names import fold, quote
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql.expressions import parse_filter
from tidelock.model.sql.reads import find_reads
from tidelock.model.sql.trees import expression, rewrite, text_of
from tidelock.model.types import spell_type
from tidelock.store.engine import Engine
from tidelock.store.spark.kept_frames import keep_for
from tidelock.store.spark.query import run_query
from tidelock.store.spark.scan import scan_frame
from tidelock.store.table import Table
from tidelock.store.tables.labelled import column_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class SeenTable:
    """One pin of a table, and what it calls the columns that a view sees of it."""

    table: Table
    seen: SeenInput | None = None
    """None for a table of the view's own, whose names are its labels."""
    names: Mapping[str, str] = field(default_factory=dict)
    """By label; those that were dropped by then, or had not come yet, are not among them."""

    @classmethod
    def of(cls, table: Table, seen: SeenInput) -> SeenTable:
        """The pin that is open, which may be another than the table's own."""
        called = {column_id: name for name, column_id in column_ids(table.dataset).items()}
        return cls(table, seen, seen.names(called))

    @cached_property
    def _labels(self) -> Mapping[str, str]:
        return {name: label for label, name in self.names.items()}

    @cached_property
    def _renames(self) -> bool:
        return any(label != name for label, name in self.names.items())

    def names_of(self, labels: Iterable[str]) -> list[str]:
        """What columns are called here."""
        if self.seen is None:
            return list(labels)
        return [self.names[label] for label in labels]

    def leaf(self, columns: tuple[str, ...]) -> LeafTable:
        """The columns of a scan, to be looked up in."""
        table = self.table
        key = table.key
        if self.seen is not None:
            key = tuple(self._labels[name] for name in key if name in self._labels)
        names = self.names if self._renames else {}
        return LeafTable(
            table.dataset, columns, key, lambda: table.files.reading(table.state), names
        )

    def labelled(self, rows: pa.Table) -> pa.Table:
        """Rows of the table, and whatever else they have, under the labels of their columns."""
        if not self._renames:
            return rows
        return rows.rename_columns([self._labels.get(name, name) for name in rows.column_names])

    def frame(self, labels: Sequence[str], filter: str | None = None) -> DataFrame:
        """The rows as a frame, read by the executors; `filter` is in Lance's words and in names."""
        table = self.table
        table.files.refuse_unusable()
        schema = table.files.arrow_schema(table.state.id, table.dataset)
        gone = [] if self.seen is None else [one for one in labels if one not in self.names]
        called = dict(zip(labels, labels, strict=True)) if self.seen is None else self.names
        names = [called[label] for label in labels if label not in gone]
        source = replace(table.source(), schema=schema)
        frame = scan_frame(table.engine.get(), source, columns=names, filter=filter)
        if self._renames or gone:
            shown = [
                f"{self._null(label) if label in gone else quote(called[label])} AS {quote(label)}"
                for label in labels
            ]
            frame = frame.selectExpr(*shown)
        return keep_for(frame, table.owner)

    def _null(self, label: str) -> str:
        """In place of a column that was dropped."""
        assert self.seen is not None
        kind = label_schema(self.seen).column(label).type
        return f"CAST(NULL AS {spell_type(kind, for_spark=True)})"

    def filter(self, condition: str, zone: str) -> str | None:
        """A condition in labels as a filter of Lance in names; None if only Spark can tell."""
        assert self.seen is not None
        asked = parse_filter(condition, label_schema(self.seen), zone=zone)
        if not all(label in self.names for label in asked.columns):
            return None
        if not self._renames:
            return asked.lance
        names = {fold(label): name for label, name in self.names.items()}
        columns = tuple(
            replace(one, name=self.names[one.name])
            for one in label_schema(self.seen).columns
            if one.name in self.names
        )
        return parse_filter(_with_names(condition, names), TableSchema(columns), zone=zone).lance


def query_seen(query: str, tables: Mapping[str, SeenTable], engine: Engine) -> DataFrame:
    """Run a query over inputs, which its text names by their labels."""
    schemas: dict[str, TableSchema] = {}
    for label, one in tables.items():
        assert one.seen is not None
        # An object of its own, by which a condition's table is told.
        schemas[label] = replace(label_schema(one.seen))
    owners = {id(schema): tables[label] for label, schema in schemas.items()}
    plan = find_reads(
        query, schemas, lambda sql, schema: owners[id(schema)].filter(sql, engine.zone)
    )
    frames = {
        one.name: tables[one.name].frame(
            schemas[one.name].names if one.columns is None else one.columns, one.filter
        )
        for one in plan.reads
    }
    held = [tables[one.name].table.owner for one in plan.reads]
    return keep_for(run_query(engine.get(), plan, frames), held)


def _with_names(condition: str, names: Mapping[str, str]) -> str:
    """A condition on one row whose columns have other names, all at once."""

    def change(node: exp.Expr) -> exp.Expr | None:
        if not isinstance(node, exp.Column):
            return None
        parts = [part.copy() for part in node.parts]
        name = names.get(fold(parts[0].name))
        if name is None:
            return None
        parts[0].set("this", name)
        parts[0].set("quoted", True)
        return exp.Dot.build(parts) if len(parts) > 1 else exp.Column(this=parts[0])

    return text_of(rewrite(expression(condition), change))
