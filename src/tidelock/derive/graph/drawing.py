"""The graph of tables as text for a terminal, as Mermaid and as DOT.

Owns: how tables, steps and groups are shown. Nothing is decided here.

Invariant: the output depends on the graph and its groups alone, so that it can be compared. Any
name that a table may have is shown as it is, and never read as syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tidelock.derive.graph.graph import Graph
from tidelock.derive.graph.groups import Group
from tidelock.model.names import quote

_PLAIN = re.compile(r"\w+")
# Mermaid reads #code; as a character; a label in backticks would be Markdown.
_MERMAID_SPECIAL = re.compile(r"[^\w .,:()/+-]")


def as_text(graph: Graph, groups: Sequence[Group] = ()) -> str:
    """Level by level: each stream table with what it reads, and its group."""
    group_of = {name: group for group in groups for name in group.members}
    lines = []
    if graph.base_tables:
        lines += ["base tables", *(f"  {_shown(name)}" for name in graph.base_tables)]
    for number, level in enumerate(graph.levels, 1):
        lines.append(f"level {number}")
        for name in level:
            reads = ", ".join(map(_shown, graph.inputs(name)))
            line = f"  {_shown(name)} <- {reads}" if reads else f"  {_shown(name)}"
            lines.append(line + _mark(name, group_of.get(name)))
    if groups:
        lines.append("groups")
    for group in groups:
        rule = f"{group.consistency}, {group.policy}"
        lines.append(f"  {_shown(group.name)} ({rule}): {', '.join(map(_shown, group.members))}")
    return "\n".join(lines) + "\n" if lines else "no stream tables, and so nothing to draw\n"


def as_mermaid(graph: Graph, groups: Sequence[Group] = ()) -> str:
    """A Mermaid flowchart with a subgraph for each group."""
    ids = _ids(graph)
    lines = ["flowchart LR"]
    lines += [f'  {ids[name]}[("{_mermaid(name)}")]' for name in graph.base_tables]
    for number, group in enumerate(groups):
        lines.append(f'  subgraph g{number}["{_mermaid(_title(group))}"]')
        lines += [f'    {ids[name]}["{_mermaid(name)}"]' for name in group.members]
        lines.append("  end")
    lines += [f'  {ids[name]}["{_mermaid(name)}"]' for name in _ungrouped(graph, groups)]
    lines += [f"  {ids[read]} --> {ids[name]}" for read, name in _steps(graph)]
    return "\n".join(lines) + "\n"


def as_dot(graph: Graph, groups: Sequence[Group] = ()) -> str:
    """A Graphviz digraph with a cluster for each group."""
    ids = _ids(graph)
    lines = ["digraph tables {", "  rankdir=LR;", "  node [shape=box];"]
    lines += [f"  {ids[name]} [label={_dot(name)}, shape=cylinder];" for name in graph.base_tables]
    for number, group in enumerate(groups):
        lines.append(f"  subgraph cluster_g{number} {{")
        lines.append(f"    label={_dot(_title(group))};")
        lines += [f"    {ids[name]} [label={_dot(name)}];" for name in group.members]
        lines.append("  }")
    lines += [f"  {ids[name]} [label={_dot(name)}];" for name in _ungrouped(graph, groups)]
    lines += [f"  {ids[read]} -> {ids[name]};" for read, name in _steps(graph)]
    return "\n".join([*lines, "}"]) + "\n"


def _mark(name: str, group: Group | None) -> str:
    if group is None:
        return ""
    role = "converges in" if name in group.convergence_points else "in"
    return f"  [{role} group {_shown(group.name)}]"


def _title(group: Group) -> str:
    return f"group {group.name} ({group.consistency}, {group.policy})"


def _ids(graph: Graph) -> dict[str, str]:
    # A name may be a word of the language, so that a table's index serves as its id.
    return {name: f"t{index}" for index, name in enumerate(graph.tables)}


def _ungrouped(graph: Graph, groups: Iterable[Group]) -> list[str]:
    grouped = {name for group in groups for name in group.members}
    return [name for name in graph.stream_tables if name not in grouped]


def _steps(graph: Graph) -> list[tuple[str, str]]:
    return [(read, name) for name in graph.stream_tables for read in graph.inputs(name)]


def _shown(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)


def _mermaid(label: str) -> str:
    return _MERMAID_SPECIAL.sub(lambda found: f"#{ord(found[0])};", label)


def _dot(label: str) -> str:
    escaped = label.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
