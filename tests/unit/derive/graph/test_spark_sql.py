"""The graph as text, Mermaid and DOT."""

from __future__ import annotations

from tidelock.derive.graph.drawing import as_dot, as_mermaid, as_text
from tidelock.derive.graph.graph import Graph
from tidelock.derive.graph.groups import find_groups
from tidelock.model.streams import Definition

NODES = {"left": ("base",), "right": ("base",), "top": ("left", "right"), "end": ("top",)}
GRAPH = Graph.of(NODES)
GROUPS = find_groups(GRAPH, dict.fromkeys(NODES, Definition("")))
ODD = Graph.of({'say "hi" #1 `x` \\': ("end",)})


def test_text_lists_levels_sources_and_groups() -> None:
    assert as_text(GRAPH, GROUPS) == (
        "base tables\n"
        "  base\n"
        "level 1\n"
        "  left <- base  [in group top]\n"
        "  right <- base  [in group top]\n"
        "level 2\n"
        "  top <- left, right  [converges in group top]\n"
        "level 3\n"
        "  end <- top\n"
        "groups\n"
        "  top (atomic, fastest): left, right, top\n"
    )


def test_mermaid_has_a_subgraph_for_each_group() -> None:
    assert as_mermaid(GRAPH, GROUPS) == (
        "flowchart LR\n"
        '  t0[("base")]\n'
        '  subgraph g0["group top (atomic, fastest)"]\n'
        '    t1["left"]\n'
        '    t2["right"]\n'
        '    t3["top"]\n'
        "  end\n"
        '  t4["end"]\n'
        "  t0 --> t1\n"
        "  t0 --> t2\n"
        "  t1 --> t3\n"
        "  t2 --> t3\n"
        "  t3 --> t4\n"
    )


def test_dot_has_a_cluster_for_each_group() -> None:
    text = as_dot(GRAPH, GROUPS)
    assert '  subgraph cluster_g0 {\n    label="group top (atomic, fastest)";\n' in text
    assert '  t0 [label="base", shape=cylinder];' in text
    assert "  t3 -> t4;" in text
    assert text.startswith("digraph tables {\n")
    assert text.endswith("}\n")


def test_odd_names_are_quoted_and_never_read_as_syntax() -> None:
    assert '  `say "hi" #1 ``x`` \\` <- end' in as_text(ODD)
    assert 't1["say #34;hi#34; #35;1 #96;x#96; #92;"]' in as_mermaid(ODD)
    assert 't1 [label="say \\"hi\\" #1 `x` \\\\"];' in as_dot(ODD)


def test_an_empty_graph_can_be_shown() -> None:
    empty = Graph.of({})
    assert as_text(empty) == "no stream tables, and so nothing to draw\n"
    assert as_mermaid(empty) == "flowchart LR\n"
    assert as_dot(empty).endswith("}\n")
