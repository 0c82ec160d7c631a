"""Every read of every operator is proved in bounds for all sizes, or an error says at which size it fails."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, permutations, product
from math import prod
from typing import Any

from dslc.analysis.conditions import Case, both, cases
from dslc.analysis.numeric import DataDependent, Undefined, value
from dslc.analysis.poly import atom
from dslc.analysis.prove import nonnegative
from dslc.analysis.reads import Access, ReadLoop, accesses
from dslc.errors import Diagnostic, Span
from dslc.ir.graph import Input, ScopeNode, topological
from dslc.ir.scalar import Iter, Read, Scalar, Sym, apply, as_scalar, conjuncts, num, scalars, walk
from dslc.semantics.assume import LEVELS, AssumedChoice, assumed, rank_choices
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Env, EvalError, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t

TRIES = 3000  #: choices of sizes and attributes that are tried
POINTS = 400  #: positions that are looked at


@dataclass(frozen=True)
class BoundsFinding:
    """A read that is not proved: `counterexample` is empty where none was found."""

    span: Span
    read: str
    counterexample: str


@dataclass
class BoundsReport:
    """`proved` and `bounded` count the reads with a proof for all sizes, and for sampled sizes only; `assumed` those of data."""

    proved: int = 0
    bounded: int = 0
    assumed: int = 0
    #: choices of sizes and attributes at which the operator has a meaning
    elaborated: int = 0
    findings: list[BoundsFinding] = field(default_factory=list)

    @property
    def status(self) -> str:
        if self.findings:
            return "refuted" if any(f.counterexample for f in self.findings) else "not proved"
        return "bounded" if self.bounded else "proved"

    def diagnostics(self) -> list[Diagnostic]:
        return [
            Diagnostic(
                "E0401", f"`{found.read}` may leave its bounds", found.span, counterexample=found.counterexample,
                hint="restrict the sizes with `where`, or say with `other=` what lies outside",
            )
            if found.counterexample
            else Diagnostic(
                "E0402", f"`{found.read}` could not be proved in bounds", found.span,
                hint="add `other=`, or a `where` that says why it is in bounds",
            )
            for found in self.findings
        ]  # fmt: skip


def check_operator(rules: Rules, op: OperatorDef) -> BoundsReport:
    """Proves the reads of all equations, `let` tensors and scopes of an operator; a failure is reported once per read."""
    report = BoundsReport()
    if any(param.type is None for param in op.syntax.params):
        return report
    for ranks in rank_choices(op):
        for level in LEVELS:
            trial = BoundsReport()
            try:
                for choice in assumed(rules, op, ranks, level):
                    _check_choice(op, choice, level, trial)
            except (Mismatch, EvalError, Unbound, TypeError, ValueError, IndexError):
                if level != LEVELS[-1]:
                    continue
            _merge(report, trial)
            break
    return report


def _merge(report: BoundsReport, trial: BoundsReport) -> None:
    report.proved += trial.proved
    report.bounded += trial.bounded
    report.assumed += trial.assumed
    report.elaborated += trial.elaborated
    for found in trial.findings:
        same = next((k for k, one in enumerate(report.findings) if one.span is found.span), None)
        if same is None:
            report.findings.append(found)
        elif found.counterexample and not report.findings[same].counterexample:
            report.findings[same] = found


def _check_choice(op: OperatorDef, choice: AssumedChoice, level: str, report: BoundsReport) -> None:
    statements = [
        (s, choice.env.get(s.target.name).node) for s in op.syntax.statements
        if isinstance(s, t.Let | t.Equation) and s.target.places is not None
    ]  # fmt: skip
    named, seen = [node for _, node in statements], set[ScopeNode]()
    for statement, target in statements:
        for node in topological([target]):
            if isinstance(node, ScopeNode) and node not in seen and (node is target or node not in named):
                seen.add(node)
                _check_scope(node, statement, op, choice, level, report)
    report.elaborated += 1


def _check_scope(
    node: ScopeNode,
    statement: t.Let | t.Equation,
    op: OperatorDef,
    choice: AssumedChoice,
    level: str,
    report: BoundsReport,
) -> None:
    for access in accesses(node.scope):
        for index, size in _coordinates(access, node):
            if any(isinstance(part, Read) for part in walk(index)):
                report.assumed += 1
                continue
            guards = tuple(access.guards)
            facts = _facts(choice, index, size, access.loops)
            goals = index, apply("+", size, num(-1), apply("*", num(-1), index))
            if all(_proved(goal, access.loops, guards, facts) for goal in goals):
                if level == "symbolic":
                    report.proved += 1
                else:
                    report.bounded += 1
                continue
            span, text = _place(access, node, statement, op, choice.env)
            if not any(f.span is span and f.counterexample for f in report.findings):
                found = counterexample(index, size, access.loops, guards, choice)
                report.findings.append(BoundsFinding(span, text, found or ""))


def _facts(choice: AssumedChoice, index: Scalar, size: Scalar, loops: tuple[ReadLoop, ...]) -> tuple[Case, ...]:
    """Assumptions about the sizes and attributes that the read has to do with, the nearest to it first."""
    near: frozenset[Sym] = _names((index, size, *(loop.extent for loop in loops if loop.iterator in index.free)))
    todo = [(part, _names([part])) for condition in choice.conditions for part in conjuncts(condition)]
    chosen: list[Scalar] = []
    while any(names & near for _, names in todo):
        chosen += [part for part, names in todo if names & near]
        todo, met = [(p, n) for p, n in todo if not n & near], [n for _, n in todo if n & near]
        near = near.union(*met)
    return both((Case(tuple(atom(size) for size in choice.sizes)),), *(cases(part) for part in chosen))


def _names(parts: Iterable[Scalar]) -> frozenset[Sym]:
    return frozenset(node for part in parts for node in scalars(Sym, part))


def _coordinates(access: Access, node: ScopeNode) -> Iterator[tuple[Scalar, Scalar]]:
    """Index and size, for each dimension of a read without `other`."""
    if isinstance(access.node, Read):
        if access.node.other:
            return
        for index, size in zip(access.node.index, node.args[access.node.operand].type.shape, strict=True):
            yield index, as_scalar(size)
    else:
        table: Any = access.node.values
        for index in access.node.index:
            yield index, num(len(table))
            table = table[0]


@cache
def _proved(goal: Scalar, loops: tuple[ReadLoop, ...], guards: tuple[Scalar, ...], facts: tuple[Case, ...]) -> bool:
    return all(nonnegative(goal, loops, case) for case in both(facts, *(cases(guard) for guard in guards)))


# ---- counterexamples ---------------------------------------------------------------------------------------------


def counterexample(
    index: Scalar, size: Scalar, loops: tuple[ReadLoop, ...], guards: tuple[Scalar, ...], choice: AssumedChoice
) -> str | None:
    """Small sizes and a position at which `0 <= index < size` fails; None where a search finds none."""
    parts = (index, size, *guards, *choice.conditions, *(loop.extent for loop in loops))
    unknowns = sorted(_names(parts), key=lambda node: node.name)
    options = [range(5) if name in choice.sizes else (1, 2, 0, 3, -1, -2) for name in unknowns]
    for values in _assignments(options):
        at: dict[Scalar, int] = dict(zip(unknowns, values, strict=True))
        with suppress(DataDependent):
            if all(value(condition, at) for condition in choice.conditions):
                for point in islice(_points(loops, at), POINTS):
                    if all(_holds(guard, point) for guard in guards) and not _inside(index, size, point):
                        return _show(unknowns, index, size, point)
    return None


def _inside(index: Scalar, size: Scalar, at: Mapping[Scalar, int]) -> bool:
    try:
        return bool(0 <= value(index, at) < value(size, at))
    except Undefined:
        return False


def _assignments(options: list[Any]) -> Iterator[tuple[int, ...]]:
    if prod(map(len, options)) <= TRIES:
        yield from sorted(product(*options), key=lambda values: (sum(map(abs, values)), values))
        return
    seeded = random.Random(0)
    for _ in range(TRIES):
        yield tuple(seeded.choice(option) for option in options)


def _points(loops: Sequence[ReadLoop], at: Mapping[Scalar, int]) -> Iterator[Mapping[Scalar, int]]:
    if not loops:
        yield at
        return
    for position in range(value(loops[0].extent, at)):
        yield from _points(loops[1:], {**at, loops[0].iterator: position})


def _holds(guard: Scalar, at: Mapping[Scalar, int]) -> bool:
    try:
        return bool(value(guard, at))
    except DataDependent:
        return True


def _show(unknowns: list[Sym], index: Scalar, size: Scalar, point: Mapping[Scalar, int]) -> str:
    sizes = " ".join(f"{name.name}={point[name]}" for name in unknowns) or "every size"
    try:
        return f"{sizes}: position {value(index, point)} of an axis of size {value(size, point)}"
    except Undefined:
        return f"{sizes}: a position that divides by zero, of an axis of size {value(size, point)}"


# ---- places ------------------------------------------------------------------------------------------------------


def _place(
    access: Access, node: ScopeNode, statement: t.Let | t.Equation, op: OperatorDef, env: Env
) -> tuple[Span, str]:
    """The place of a read in the text: the subscript with this index, else by the order of reads where there are several."""
    if not isinstance(access.node, Read):
        return statement.value.span, statement.target.name
    operand = node.args[access.node.operand]
    texts = (statement.value, tuple(s for s in op.syntax.statements if isinstance(s, t.Function)))
    found = []
    for each in t.walk(texts):
        if isinstance(each, t.Subscript) and isinstance(each.base, t.Name) and not each.other:
            with suppress(Unbound):
                if env.get(each.base.id) == operand:
                    found.append(each)
    if not found:
        inside = operand.node
        name = op.syntax.params[int(inside.name[1:])].name if isinstance(inside, Input) else "a tensor"
        return statement.target.span, name
    exact = next((each for each in found if _says(each, access, statement, env)), None)
    if exact:
        return exact.span, exact.span.text
    reads = [other.node for other in accesses(node.scope) if isinstance(other.node, Read) and not other.node.other]
    same = list(dict.fromkeys(read for read in reads if read.operand == access.node.operand))
    plain = _is_plain(access.node.index)
    found = [
        each
        for each in found
        if all(isinstance(sub.value if isinstance(sub, t.Pack) else sub, t.Name) for sub in each.subs) is plain
    ] or found
    same = [read for read in same if _is_plain(read.index) is plain]
    at = same.index(access.node) if len(same) == len(found) else 0
    return found[at].span, found[at].span.text


def _says(each: t.Subscript, access: Access, statement: t.Let | t.Equation, env: Env) -> bool:
    """Return whether a subscript of the text, with iterators and loops for its free names, is the index of a read."""
    if any(isinstance(sub, t.Pack | t.TupleExpr) for sub in each.subs) or not isinstance(access.node, Read):
        return False
    outer: dict[str, Iter] = {}
    for place, iterator in zip(statement.target.places or (), [loop.iterator for loop in access.loops], strict=False):
        if not isinstance(place, t.Binder) or place.star:
            break
        outer[place.name] = iterator
    names = dict.fromkeys(n.id for n in nodes(t.Name, each.subs))
    free = [name for name in names if name not in outer and not env.has(name)]
    rest = [loop.iterator for loop in access.loops if loop.iterator not in outer.values()]
    for loops in permutations(rest, len(free)):
        inner = env.child()
        for name, iterator in (*outer.items(), *zip(free, loops, strict=True)):
            inner.bind(name, iterator)
        try:
            if tuple(as_scalar(evaluate(sub, inner)) for sub in each.subs) == access.node.index:
                return True
        except (Unbound, Mismatch, EvalError, TypeError):
            return False
    return False


def _is_plain(index: tuple[Scalar, ...]) -> bool:
    return all(isinstance(part, Iter) for part in index)
