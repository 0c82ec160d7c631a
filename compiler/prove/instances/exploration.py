"""Exploration of a rule: the symbolic instances that together stand for all its uses.

Sizes are unknown (at least 1), so are integer attributes and numbers; ranks, axes, permutations, flags and texts are enumerated, as
they have to be known in order to say the meaning of a rule. Guards, and demands of operators on their arguments, are assumed. The
scope of a set says its bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from dslc.errors import DslcError
from dslc.interpret.draft import rule_text
from dslc.interpret.instantiate import show
from dslc.ir.dtype import DType
from dslc.ir.graph import Values
from dslc.ir.scalar import Num, Scalar, apply, as_scalar, num
from dslc.prove.element_types import types_of
from dslc.prove.instances.axis_reading import excludes_ranks, sufficient_rank
from dslc.prove.instances.batches import batches, fitted, packs_of, padded, projects
from dslc.prove.instances.cases import Again, AssumedCase, Path, Restart, TooMany
from dslc.prove.instances.choice import LEVELS, Choice, check_numbers, scope_text
from dslc.prove.instances.draft import Draft, early_calls
from dslc.prove.instances.instances import InstanceSet, Labels, SymbolicInstance, Uncovered
from dslc.prove.instances.maps import by_maps
from dslc.prove.instances.smaller_ranks import naturally
from dslc.prove.terms import term_operators, unknown_operators
from dslc.prove.verdict import Types
from dslc.semantics.assuming import holds
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Env, Mismatch, OperatorRef, Unbound, Undecided
from dslc.semantics.evaluate import truth
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.values import numbers_of
from dslc.semantics.walk import names_in, terms_in
from dslc.syntax import tree as t

# evaluations of a rule at all ranks, and at ranks up to 2 and to 1 where those were too many
_MOST_PATHS = {None: 400, 2: 400, 1: 1500}
MOST_CALLS = 16_000  #: applications of operators in all evaluations of one way through the cases
KEPT = 8  #: instance sets that are kept for the next prover
ALONE = 3  #: rank to look at of the only pack of a rule
MOST = 2  #: of one of several
GUARDED = 6  #: of one that a guard fits to others

#: a case that does not occur because the right side has no meaning there
RIGHT = "right"

_Reasons = dict[str, str | None]
_T = TypeVar("_T")


def _kept(rules: Rules, name: str, key: tuple[Any, ...], make: Callable[[], _T]) -> _T:
    """A value that is kept for the next prover."""
    cache: dict[Any, _T] = rules_cache(rules, name)
    if key not in cache:
        while len(cache) >= KEPT:
            del cache[next(iter(cache))]
        cache[key] = make()
    return cache[key]


def instance_set(rules: Rules, sub: SubstitutionDef, level: str = "steps", types: Types | None = None) -> InstanceSet:
    """The symbolic instances of a rule, with as much unknown as `level` says, less where its meaning needs a number.

    Args:
        types: the element types; the first ones that the rule admits by default.
        level: `symbolic`: all integers unknown; `steps`: factors of positions are numbers; `attributes`: so is every
            integer attribute; `sizes`: so are single sizes.

    Raises:
        Uncovered
    """
    chosen = types or next(iter(types_of(rules, sub)), Types())
    key = (sub, chosen, chosen.dtypes, level)
    found = _kept(rules, "covers", key, lambda: _found(rules, sub, level, chosen))
    if isinstance(found, InstanceSet):
        return found
    raise Uncovered(*found)


def _found(rules: Rules, sub: SubstitutionDef, level: str, types: Types) -> InstanceSet | tuple[str, bool]:
    """The instances of the first level that gives some; else why none does, and whether there is no instance at all."""
    if unknown_operators(sub) is None:
        names = ", ".join(f"`{signature.name}`" for signature in terms_in(sub.left))
        return f"nothing is known of every operator that {names} may stand for: only `pointwise` ones are proved", False
    reasons, vacant = [], True
    for each in LEVELS[LEVELS.index(level) :]:
        try:
            return _at_level(rules, sub, each, types)
        except TooMany:
            vacant = False
            reasons.append("too many cases")
            if each != LEVELS[0]:
                break
        except Undecided as problem:
            vacant = vacant and isinstance(problem, _NoInstance)
            reasons.append(problem.reason)
    return "; ".join(dict.fromkeys(reasons)), vacant


def _at_level(rules: Rules, sub: SubstitutionDef, level: str, types: Types) -> InstanceSet:
    reasons: _Reasons = {}
    for most in (None, 2, 1):
        try:
            found, scope, choice = _explore(rules, sub, level, types, most, reasons)
        except TooMany:
            if most == 1:
                raise  # with less unknown there are only more cases
            continue
        if found:
            unknown = bool(choice.multiplied or choice.assumed)
            return InstanceSet(tuple(found), scope, unknown, bool(choice.assumed), bool(choice.integers))
        if most is None:
            break  # nor is there one at smaller ranks
    if reasons and (choice.reals or choice.steps):
        raise Undecided("no numbers were found for which the guards hold")
    if reasons:
        raise _NoInstance("; ".join(list(reasons)[:3]))
    raise Undecided("too many cases")


class _NoInstance(Undecided):
    """Every case was looked at, and none is a use of the rule."""


class _NoRightSide(Mismatch):
    """The right side has no meaning in a case that the left side allows."""


def _explore(
    rules: Rules, sub: SubstitutionDef, level: str, types: Types, most: int | None, reasons: _Reasons
) -> tuple[Sequence[SymbolicInstance], str, Choice]:
    names, sufficient, guarded = packs_of(sub), sufficient_rank(sub), fitted(sub)
    # guards and types may keep a pack from getting as long as it might, which bounds it then
    excluding = excludes_ranks(sub)
    # a pack that a guard fits to others may be longer
    ranks = {name: GUARDED if name in guarded else sufficient or 0 for name in names}
    dtype = next(iter(types.dtypes), DType.F32)
    choice = Choice(level, ranks, dtype, types.at, numbers_of(sub), padded(sub))
    paths = _MOST_PATHS[most]
    batch: tuple[str, ...] = ()
    found: list[SymbolicInstance] = []
    if names and sufficient is not None and (most is None or sufficient <= most):
        found = _run(rules, sub, choice, reasons, paths)
        batch = batches(names, found, sufficient)
        bases = [each for each in found if all(each.ranks[name] == 0 for name in batch)]
        if not all(projects(each, bases, batch) for each in found):
            batch, bases = (), found
    bounded = tuple(name for name in names if name not in batch)
    if bounded:
        natural = naturally(sub, choice, _cases(rules, sub, paths))
        if natural is not None:
            scope = scope_text(natural[1], (), _lists(natural[1], natural[2], excluding))
            return natural[0], scope, natural[1]
    limits = dict.fromkeys(batch, 0)
    if bounded or not names:
        limits |= dict.fromkeys(bounded, ALONE if len(bounded) == 1 else MOST)
        limits |= {name: GUARDED for name in guarded if name in bounded}
        if most is not None:
            limits = {name: rank if name in guarded else min(rank, most) for name, rank in limits.items()}
        if limits == choice.most_rank and found:
            bases = found
        else:
            choice = replace(choice, most_rank=limits)
            bases = _run(rules, sub, choice, reasons, paths)
    reached = {
        name
        for name in bounded
        if (excluding and name not in guarded) or any(each.ranks[name] == limits[name] for each in bases)
    }
    lists = _lists(choice, bases, excluding)
    if RIGHT in reasons.values() and bases:
        # the right side may have had no meaning to the prover only: what was looked at is the bound
        highest = {name: max(each.ranks[name] for each in bases) for name in bounded}
        choice, reached = replace(choice, most_rank={**choice.most_rank, **highest}), set(bounded)
        lists = _longest(choice, bases)
    return bases, scope_text(choice, tuple(name for name in bounded if name in reached), lists), choice


def _longest(choice: Choice, found: Sequence[SymbolicInstance]) -> dict[str, int]:
    """The largest numbers of entries in instances of lists of any length."""
    return {name: max((each.lengths.get(name, 0) for each in found), default=0) for name in choice.lists}


def _lists(choice: Choice, found: Sequence[SymbolicInstance], excluding: bool) -> dict[str, int]:
    """The lists that may be longer than what was looked at: types and guards keep others from getting as long as they might."""
    longest = _longest(choice, found)
    return {name: most for name, most in choice.lists.items() if excluding or longest[name] == most}


def _cases(rules: Rules, sub: SubstitutionDef, most: int) -> Callable[[Choice], Sequence[SymbolicInstance]]:
    """The instances of a choice; none where the right side has no meaning in some case, or where there are too many."""

    def run(choice: Choice) -> Sequence[SymbolicInstance]:
        reasons: _Reasons = {}
        try:
            found = _run(rules, sub, choice, reasons, most)
        except TooMany:
            return ()
        return () if RIGHT in reasons.values() else found

    return run


def map_instance_set(rules: Rules, sub: SubstitutionDef, types: Types | None = None) -> InstanceSet | None:
    """Instances in which windows are arbitrary maps, for all ranks and steps: they say more than the rule. None if there are none."""
    if unknown_operators(sub) is None:
        return None
    chosen = types or next(iter(types_of(rules, sub)), Types())

    def make() -> InstanceSet | None:
        try:
            found = by_maps(sub, _cases(rules, sub, _MOST_PATHS[None]), chosen.at)
        except Undecided:
            return None
        return InstanceSet(tuple(found)) if found is not None else None

    return _kept(rules, "covers of maps", (sub, chosen, chosen.dtypes), make)


def _run(rules: Rules, sub: SubstitutionDef, choice: Choice, reasons: _Reasons, most: int) -> list[SymbolicInstance]:
    """The instances of a choice, in which what had to be a number is noted.

    Raises:
        TooMany
    """
    calls = sum(isinstance(node, t.Call) for node in t.walk(sub.syntax))
    while True:
        path = Path(min(most, MOST_CALLS // max(1, calls)))
        found: dict[Any, SymbolicInstance] = {}
        try:
            for each in _along(rules, sub, path, choice, reasons):
                key = (each.left, each.right, frozenset(each.conditions))
                known = found.setdefault(key, each)
                if known is not each:
                    lengths = {
                        name: max(known.lengths.get(name, 0), each.lengths.get(name, 0))
                        for name in (*known.lengths, *each.lengths)
                    }
                    found[key] = replace(known, names=(*known.names, *each.names), lengths=lengths)
            return list(found.values())
        except Restart:
            choice.tried.clear()


def _along(
    rules: Rules, sub: SubstitutionDef, path: Path, choice: Choice, reasons: _Reasons
) -> Iterator[SymbolicInstance]:
    """The instances of all paths, one after the other."""
    while True:
        path.start()
        try:
            yield _one(rules, sub, path, choice)
        except Again:
            continue
        except Undecided:
            if path.stale:
                continue
            raise
        except Mismatch as problem:
            if path.stale:
                continue  # not yet with what was solved for
            reasons[problem.reason] = RIGHT if isinstance(problem, _NoRightSide) else None
        except Unbound as unknown:
            raise Undecided(f"`{unknown.name}` stays unknown") from None
        except (TypeError, ValueError, ArithmeticError, IndexError, DslcError) as problem:
            raise Undecided(f"cannot be evaluated at unknown sizes: {problem}") from None
        if not path.advance():
            return


def _one(rules: Rules, sub: SubstitutionDef, path: Path, choice: Choice) -> SymbolicInstance:
    """The instance along one path.

    Raises:
        Again: an unknown was solved for.
        Mismatch: the case does not occur.
    """
    assumed = AssumedCase(path)
    terms = unknown_operators(sub) or {}
    known = replace(rules, operators={**rules.operators, **term_operators(sub)}, assuming=assumed)
    text = rule_text(sub)
    # `constant(X)`: what is shown of every tensor holds for constant ones
    guards = (c for c in text.conditions if not (isinstance(c, t.Call) and c.function == "constant"))
    text = replace(text, conditions=tuple(guards))
    env = Env(sub.module, known)
    env.decls = dict(text.decls)
    draft = Draft(
        env=env,
        path=path,
        assumed=assumed,
        text=text,
        choice=choice,
        taken=names_in(sub.syntax),
        early=early_calls(sub),
    )
    for name, op in terms.items():
        draft.bind(name, OperatorRef(op.name))
    draft.solve_conditions()
    tensors = draft.inputs(sub.syntax)
    inputs = tuple(tensors[param.name] for param in sub.params)
    outputs = sub.syntax.outputs
    left = tuple(draft.side(outputs, sub.left, env).values())
    for condition in text.conditions:
        if not holds(truth(draft.needing(env, condition)), assumed):
            raise Mismatch(f"`{condition.span.text}` does not hold", condition.span)
    path.settle()
    expanded_left = expand(known, left)
    path.settle()
    assumed.left = False
    try:
        right = tuple(draft.right(sub.syntax)[0].values())
        expanded_right = expand(known, right)
    except Mismatch as problem:
        raise _NoRightSide(problem.reason, problem.span) from None
    shapes = _shapes(left, right, assumed)
    if assumed.conditions and assumed.never():
        raise Mismatch("sizes that never occur")
    check_numbers((*expanded_left, *expanded_right), assumed, choice)
    choice.integers.update(assumed.integers.values())
    choice.tried.update(draft.numbers)
    ranks = {name: env.ranks.get(name, 0) for name in packs_of(sub)}
    drawn = draft.drawn
    return SymbolicInstance(
        inputs,
        expanded_left,
        expanded_right,
        outputs,
        # what is shown for all numbers needs no guard that lets some in
        tuple(each for each in assumed.conditions if not assumed.has_real(each)),
        ", ".join(f"{name} = {show(v)}" for name, v in drawn.items() if not isinstance(v, DType | OperatorRef)),
        (*assumed.open, *shapes),
        (left, right),
        {name: value for name, value in drawn.items() if _is_known(value)},
        {value: _pack_axes(param, ranks) for value, param in zip(inputs, sub.params, strict=True)},
        draft.listed,
        draft.mixing,
        not shapes,
        ranks,
        draft.entries(),
        draft.lengths,
        ({name: env.get(name) for name in text.places if env.has(name)},),
    )


def _pack_axes(param: t.Param, ranks: Mapping[str, int]) -> Labels:
    """The axes of a parameter that are those of packs of known ranks."""
    out: dict[int, frozenset[str]] = {}
    at = 0
    for element in (param.type.dims or ()) if param.type else ():
        name = element.value.id if isinstance(element, t.Pack) and isinstance(element.value, t.Name) else ""
        width = ranks.get(name, 0) if isinstance(element, t.Pack) else 1
        if name:
            out |= {at + k: frozenset((f"{name}.{k}",)) for k in range(width)}
        at += width
    return out


def _is_known(value: Any) -> bool:
    return all(map(_is_known, value)) if isinstance(value, tuple) else isinstance(value, bool | int | Fraction | str)


def _shapes(left: Values, right: Values, assumed: AssumedCase) -> list[Scalar]:
    """Equalities of sizes of both sides that are not proved."""
    out: list[Scalar] = []
    for a, b in zip(left, right, strict=True):
        if a.type.rank != b.type.rank:
            out.append(num(False))
            continue
        for x, y in zip(a.type.shape, b.type.shape, strict=True):
            equal = apply("==", as_scalar(x), as_scalar(y))
            if not (isinstance(equal, Num) and equal.value is True) and not assumed.implied(equal):
                out.append(equal)
    return out
