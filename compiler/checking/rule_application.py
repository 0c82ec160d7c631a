"""`fires`, `silent` and `derives` in tests: where a rule applies, and what a derivation makes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from dslc.analysis.narrowing import scope_ranges, sum_ranges
from dslc.analysis.numeric import DataDependent, interval
from dslc.derivation.steps import Steps
from dslc.errors import Diagnostic, Span
from dslc.interpret import Floats, InterpretError, Redraw, run
from dslc.interpret.check_rule import difference, draw
from dslc.interpret.domain import Domain
from dslc.interpret.field import Field
from dslc.interpret.special import changed_by
from dslc.ir.graph import Graph, ScopeNode, Value, nodes_of
from dslc.ir.scalar import Apply, Read, Reduce, scalars, walk
from dslc.match import GraphIndex, apply_match, compile_directions, find_matches, why_not
from dslc.semantics.definitions import DerivationDef, TestDef
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from dslc.syntax import tree as t

MATCHES = 3  #: matches that are compared and shown
REDRAWS = 8  #: draws of inputs for which the sides are not defined
FEW = 24  #: elements of a result; a smaller one may agree by chance, and is compared more often
DRAWS = 4  #: draws for such a result


def fires(rules: Rules, test: TestDef, statement: t.Fires, graph: Graph) -> list[Diagnostic]:
    """Findings where a rule does not apply to a graph, or does where it should be silent."""
    if test.name in rules.derivations:
        return _applies(rules, rules.derivations[test.name], statement, graph)
    sub = rules.substitutions.get(test.name)
    if not sub:
        message = f"no substitution or derivation of this library is named `{test.short}`"
        hint = "a test with `fires` bears the name of its substitution"
        return [Diagnostic("E0214", message, statement.span, hint=hint)]
    index = GraphIndex(graph)
    directions = compile_directions(rules, sub)
    for rule in directions if not statement.silent else directions[:1]:
        results = [g for m in find_matches(rule, index, constants=True) if (g := apply_match(m, graph))]
        if results and statement.silent:
            return [Diagnostic("E0506", f"`{sub.name}` applies here, and should not", statement.span)]
        if results:
            checked = [] if sub.syntax.partial else results[:MATCHES]
            wrong = [d for result in checked for d in _equal(rules, graph, result, statement.span, sub.name)]
            return wrong or [d for result in checked[:1] for d in changed_by(rules, sub, graph, result)]
    if statement.silent:
        return []
    reason = str(why_not(directions[0], graph))
    return [Diagnostic("E0505", f"`{sub.name}` does not apply here", statement.span, hint=reason)]


def _equal(rules: Rules, before: Graph, after: Graph, span: Span, name: str) -> list[Diagnostic]:
    """Findings where two graphs of the same inputs differ: over the field, or, where that cannot tell, over floats."""
    rng = np.random.default_rng(1)
    found: str | None = None
    domains: tuple[Domain, ...] = (Field(1), Floats(rounded=False))
    for domain in domains:
        count = 1 if sum(value.type.elements for value in before.outputs) > FEW else DRAWS
        draws = (_difference_over(rules, before, after, domain, rng) for _ in range(count))
        found = next((difference for difference in draws if difference is not None), None)
        if found is None:
            return []
    message = f"the replacement by `{name}` has another value"
    return [Diagnostic("E0501", message, span, counterexample=found or "")]


def _difference_over(rules: Rules, before: Graph, after: Graph, domain: Domain, rng: np.random.Generator) -> str | None:
    outputs = (*before.outputs, *after.outputs)
    for attempt in range(REDRAWS):
        feeds = {value: draw(value.type, domain, rng, attempt) for value in before.inputs}
        try:
            results = run(rules, outputs, feeds, domain)
        except Redraw:
            continue
        except InterpretError as problem:
            return str(problem)
        half = len(before.outputs)
        sides = zip(before.outputs, results[:half], results[half:], strict=True)
        found = (difference(value.type, a, b, domain, undefined=True) for value, a, b in sides)
        return next((one for one in found if one is not None), None)
    return "every draw divides by zero"


# ---- derivations -----------------------------------------------------------------------------------------------------


def derives(rules: Rules, test: TestDef, statement: t.Derives, before: Graph, after: Graph) -> list[Diagnostic]:
    """Findings where one application of a derivation does not make of a program what a test says, up to the names of iterators.

    The program is the last value of each side.
    """
    rule = rules.derivations.get(test.name)
    if not rule:
        message = f"no derivation of this library is named `{test.short}`"
        return [
            Diagnostic("E0214", message, statement.span, hint="a test with `derives` bears the name of its derivation")
        ]
    wrong = [problem for graph in (before, after) for problem in _no_expression(rules, graph, statement.span)]
    if wrong:
        return wrong
    made = list(_derived(rules, rule, before))
    if Steps([rule]).start(*expand(rules, after.outputs[-1:])) in made:
        return []
    if not made:
        return [Diagnostic("E0505", f"`{rule.name}` does not apply here", statement.span)]
    shown = "; or ".join(_shown(value) for value in made[:MATCHES])
    return [Diagnostic("E0505", f"`{rule.name}` does not make this of it", statement.span, hint=f"it makes {shown}")]


def _applies(rules: Rules, rule: DerivationDef, statement: t.Fires, graph: Graph) -> list[Diagnostic]:
    wrong = _no_expression(rules, graph, statement.span)
    if wrong:
        return wrong
    found = next(_derived(rules, rule, graph), None)
    if not found:
        missing = Diagnostic("E0505", f"`{rule.name}` does not apply here", statement.span)
        return [] if statement.silent else [missing]
    if statement.silent:
        message, hint = f"`{rule.name}` applies here, and should not", f"it makes {_shown(found)}"
        return [Diagnostic("E0506", message, statement.span, hint=hint)]
    before, after = (Graph(graph.inputs, outputs) for outputs in (graph.outputs[-1:], (found,)))
    return _equal(rules, before, after, statement.span, rule.name)


def _no_expression(rules: Rules, graph: Graph, span: Span) -> list[Diagnostic]:
    """E0326 where the last value is no tensor, E0401 where it reads outside of another one."""
    if not graph.outputs:
        hint = "`given A: f32[4, 3]` declares one to read"
        return [Diagnostic("E0326", "the last value here is no tensor of others", span, hint=hint)]
    places = (found for node in _scopes(*expand(rules, graph.outputs[-1:])) for found in _beside(node))
    return [Diagnostic("E0401", place, span, hint="`other=0` says what lies outside") for place in islice(places, 1)]


def _beside(node: ScopeNode) -> Iterator[str]:
    """Reads that are sure to leave their tensors: under no condition, and without a value outside."""
    scope = node.scope
    at = {**sum_ranges(scope.body), **scope_ranges(scope)}
    for part in walk(scope.body):
        if part.where if isinstance(part, Reduce) else part.op == "select":
            return
    for each in walk(scope.body):
        if isinstance(each, Read) and not each.other:
            for index, size in zip(each.index, node.args[each.operand].type.shape, strict=True):
                if any(part.name not in {"+", "*"} for part in scalars(Apply, index)):
                    # of these an interval may be too wide
                    continue
                try:
                    least, most = interval(index, at)
                except DataDependent:
                    continue
                if isinstance(size, int) and (least < 0 or most >= size):
                    yield f"{index} runs from {least} to {most}, beside a tensor of {size}"


def _derived(rules: Rules, rule: DerivationDef, graph: Graph) -> Iterator[Value]:
    """The values that one application makes of the last value of a graph, anywhere in its expression."""
    steps = Steps([rule])
    return (new for _, new in steps.near(steps.start(*expand(rules, graph.outputs[-1:]))))


def _scopes(value: Value) -> list[ScopeNode]:
    return [node for node in nodes_of([value]) if isinstance(node, ScopeNode)]


def _shown(value: Value) -> str:
    return ", ".join(str(node.scope) for node in _scopes(value))
