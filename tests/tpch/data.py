"""Small TPC-H tables: connected as the benchmark's are, with the values that its queries ask for.

Deterministic for a seed. The sizes grow with `scale`, and every query finds rows at scale 1.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from tests.tpch.tables import schemas

NATIONS = (
    "ALGERIA ARGENTINA BRAZIL CANADA EGYPT ETHIOPIA FRANCE GERMANY INDIA INDONESIA IRAN IRAQ JAPAN "
    "JORDAN KENYA MOROCCO MOZAMBIQUE PERU CHINA ROMANIA SAUDI_ARABIA VIETNAM RUSSIA UK US"
)
REGION_OF = (0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1)
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
CONTAINERS = ("SM CASE", "SM BOX", "MED BOX", "MED BAG", "LG CASE", "LG BOX")
TYPES = ("STANDARD BRASS", "MEDIUM POLISHED TIN", "ECONOMY ANODIZED STEEL", "PROMO COPPER")
BRANDS = ("Brand#12", "Brand#23", "Brand#34", "Brand#45")
MODES = ("AIR", "AIR REG", "MAIL", "SHIP", "RAIL")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
COMMENTS = ("plain words", "special packed requests", "Customer had Complaints", "final")


class _Values:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one_of(self, values: Any) -> Any:
        return self.random.choice(values)

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def money(self, low: int, high: int) -> Decimal:
        return Decimal(self.random.randint(low * 100, high * 100)).scaleb(-2)

    def day(self) -> date:
        return date(1993, 1, 1) + timedelta(days=self.random.randint(0, 6 * 365))


def tables(seed: int = 1, scale: int = 1) -> dict[str, pa.Table]:
    """All eight tables."""
    v = _Values(seed)
    suppliers, customers, parts, orders = 12 * scale, 30 * scale, 40 * scale, 150 * scale
    rows: dict[str, list[tuple[Any, ...]]] = {
        "region": [(key, name, "") for key, name in enumerate(REGIONS)],
        "nation": [
            (key, name.replace("_", " "), REGION_OF[key], "")
            for key, name in enumerate(NATIONS.split())
        ],
        "supplier": [_supplier(v, key) for key in range(1, suppliers + 1)],
        "customer": [_customer(v, key) for key in range(1, customers + 1)],
        "part": [_part(v, key) for key in range(1, parts + 1)],
        "partsupp": [
            (part, supplier, v.number(1, 400), v.money(1, 100), "")
            for part in range(1, parts + 1)
            for supplier in sorted(v.random.sample(range(1, suppliers + 1), 4))
        ],
        "orders": [],
        "lineitem": [],
    }
    offers = [row[:2] for row in rows["partsupp"]]
    for key in range(1, orders + 1):
        # A third of the customers never orders anything.
        customer = v.number(1, max(1, customers * 2 // 3))
        rows["orders"].append(_order(v, key, customer))
        # Some orders are very large.
        quantities = (50,) if key % 50 == 0 else (1, 5, 12, 22, 49, 50)
        for line in range(1, (7 if len(quantities) == 1 else v.number(1, 7)) + 1):
            quantity = Decimal(v.one_of(quantities))
            rows["lineitem"].append(_line(v, key, line, *v.one_of(offers), quantity))
    return {
        name: pa.Table.from_pylist(
            [dict(zip(schema.names, row, strict=True)) for row in rows[name]], schema=schema.arrow
        )
        for name, schema in schemas().items()
    }


def _nation(v: _Values) -> int:
    # BRAZIL, CANADA, FRANCE, GERMANY, INDIA, SAUDI ARABIA: those that the queries name.
    return int(v.one_of((2, 3, 6, 7, 8, 20)))


def _supplier(v: _Values, key: int) -> tuple[Any, ...]:
    return (
        *(key, f"Supplier#{key}", f"Street {key}", _nation(v), f"{v.number(10, 34)}-555"),
        *(v.money(-900, 9000), v.one_of(COMMENTS)),
    )


def _customer(v: _Values, key: int) -> tuple[Any, ...]:
    phone = f"{v.one_of((13, 31, 23, 29, 11))}-555-{key}"
    return (
        *(key, f"Customer#{key}", f"Street {key}", _nation(v), phone, v.money(-900, 9000)),
        *(v.one_of(("BUILDING", "MACHINERY")), v.one_of(COMMENTS)),
    )


def _part(v: _Values, key: int) -> tuple[Any, ...]:
    name = v.one_of(("forest green", "lime green", "forest blue", "plain red"))
    return (
        *(key, f"{name} {key}", "Manufacturer#1", v.one_of(BRANDS), v.one_of(TYPES)),
        *(v.one_of((1, 3, 9, 14, 15)), v.one_of(CONTAINERS), v.money(1, 100), ""),
    )


def _order(v: _Values, key: int, customer: int) -> tuple[Any, ...]:
    return (
        *(key, customer, v.one_of("FOP"), v.money(1000, 400000), v.day(), v.one_of(PRIORITIES)),
        *("Clerk#1", 0, v.one_of(COMMENTS)),
    )


def _line(
    v: _Values, order: int, line: int, part: int, supplier: int, quantity: Decimal
) -> tuple[Any, ...]:
    shipped = v.day()
    return (
        *(order, part, supplier, line, quantity),
        *(v.money(100, 90000), v.one_of((Decimal("0.05"), Decimal("0.06"), Decimal("0.1")))),
        *(Decimal("0.02"), v.one_of("RAN"), v.one_of("OF"), shipped),
        *(shipped + timedelta(days=v.number(-5, 20)), shipped + timedelta(days=v.number(1, 30))),
        *(v.one_of(("DELIVER IN PERSON", "NONE")), v.one_of(MODES), ""),
    )
