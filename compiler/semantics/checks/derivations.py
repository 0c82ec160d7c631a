"""Checks of derivations: what an unknown takes and gives, what determines it, and whether a rule ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dslc.semantics.checks.forms import check_forms, inside
from dslc.semantics.checks.names import CheckReport
from dslc.semantics.checks.unknowns import ANY, Declared, Kinds, shown, unlike
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.walk import conditions_in, names_in, nodes
from dslc.semantics.ways import Never, way_of
from dslc.syntax import tree as t

#: generators that `search` knows: positional arguments (a set, or a term), and options
GENERATORS: Mapping[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "affine_bijections": (("set",), frozenset({"factors", "rank"})),
    "rounded_up": (("set",), frozenset({"to"})),
    "nonzero_box": (("term", "set"), frozenset()),
    "nonzero_positions": (("term", "set"), frozenset()),
    "halves": (("set",), frozenset()),
    "guarded": (("term", "set"), frozenset()),
    "flattenings": (("set",), frozenset()),
    "groupings": (("term", "set"), frozenset()),
    "sections": (("map",), frozenset()),
}
#: those that look for maps, the others look for sets
_MAPS = frozenset({"affine_bijections", "flattenings", "groupings", "nonzero_positions", "sections"})
#: what the options of generators may be, beside lists of numbers
SUGGESTED = frozenset({"tile_sizes", "vector_sizes"})


def check_unknowns(rule: DerivationDef, report: CheckReport) -> None:
    """Check the unknowns of a derivation.

    E0306 and E0307 for unknowns that are used otherwise than declared, E0323 for undetermined ones, W0003 without an
    end, W0017 for a rule that no search applies.
    """
    known = Declared.of(rule.syntax, report)
    before = len(report.found)
    for formula in (*rule.syntax.left, *rule.syntax.right):
        _Formula(known).expr(formula.scope)
    _generators(rule.syntax, known)
    check_forms(rule.syntax, known)
    if len(report.found) > before:
        return
    _determined(rule.syntax, known)
    if len(report.found) == before:
        _ends(rule.syntax, known)
        _applied(rule.syntax, known)


@dataclass
class _Formula:
    """One formula on its way: indexes that are bound by now, with their sets, and scopes that have names."""

    known: Declared
    bound: dict[str, frozenset[str]] = field(default_factory=dict)

    def expr(self, node: t.Expr) -> None:
        if isinstance(node, t.Traversal | t.Reduction):
            inner = replace(self, bound=dict(self.bound))
            for binder in node.places if isinstance(node, t.Traversal) else node.binders:
                if isinstance(binder, t.Binder):
                    if isinstance(node, t.Reduction) and binder.name in self.bound:
                        message = f"`{binder.name}` is an iterator already"
                        self.known.add("E0309", message, binder, "another name tells them apart")
                    inner.bound[binder.name] = self._range(binder)
            inner.expr(node.body)
        elif isinstance(node, t.Nested):
            # a scope knows its own iterators and nothing of those around it
            replace(self, bound={}).expr(node.scope)
            if node.subs is not None:
                places = node.scope.places if isinstance(node.scope, t.Traversal) else ()
                wanted = tuple(self._range(place) if isinstance(place, t.Binder) else ANY for place in places)
                self._index(node.subs, wanted, node)
        elif isinstance(node, t.Call):
            self._call(node)
        else:
            for part in _parts(node):
                self.expr(part)
            if isinstance(node, t.Name) and node.id in self.known.indexes and node.id not in self.bound:
                hint = f"`[{node.id}]` or `sum[{node.id}]` makes it one"
                self.known.add("E0201", f"the index `{node.id}` is no iterator here", node, hint)

    def _range(self, binder: t.Binder) -> frozenset[str]:
        """The set that an index is declared with, and the one that it runs through here."""
        own = binder.range.bare if binder.range else None
        return frozenset(each for each in (own, self.known.indexes.get(binder.name)) if each is not None)

    def _call(self, node: t.Call) -> None:
        sides = self.known.sides(node)
        if sides is not None:
            self._index(node.args, sides[0], node, f"`{node.function}`")
        elif node.function.partition(".")[0] in self.known.terms:
            params = self.known.terms[node.function.partition(".")[0]].params
            if len(node.args) == len(params):  # the walk over names says where it is not
                for arg, param in zip(node.args, params, strict=True):
                    self._argument(node, arg, param)
        else:
            for arg in node.args:
                self.expr(arg)

    def _argument(self, call: t.Call, arg: t.Expr, param: str) -> None:
        """An argument of a term: of an index the same set, of anything else no index."""
        wanted = self.known.indexes.get(param)
        kinds = self._kinds(arg)
        if wanted is not None and kinds is not None and unlike(kinds, (frozenset({wanted}),)):
            message = f"`{call.function}` takes {param}, which runs through {wanted}, and gets {shown(kinds)} here"
            own = f"{call.function}({', '.join(self.known.terms[call.function].params)})"
            self.known.add("E0306", message, arg, f"it is declared as `{own}`")
        self.expr(arg)

    def _index(self, subs: Sequence[t.Expr], wanted: Kinds, at: t.Expr, name: str = "this scope") -> None:
        """Positions for vectors of these sets."""
        kinds: Kinds = ()
        for sub in subs:
            self.expr(sub)
            kinds += self._kinds(sub) or (ANY,)
        if len(kinds) != len(wanted):
            message = f"{name} has {len(wanted)} indexes, and gets {len(kinds)}"
            self.known.add("E0307", message, at, f"they run through {shown(wanted)}")
        elif unlike(kinds, wanted):
            message = f"{name} runs through {shown(wanted)}, and gets {shown(kinds)}"
            self.known.add("E0306", message, at, "each index is from a set of its own")

    def _kinds(self, node: t.Expr) -> Kinds | None:
        """The sets that positions are from; None where that is not known."""
        if isinstance(node, t.Name) and node.id in self.bound:
            return (self.bound[node.id],)
        sides = self.known.sides(node)
        return sides and sides[1]


def _parts(node: t.Expr) -> Iterable[t.Expr]:
    """The expressions right inside another one, in which its indexes are used."""
    match node:
        case t.Binary(_, left, right):
            return left, right
        case t.Conditional():
            return node.condition, node.then, node.otherwise
        case t.Compare(parts) | t.Subscript(_, parts) | t.Join(parts):
            return parts
        case t.Restrict(scope):
            return (scope,)
    return ()


# ---- what is determined ----------------------------------------------------------------------------------------------


def _names(root: object) -> set[str]:
    """Every name in some expressions: of values, of functions, of ranges."""
    found = names_in(root) | {node.function.partition(".")[0] for node in nodes(t.Call, root)}
    return found | {node.name for node in nodes(t.Binder, root)}


def _determined(rule: t.Derivation, known: Declared) -> None:
    """E0323 for unknowns of the right side that neither the left one, nor a condition, nor `search` determines."""
    for left, right in rule.ways:
        given = _closed(rule, known, _names(tuple(formula.scope for formula in left)))
        for formula in right:
            names = _names(formula.scope)
            ranged = {node.name for node in nodes(t.Binder, formula.scope) if node.range}
            names |= known.ranged(names - ranged)
            for name in sorted(names - given):
                if name in known.sets | known.tensors | known.maps.keys() | known.terms.keys():
                    way = "" if left is rule.left else ", from right to left,"
                    hint = f"`search {name} in ...` says where it is looked for"
                    message = f"nothing determines `{name}`{way} before it is used here"
                    known.add("E0323", message, formula, hint)


def _closed(rule: t.Derivation, known: Declared, names: set[str]) -> set[str]:
    """Close the known names of a left side: by `search`, by the targets of maps, and by conditions with one unknown."""
    given = names | known.ranged(names) | {one.name for one in rule.searches}
    before = -1
    while before < len(given):
        before = len(given)
        for name, (domain, codomain) in known.maps.items():
            if name in given:
                given |= {each for kind in (*domain, *codomain) for each in kind}
        for condition in conditions_in(rule.declarations):
            match condition:
                case t.Compare((t.Name(name), *_, right), ("==", *_)) if _names(right) <= given | {"hull", "image"}:
                    given.add(name)
                case t.Compare((left, *_, t.Binary("|", one, other)), ("<=", *_)) if _names((left, one)) <= given:
                    given |= _names(other)
    return given


def _generators(rule: t.Derivation, known: Declared) -> None:
    for one in rule.searches:
        node = one.domain
        if not isinstance(node, t.Call) or node.function not in GENERATORS:
            names = ", ".join(f"`{name}`" for name in GENERATORS)
            known.add("E0326", "this is no generator of what `search` looks for", node, f"one of {names}")
            continue
        wanted, options = GENERATORS[node.function]
        if len(node.args) != len(wanted):
            shape = {"term": "f", "set": "X", "map": "phi"}
            hint = f"`{node.function}({', '.join(shape[each] for each in wanted)})`"
            message = f"`{node.function}` takes {len(wanted)} arguments, and gets {len(node.args)}"
            known.add("E0301", message, node, hint)
        for arg, kind in zip(node.args, wanted, strict=False):
            if arg.bare not in {"set": known.sets, "term": known.terms, "map": known.maps}[kind]:
                known.add("E0304", f"`{node.function}` takes a {kind} here", arg, f"`{kind}` declares one")
        for entry in node.kwargs:
            if entry.name not in options:
                hint = "it takes " + (", ".join(sorted(options)) or "none")
                known.add("E0302", f"`{node.function}` has no option `{entry.name}`", entry, hint)
            elif not _is_option(entry.name, entry.value, known):
                known.add("E0304", f"this is nothing that `{entry.name}` may be", entry.value,
                           "numbers from 2 on, as in `[2, 4]`")  # fmt: skip
        makes_map = node.function in _MAPS
        if (one.name in known.maps) is not makes_map and one.name in known.maps.keys() | known.sets:
            hint = f"{' and '.join(f'`{each}`' for each in sorted(_MAPS))} look for maps, the others for sets"
            known.add("E0304", f"`{node.function}` gives {'a map' if makes_map else 'a set'}, and `{one.name}` is none", one,
                       hint)  # fmt: skip


def _is_option(name: str, value: t.Expr, known: Declared) -> bool:
    """`rank=4`; `factors=divisors(X)`, `to=tile_sizes`, or either as a list of numbers that are at least 2."""
    match value:
        case t.Int(number):
            return number >= (1 if name == "rank" else 2)
        case t.ListExpr(elements) if name != "rank":
            return bool(elements) and all(isinstance(item, t.Int) and item.value >= 2 for item in elements)
        case t.Call("divisors", (arg,)) if name != "rank":
            return arg.bare in known.sets
    return name != "rank" and value.bare in SUGGESTED


# ---- an end ----------------------------------------------------------------------------------------------------------


def _ends(rule: t.Derivation, known: Declared) -> None:
    """W0003 where the left side of a rule without conditions and `search` stands inside of what it becomes."""
    bounded = rule.searches or any(isinstance(one, t.Where) for one in rule.declarations)
    if bounded or rule.arrow == "<=>" or len(rule.left) != 1:
        return
    (left,) = rule.left
    pattern = inside(left.scope)
    for formula in rule.right:
        whole = inside(formula.scope)
        found = [node for node in nodes(t.Traversal, formula.scope) if _alike(pattern, node)]
        wrapped = (
            isinstance(whole, t.Traversal) and isinstance(pattern, t.Traversal) and _wraps(pattern.body, whole.body)
        )
        same = whole == pattern and formula.name == left.name
        inner = (
            len(rule.right) > 1
            or any(node is not whole for node in found)
            or len([*t.walk(whole)]) > len([*t.walk(pattern)])
        )
        if wrapped or same or (found and inner):
            hint = "a rule that may be used both ways is written with `<=>`; a `where` or a `search` bounds it"
            known.add("W0003", f"the right side of `{rule.name}` holds its left side again", rule, hint)
            return


def _applied(rule: t.Derivation, known: Declared) -> None:
    """W0017 where no search applies a rule, in neither direction."""
    ways = [way_of(*way) for way in rule.ways]
    reasons = dict.fromkeys(way.value for way in ways if isinstance(way, Never))
    if all(isinstance(way, Never) for way in ways):
        hint = "one expression, two with names beside each other, or one and behind it the one that reads it"
        known.add("W0017", f"no search applies `{rule.name}`: {'; '.join(reasons)}", rule, hint)


def _wraps(pattern: t.Expr, node: t.Expr) -> bool:
    """Return whether what a rule has for an element is computed from the whole element of its left side."""
    if not isinstance(pattern, t.Reduction) or isinstance(node, t.Reduction):
        return False
    return isinstance(node, t.Binary | t.Unary) and any(part == pattern for part in t.walk(node))


def _alike(pattern: t.Expr, node: t.Expr) -> bool:
    """Return whether the pattern of a left side matches an expression that is made of the same unknowns."""
    match pattern, node:
        case t.Traversal(), t.Traversal():
            return len(node.places) >= len(pattern.places) and _alike(pattern.body, node.body)
        case t.Reduction(), t.Reduction():
            same = node.kind == pattern.kind and len(node.binders) >= len(pattern.binders)
            return same and _alike(pattern.body, node.body)
    # an unknown term is anything
    return isinstance(pattern, t.Call) and not isinstance(node, t.Reduction)
