"""Definitions in `.py` files: functions that return SQL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tidelock
from tidelock.derive.definitions.folder import read_definitions
from tidelock.errors import InvalidDefinition
from tidelock.model.streams import Definition


def refused(folder: Path, text: str | bytes) -> InvalidDefinition:
    (folder / "a.py").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InvalidDefinition) as raised:
        read_definitions(folder)
    assert raised.value.file == str(folder / "a.py")
    return raised.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop"


def test_a_decorated_function_defines_a_stream_table(folder: Path) -> None:
    (folder / "a.py").write_text(
        "import tidelock\n\n"
        "@tidelock.stream_table(schedule='1m', refresh_mode='full', consistency='none')\n"
        "def totals():\n    return '''\n    SELECT a -- the a\n    FROM orders;\n    '''\n\n"
        "@tidelock.stream_table(name='by hand', schedule=None)\n"
        "def other():\n    return \"SELECT ';' AS a\"\n"
    )
    totals, other = read_definitions(folder)
    assert (totals.name, totals.line, totals.tables) == ("totals", 3, ("orders",))
    assert totals.definition == Definition(
        "SELECT a\n    FROM orders", "1m", "full", "none", "fastest", "shop/a.py:3"
    )
    assert (other.name, other.definition.schedule) == ("by hand", None)
    assert other.definition.query == "SELECT ';' AS a"


def test_functions_made_in_a_loop_are_all_defined(folder: Path) -> None:
    (folder / "a.py").write_text(
        "from tidelock import stream_table\n"
        "for region in ('eu', 'us'):\n"
        "    @stream_table(name=f'sales_{region}')\n"
        "    def sales(region=region):\n"
        "        return f\"SELECT * FROM sales WHERE region = '{region}'\"\n"
    )
    assert [one.name for one in read_definitions(folder)] == ["sales_eu", "sales_us"]


def test_the_decorator_needs_no_parentheses(folder: Path) -> None:
    (folder / "a.py").write_text(
        "import tidelock\n@tidelock.stream_table\ndef totals():\n    return 'SELECT 1 AS a'\n"
    )
    assert [one.name for one in read_definitions(folder)] == ["totals"]
    assert (
        "decorates a function, not str"
        in refused(folder, "import tidelock\ntidelock.stream_table('totals')\n").message
    )


def test_a_file_may_have_classes_that_look_their_module_up(folder: Path) -> None:
    (folder / "json.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from typing import ClassVar\nimport json\nimport tidelock\n"
        "@dataclass\nclass Region:\n    name: str\n    all: ClassVar[int] = 1\n"
        "@tidelock.stream_table\ndef totals():\n"
        "    return f'SELECT {json.dumps(Region(name=1).name)} AS a'\n"
    )
    (totals,) = read_definitions(folder)
    assert totals.definition.query == "SELECT 1 AS a"
    assert not [name for name in sys.modules if str(folder) in name]


def test_a_file_that_defines_nothing_is_not_executed(folder: Path) -> None:
    (folder / "a.py").write_text("raise RuntimeError('setup.py and the like')\n")
    assert read_definitions(folder) == ()


def test_a_byte_order_mark_and_carriage_returns_change_nothing(folder: Path) -> None:
    text = (
        "import tidelock\n@tidelock.stream_table()\ndef t():\n    return '''SELECT a\nFROM o'''\n"
    )
    (folder / "a.py").write_text(text)
    plain = read_definitions(folder)
    (folder / "a.py").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert read_definitions(folder) == plain


def test_a_python_query_may_use_the_temporary_views_of_sql_files(folder: Path) -> None:
    (folder / "v.sql").write_text("CREATE TEMPORARY VIEW v AS SELECT * FROM orders")
    (folder / "a.py").write_text(
        "import tidelock\n@tidelock.stream_table()\ndef t():\n    return 'SELECT * FROM v'\n"
    )
    (found,) = read_definitions(folder)
    assert found.definition.query == ("WITH `v` AS (\nSELECT * FROM orders\n)\nSELECT * FROM v")
    assert found.tables == ("orders",)


OPENING = "import tidelock\n@tidelock.stream_table()\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (OPENING + "def t(x):\n    return 'SELECT 1'\n", 2, "takes arguments"),
        (OPENING + "def t():\n    pass\n", 2, "returned NoneType"),
        (OPENING + "def t():\n    return b'SELECT 1'\n", 2, "returned bytes"),
        (OPENING + "def t():\n    return ' -- '\n", 2, "returned no query"),
        (OPENING + "def t():\n    return 'SELECT 1; SELECT 2'\n", 2, "one query"),
        (OPENING + "def t():\n    return 'SELECT 1\\n 2 3'\n", 2, "line 2 of the query"),
        (OPENING + "def t():\n    return 'SELECT ${x}'\n", 2, "${x}"),
        (OPENING + "def t():\n    x = 1\n    return x / 0\n", 5, "ZeroDivisionError"),
        (OPENING + "def t():\n    return 1\nraise OSError('gone')\n", 5, "OSError: gone"),
        (OPENING + "def t():\n    return 1\nimport sys\nsys.exit()\n", 6, "SystemExit"),
        (OPENING + "def t():\n    return 1\nimport no_such_module\n", 5, "no_such_module"),
        (OPENING + "class T:\n    pass\n", 2, "decorates a function, not type"),
        ("import tidelock\n@tidelock.stream_table\ndef t():\n    pass\n", 2, "returned NoneType"),
        ("import tidelock\n\n@tidelock.stream_table(shedule='1m')\ndef t(): pass", 3, "shedule"),
        ("import tidelock\n@tidelock.stream_table(schedule=5)\ndef t(): return 'SELECT 1'", 2, "5"),
        (
            "import tidelock\n@tidelock.stream_table(name='')\ndef t(): return 'SELECT 1'",
            2,
            "empty",
        ),
        ("x = 1\ndef f(:\n", 2, "not Python"),
        (b"x = 1\ny = '\xff'\nstream_table\n", 2, "not Python"),
        ("stream_table\n\0", 1, "not Python"),
        ("import os\nfrom pyspark import pipelines as dp\n", 2, "returns the query as text"),
        ("import pyspark.pipelines\n", 1, "@tidelock.stream_table()"),
    ],
)
def test_a_mistake_is_told_with_its_line(
    folder: Path, text: str | bytes, line: int, said: str
) -> None:
    error = refused(folder, text)
    assert (error.line, said in error.message) == (line, True), error.message


def test_two_functions_of_one_name_are_refused(folder: Path) -> None:
    twice = OPENING + "def t():\n    return 'SELECT 1'\n"
    error = refused(folder, twice + twice.replace("import tidelock", ""))
    assert (error.line, error.other_line) == (6, 2)


def test_the_decorator_works_without_a_lake_and_leaves_a_value() -> None:
    @tidelock.stream_table(schedule="5m")
    def totals() -> str:
        return "SELECT 1 AS a"

    assert (totals.name, totals.options["schedule"]) == ("totals", "5m")
    assert totals.function() == "SELECT 1 AS a"
    assert totals.file == __file__
