"""Places of models that come close to a rule: the graph around them, and the rule's text with what matches and what fails."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dslc.errors import Span
from dslc.ir.graph import Constant, Graph, Input, Node, Value
from dslc.records import record
from dslc.reporting.data import Picture
from dslc.reporting.graphs import drawing
from dslc.reporting.pages import page
from dslc.reporting.programs import drawn_node

HOPS = 2  #: nodes between a place and what is drawn around it
MOST = 80  #: nodes that are drawn around one
HUES = {"matches": "var(--after)", "fails": "var(--bad)"}


@record
class DrawnPlace:
    """`text` is the rule in pieces, each with what it is: `matches`, `fails` or neither; so are the `rules` of the picture's nodes."""

    text: tuple[tuple[str, str], ...]
    picture: Picture


def place_of(
    graph: Graph, names: Mapping[Value | Node, str], rule: Span, calls: Collection[Span], found: Mapping[Node, Span],
    fails: tuple[Node | None, Span | None],
) -> DrawnPlace:  # fmt: skip
    """A place where nodes of a graph are calls of a rule; `calls` are all that it has, `fails` what does not fit, and where."""
    around = [*found, *([fails[0]] if fails[0] and fails[0] not in found else [])]
    marks = dict.fromkeys(found, "matches") | ({fails[0]: "fails"} if fails[0] else {})
    texts = {node: " ".join(span.text.split()) for node, span in found.items()}
    nodes = _around(graph, around)
    called = {
        value: names.get(value) or f"{names.get(node, '') or f't{k}'}{f'.{n}' if n else ''}"
        for k, node in enumerate(graph.nodes())
        for n, value in enumerate(node.values)
    }
    drawn = []
    for node in nodes:
        one = drawn_node(node, names.get(node, called[node.values[0]]), called)
        about = {"in the rule": texts[node]} if node in texts else {}
        mark = (marks[node],) if node in marks else ()
        drawn.append(replace(one, rules=mark, changed=bool(mark), attributes={**about, **one.attributes}))
    inside = set(nodes)
    read = dict.fromkeys(arg for node in nodes for arg in node.args if arg.node not in inside and not arg.constant)
    users = {arg for node in graph.nodes() if node not in inside for arg in node.args}
    ends = [value for node in nodes for value in node.values if value in users or value in graph.outputs]
    picture = Picture(tuple(called[one] for one in read), tuple(called[one] for one in ends), tuple(drawn))
    return DrawnPlace(tuple(_pieces(rule, calls, set(found.values()), fails[1])), picture)


def _around(graph: Graph, nodes: Sequence[Node]) -> list[Node]:
    """Nodes and those next to them, in the order of the graph."""
    beside: dict[Node, list[Node]] = {}
    for node in graph.nodes():
        for arg in node.args:
            beside.setdefault(arg.node, []).append(node)
            beside.setdefault(node, []).append(arg.node)
    found, level = dict.fromkeys(nodes), list(nodes)
    for _ in range(HOPS):
        level = [near for node in level for near in beside.get(node, ()) if not isinstance(near, Input | Constant)]
        found |= dict.fromkeys(level[: max(0, MOST - len(found))])
    return [node for node in graph.nodes() if node in found and node.values]


def _pieces(rule: Span, calls: Collection[Span], good: Collection[Span], bad: Span | None) -> list[tuple[str, str]]:
    """Every character is what the innermost call is in which it stands."""
    marks = [""] * (rule.end - rule.start)
    inside = [one for one in {*calls, *([bad] if bad and bad != rule else [])} if one.starts_in(rule)]
    for one in sorted(inside, key=lambda span: span.start - span.end):
        mark = "fails" if one == bad else "matches" if one in good else ""
        marks[one.start - rule.start : one.end - rule.start] = [mark] * (one.end - one.start)
    out: list[tuple[str, str]] = []
    for letter, mark in zip(rule.text, marks, strict=True):
        mark = "" if letter.isspace() else mark
        if out and out[-1][1] == mark:
            out[-1] = (out[-1][0] + letter, mark)
        else:
            out.append((letter, mark))
    return out


def page_of_places(title: str, found: Sequence[tuple[str, DrawnPlace]]) -> str:
    """A page of the directions of a rule, each as text and as a place in a model."""
    places: list[dict[str, Any]] = []
    for text, place in found:
        nodes = [{**asdict(one), "rules": ()} for one in place.picture.nodes]
        marks = {mark for _, mark in place.text}.union(*(one.rules for one in place.picture.nodes))
        graph = drawing(asdict(place.picture), HUES)
        places.append({"lines": text.splitlines(), "text": place.text, "marks": marks, "graph": graph, "nodes": nodes})
    return page("why_not.html.j2", title, places=places, hues=HUES)
