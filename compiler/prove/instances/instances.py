"""Symbolic instances of whole rules: a few pairs of programs that together stand for every use of a rule.

Sizes are unknown (at least 1), so are integer attributes and numbers; what has to be a number in order to say what a rule means is
enumerated: ranks, axes, permutations, flags, texts. Guards, and what operators ask of their arguments, are assumed. The scope of a
cover says what it is bounded to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dslc.errors import DslcError
from dslc.interpret.instantiate import bind_definitions, show
from dslc.interpret.rule_text import rule_text
from dslc.ir.dtype import DType
from dslc.ir.graph import Value, input_value
from dslc.ir.scalar import Num, Scalar, Sym, walk
from dslc.prove.element_types import types_of
from dslc.prove.instances.axis_reading import excludes_ranks, sufficient_rank
from dslc.prove.instances.batches import (
    Probe,
    at_most,
    batches,
    fitted,
    pack_axes,
    packs_of,
    padded,
    projects,
    to_probe,
)
from dslc.prove.instances.cases import Again, AssumedCase, Path, Restart, TooMany
from dslc.prove.instances.choice import LEVELS, Choice, check_numbers, scope_text
from dslc.prove.instances.draft import Draft, apply_early, early_calls, hold, names_in
from dslc.prove.instances.replay import replaying
from dslc.prove.instances.smaller_ranks import by_maps, naturally
from dslc.prove.terms import signatures, term_operators, unknown_operators
from dslc.prove.verdict import Types
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Env, Mismatch, OperatorRef, Unbound, Undecided
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.types import shape_of
from dslc.semantics.values import numbers_of
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t

# evaluations of a rule at all ranks, and at ranks up to 2 and to 1 where those were too many
_MOST_PATHS = {None: 400, 2: 400, 1: 1500}


MOST_CALLS = 16_000  #: applications of operators in all evaluations of one way through the cases
KEPT = 8  #: covers that are kept for the next prover

#: a case that does not occur because the right side has no meaning there
RIGHT = "right"


class Uncovered(Exception):
    """No finite number of symbolic instances was found; the reason is the text. `vacant`: there is none, as guards refuse them all."""

    def __init__(self, reason: str, vacant: bool = False) -> None:
        super().__init__(reason)
        self.vacant = vacant


@dataclass(frozen=True, slots=True)
class SymbolicInstance:
    """Both sides of a rule for one choice of ranks, axes and flags.

    `left` and `right` consist of inputs, constants and scopes, in the order of the rule's outputs. `conditions` hold; the sizes of
    tensors that the rule's types name are in `sizes`. `undischarged`: what the right side asks of its arguments and is not proved
    to follow (it is among the conditions, as a rule is only used where its right side has a meaning), and equalities of the sides'
    shapes that are not proved.
    """

    inputs: tuple[Value, ...]
    left: tuple[Value, ...]
    right: tuple[Value, ...]
    outputs: tuple[str, ...]
    conditions: tuple[Scalar, ...]
    sizes: tuple[Sym, ...]
    text: str
    undischarged: tuple[Scalar, ...] = ()
    #: both sides as the rule writes them, with calls of operators
    graphs: tuple[tuple[Value, ...], tuple[Value, ...]] = ((), ())
    #: what its names stand for, but for unknowns
    drawn: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstanceSet:
    """Instances that together stand for every use of a rule within `scope` (empty: all shapes, ranks and attributes)."""

    instances: tuple[SymbolicInstance, ...]
    scope: str = ""
    #: the most general level that gives these instances
    level: str = LEVELS[0]
    #: whether positions are multiplied with unknown attributes, or guards are about unknown numbers: they are numbers at the next level
    unknown_steps: bool = False
    #: whether guards are about unknown numbers, which are not among the conditions: what differs may differ only where they do not hold
    assumed: bool = False
    #: whether other integer attributes, or numbers, are unknown, which are numbers at the third level
    unknown_integers: bool = False


def instance_set(rules: Rules, sub: SubstitutionDef, level: str = "steps", types: Types | None = None) -> InstanceSet:
    """The symbolic instances of a rule, with as much unknown as `level` says, less where that is not enough to say what it means.

    Args:
        types: the element types; the first ones that the rule admits by default.
        level: `symbolic`: all integers unknown; `steps`: what positions are multiplied with is a number; `attributes`: so is every
            integer attribute; `sizes`: so are single sizes.

    Raises:
        Uncovered
    """
    types = _chosen(rules, sub, types)
    cache = rules_cache(rules, "covers")
    own = (id(sub.syntax), types, types.dtypes)
    found = cache.get((*own, level))
    if found is None and level == LEVELS[0]:
        # what needed no number for any step is the same as with all integers unknown
        found = cache.get((*own, LEVELS[1]))
        found = (
            found if found is not None and isinstance(found[1], InstanceSet) and found[1].level == LEVELS[0] else None
        )
    if found is None and level == LEVELS[1]:
        found = cache.get((*own, LEVELS[0]))
        same = (
            found is not None
            and isinstance(found[1], InstanceSet)
            and not (found[1].level == LEVELS[0] and found[1].unknown_steps)
        )
        found = found if same else None
    if found is None:
        while len(cache) >= KEPT:
            del cache[next(iter(cache))]
        # the syntax is kept, so that its number stays its own
        found = cache[*own, level] = (sub.syntax, _found(rules, sub, level, types))
    if isinstance(found[1], InstanceSet):
        return found[1]
    raise Uncovered(*found[1])


def _chosen(rules: Rules, sub: SubstitutionDef, types: Types | None) -> Types:
    return types if types is not None else next(iter(types_of(rules, sub)), Types())


def _found(rules: Rules, sub: SubstitutionDef, level: str, types: Types) -> InstanceSet | tuple[str, bool]:
    """The cover of the first level that gives one; else why none does, and whether there is no instance at all."""
    unknown = unknown_operators(sub)
    if unknown is None:
        names = ", ".join(f"`{signature.name}`" for signature in signatures(sub))
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
    reasons: dict[str, str | None] = {}
    for most in (None, 2, 1):
        try:
            found, scope, choice = _explore(rules, sub, level, types, most, reasons)
        except TooMany:
            if most == 1:
                raise  # with less unknown there are only more cases
            continue
        if found:
            general = LEVELS[0] if level == LEVELS[1] and not (choice.steps or choice.reals) else level
            unknown = bool(choice.multiplied or choice.assumed)
            return InstanceSet(found, scope, general, unknown, bool(choice.assumed), bool(choice.integers))
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


@dataclass(frozen=True, slots=True)
class _Found:
    instance: SymbolicInstance
    probe: Probe


def _explore(
    rules: Rules, sub: SubstitutionDef, level: str, types: Types, most: int | None, reasons: dict[str, str | None]
) -> tuple[tuple[SymbolicInstance, ...], str, Choice]:
    names = packs_of(sub)
    sufficient, guarded = sufficient_rank(sub), fitted(sub)
    choice = Choice(
        level, to_probe(sub, sufficient or 0), next(iter(types.dtypes), DType.F32), padded(sub), types=types.at,
        near=numbers_of(sub),
    )  # fmt: skip
    batch: tuple[str, ...] = ()
    bases: list[_Found] = []
    found: list[_Found] = []
    if names and sufficient is not None and (most is None or sufficient <= most):
        found = _run(rules, sub, choice, reasons, _MOST_PATHS[most])
        batch = batches(names, [each.probe for each in found], sufficient)
        bases = [each for each in found if all(each.probe.ranks[name] == 0 for name in batch)]
        if not all(projects(each.probe, [base.probe for base in bases], batch) for each in found):
            batch = ()
    ranks = at_most(sub, batch)
    if ranks.bounded:
        probed: list[_Found] = []
        natural = naturally(sub, choice, lambda each: _probes(rules, sub, each, _MOST_PATHS[most], probed))
        if natural is not None:
            small = {id(probe) for probe in natural[0]}
            scope = scope_text(natural[1], (), _lists(natural[1], probed, excludes_ranks(sub)))
            return tuple(each.instance for each in probed if id(each.probe) in small), scope, natural[1]
    limits: Mapping[str, int] = {}
    if ranks.bounded or not names:
        limits = {
            name: rank if most is None or name in guarded else min(rank, most) for name, rank in ranks.most.items()
        }
        if limits == choice.most_rank and found:
            bases = found
        else:
            choice = replace(choice, most_rank=limits)
            bases = _run(rules, sub, choice, reasons, _MOST_PATHS[most])
    # a pack that types and guards keep from getting as long as it might is not bounded by that
    excluding = excludes_ranks(sub)
    kept = set(ranks.bounded) if not excluding else guarded
    reached = {n for n in ranks.bounded if n not in kept or any(each.probe.ranks[n] == limits[n] for each in bases)}
    lists = _lists(choice, bases, excluding)
    if RIGHT in reasons.values() and bases:
        # the right side may have had no meaning to the prover only: what was looked at is the bound
        highest = {name: max(each.probe.ranks[name] for each in bases) for name in ranks.bounded}
        choice, reached = replace(choice, most_rank={**choice.most_rank, **highest}), set(ranks.bounded)
        lists = _longest(choice, bases)
    scope = scope_text(choice, tuple(n for n in ranks.bounded if n in reached), lists)
    return tuple(each.instance for each in bases), scope, choice


def _longest(choice: Choice, found: Sequence[_Found]) -> dict[str, int]:
    """How many entries lists of any length have at most in instances."""
    return {name: max((each.probe.lengths.get(name, 0) for each in found), default=0) for name in choice.lists}


def _lists(choice: Choice, found: Sequence[_Found], excluding: bool) -> dict[str, int]:
    """The lists that may be longer than what was looked at: types and guards keep others from getting as long as they might."""
    longest = _longest(choice, found)
    return {name: most for name, most in choice.lists.items() if excluding or longest[name] == most}


def _probes(
    rules: Rules, sub: SubstitutionDef, choice: Choice, most: int, found: list[_Found]
) -> tuple[Sequence[Probe], bool]:
    """The instances of a choice, which are put into `found`, and whether the right side had a meaning in all cases."""
    reasons: dict[str, str | None] = {}
    found.clear()
    try:
        found += _run(rules, sub, choice, reasons, most)
    except TooMany:
        return (), False
    return [each.probe for each in found], RIGHT not in reasons.values()


def map_instance_set(rules: Rules, sub: SubstitutionDef, types: Types | None = None) -> InstanceSet | None:
    """A cover in which windows are arbitrary maps, for all ranks and steps: it says more than the rule. None if there is none."""
    if unknown_operators(sub) is None:
        return None
    types = _chosen(rules, sub, types)
    cache = rules_cache(rules, "covers of maps")
    own = (id(sub.syntax), types, types.dtypes)
    if own not in cache:
        while len(cache) >= KEPT:
            del cache[next(iter(cache))]
        cache[own] = (sub.syntax, _found_maps(rules, sub, types))
    found: InstanceSet | None = cache[own][1]
    return found


def _found_maps(rules: Rules, sub: SubstitutionDef, types: Types) -> InstanceSet | None:
    probed: list[_Found] = []
    try:
        found = by_maps(sub, lambda choice: _probes(rules, sub, choice, _MOST_PATHS[None], probed), types.at)
    except Undecided:
        return None
    if found is None:
        return None
    instances = {id(each.probe): each.instance for each in probed}
    return InstanceSet(tuple(
        replace(
            instances[id(each.probe)], inputs=each.sides.inputs, left=each.sides.left, right=each.sides.right,
            conditions=each.sides.conditions, sizes=each.sides.sizes,
        )
        for each in found
    ))  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Explored:
    """What came of all paths of a choice (None: they were more than `most`), and what had to be a number."""

    most: int
    found: tuple[_Found, ...] | None
    reasons: Mapping[str, str | None]
    steps: frozenset[str]
    multiplied: frozenset[str]
    reals: frozenset[str]
    lists: Mapping[str, int]
    tried: Mapping[str, frozenset[Any]]
    integers: frozenset[str]
    signed: frozenset[str]
    assumed: frozenset[str]
    turning: bool


def _run(rules: Rules, sub: SubstitutionDef, choice: Choice, reasons: dict[str, str | None], most: int) -> list[_Found]:
    """The instances of a choice, in which what had to be a number is noted. Raises TooMany."""
    known = _explored(rules, sub)
    ranks = tuple(choice.most_rank.items())
    numbers = (frozenset(choice.steps), frozenset(choice.reals), choice.turning)
    start = (ranks, choice.dtype, tuple(choice.types.items()), choice.padded, *numbers)
    done = known.get((choice.level, start))
    # what was too much is too much with a lower limit, and what was not is not with a higher one
    if done is None or (most > done.most if done.found is None else most < done.most):
        own: dict[str, str | None] = {}
        try:
            found = tuple(_all_paths(rules, sub, choice, own, most))
        except TooMany:
            found = None
        finally:
            reasons.update(own)
        steps, multiplied, reals = map(frozenset, (choice.steps, choice.multiplied, choice.reals))
        tried = {name: frozenset(each) for name, each in choice.tried.items()}
        done = _Explored(
            most, found, own, steps, multiplied, reals, dict(choice.lists), tried, frozenset(choice.integers), frozenset(choice.signed),
            frozenset(choice.assumed), choice.turning,
        )  # fmt: skip
        known[choice.level, start] = done
        alike = (
            not (choice.steps or choice.reals)
            if choice.level == LEVELS[1]
            else not (choice.multiplied or choice.assumed)
        )
        alike = alike and (found is not None or choice.level == LEVELS[1])
        if choice.level in LEVELS[:2] and alike:
            # what needs no number for any step is the same with all integers unknown
            known[LEVELS[0], start] = known[LEVELS[1], start] = done
    else:
        reasons.update(done.reasons)
        choice.steps |= done.steps
        choice.multiplied |= done.multiplied
        choice.reals |= done.reals
        choice.lists |= done.lists
        for name, each in done.tried.items():
            choice.tried.setdefault(name, set()).update(each)
        choice.integers |= done.integers
        choice.signed |= done.signed
        choice.assumed |= done.assumed
        choice.turning = done.turning
    if done.found is None:
        raise TooMany
    return list(done.found)


def _explored(rules: Rules, sub: SubstitutionDef) -> dict[Any, _Explored]:
    """What was explored of a rule: levels, and limits of ranks, have cases in common."""
    cache = rules_cache(rules, "explored")
    if id(sub.syntax) not in cache:
        while len(cache) >= KEPT:
            del cache[next(iter(cache))]
        # the syntax is kept, so that its number stays its own
        cache[id(sub.syntax)] = (sub.syntax, {})
    found: dict[Any, _Explored] = cache[id(sub.syntax)][1]
    return found


def _all_paths(
    rules: Rules, sub: SubstitutionDef, choice: Choice, reasons: dict[str, str | None], most: int
) -> list[_Found]:
    calls = sum(isinstance(node, t.Call) for node in walk_expr(sub.syntax))
    while True:
        path = Path(min(most, MOST_CALLS // max(1, calls)))
        found: dict[Any, _Found] = {}
        try:
            for each in _along(rules, sub, path, choice, reasons):
                key = (each.instance.left, each.instance.right, each.probe.conditions)
                known = found.setdefault(key, each)
                if known is not each:
                    lengths = dict(known.probe.lengths)
                    for name, count in each.probe.lengths.items():
                        lengths[name] = max(count, lengths.get(name, 0))
                    probe = replace(known.probe, names=(*known.probe.names, *each.probe.names), lengths=lengths)
                    found[key] = replace(known, probe=probe)
        except Restart:
            choice.tried.clear()
            continue
        return list(found.values())


def _along(
    rules: Rules, sub: SubstitutionDef, path: Path, choice: Choice, reasons: dict[str, str | None]
) -> Iterator[_Found]:
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


def _one(rules: Rules, sub: SubstitutionDef, path: Path, choice: Choice) -> _Found:
    """The instance along one path.

    Raises:
        Again: an unknown was solved for.
        Mismatch: the case does not occur.
    """
    assumed = AssumedCase(path)
    terms = unknown_operators(sub) or {}
    known = dataclasses.replace(rules, operators={**rules.operators, **term_operators(sub)}, assuming=assumed)
    known = replaying(known, rules, assumed)
    text = rule_text(sub)
    text = replace(text, conditions=tuple(c for c in text.conditions if not _about_constants(c)))
    env = Env(sub.module, known)
    env.decls = dict(text.decls)
    lets = tuple(s for s in sub.syntax.left if isinstance(s, t.Let))
    draft = Draft(env=env, path=path, assumed=assumed, text=text, choice=choice, lets=lets, taken=names_in(sub))
    for name, op in terms.items():
        draft.bind(name, OperatorRef(op.name))
    draft.solve_conditions()
    inputs = _inputs(draft, sub)
    left = _side(draft, sub.syntax, sub.syntax.left, env)
    for condition in text.conditions:
        hold(draft, condition)
    path.settle()
    expanded_left = expand(known, left)
    path.settle()
    assumed.left = False
    inner = env.child()
    inner.decls = env.decls
    try:
        for statement in sub.syntax.right:
            if isinstance(statement, t.Search):
                value = path.pick(("search", statement.name), evaluate(statement.domain, inner))
                draft.drawn[statement.name] = value
                inner.bind(statement.name, value)
        right = _side(draft, sub.syntax, sub.syntax.right, inner)
        expanded_right = expand(known, right)
    except Mismatch as problem:
        raise _NoRightSide(problem.reason, problem.span) from None
    shapes = _shapes(sub, left, right, assumed)
    if assumed.conditions and assumed.never():
        raise Mismatch("sizes that never occur")
    check_numbers((*expanded_left, *expanded_right), assumed, choice)
    shown = ", ".join(
        f"{name} = {show(v)}" for name, v in draft.drawn.items() if not isinstance(v, DType | OperatorRef)
    )
    dims = [d for value in inputs for d in value.type.shape if isinstance(d, Scalar)]
    sizes = tuple(dict.fromkeys(node for d in dims for node in walk(d) if isinstance(node, Sym)))
    # what is shown for all numbers needs no guard that lets some in
    conditions = tuple(each for each in assumed.conditions if not assumed.has_real(each))
    instance = SymbolicInstance(
        inputs, expanded_left, expanded_right, tuple(sub.syntax.outputs), conditions, sizes, shown,
        (*assumed.open, *shapes), (left, right), {name: value for name, value in draft.drawn.items() if _is_known(value)},
    )  # fmt: skip
    ranks = {name: env.ranks.get(name, 0) for name in packs_of(sub)}
    axes = {value: pack_axes(param, ranks) for value, param in zip(inputs, sub.syntax.params, strict=True)}
    names = {name: env.get(name) for name in text.places if env.has(name)}
    probe = Probe(
        expanded_left, expanded_right, axes, draft.listed, draft.mixing, not shapes, ranks, frozenset(conditions), draft.entries(),
        dict(draft.lengths), (names,),
    )  # fmt: skip
    choice.integers.update(assumed.integers.values())
    for name, value in draft.numbers:
        choice.tried.setdefault(name, set()).add(value)
    return _Found(instance, probe)


def _is_known(value: Any) -> bool:
    return all(map(_is_known, value)) if isinstance(value, tuple) else isinstance(value, bool | int | Fraction | str)


def _about_constants(condition: t.Expr) -> bool:
    """`constant(X)`: what is shown of every tensor holds for constant ones."""
    return isinstance(condition, t.Call) and condition.function == "constant"


def _inputs(draft: Draft, sub: SubstitutionDef) -> tuple[Value, ...]:
    """Tensors for the parameters; those whose sizes a `let` computes come last."""
    syntax = sub.syntax
    lets = {s.target.name for s in syntax.left if isinstance(s, t.Let)}
    computed = []
    for param in syntax.params:
        if param.type is None:
            raise Undecided(f"`{param.name}` has no type")
        if param.star:
            raise Undecided(f"`{param.name}` is any number of tensors")
        if lets & {node.id for node in walk_expr(param.type) if isinstance(node, t.Name)}:
            computed.append(param)
        else:
            draft.dims(param.type)
            if not lets:
                draft.env.bind(param.name, input_value(param.name, shape_of(param.type, draft.env)))
                apply_early(draft, early_calls(sub))
    bind_definitions(syntax.left, draft.env)
    inputs = {}
    for param in (*(p for p in syntax.params if p not in computed), *computed):
        assert param.type is not None
        if param in computed:
            for name in lets:
                draft.needing(draft.env, t.Name(name, span=param.span))
            draft.dims(param.type)
        inputs[param.name] = input_value(param.name, shape_of(param.type, draft.env))
        draft.env.bind(param.name, inputs[param.name])
    return tuple(inputs[param.name] for param in syntax.params)


def _side(
    draft: Draft, syntax: t.Substitution, statements: tuple[t.GraphStatement, ...], env: Env
) -> tuple[Value, ...]:
    """Evaluates a side's statements in order; gives the values of the rule's outputs."""
    bind_definitions(statements, env)
    for statement in statements:
        if isinstance(statement, t.LetMany | t.Bind):
            value = draft.needing(env, statement.value)
            if len(statement.names) == 1:
                env.bind(statement.names[0], value)
                continue
            if not isinstance(value, tuple) or len(value) != len(statement.names):
                raise Mismatch(f"`{statement.span.text}` names {len(statement.names)} results")
            for name, part in zip(statement.names, value, strict=True):
                env.bind(name, part)
    out = tuple(env.get(name) for name in syntax.outputs)
    for name, value in zip(syntax.outputs, out, strict=True):
        if not isinstance(value, Value):
            raise Mismatch(f"`{name}` is no tensor")
    return out


def _shapes(
    sub: SubstitutionDef, left: tuple[Value, ...], right: tuple[Value, ...], assumed: AssumedCase
) -> list[Scalar]:
    """Equalities of sizes of both sides that are not proved."""
    from dslc.ir.scalar import apply, as_scalar, num

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
