"""Folders of definitions, with and without a specification."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.derive.definitions.folder import read_definitions
from tidelock.derive.definitions.pipeline import read_pipeline
from tidelock.errors import InvalidDefinition, InvalidOption

VIEW = "CREATE MATERIALIZED VIEW {} AS SELECT * FROM orders"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop"


def write(folder: Path, path: str, text: str) -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def specify(folder: Path, text: str, name: str = "spark-pipeline.yml") -> None:
    write(folder, name, text)


def test_without_a_specification_every_file_counts_sorted_by_path(folder: Path) -> None:
    write(folder, "b.sql", VIEW.format("b"))
    write(folder, "a/z.sql", VIEW.format("az"))
    write(folder, "a.sql", VIEW.format("a"))
    write(folder, "notes.md", "not a definition")
    for hidden in (".git/x.sql", "_drafts/x.sql", "a/_x.sql", "__pycache__/x.py"):
        write(folder, hidden, "this is no SQL")
    found = read_definitions(folder)
    assert [one.definition.origin for one in found] == [
        "shop/a.sql:1", "shop/a/z.sql:1", "shop/b.sql:1",
    ]  # fmt: skip


def test_the_origin_does_not_depend_on_where_the_folder_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("here/shop", "there/deeper/shop"):
        write(tmp_path / place, "x/a.sql", VIEW.format("a"))
    monkeypatch.chdir(tmp_path / "here/shop")
    folders = [Path(), tmp_path / "here/shop", tmp_path / "there/deeper/shop"]
    definitions = [read_definitions(folder)[0].definition for folder in folders]
    assert definitions[0].origin == "shop/x/a.sql:1"
    assert len(set(definitions)) == 1


@pytest.mark.parametrize(
    "name", ["spark-pipeline.yml", "spark-pipeline.yaml", "pipeline.yml", "pipeline.yaml"]
)
@pytest.mark.parametrize("key", ["libraries", "definitions"])
def test_a_specification_names_the_pipeline_and_its_files(
    folder: Path, name: str, key: str
) -> None:
    write(folder, "elsewhere.sql", "this is no SQL")
    write(folder, "one/a.sql", VIEW.format("a"))
    write(folder, "one/deep/b.sql", VIEW.format("b"))
    write(folder, "two/c.sql", VIEW.format("c"))
    write(folder, "two/c.txt", "no definition")
    write(folder, "_kept.sql", VIEW.format("kept"))
    specify(
        folder,
        f"name: sales\nstorage: file:///tmp/x\n{key}:\n- glob:\n    include: one/**\n"
        "- glob: {include: two/**/*.sql}\n- glob: {include: one/a.sql}\n"
        "- glob: {include: _kept.sql}\n",
        name,
    )
    assert [one.definition.origin for one in read_definitions(folder)] == [
        "sales/_kept.sql:1", "sales/one/a.sql:1", "sales/one/deep/b.sql:1", "sales/two/c.sql:1",
    ]  # fmt: skip


def test_names_qualified_as_the_specification_says_are_names_in_the_lake(folder: Path) -> None:
    specify(folder, "name: sales\ncatalog: main\nschema: Shop\nconfiguration: {spark.x: '1'}\n")
    write(
        folder,
        "a.sql",
        "CREATE MATERIALIZED VIEW main.shop.t AS\n"
        "SELECT shop.orders.a, o.s.f, `main`. shop . `two x`.b\n"
        "FROM shop.orders JOIN main.SHOP.`two x` JOIN o",
    )
    (found,) = read_definitions(folder)
    assert found.name == "t"
    assert found.tables == ("orders", "two x", "o")
    assert found.definition.query == (
        "SELECT orders.a, o.s.f, `two x`.b\nFROM orders JOIN `two x` JOIN o"
    )
    assert read_pipeline(folder).configuration == (("spark.x", "1"),)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "empty"),
        ("storage: x\n", 1, "no name"),
        ("- name\n", 1, "keys and values"),
        ("name: a\n b: [\n", 2, "not YAML"),
        ("name: a\nlibrarys: []\n", 2, "'libraries'?"),
        ("name: a\nname: b\n", 2, "given twice"),
        ("name: 5\n", 1, "quotes"),
        ("name: a/b\n", 1, "slash"),
        ("name: a\ndatabase: x\nschema: y\n", 3, "same"),
        ("name: a\nlibraries: x\n", 2, "Expected a list"),
        ("name: a\nlibraries:\n- file: {path: x}\n", 3, "'file' is not known"),
        ("name: a\nlibraries:\n- glob: {exclude: x}\n", 3, "'exclude' is not known"),
        ("name: a\nlibraries:\n- glob: {}\n", 3, "'include' is missing"),
        ("name: a\nlibraries:\n- glob: {include: ../x.sql}\n", 3, "leaves the folder"),
        ("name: a\nlibraries:\n- glob: {include: /x.sql}\n", 3, "leaves the folder"),
        ("name: a\nlibraries:\n- glob: {include: x/**}\n", 3, "matches no file"),
        ("name: a\nlibraries:\n- glob: {include: no.sql}\n", 3, "matches no file"),
        ("name: a\nlibraries:\n- glob: {include: '*.md'}\n", 3, "neither .sql nor .py"),
        ("name: a\nlibraries:\n- glob: {include: 'a**/*.sql'}\n", 3, "no pattern"),
        ("name: a\nconfiguration:\n  spark.x: 1\n", 3, "quotes"),
    ],
)
def test_a_mistake_in_a_specification_is_told_with_its_line(
    folder: Path, text: str, line: int, said: str
) -> None:
    write(folder, "notes.md", "")
    specify(folder, text)
    with pytest.raises(InvalidDefinition) as raised:
        read_definitions(folder)
    assert raised.value.file == str(folder / "spark-pipeline.yml")
    assert (raised.value.line, said in raised.value.message) == (line, True), raised.value.message


def test_two_specifications_are_refused(folder: Path) -> None:
    specify(folder, "name: a")
    specify(folder, "name: b", "pipeline.yml")
    with pytest.raises(InvalidDefinition, match="Remove one"):
        read_definitions(folder)


def test_a_folder_without_definitions_is_taken_for_a_mistake(folder: Path) -> None:
    with pytest.raises(InvalidOption, match=r"no \.sql or \.py file"):
        read_definitions(folder)
    with pytest.raises(InvalidOption, match="not a folder"):
        read_definitions(write(folder, "a.sql", ""))
    with pytest.raises(InvalidOption, match="not a folder"):
        read_definitions(folder / "missing")
