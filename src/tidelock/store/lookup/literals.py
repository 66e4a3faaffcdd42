"""Values of key columns in the filter language of Lance."""

from __future__ import annotations

import pyarrow as pa

INTEGER_MIN = -(2**63)
_LEAST = f"CAST('{INTEGER_MIN}' AS BIGINT)"
"""Without its sign this number is too large for an integer, and Lance makes a float of it."""


def quote_for_lance(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literals(values: pa.Array) -> list[str]:
    """Values of a column that may be in a key, none of them NULL, as literals."""
    kind = values.type
    # As numbers, because Python does not hold all dates and times.
    if pa.types.is_timestamp(kind):
        zone = "None" if kind.tz is None else 'Some("UTC")'
        cast = f"'Timestamp(Microsecond, {zone})'"
        return [f"arrow_cast({value}, {cast})" for value in values.cast(pa.int64()).to_pylist()]
    if pa.types.is_date32(kind):
        return [f"arrow_cast({value}, 'Date32')" for value in values.cast(pa.int32()).to_pylist()]
    listed = values.to_pylist()
    if pa.types.is_boolean(kind):
        return ["true" if value else "false" for value in listed]
    if pa.types.is_integer(kind):
        return [str(value) if value > INTEGER_MIN else _LEAST for value in listed]
    if pa.types.is_string(kind):
        return ["'" + value.replace("'", "''") + "'" for value in listed]
    if pa.types.is_binary(kind):
        return [f"X'{value.hex()}'" for value in listed]
    if pa.types.is_decimal(kind):
        cast = f"DECIMAL({kind.precision}, {kind.scale})"
        return [f"CAST('{value:f}' AS {cast})" for value in listed]
    raise TypeError(f"{kind} cannot be part of a key")


def in_list(name: str, wanted: pa.Array) -> str:
    """That a column has one of some values, of which none is NULL, in Lance's words."""
    column = quote_for_lance(name)
    values = literals(wanted)
    return f"{column} = {values[0]}" if len(values) == 1 else f"{column} IN ({', '.join(values)})"
