"""Layouts chosen together with substitutions (TASO, section 5).

A tensor in another layout is a transposed tensor. Rules with the tag `layout` compute an operator on transposed operands; rules
with the tag `settles` move what transposes are left towards others, where inverse pairs vanish and products absorb them. A transpose
that stays costs what it was measured to cost, so a change of layout pays exactly where it is absorbed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, combinations

from dslc.ir.graph import Call, Graph, Node, Value
from dslc.match import CompiledRule, GraphIndex, find_matches
from dslc.records import record
from dslc.search.candidates.candidate import disjoint, replaced, rewritten
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.walk import tags_in

PLACES = 3  #: places that are tried in every combination
ROUNDS = 64  #: rounds of settling: each moves every transpose one operator on
MATCHES = 500  #: matches of one rule that are tried


@record
class Layouts:
    """The rules that choose a layout, and those that settle transposes."""

    choices: tuple[CompiledRule, ...]
    settling: tuple[CompiledRule, ...]

    def concern(self, nodes: Collection[Node]) -> bool:
        """Return whether some of these nodes may have another layout."""
        operators = {site.operator for rule in self.choices for site in rule.left.sites}
        return any(isinstance(node, Call) and node.op in operators for node in nodes)


@record
class Variant:
    """A graph in other layouts; `rules` are those that chose them, one entry for each place."""

    graph: Graph
    rules: tuple[str, ...]

    @property
    def label(self) -> str:
        """The rules by name, each once."""
        return " + ".join(dict.fromkeys(self.rules))


def has_tag(definition: SubstitutionDef, tag: str) -> bool:
    """Return whether a rule says `tags ... tag ...`."""
    return tag in tags_in(definition.syntax.statements)


def layouts_of(rules: Sequence[CompiledRule]) -> Layouts | None:
    """The rules about layouts among some, None where none chooses one; two-way rules count from left to right."""
    found = Layouts(
        tuple(rule for rule in rules if not rule.reverse and has_tag(rule.definition, "layout")),
        tuple(rule for rule in rules if not rule.reverse and has_tag(rule.definition, "settles")),
    )
    return found if found.choices else None


def layout_variants(graph: Graph, layouts: Layouts, near: Collection[Node] | None = None) -> Iterator[Variant]:
    """The graph with other layouts of some of its operators, transposes settled; equal graphs may come twice.

    Args:
        near: only operators among these nodes (what a substitution built), in every combination of a few of them; without it
            each rule at all of its places together, which is how a chain of operators changes its layout, and at each place alone.
    """
    index = GraphIndex(graph)
    places: list[tuple[str, dict[Value, Value]]] = []
    whole: dict[str, list[dict[Value, Value]]] = {}
    for rule in layouts.choices:
        for _, new in replaced(
            match
            for match in find_matches(rule, index, limit=MATCHES)
            if near is None or any(value.node in near for _, value in match.roots)
        ):
            places.append((rule.name, new))
            whole.setdefault(rule.name, []).append(new)
    chosen: Iterable[tuple[tuple[str, dict[Value, Value]], ...]]
    if near is not None:
        few = places[:PLACES]
        chosen = chain.from_iterable(combinations(few, count) for count in range(len(few), 0, -1))
    else:
        together = [tuple((name, new) for new in every) for name, every in whole.items() if len(every) > 1]
        everywhere = [tuple(places)] if len(whole) > 1 else []
        chosen = [*everywhere, *together, *((place,) for place in places)]
    for some in chosen:
        mapping = disjoint([new for _, new in some])
        yield Variant(settled(rewritten(graph, mapping), layouts), tuple(name for name, _ in some))


def settled(graph: Graph, layouts: Layouts) -> Graph:
    """Every transpose moved on as far as the settling rules carry it.

    The rules move transposes one way, towards the outputs, so this ends; the number of rounds is limited all the same.
    """
    for _ in range(ROUNDS):
        before = graph
        for rule in layouts.settling:
            index = GraphIndex(graph)
            mapping: dict[Value, Value] = {}
            # weights too, so that a graph has one form however often its layout was changed
            for _, new in replaced(find_matches(rule, index, limit=MATCHES, constants=True)):
                if not any(old in mapping for old in new):
                    mapping.update(new)
            if mapping:
                graph = rewritten(graph, mapping)
        if graph.outputs == before.outputs:
            break
    return graph


def without_layouts(rules: Sequence[CompiledRule]) -> list[CompiledRule]:
    """The rules that choose no layout."""
    return [rule for rule in rules if not has_tag(rule.definition, "layout")]
