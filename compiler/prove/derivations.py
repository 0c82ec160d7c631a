"""Derivations at random expressions: each instance of a rule is proved, or shows where the rule is wrong.

A derivation has unknown terms and maps, so that no single proof says that it holds; of what it makes of an expression, one does.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from dslc.derivation.steps import Steps, directions, rewritten
from dslc.interpret.floats import Floats
from dslc.interpret.run import run_scopes
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Input, ScopeNode, Value, input_value, scope_value, topological
from dslc.ir.graph import Scope as ValueScope
from dslc.ir.scalar import Iter, Scalar, apply, iterator, num, read, reduce
from dslc.prove.exact.answers import Differs, Equal
from dslc.prove.exact.compare import compare
from dslc.prove.formed import formed
from dslc.prove.verdict import RuleVerdict, Verdict
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.library import Rules
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t
from dslc.syntax.printer import show

Values = tuple[Value, ...]


STARTS = 48  #: random expressions
INSTANCES = 24  #: instances of a rule that are proved
SECONDS = 8.0  #: seconds for all of them
EACH = 2.0  #: seconds for one of them
DRAWS = 3  #: how often numbers are put into an instance that the exact prover leaves open
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
    proved, open_, same, found = 0, 0, 0, None
    for before, after in _instances(rule, seed, helpers):
        if before == after:
            # a rule about names of what stands inside: there are none
            same += 1
            continue
        answer = compare(rules, before, after, seconds=EACH)
        place = (
            answer.position
            if isinstance(answer, Differs)
            else None
            if isinstance(answer, Equal)
            else _differs(before, after, seed)
        )
        if place is not None:
            found = f"of {_text(before)} it makes {_text(after)}, which differs at {list(place)}"
            break
        proved, open_ = proved + isinstance(answer, Equal), open_ + (not isinstance(answer, Equal))
        if proved + open_ >= most or time.perf_counter() - began > SECONDS:
            break
    milliseconds = (time.perf_counter() - began) * 1e3
    digest = hashlib.sha256(show(rule.syntax).encode()).hexdigest()
    if found is not None:
        return RuleVerdict(rule.name, "refuted", (Verdict("exact", "differs", milliseconds, found),), digest, found)
    if same and not proved + open_:
        reason = f"{same} of {same} random instances are what they were"
        return RuleVerdict(
            rule.name, "tested", (Verdict("exact", "equal", milliseconds, scope=reason),), digest, reason
        )
    if not proved:
        reason = "no random expression has its form" if not open_ else f"none of {open_} instances was decided"
        return RuleVerdict(rule.name, "undecided", (Verdict("exact", "unknown", milliseconds, reason),), digest, reason)
    reason = f"{proved} of {proved + open_} random instances proved"
    return RuleVerdict(rule.name, "tested", (Verdict("exact", "equal", milliseconds, scope=reason),), digest, reason)


def _instances(rule: DerivationDef, seed: int, helpers: Sequence[DerivationDef]) -> Iterator[tuple[Values, Values]]:
    """What a rule makes of random expressions, in either direction: the values before and after."""
    seeded = random.Random(seed)
    ways = directions([rule])
    lefts = tuple(formula.scope for _, _, left, _ in ways for formula in left)
    kinds = sorted({node.kind for node in walk_expr(lefts) if isinstance(node, t.Reduction)}) or ["sum"]
    seen: set[tuple[Value, ...]] = set()
    for turn in range(STARTS):
        every = _expressions(seeded, turn, helpers, kinds[turn % len(kinds)])
        made = (
            (tuple(results), tuple(results.values()))
            for _, syntax, left, right in ways
            for values in (*_formed(syntax, left, seed + 1000 * turn), *_choices(every, len(left)))
            for results in islice(rewritten(syntax, left, right, values), ALIKE)
        )  # fmt: skip
        # many expressions say more than many instances of one
        few = 0
        for before, after in made:
            if after not in seen:
                seen.add(after)
                few += 1
                yield before, after
            if few >= ALIKE:
                break


def _formed(rule: t.Derivation, left: Sequence[t.Formula], seed: int) -> Iterator[Values]:
    """Values of the very form of a left side, if there are any."""
    made = formed(rule, left, seed)
    if made is not None:
        yield made


def _differs(before: Values, after: Values, seed: int) -> tuple[int, ...] | None:
    """A position at which both differ for some small whole numbers; None where there is none."""
    inputs = [
        node.values[0] for node in topological(value.node for value in (*before, *after)) if isinstance(node, Input)
    ]
    drawn = np.random.default_rng(seed)
    for _ in range(DRAWS):
        feeds = {value: drawn.integers(-3, 4, value.type.sizes).astype(np.float64) for value in inputs}
        results = run_scopes([*before, *after], feeds, Floats(rounded=False))
        for old, new in zip(results, results[len(before) :], strict=False):
            unlike = np.isfinite(old) & np.isfinite(new) & ~np.isclose(old, new, rtol=1e-9, atol=1e-9)
            if unlike.any():
                return tuple(int(each[0]) for each in np.nonzero(unlike))
    return None


def _choices(values: Sequence[Value], count: int) -> Iterator[tuple[Value, ...]]:
    if count == 1:
        yield from ((value,) for value in values)
        return
    for k, first in enumerate(values):
        for second in values[k + 1 :] if count == 2 else ():
            yield first, second
            yield second, first


# ---- expressions -----------------------------------------------------------------------------------------------------


def _expressions(seeded: random.Random, turn: int, helpers: Sequence[DerivationDef], kind: str) -> list[Value]:
    """A random expression and its relatives: over other tensors, over another box, and what helpers and users make of it."""
    shape = [seeded.choice((2, 3, 6, 8)) for _ in range(seeded.randint(1, 3))]
    sums = [seeded.choice((2, 3, 4, 6)) for _ in range((0, 1, 2, 3)[turn % 4])]
    factors = 1 + (turn % 5 > 0)
    make = _Drawn(seeded, shape, sums, factors, kind)
    value = make.value("A", "B")
    relatives = [value, make.value("C", "B"), make.value("C", "D"), make.value("A", "B", wider=0)]
    steps = Steps(list(helpers))
    near: list[Value] = []
    for _, new in list(steps.of(steps.start(value)))[:6]:
        near += [node.values[0] for node in topological([new.node]) if isinstance(node, ScopeNode)]
    phases = [make.value("A", "B", phases=True)] if sums else []
    return list(dict.fromkeys([*relatives, _user(value), *near, *phases]))


class _Drawn:
    """One random expression: a sum of products (or of sums) of reads at sums of iterators, some of them beside their tensors.

    `kind`: what is done instead of adding.
    """

    def __init__(
        self, seeded: random.Random, shape: list[int], sums: list[int], factors: int, kind: str = "sum"
    ) -> None:
        self.shape, self.sums, self.kind = shape, sums, kind
        self.joined = "+" if seeded.random() < 0.2 else "*"
        self.iters = [iterator(f"i{k}") for k in range(len(shape))]
        self.bound = [iterator(f"r{k}") for k in range(len(sums))]
        every = [*self.iters, *self.bound]
        self.indexes: list[tuple[tuple[Scalar, int, bool], ...]] = []
        for factor in range(factors):
            own = [it for it in every if seeded.random() < 0.7] or every[:1]
            if factor == factors - 1 and self.indexes:
                known = {it for index in self.indexes for part, _, _ in index for it in part.free}
                own = list(dict.fromkeys([*own, *(it for it in every if it not in known)]))
            if factors == 1:
                own = list(every)
            seeded.shuffle(own)
            self.indexes.append(tuple(self._parts(seeded, own, factor == 0)))

    def _parts(self, seeded: random.Random, own: list[Iter], beside: bool) -> Iterator[tuple[Scalar, int, bool]]:
        """Indexes with the size of what is read, and whether they leave it."""
        while own:
            it = own.pop()
            if own and beside and seeded.random() < 0.4:
                other, factor = own.pop(), seeded.choice((1, 1, 2))
                moved = seeded.choice((0, 1))
                index = apply("+", it, apply("+", apply("*", num(factor), other), num(-moved)))
                reach = self._extent(it) + factor * (self._extent(other) - 1)
                # there may be more behind what is read
                yield index, max(1, reach - 2 * moved) + seeded.choice((0, 0, 2)), moved > 0
            elif beside and seeded.random() < 0.3:
                yield it, max(1, self._extent(it) - 1), self._extent(it) > 1
            else:
                yield it, self._extent(it) + (seeded.choice((0, 0, 0, 2)) if beside else 0), False

    def _extent(self, it: Iter) -> int:
        return self.shape[self.iters.index(it)] if it in self.iters else self.sums[self.bound.index(it)]

    def value(self, *names: str, wider: int | None = None, phases: bool = False) -> Value:
        """The expression over tensors of these names; `wider`: along this axis it has one position less.

        `phases`: of the first sum only what is at the result's phase.
        """
        args, factors = [], []
        for k, index in enumerate(self.indexes):
            args.append(input_value(names[k], TensorType(DType.F32, tuple(size for _, size, _ in index))))
            outside = num(0) if any(leaves for _, _, leaves in index) else None
            factors.append(read(k, tuple(part for part, _, _ in index), outside))
        body = factors[0] if len(factors) == 1 else apply(self.joined, *factors)
        if self.sums:
            phase = apply("%", apply("-", self.iters[0], self.bound[0]), num(self.sums[0]))
            where = apply("==", phase, num(0)) if phases else None
            body = reduce(self.kind, tuple(self.bound), tuple(num(size) for size in self.sums), body, where)
        shape = [size - (k == wider and size > 1) for k, size in enumerate(self.shape)]
        return scope_value(ValueScope(tuple(shape), body, DType.F32), tuple(args))


def _user(value: Value) -> Value:
    """What reads an expression and adds one to it, place by place."""
    shape = value.type.shape
    body = apply("+", read(0, tuple(iterator(f"i{k}") for k in range(len(shape)))), num(1))
    return scope_value(ValueScope(shape, body, value.type.dtype), (value,))


def _text(values: Sequence[Value]) -> str:
    scopes = [node for node in topological(value.node for value in values) if isinstance(node, ScopeNode)]
    return ", ".join(str(node.scope) for node in scopes[:4])
