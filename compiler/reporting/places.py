"""Places of models that come close to a rule: the graph around them, and the rule's text with what matches and what fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from operator import itemgetter

from dslc.errors import Span
from dslc.ir.graph import Graph, Node, Value
from dslc.records import record
from dslc.reporting.data import Picture
from dslc.reporting.graphs import drawing
from dslc.reporting.pages import page
from dslc.reporting.programs import drawn_node

HOPS = 2  #: nodes between a place and what is drawn around it
HUES = {"matches": "var(--after)", "fails": "var(--bad)"}


@record
class DrawnPlace:
    """`text` is the rule in pieces, each with what it is: `matches`, `fails` or neither; so are the `rules` of the picture's nodes."""

    text: tuple[tuple[str, str], ...]
    picture: Picture


def place_of(
    graph: Graph, names: Mapping[Value | Node, str], rule: Span, calls: Iterable[Span], found: Mapping[Node, Span],
    node: Node | None, span: Span | None,
) -> DrawnPlace:  # fmt: skip
    """A place where nodes of a graph are calls of a rule; `node` and `span` are what fails, in the model and in the rule."""
    marks = {**dict.fromkeys(found, "matches"), **({node: "fails"} if node else {})}
    order, near = graph.nodes(), set(marks)
    for _ in range(HOPS):
        near |= {one for one in order if near & {arg.node for arg in one.args}} | {
            a.node for one in near for a in one.args
        }
    called = {value: names.get(value, f"t{k}") for k, one in enumerate(order) for value in one.values}
    shown = [one for one in order if one in near and one.args]
    drawn = []
    for one in shown:
        mark = (marks[one],) if one in marks else ()
        plain = drawn_node(one, names.get(one, called[one.values[0]]), called)
        about = {"in the rule": " ".join(found[one].text.split())} if one in found else {}
        drawn.append(replace(plain, rules=mark, changed=bool(mark), attributes={**about, **plain.attributes}))
    read = dict.fromkeys(arg for one in shown for arg in one.args if arg.node not in shown and not arg.constant)
    ends = [value for value in graph.outputs if value.node in shown]
    picture = Picture(tuple(called[value] for value in read), tuple(called[value] for value in ends), tuple(drawn))
    # every character is what the innermost call is in which it stands
    letters = [""] * len(rule.text)
    said = {**dict.fromkeys(calls, ""), **dict.fromkeys(found.values(), "matches"), **({span: "fails"} if span else {})}
    for call in sorted(said, key=lambda call: call.start - call.end):
        if call.starts_in(rule) and call is not rule:
            letters[call.start - rule.start : call.end - rule.start] = [said[call]] * (call.end - call.start)
    pairs = [(letter, "" if letter.isspace() else mark) for letter, mark in zip(rule.text, letters, strict=True)]
    pieces = groupby(pairs, itemgetter(1))
    return DrawnPlace(tuple(("".join(letter for letter, _ in group), mark) for mark, group in pieces), picture)


def page_of_places(title: str, found: Sequence[tuple[str, DrawnPlace]]) -> str:
    """A page of the directions of a rule, each as text and as a place in a model."""
    places = [
        (said.splitlines(), one.text, drawing(asdict(one.picture), HUES), [{**asdict(node), "rules": ()} for node in one.picture.nodes])
        for said, one in found
    ]  # fmt: skip
    return page("why_not.html.j2", title, places=places, hues=HUES)
