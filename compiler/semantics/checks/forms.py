"""Checks of derivations: what a left side can be, what a right side can build, conditions, and results.

A rule that has another form would be read and never apply; what is said here is why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dslc.semantics.checks.names import VOCABULARY
from dslc.semantics.checks.unknowns import ANY, Declared, Kinds, factors, shown, unlike
from dslc.semantics.walk import conditions_in, names_in, nodes
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import FUNCTIONS_1, FUNCTIONS_N

_CONDITIONS = (
    "`X <= V`, `X <= U | V`, `X == hull(U, V)`, `bijective(phi)`, `total(f, X)`, `reads(f, x)`, "
    "`unlike(U, V)`, `forall x in X - V: f(x, y) == 0`"
)
#: predicates that `where` knows, with what they take
PREDICATES: Mapping[str, tuple[str, ...]] = {
    "bijective": ("map",),
    "total": ("term", "set"),
    "reads": ("term", "index"),
    "unlike": ("set", "set"),
}
_FUNCTIONS = FUNCTIONS_1 | FUNCTIONS_N | {"hull"}
#: hints
_GUARDS = "conditions of a rule stand in `where`"
_TENSORS = "`tensor A, B` declares them"
_RIGHT = "a right side is made of unknown terms, maps, sums and arithmetic"
_LEFT = (
    "a left side is `[x] sum[y] ...` of unknown terms, their products and sums, and of scopes and tensors that are read"
)


def check_forms(rule: t.Derivation, known: Declared) -> None:
    """E0326, E0315, E0304 for what never applies, E0306 and E0307 for results on other boxes, W0005 for unknowns without a use."""
    for formula in (*rule.left, *(rule.right if rule.arrow == "<=>" else ())):
        _left(formula.scope, known)
    if len(rule.left) > 2:
        known.add("E0326", f"a rule rewrites one expression or two, and this one {len(rule.left)}", rule.left[2],
                   "two rules, one after the other")  # fmt: skip
    for formula in rule.right:
        _right(formula, known)
    for condition in conditions_in(rule.declarations):
        _condition(condition, known)
    _names(rule, known)
    _searches(rule, known)
    _results(rule, known)
    _constant_reads(rule.right, known)


# ---- left sides ----------------------------------------------------------------------------------------------------


def inside(node: t.Expr) -> t.Expr:
    """The traversal of a scope in braces."""
    return node.scope if isinstance(node, t.Nested) and node.subs is None else node


def _left(whole: t.Expr, known: Declared) -> None:
    node = inside(whole)
    if not isinstance(node, t.Traversal):
        known.add("E0326", "a scope is wanted here", node, _LEFT)
        return
    _places(node, known, left=True)
    body = node.body
    if isinstance(body, t.Reduction):
        if body.where:
            known.add("E0326", "a sum on a left side has no condition", body.where, _GUARDS)
        _ranged(body.binders, known)
        body = body.body
    _element(body, known)


def _places(node: t.Traversal, known: Declared, left: bool = False) -> None:
    if node.where:
        hint = _GUARDS if left else "`f(x) if x < 3 else 0` gives a value to each position"
        known.add("E0326", "a scope of a derivation has no condition", node.where, hint)
    seen: set[str] = set()
    for place in node.places:
        if not isinstance(place, t.Binder) or place.star:
            hint = "an index stands for any number of iterators"
            known.add("E0326", "derivations have no packs and no tuples", place, hint)
        elif place.name in seen:
            known.add("E0309", f"`{place.name}` is an iterator already", place, "another name tells them apart")
        else:
            seen.add(place.name)
    _ranged([place for place in node.places if isinstance(place, t.Binder)], known)


def _ranged(binders: Sequence[t.Binder], known: Declared) -> None:
    for binder in binders:
        name, message = binder.name, f"the index `{binder.name}` has no range"
        unknown = binder.range is None and known.indexes.get(name) is None
        if unknown and all(each.message != message for each in known.report.found):
            hint = f"`index {name}: {name.upper()}` says what it runs through, and `sum[{name}: 3]` how many there are"
            known.add("E0316", message, binder, hint)


def _element(node: t.Expr, known: Declared) -> None:
    """Forms of an element of a left side."""
    if isinstance(node, t.Binary) and node.op in {"+", "*", "-", "/", "//", "%", "^"}:
        _element(node.left, known)
        _element(node.right, known)
    elif isinstance(node, t.Call) and node.function in known.terms:
        names = [arg.id for arg in node.args if isinstance(arg, t.Name)]
        for arg in node.args:
            if not isinstance(arg, t.Name):
                _read(arg, known)
            elif names.count(arg.id) > 1 and arg.id in known.indexes:
                hint = "which of them is which nothing determines"
                known.add("E0309", f"`{node.function}` takes `{arg.id}` twice", arg, hint)
            elif arg.id not in known.indexes and arg.id not in known.tensors:
                known.add("E0326", f"`{arg.id}` is no index and no tensor", arg, _LEFT)
    elif not isinstance(node, t.Int | t.Float):
        _read(node, known)


def _read(node: t.Expr, known: Declared) -> None:
    """`{[z] ...}[phi(x)]`, `P[tau(z)]`, `A[x, y]`."""
    match node:
        case t.Nested(subs=tuple(subs)):
            outside = node.other is not None or node.subs_other is not None
        case t.Subscript(subs=subs):
            outside = node.other is not None
        case _:
            known.add("E0326", "nothing is recognized by this on a left side", node, _LEFT)
            return
    if outside:
        known.add("E0326", "on a left side nothing is read outside of a scope", node, _LEFT)
    if isinstance(node, t.Nested):
        _left(node.scope, known)
    plain = all(isinstance(sub, t.Name) for sub in subs)
    if not plain and not (len(subs) == 1 and isinstance(subs[0], t.Call) and subs[0].function in known.maps):
        message = "a left side reads at indexes, or at one unknown map of them"
        known.add("E0326", message, node, "`map phi: X * Y -> Z`")


# ---- right sides ---------------------------------------------------------------------------------------------------


def _right(formula: t.Formula, known: Declared) -> None:
    for node in t.walk(formula.scope):
        match node:
            case t.Traversal():
                _places(node, known)
            case t.Reduction():
                _ranged(node.binders, known)
            case t.Binary("/" | "//" | "%", _, t.Int(0)):
                known.add("E0327", "this is a division by zero", node, "it has no value anywhere")
            case t.Call("stack") if node is formula.scope:
                for arg in node.args:
                    if arg.bare not in known.tensors:
                        known.add("E0304", "`stack` takes unknown tensors", arg, _TENSORS)
            case t.Call(function) if function.partition(".")[0] not in _FUNCTIONS | known.functions:
                if function in VOCABULARY | {"stack"}:
                    known.add("E0326", f"`{function}` is nothing that a right side computes", node, _RIGHT)
            case t.Str() | t.Inf() | t.Pack() | t.TupleExpr() | t.ListExpr() | t.Field() | t.ForAll():
                known.add("E0326", "this is nothing that a right side computes", node, _RIGHT)
            case t.Compare() if not {*node.ops} <= {"==", "!=", "<", "<=", ">", ">="}:
                hint = "`==`, `!=`, `<`, `<=`, `>`, `>=`"
                known.add("E0326", "positions and elements are compared by other signs", node, hint)


def _declared(one: t.Node) -> list[tuple[str, t.Node]]:
    """The names of unknowns that a declaration makes, and their places."""
    match one:
        case t.TermDecl(parts) | t.IndexDecl(parts):
            return [(each.name, each) for each in parts]
        case t.MapDecl(name):
            return [(name, one)]
        case t.SetDecl(names) | t.TensorDecl(names):
            return [(name, one) for name in names]
    return []


def _names(rule: t.Derivation, known: Declared) -> None:
    """Names that stand for another kind of thing than the place takes, or for two; and W0005 for those without a use."""
    declared = [*known.indexes, *known.maps, *known.terms, *known.tensors]
    for one in rule.declarations:
        for name, at in _declared(one) if isinstance(one, t.TermDecl | t.IndexDecl) else ():
            if declared.count(name) > 1 or name in known.sets or name in known.again:
                known.add("E0213", f"`{name}` is the name of two unknowns", at, "each unknown has a name of its own")
    functions = known.functions
    used: set[str] = set()
    for formula in (*rule.left, *rule.right):
        for node in t.walk(formula.scope):
            if isinstance(node, t.Call):
                name, dot, way = node.function.partition(".")
                used.add(name)
                if dot and name in known.maps and way != "inverse":
                    known.add("E0201", f"nothing is named `{node.function}` here", node, f"a map has `{name}.inverse`")
                if name in known.indexes.keys() | known.sets | known.tensors and name not in functions:
                    hint = "`term f(x, y)`, `map phi: X -> Z` declare them"
                    known.add("E0326", f"`{name}` is no term and no map", node, hint)
            elif isinstance(node, t.Name):
                used.add(node.id)
                if node.id in functions and node.id not in known.indexes:
                    kind = "map" if node.id in known.maps else "term"
                    known.add(
                        "E0326", f"`{node.id}` is a {kind} and no value", node, f"`{node.id}(x)` is its value at x"
                    )
            elif isinstance(node, t.Binder):
                used |= {node.name} | names_in(node.range)
    conditions = conditions_in(rule.declarations)
    used |= names_in(conditions) | {node.function for node in nodes(t.Call, conditions)}
    used |= known.ranged(used)
    used |= {each for name in used & known.maps.keys() for part in known.maps[name] for kind in part for each in kind}
    for one in rule.declarations:
        for name, at in _declared(one):
            if name not in used:
                known.add("W0005", f"`{name}` is never used", at, "an unknown without a use says nothing")


# ---- conditions ----------------------------------------------------------------------------------------------------


def _condition(node: t.Expr, known: Declared) -> None:
    match node:
        case t.Call(function) if function in PREDICATES:
            kinds = PREDICATES[function]
            if len(node.args) != len(kinds):
                message = f"`{function}` takes {len(kinds)} arguments, and gets {len(node.args)}"
                known.add("E0301", message, node, _CONDITIONS)
            names = {"map": known.maps.keys(), "term": known.terms.keys(), "index": known.indexes.keys()}
            for arg, kind in zip(node.args, kinds, strict=False):
                if kind == "set":
                    _set(arg, known)
                elif arg.bare not in names[kind]:
                    what = f"an {kind}" if kind == "index" else f"a {kind}"
                    known.add("E0304", f"`{function}` takes {what} here", arg, _CONDITIONS)
        case t.ForAll():
            _forall(node, known)
        case t.Compare((left, right), ("<=", *_)):
            _set(left, known)
            for side in (right.left, right.right) if isinstance(right, t.Binary) and right.op == "|" else (right,):
                _set(side, known)
        case t.Compare((t.Call("shape" | "dtype" as function) as left, t.Call(other) as right), ("==", *_)) if (
            function == other
        ):
            for call in (left, right):
                if len(call.args) != 1 or call.args[0].bare not in known.tensors:
                    known.add("E0304", f"`{function}` takes an unknown tensor", call, _TENSORS)
        case t.Compare((t.Name() as left, right), ("==", *_)):
            _set(left, known)
            _set(right, known)
        case _:
            known.add("E0315", "nothing is known of this in a derivation", node, f"conditions: {_CONDITIONS}")


def _forall(node: t.ForAll, known: Declared) -> None:
    """`forall x in X - V: f(x, y) == 0`."""
    hint = f"conditions: {_CONDITIONS}"
    match node.body:
        case t.Compare((t.Call(function) as call, t.Int(0), *_), ("==",)) if (
            function in known.terms and node.name in known.indexes
        ):
            if not any(arg.bare == node.name for arg in call.args):
                known.add("E0315", f"`{function}` does not take `{node.name}` here", call, hint)
            elif not isinstance(node.domain, t.Binary) or node.domain.op != "-":
                message = "a term is 0 on what is left of a set beside another one"
                known.add("E0315", message, node.domain, "`X - V`")
            else:
                _set(node.domain.left, known)
                _set(node.domain.right, known)
        case _:
            known.add("E0315", "nothing is known of this in a derivation", node, hint)


def _set(node: t.Expr, known: Declared) -> None:
    """A set of positions: its name, `U * V`, `hull(U, V)`, `image(phi, X * Y)`."""
    match node:
        case t.Name(name) if name in known.sets:
            pass
        case t.Binary("*", left, right) | t.Call("hull", (left, right)):
            _set(left, known)
            _set(right, known)
        case t.Call("image", (first, domain)):
            if first.bare not in known.maps:
                known.add("E0304", "`image` takes a map here", first, "`image(phi, X)`")
            _set(domain, known)
        case _:
            known.add("E0304", "this is no set", node, "a set is `X`, `X * Y`, `hull(U, V)` or `image(phi, X)`")


def _searches(rule: t.Derivation, known: Declared) -> None:
    """E0309 for what is known already, E0306 for a map of another set than its own."""
    left = tuple(formula.scope for formula in rule.left)
    given = {node.range.bare for node in nodes(t.Binder, left) if node.range}
    given |= {node.function for node in nodes(t.Call, left)} | known.ranged(n.name for n in nodes(t.Binder, left))
    seen: set[str] = set()
    for one in rule.searches:
        if one.name in seen:
            known.add("E0309", f"`{one.name}` is looked for already", one, "one `search` for each unknown")
        elif one.name in given:
            hint = "`search` looks for what it does not"
            known.add("E0309", f"the left side determines `{one.name}`", one, hint)
        seen.add(one.name)
        match one.domain:
            case t.Call(function, (t.Name(first) as arg, *_)) if one.name in known.maps and first in known.sets:
                domain = known.maps[one.name][0]
                if unlike(domain, (frozenset({first}),)):
                    message = f"`{one.name}` maps {shown(domain)}, and is looked for on {first}"
                    known.add("E0306", message, arg, f"`{function}({shown(domain)})`")


# ---- results -------------------------------------------------------------------------------------------------------


def _results(rule: t.Derivation, known: Declared) -> None:
    """E0313 where nothing replaces the left side, E0306 and E0307 where a result runs through something else."""
    wanted = {formula.name: _runs(formula.scope, known, {}) for formula in rule.left}
    names = [formula.name for formula in rule.right]
    if None in wanted and None not in names:
        hint = "without a name on the left, the last `expr` has none"
        known.add("E0313", f"no expression of `{rule.name}` replaces the left side", rule, hint)
    made: dict[str, Kinds | None] = {}
    for at, formula in enumerate(rule.right, 1):
        _uses(formula, made, {*names[at:]}, known)
        runs, own = _runs(formula.scope, known, made), wanted.get(formula.name)
        if runs is not None and own is not None:
            message = f"this runs through {shown(runs)}, and the left side through {shown(own)}"
            if len(runs) != len(own):
                known.add("E0307", message, formula, "a rule keeps what a result is")
            elif all(runs) and all(own) and sorted(map(sorted, runs)) != sorted(map(sorted, own)):
                hint = "`restrict(R, X)` leaves a part of it, `{..., other=0}` has a value outside"
                known.add("E0306", message, formula, hint)
        if formula.name is not None:
            made[formula.name] = runs


def _runs(node: t.Expr, known: Declared, made: Mapping[str, Kinds | None]) -> Kinds | None:
    """The sets that a scope runs through; None where that is not known."""
    match node:
        case t.Restrict():
            return factors(node.domain)
        case t.Nested(scope, None, None):
            return _runs(scope, known, made)
        case t.Name(name):
            return made.get(name)
        case t.Traversal():
            found = []
            for place in node.places:
                index = None
                if isinstance(place, t.Binder):
                    index = place.range.bare if place.range else known.indexes.get(place.name)
                found.append(ANY if index is None else frozenset({index}))
            return tuple(found)
    return None


def _uses(formula: t.Formula, made: Mapping[str, Kinds | None], later: set[str | None], known: Declared) -> None:
    """Accesses of a formula to earlier ones: as many positions as they have, and none behind their end."""
    partly = {id(arg) for node in nodes(t.Call, formula.scope) if node.function in known.terms for arg in node.args}
    for node in t.walk(formula.scope):
        if isinstance(node, t.Name) and node.id in later and not isinstance(formula.scope, t.Call):
            hint = "formulas are computed from the first to the last"
            known.add("E0201", f"`{node.id}` is made later", node, hint)
        if isinstance(node, t.Subscript) and isinstance(node.base, t.Name):
            wanted = made.get(node.base.id)
            count = sum(len(sides[1]) if (sides := known.sides(sub)) else 1 for sub in node.subs)
            if wanted is not None and (count > len(wanted) or (count < len(wanted) and id(node) not in partly)):
                message = f"`{node.base.id}` has {len(wanted)} indexes, and gets {count}"
                known.add("E0307", message, node, f"they run through {shown(wanted)}")


def _constant_reads(formulas: Sequence[t.Formula], known: Declared) -> None:
    """E0401 for reads at a number behind the size that a formula's index has."""
    sizes: dict[str, tuple[int | None, ...]] = {}
    for formula in formulas:
        for node in nodes(t.Subscript, formula.scope):
            name = node.base.bare or ""
            for sub, size in zip(node.subs, sizes.get(name, ()), strict=False):
                if isinstance(sub, t.Int) and size is not None and sub.value >= size:
                    message = f"`{name}` has {size} positions along this index, and none numbered {sub.value}"
                    known.add("E0401", message, sub, "the first one is 0")
        scope = inside(formula.scope)
        if formula.name is not None and isinstance(scope, t.Traversal):
            sizes[formula.name] = tuple(
                place.range.value if isinstance(place, t.Binder) and isinstance(place.range, t.Int) else None
                for place in scope.places
            )
