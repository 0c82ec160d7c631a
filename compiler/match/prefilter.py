"""Prefilters of sites by operator, literals and operands: tested once for each call, for all rules together (a discrimination key).

A thousand rules share some hundred prefilters. A prefilter sees no names: it lets through every call that can match, and some that
cannot. What it refuses no rule has to try.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from dslc.ir.dtype import DTYPES
from dslc.ir.graph import Call, Value
from dslc.match.associative import operands_within
from dslc.match.index import Earlier, Fitting, Index, Kind
from dslc.match.pattern import AttrPattern, Entries, Literal, Number, Pattern, Rest, Result, Side, Variable
from dslc.match.types import QuickType, equal
from dslc.records import record
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.linear import linear_at
from dslc.semantics.shape_free import is_pointwise


@record
class AnyTensor:
    """Values of a rule's parameter: `quick` with names by the order in which they occur."""

    quick: QuickType | None
    constant: bool


@record
class AnyNumber:
    """A constant with one number everywhere: this one, or any where `literal` is None; its kind keeps `1`, `1.0` and `true` apart."""

    literal: Any
    kind: type


@record
class From:
    """Result `output` of a call that fits; any result of it where None."""

    prefilter: SitePrefilter
    output: int | None


Need: TypeAlias = AnyTensor | AnyNumber | From


@record
class _Parts:
    """Key by which two prefilters are the same."""

    operator: str | None
    predicates: frozenset[str]
    attrs: tuple[tuple[str, Any], ...]
    outputs: int
    grouped: bool
    needs: tuple[Need, ...]
    anywhere: bool
    nested: bool


class SitePrefilter:
    """A prefilter, one object for all sites that have it. Made by `prefilters`."""

    __slots__ = ("_parts", "_rules", "_tests", "below", "nested", "operator", "operators")

    def __init__(self, parts: _Parts, tests: tuple[tuple[str, AttrPattern], ...], rules: Rules) -> None:
        self._parts = parts
        self._tests = tests
        self._rules = rules
        #: the operator of the calls that it lets through, None for any
        self.operator = parts.operator
        #: the prefilters of what its calls have to read
        self.below: tuple[SitePrefilter, ...] = tuple(
            [need.prefilter for need in parts.needs if isinstance(need, From)]
        )
        #: whether calls of the same operator that its calls read are looked through
        self.nested = parts.nested
        inside = [below.operators for below in self.below]
        #: the operators of all calls that a match takes, None where one may be any
        self.operators: frozenset[str] | None = None
        if parts.operator is not None and None not in inside:
            self.operators = frozenset((parts.operator,)).union(*[one for one in inside if one is not None])

    def fitting(self, index: Index) -> Fitting:
        """The calls that it lets through."""
        known = index.memory.fitting
        found = known.get(self)
        if not found:
            earlier = None if index.memory.earlier is None else index.memory.earlier(self)
            if earlier is None:
                calls = self._calls(index)
                found = Fitting(calls, frozenset(calls))
            else:
                found = self._after(index, earlier)
            known[self] = found
        return found

    def _calls(self, index: Index) -> tuple[Call, ...]:
        operator = self._parts.operator
        pool = index.calls if operator is None else index.by_operator.get(operator, ())
        # where nothing fits that a call would have to read, no call is looked at
        if not pool or not self._feasible(index):
            return ()
        return self._below(self._possible(pool, index), index)

    def _possible(self, calls: Iterable[Call], index: Index) -> list[Call]:
        """Filter calls by what they are by themselves: those of one signature are tested once."""
        memory = index.memory
        signatures, verdicts = memory.signatures, memory.verdicts.setdefault(self, {})
        out: list[Call] = []
        for call in calls:
            signature = signatures.get(call)
            if signature is None:
                key = (call.head, *[kind_at(arg, index) for arg in call.args])
                signature = signatures[call] = memory.numbers.setdefault(key, len(memory.numbers))
            verdict = verdicts.get(signature)
            if verdict is None:
                verdict = verdicts[signature] = self._alone(call, index)
            if verdict:
                out.append(call)
        return out

    def _after(self, index: Index, earlier: Earlier) -> Fitting:
        """As before, but for those calls of which that says nothing; what is new comes last."""
        before, unknown, there = earlier
        anew = self._possible(unknown, index)
        found = dict.fromkeys(self._below(anew, index)) if anew and self._feasible(index) else {}
        members = before.members
        calls = [call for call in before.calls if call in there and (call not in unknown or call in found)]
        fresh = [call for call in found if call not in members]
        if not fresh and len(calls) == len(before.calls):
            return before
        calls += fresh
        return Fitting(tuple(calls), frozenset(calls))

    def _feasible(self, index: Index) -> bool:
        return all(need.prefilter.fitting(index).calls for need in self._parts.needs if isinstance(need, From))

    def _below(self, calls: list[Call], index: Index) -> tuple[Call, ...]:
        """Filter calls by the producers of their arguments."""
        parts = self._parts
        if parts.operator is None and parts.predicates:
            calls = [call for call in calls if self._term(call)]
        if parts.nested:
            if any(not isinstance(need, AnyTensor) or need.constant for need in parts.needs):
                calls = [call for call in calls if self._nested(call, index)]
        elif any(isinstance(need, From) for need in parts.needs):
            calls = [call for call in calls if self._arguments(call, index, True)]
        return tuple(calls)

    def _alone(self, call: Call, index: Index) -> bool:
        """Test the call itself and the kinds of its arguments."""
        parts = self._parts
        if not parts.grouped and parts.outputs not in (0, len(call.types)):
            return False
        attrs = dict(call.attrs)
        if not all(name in attrs and _possible(pattern, attrs[name]) for name, pattern in self._tests):
            return False
        if parts.operator is None and call.op not in self._rules.operators:
            return False
        if parts.nested:
            return True
        needs = parts.needs
        if len(call.args) < len(needs) or (parts.operator is not None and len(call.args) > len(needs)):
            return False
        return self._arguments(call, index, False)

    def _arguments(self, call: Call, index: Index, produced: bool) -> bool:
        """Return whether arguments come from where they have to, where that is asked of them; else whether the others fit."""
        anywhere = self._parts.anywhere
        return all(
            isinstance(need, From) is not produced
            or any(_meets(need, arg, index) for arg in (call.args if anywhere else (call.args[k],)))
            for k, need in enumerate(self._parts.needs)
        )

    def _term(self, call: Call) -> bool:
        """Return whether the term may stand for the call, as far as its guards say."""
        parts = self._parts
        return all(satisfies(predicate, call, len(parts.needs), self._rules) for predicate in parts.predicates)

    def _nested(self, call: Call, index: Index) -> bool:
        """A tensor may be several operands together, of which nothing is known but that all are constant where it is."""
        known = index.memory.within
        operands = known.get(call)
        if operands is None:
            operands = known[call] = operands_within(call, index)
        for need in self._parts.needs:
            if isinstance(need, AnyTensor):
                if need.constant and not any(value.constant for value in operands):
                    return False
            elif not any(_meets(need, value, index) for value in operands):
                return False
        return True


def satisfies(predicate: str, node: Call, count: int, rules: Rules) -> bool:
    """Return whether an operator is pointwise, or linear in its first `count` tensors where it is used like this."""
    if predicate == "pointwise":
        return is_pointwise(rules.operators[node.op], rules)
    return linear_at(rules, node, count)


def attributes(call: Call, index: Index) -> dict[str, Any]:
    """The attributes of a call by name; not to be changed."""
    known = index.memory.attributes
    found = known.get(call)
    if found is None:
        found = known[call] = dict(call.attrs)
    return found


def _meets(need: Need, value: Value, index: Index) -> bool:
    if isinstance(need, AnyTensor):
        if need.constant and not value.constant:
            return False
        type = value.type_or_none
        return type is not None and (need.quick is None or need.quick.fits(type, {}))
    if isinstance(need, AnyNumber):
        number = number_at(value, index)
        return number is not None and (need.literal is None or equal(need.literal, number))
    members = need.prefilter.fitting(index).members
    for node in index.nodes(value):
        if node not in members or not isinstance(node, Call):
            continue
        if need.output is None or value in index.results(node)[need.output : need.output + 1]:
            return True
    return False


def number_at(value: Value, index: Index) -> Any:
    """`index.number`, asked once."""
    known = index.memory.number
    if value not in known:
        known[value] = index.number(value)
    return known[value]


def kind_at(value: Value, index: Index) -> Kind:
    """The properties of a tensor that guards and right sides can ask for."""
    return known_at(value, index)[1]


def known_at(value: Value, index: Index) -> tuple[int, Kind]:
    """A number for a tensor, and its kind."""
    known = index.memory.known
    found = known.get(value)
    if found is None:
        numbered = value.constant and number_at(value, index) is not None
        found = known[value] = (len(known), value if numbered else (value.type_or_none, value.constant))
    return found


def _possible(pattern: AttrPattern | Rest, actual: Any) -> bool:
    """Return whether an attribute can be what a pattern says, names aside."""
    if isinstance(pattern, Literal):
        return equal(pattern.value, actual)
    if not isinstance(pattern, Entries):
        return True
    if not isinstance(actual, tuple):
        return False
    elements = list(pattern.elements)
    for at, element in enumerate(elements):
        if isinstance(element, Rest):
            elements[at : at + 1] = [element] * (len(actual) - len(elements) + 1)
            break
    return len(actual) == len(elements) and all(map(_possible, elements, actual))


# ---- making them -----------------------------------------------------------------------------------------------


def prefilters(
    rules: Rules,
    side: Side,
    quick: dict[str, QuickType],
    constants: frozenset[str],
    predicates: dict[str, frozenset[str]],
) -> tuple[SitePrefilter, ...]:
    """The prefilter of every site of a pattern, equal ones as one object.

    Args:
        quick: what the types of tensor variables say at first sight.
        constants: the variables that have to be constant.
        predicates: what term variables have to be.
    """
    pool: dict[_Parts, SitePrefilter] = rules_cache(rules, "prefilters")
    made: dict[int, SitePrefilter] = {}
    # a site stands behind those that it reads
    for site in side.sites:
        tests = tuple((name, pattern) for name, pattern in site.attrs if isinstance(pattern, Literal | Entries))
        # an inverse whose results are taken in groups has other attributes than the call
        grouped = site.inverse is not None and site.outputs >= 2
        tests = () if grouped else tests
        needs: list[Need] = []
        for arg in site.args:
            if isinstance(arg, Result) and site.associative and side.sites[arg.site].inverse == site.operator:
                # its results may stand in the call as groups
                continue
            needs.append(_need(arg, side, made, quick, constants))
        parts = _Parts(
            site.operator,
            predicates.get(site.term or "", frozenset()),
            tuple((name, _shape_of(pattern)) for name, pattern in tests),
            site.outputs,
            grouped,
            tuple(needs),
            site.commutative,
            site.associative,
        )
        if parts not in pool:
            pool[parts] = SitePrefilter(parts, tests, rules)
        made[site.id] = pool[parts]
    return tuple(made.values())


def _need(
    arg: Pattern, side: Side, made: dict[int, SitePrefilter], quick: dict[str, QuickType], constants: frozenset[str]
) -> Need:
    if isinstance(arg, Variable):
        declared = quick.get(arg.name)
        return AnyTensor(declared and _anonymous(declared), arg.name in constants)
    if isinstance(arg, Number):
        return AnyNumber(arg.literal, type(arg.literal))
    below = side.sites[arg.site]
    return From(made[arg.site], None if below.inverse is not None else arg.output)


def _anonymous(quick: QuickType) -> QuickType:
    """A quick type with other names: what they are called matters to no prefilter."""
    names: dict[str, str] = {}

    def entry(declared: str | int | None) -> str | int | None:
        return names.setdefault(declared, f"n{len(names)}") if isinstance(declared, str) else declared

    return QuickType(
        quick.dtype if quick.dtype in DTYPES else "T",
        tuple(map(entry, quick.before)),
        None if quick.pack is None else "" if not quick.pack else "P",
        tuple(map(entry, quick.after)),
    )


def _shape_of(pattern: AttrPattern | Rest) -> Any:
    """A pattern without names, to be compared."""
    if isinstance(pattern, Literal):
        return ("literal", repr(pattern.value))
    if isinstance(pattern, Entries):
        return ("entries", *map(_shape_of, pattern.elements))
    return "rest" if isinstance(pattern, Rest) else "any"
