"""Derivations at random expressions: each instance of a rule is proved, or shows where the rule is wrong.

A derivation has unknown terms and maps, so that no single proof says that it holds; of what it makes of an expression, one does.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator, Sequence, Set
from itertools import chain, islice, permutations
from math import prod

import numpy as np

from dslc.analysis.numeric import interval
from dslc.analysis.reads import inputs_of
from dslc.derivation.left_sides import UnknownBindings, at_index
from dslc.derivation.pieces import Box, Map, Operands, Unfit, UnknownTerm, ranges
from dslc.derivation.right_sides import RightSide
from dslc.derivation.steps import Steps, directions, rewritten
from dslc.interpret.floats import Floats
from dslc.interpret.run import run_scopes
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope as ValueScope
from dslc.ir.graph import ScopeNode, Value, Values, input_value, scope_value, topological
from dslc.ir.scalar import Iter, Num, Scalar, apply, iterator, num, read
from dslc.prove.exact.answers import Differs, Equal
from dslc.prove.exact.compare import compare
from dslc.prove.verdict import RuleVerdict, Status, Verdict
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t
from dslc.syntax.printer import show

STARTS = 48  #: random expressions
INSTANCES = 24  #: instances of a rule that are proved
SECONDS = 8.0  #: seconds for all of them
EACH = 2.0  #: seconds for one of them
DRAWS = 3  #: how often numbers are put into an instance that the exact prover leaves open
FORMS = 6  #: rules of whose forms expressions are made at a time, and steps from one of these
ALIKE = 3  #: instances that are made of one random expression, and of each scope of it


def verify_derivation(
    rules: Rules,
    rule: DerivationDef,
    seed: int = 0,
    helpers: Sequence[DerivationDef] = (),
    most: int = INSTANCES,
) -> RuleVerdict:
    """`tested` where every instance that was found is proved, `refuted` where one differs, `undecided` where there is none.

    Args:
        most: instances that are proved.
        helpers: derivations whose results are expressions to try, too: of a rule that puts nested scopes together, say.
    """
    began = time.perf_counter()
    proved, open_, same, found = 0, 0, 0, ""
    for before, after in _instances(rule, seed, helpers):
        if before == after:
            # a rule about names of what stands inside: there are none
            same += 1
            continue
        answer = compare(before, after, seconds=EACH)
        equal = isinstance(answer, Equal)
        place = answer.position if isinstance(answer, Differs) else None if equal else _differs(before, after, seed)
        if place is not None:
            found = f"of {_text(before)} it makes {_text(after)}, which differs at {list(place)}"
            break
        proved, open_ = proved + equal, open_ + (not equal)
        if proved + open_ >= most or time.perf_counter() - began > SECONDS:
            break
    spent = (time.perf_counter() - began) * 1e3
    status: Status = "tested"
    if found:
        status, verdict = "refuted", Verdict("exact", "differs", spent, found)
    elif proved or (same and not open_):
        shown = f"{proved} of {proved + open_} random instances proved"
        found = shown if proved else f"{same} of {same} random instances are what they were"
        verdict = Verdict("exact", "equal", spent, scope=found)
    else:
        found = f"none of {open_} instances was decided" if open_ else "no random expression has its form"
        status, verdict = "undecided", Verdict("exact", "unknown", spent, found)
    digest = hashlib.sha256(show(rule.syntax).encode()).hexdigest()
    return RuleVerdict(rule.name, status, (verdict,), digest, found)


def _instances(rule: DerivationDef, seed: int, helpers: Sequence[DerivationDef]) -> Iterator[tuple[Values, Values]]:
    """The values before and after a rule is applied to random expressions, in either direction."""
    seeded = random.Random(seed)
    seen: set[Values] = set()
    for turn in range(STARTS):
        every = _expressions(seeded, [rule, *helpers])
        made = (
            (tuple(results), tuple(results.values()))
            for _, syntax, left, right in directions([rule])
            for values in (formed(syntax, left, seed + 1000 * turn), *permutations(every if len(left) < 3 else (), len(left)))
            for results in islice(() if values is None else rewritten(syntax, left, right, values), ALIKE)
        )  # fmt: skip
        # many expressions say more than many instances of one
        new = (pair for pair in made if pair[1] not in seen)
        for before, after in islice(new, ALIKE):
            seen.add(after)
            yield before, after


def _differs(before: Values, after: Values, seed: int) -> tuple[int, ...] | None:
    """A position at which both differ for some small whole numbers; None where there is none."""
    inputs = inputs_of((*before, *after))
    drawn = np.random.default_rng(seed)
    for _ in range(DRAWS):
        feeds = {value: drawn.integers(-3, 4, value.type.sizes).astype(np.float64) for value in inputs}
        results = run_scopes([*before, *after], feeds, Floats(rounded=False))
        for old, new in zip(results, results[len(before) :], strict=False):
            unlike = np.isfinite(old) & np.isfinite(new) & ~np.isclose(old, new, rtol=1e-9, atol=1e-9)
            if unlike.any():
                return tuple(int(each[0]) for each in np.nonzero(unlike))
    return None


# ---- expressions -----------------------------------------------------------------------------------------------------


def _expressions(seeded: random.Random, rules: Sequence[DerivationDef]) -> list[Value]:
    """Random expressions of the forms of some rules' left sides, and what rules and users make of one of them."""
    ways = list(directions(rules))
    made: list[Value] = []
    for _, syntax, left, _ in seeded.sample(ways, min(FORMS, len(ways))):
        made += formed(syntax, left, seeded.randrange(1 << 20)) or ()
    if made:
        steps = Steps(list(rules))
        for _, new in islice(steps.of(steps.start(made[0])), FORMS):
            made += [node.values[0] for node in topological([new.node]) if isinstance(node, ScopeNode)]
        made.append(_user(made[0]))
    return list(dict.fromkeys(made))


def _user(value: Value) -> Value:
    """A scope that reads an expression and adds one to it, place by place."""
    shape = value.type.shape
    body = apply("+", read(0, tuple(iterator(f"i{k}") for k in range(len(shape)))), num(1))
    return scope_value(ValueScope(shape, body, value.type.dtype), (value,))


def _text(values: Sequence[Value]) -> str:
    scopes = [node for node in topological(value.node for value in values) if isinstance(node, ScopeNode)]
    return ", ".join(str(node.scope) for node in scopes[:4])


LARGE = 1 << 12  #: elements of one expression at most


def formed(rule: t.Derivation, formulas: Sequence[t.Formula], seed: int) -> Values | None:
    """One value for each formula; None where the rule has a form that no random unknowns have."""
    try:
        return _Formed(rule, formulas, random.Random(seed)).values()
    except (Unfit, KeyError, ValueError):
        return None


class _Formed:
    """One choice of all unknowns of a left side."""

    def __init__(self, rule: t.Derivation, formulas: Sequence[t.Formula], drawn: random.Random) -> None:
        self.rule, self.formulas, self.drawn = rule, formulas, drawn
        self.nodes = [node for formula in formulas for node in t.walk(formula.scope)]
        declared = (one for one in rule.declarations if isinstance(one, t.TensorDecl))
        self.tensors = {name for one in declared for name in one.names}
        self.operands = Operands()
        self.sets: dict[str, Box] = {}
        #: the set of each index
        self.own: dict[str, str] = {}
        self.inputs = 0

    def values(self) -> Values:
        found = UnknownBindings()
        self._boxes()
        called = {node.function for node in self.nodes if isinstance(node, t.Call)}
        for one in self.rule.declarations:
            if isinstance(one, t.MapDecl) and one.name in called:
                found = found.put("maps", one.name, self._map(one))
        found = self._tensors(found)
        for one in self.rule.declarations:
            if isinstance(one, t.TermDecl):
                for signature in one.signatures:
                    found = found.put("terms", signature.name, self._term(signature))
        for name, box in self.sets.items():
            found = found.put("sets", name, box)
        right = RightSide(self.rule, found, self.operands, DType.F32)
        return tuple(self._built(right, formula) for formula in self.formulas)

    def _built(self, right: RightSide, formula: t.Formula) -> Value:
        made = right.formula(formula)
        if formula.name is not None:
            right.built[formula.name] = made
        if prod(extent if isinstance(extent, int) else LARGE + 1 for extent in made.value.type.shape) > LARGE:
            raise Unfit("an expression that is too large")
        return made.value

    # ---- sets and maps -------------------------------------------------------------------------------------

    def _boxes(self) -> None:
        binders = [binder for one in self.rule.declarations if isinstance(one, t.IndexDecl) for binder in one.binders]
        self.own = {binder.name: binder.range.id for binder in binders if isinstance(binder.range, t.Name)}
        longest = 2 if len(set(self.own.values())) < 4 else 1
        for name in self.own.values():
            if name not in self.sets:
                self.sets[name] = self._box(self.drawn.randint(1, longest))
        for node in self.nodes:
            if isinstance(node, t.Binder) and isinstance(node.range, t.Name) and node.range.id not in self.sets:
                self.sets[node.range.id] = self._box(len(self.sets[self.own[node.name]].low))

    def _box(self, rank: int) -> Box:
        return Box.of([self.drawn.choice((2, 3, 4)) for _ in range(rank)])

    def _map(self, one: t.MapDecl) -> Map:
        """Each value a sum of positions; what it maps into is as large as is needed, and at times larger."""
        params: list[Iter] = []
        whole = Box((), ())
        for name in _factors(one.domain):
            params += self.operands.fresh(len(self.sets[name].low))
            whole = whole * self.sets[name]
        at = dict(ranges(params, whole))
        values: list[Scalar] = []
        extents: list[int] = []
        left = list(params)
        self.drawn.shuffle(left)
        (name,) = _factors(one.codomain)
        for _ in self.sets[name].low:
            value: Scalar = num(0)
            for _ in range(min(len(left), self.drawn.randint(1, 2))):
                value = apply("+", value, apply("*", num(self.drawn.choice((1, 1, 2))), left.pop()))
            values.append(value)
            extents.append(interval(value, at)[1] + 1 + self.drawn.choice((0, 0, 1)))
        self.sets[name] = Box.of(extents)
        return Map(tuple(params), tuple(values))

    # ---- terms and tensors ---------------------------------------------------------------------------------

    def _tensors(self, found: UnknownBindings) -> UnknownBindings:
        """Tensors that are read at indexes; those that a term takes as a whole have the shape of its indexes."""
        for node in self.nodes:
            if isinstance(node, t.Subscript) and node.base.bare in self.tensors:
                names = [sub.bare for sub in node.subs if sub.bare]
                vectors = tuple(map(self._iters, names))
                number = self._input(self._extents(names))
                term = UnknownTerm(vectors, read(number, tuple(chain(*vectors))))
                found = found.put("tensors", node.base.bare, number).put("terms", at_index(node.base.bare), term)
            elif isinstance(node, t.Call):
                for arg in node.args:
                    if arg.bare in self.tensors and arg.bare not in found.tensors:
                        names = [each.bare for each in node.args if each.bare in self.own]
                        found = found.put("tensors", arg.bare, self._input(self._extents(names)))
        return found

    def _extents(self, names: Sequence[str]) -> list[Scalar]:
        return [extent for name in names for extent in self.sets[self.own[name]].extents]

    def _iters(self, index: str) -> tuple[Iter, ...]:
        return self.operands.fresh(len(self.sets[self.own[index]].low))

    def _term(self, signature: t.Signature) -> UnknownTerm:
        params: list[tuple[Iter, ...] | Iter | int] = []
        places: list[tuple[Scalar, Scalar]] = []
        elements: list[Scalar] = []
        # parameters that are whole tensors
        calls = [node for node in self.nodes if isinstance(node, t.Call) and node.function == signature.name]
        args = [(k, arg) for node in calls for k, arg in enumerate(node.args) if isinstance(arg, t.Name)]
        tensors = {k for k, arg in args if arg.id in self.tensors}
        for k, name in enumerate(signature.params):
            if name in self.own:
                vector = self._iters(name)
                params.append(vector)
                places += zip(vector, self.sets[self.own[name]].extents, strict=True)
            elif k in tensors:
                # a number that stands for whichever tensor is given
                number = self._input([extent for _, extent in places])
                params.append(number)
                elements.append(read(number, tuple(it for it, _ in places)))
            else:
                (element,) = self.operands.fresh()
                params.append(element)
                elements.append(element)
        own: dict[str, set[Scalar]] = {}
        for param, each in zip(params, signature.params, strict=True):
            if isinstance(param, tuple):
                own.setdefault(self.own[each], set()).update(param)
        for name in self._looked_for("groupings", signature.name):
            places = self._halved(places, own.get(name, set()))
        body = self._body(places, elements)
        for name in self._looked_for("guarded", signature.name):
            # a term is looked at where it changes along an index
            it, extent = self.drawn.choice([place for place in places if place[0] in own.get(name, set())])
            if isinstance(extent, Num):
                cut = self.drawn.randrange(1, int(extent.value))
                body = apply("select", apply("<", it, num(cut)), body, self._body(places, elements))
        return UnknownTerm(tuple(params), body)

    def _halved(self, places: Sequence[tuple[Scalar, Scalar]], own: Set[Scalar]) -> list[tuple[Scalar, Scalar]]:
        """Some of the places known by a quotient alone: `(p + r) // 2` for r."""
        made = [place for place in places if place[0] not in own]
        others = [*made, (num(0), num(1))]
        for it, extent in places:
            if it in own:
                other, more = self.drawn.choice(others)
                whole = apply("//", apply("+", it, other), num(2))
                made.append((whole, apply("+", apply("//", apply("+", extent, more), num(2)), num(1))))
        return made

    def _looked_for(self, generator: str, term: str) -> list[str]:
        """The sets along which the rule looks for something of a term."""
        calls = [one.domain for one in self.rule.statements if isinstance(one, t.Search)]
        named = [
            [arg.bare for arg in call.args if arg.bare]
            for call in calls
            if isinstance(call, t.Call) and call.function == generator
        ]
        return [names[1] for names in named if len(names) == 2 and names[0] == term]

    def _body(self, places: Sequence[tuple[Scalar, Scalar]], elements: Sequence[Scalar]) -> Scalar:
        """A product of the elements and of one read or two at the places, of which some stand together; or a sum of these."""
        parts = list(elements)
        for _ in range(self.drawn.randint(0 if elements else 1, 2)):
            own = [place for place in places if self.drawn.random() < 0.8] or list(places)
            self.drawn.shuffle(own)
            parts.append(self._read(own))
        whole = parts[0] if len(parts) == 1 else apply(self.drawn.choice("**+"), *parts)
        return apply("+", whole, num(1)) if self.drawn.random() < 0.1 else whole

    def _read(self, places: list[tuple[Scalar, Scalar]]) -> Scalar:
        index: list[Scalar] = []
        sizes: list[Scalar] = []
        beside = False
        while places:
            value, extent = places.pop()
            at: Scalar = value
            if places and self.drawn.random() < 0.3:
                other, more = places.pop()
                at, extent = apply("+", at, other), apply("+", extent, apply("-", more, num(1)))
            if self.drawn.random() < 0.2 and isinstance(extent, Num) and extent.value > 1:
                at, extent, beside = apply("-", at, num(1)), apply("-", extent, num(1)), True
            index.append(at)
            sizes.append(apply("+", extent, num(self.drawn.choice((0, 0, 1)))))
        return read(self._input(sizes), tuple(index), num(0) if beside else None)

    def _input(self, sizes: Sequence[Scalar]) -> int:
        self.inputs += 1
        shape = tuple(int(size.value) for size in sizes if isinstance(size, Num))
        return self.operands.number(input_value(f"T{self.inputs}", TensorType(DType.F32, shape)))


def _factors(node: t.Expr) -> Iterator[str]:
    if isinstance(node, t.Binary) and node.op == "*":
        yield from _factors(node.left)
        yield from _factors(node.right)
    elif isinstance(node, t.Name):
        yield node.id
    else:
        raise Unfit("no product of sets")
