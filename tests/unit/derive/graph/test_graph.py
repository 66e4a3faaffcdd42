"""The graph of stream tables: order, neighbours, circles."""

from __future__ import annotations

import pytest

from tidelock.derive.graph.graph import Graph
from tidelock.errors import CircularDefinition, InvalidName, TableNotFound

SHOP = {
    "Report": ("totals", "names"),
    "totals": ("Orders",),
    "names": ("people",),
    "big": ("TOTALS", "orders"),
}


def test_tables_are_in_topological_order_by_level_and_then_by_name() -> None:
    graph = Graph.of(SHOP)
    assert graph.base_tables == ("Orders", "people")
    assert graph.stream_tables == ("names", "totals", "big", "Report")
    assert graph.levels == (("names", "totals"), ("big", "Report"))


def test_the_order_does_not_depend_on_the_order_of_definition() -> None:
    assert Graph.of(dict(reversed(SHOP.items()))).stream_tables == Graph.of(SHOP).stream_tables


def test_names_are_found_in_any_case_and_told_as_they_were_given() -> None:
    graph = Graph.of(SHOP)
    assert graph.inputs("REPORT") == ("names", "totals")
    assert graph.dependents("orders") == ("totals", "big")
    assert graph.upstream("report") == ("Orders", "people", "names", "totals")
    assert graph.downstream("ORDERS") == ("totals", "big", "Report")
    assert "ToTaLs" in graph
    assert "nothing" not in graph
    assert graph.is_stream("BIG")
    assert not graph.is_stream("ORDERS")


def test_a_source_that_is_read_twice_is_one_source() -> None:
    assert Graph.of({"pairs": ("a", "A", "a")}).inputs("pairs") == ("a",)


def test_a_table_without_sources_has_the_first_level() -> None:
    graph = Graph.of({"numbers": (), "twice": ("numbers",)})
    assert graph.levels == (("numbers",), ("twice",))
    assert graph.base_tables == ()


def test_an_empty_graph_has_no_levels() -> None:
    assert Graph.of({}).levels == ()


def test_an_unknown_name_is_refused_with_the_closest_one() -> None:
    with pytest.raises(TableNotFound, match="Did you mean 'totals'"):
        Graph.of(SHOP).upstream("total")


def test_two_stream_tables_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidName, match="'a' and 'A' are one name"):
        Graph.of({"a": (), "A": ()})


@pytest.mark.parametrize(
    ("nodes", "path"),
    [
        ({"a": ("A",)}, ("a", "a")),
        ({"a": ("B",), "b": ("a",)}, ("a", "b", "a")),
        ({"z": ("y",), "y": ("x",), "x": ("z", "base")}, ("x", "y", "z", "x")),
        ({"after": ("p",), "p": ("q", "fine"), "q": ("p",), "fine": ("base",)}, ("p", "q", "p")),
    ],
)
def test_a_circle_is_refused_with_the_path_that_data_would_take(
    nodes: dict[str, tuple[str, ...]], path: tuple[str, ...]
) -> None:
    with pytest.raises(CircularDefinition) as caught:
        Graph.of(nodes)
    assert caught.value.path == path
    assert " -> ".join(path) in str(caught.value)


def test_a_chain_may_be_longer_than_python_recurses() -> None:
    nodes = {f"t{n:05}": (f"t{n - 1:05}" if n else "base",) for n in range(5000)}
    graph = Graph.of(nodes)
    assert len(graph.levels) == 5000
    assert len(graph.upstream("t04999")) == 5000
