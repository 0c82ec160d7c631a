"""Checks of derivations: what a left side can be, what a right side can build, conditions, and results.

A rule that has another form would be read and never apply; what is said here is why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dslc.semantics.checks.names import VOCABULARY, CheckReport
from dslc.semantics.checks.unknowns import Declared, factors, shown, unlike
from dslc.semantics.walk import names_in, nodes, walk_expr
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
_RIGHT = "a right side is made of unknown terms, maps, sums and arithmetic"
_LEFT = (
    "a left side is `[x] sum[y] ...` of unknown terms, their products and sums, and of scopes and tensors that are read"
)


def check_forms(rule: t.Derivation, known: Declared, report: CheckReport) -> None:
    """E0326, E0315, E0304 for what never applies, E0306 and E0307 for results on other boxes, W0005 for unknowns without a use."""
    for formula in (*rule.left, *(rule.right if rule.arrow == "<=>" else ())):
        _left(formula.scope, known, report)
    if len(rule.left) > 2:
        report.add("E0326", f"a rule rewrites one expression or two, and this one {len(rule.left)}", rule.left[2].span,
                   "two rules, one after the other")  # fmt: skip
    for formula in rule.right:
        _right(formula, known, report)
    for one in rule.declarations:
        for condition in one.conditions if isinstance(one, t.Where) else ():
            _condition(condition, known, report)
    _names(rule, known, report)
    _searches(rule, known, report)
    _results(rule, known, report)
    _constant_reads(rule.right, report)


# ---- left sides ----------------------------------------------------------------------------------------------------


def inside(node: t.Expr) -> t.Expr:
    """The traversal of a scope in braces."""
    return node.scope if isinstance(node, t.Nested) and node.subs is None else node


def _left(whole: t.Expr, known: Declared, report: CheckReport) -> None:
    node = inside(whole)
    if not isinstance(node, t.Traversal):
        report.add("E0326", "a scope is wanted here", node.span, _LEFT)
        return
    _places(node, known, report, left=True)
    body = node.body
    if isinstance(body, t.Reduction):
        if body.where is not None:
            report.add(
                "E0326",
                "a sum on a left side has no condition",
                body.where.span,
                "conditions of a rule stand in `where`",
            )
        _ranged(body.binders, known, report)
        body = body.body
    _element(body, known, report)


def _places(node: t.Traversal, known: Declared, report: CheckReport, left: bool = False) -> None:
    if node.where is not None:
        hint = (
            "`f(x) if x < 3 else 0` gives a value to each position"
            if not left
            else "conditions of a rule stand in `where`"
        )
        report.add("E0326", "a scope of a derivation has no condition", node.where.span, hint)
    seen: set[str] = set()
    for place in node.places:
        if not isinstance(place, t.Binder) or place.star:
            report.add("E0326", "derivations have no packs and no tuples", place.span,
                       "an index stands for any number of iterators")  # fmt: skip
        elif place.name in seen:
            report.add("E0309", f"`{place.name}` is an iterator already", place.span, "another name tells them apart")
        else:
            seen.add(place.name)
    _ranged([place for place in node.places if isinstance(place, t.Binder)], known, report)


def _ranged(binders: Sequence[t.Binder], known: Declared, report: CheckReport) -> None:
    for binder in binders:
        if binder.range is None and known.indexes.get(binder.name) is None:
            name = binder.name
            hint = f"`index {name}: {name.upper()}` says what it runs through, and `sum[{name}: 3]` how many there are"
            message = f"the index `{binder.name}` has no range"
            if all(each.message != message for each in report.found):
                report.add("E0316", message, binder.span, hint)


def _element(node: t.Expr, known: Declared, report: CheckReport) -> None:
    """Forms of an element of a left side."""
    if isinstance(node, t.Binary) and node.op in {"+", "*", "-", "/", "//", "%", "^"}:
        _element(node.left, known, report)
        _element(node.right, known, report)
    elif isinstance(node, t.Call) and node.function in known.terms:
        names = [arg.id for arg in node.args if isinstance(arg, t.Name)]
        for arg in node.args:
            if isinstance(arg, t.Name):
                if names.count(arg.id) > 1 and arg.id in known.indexes:
                    hint = "which of them is which nothing determines"
                    report.add("E0309", f"`{node.function}` takes `{arg.id}` twice", arg.span, hint)
                if arg.id not in known.indexes and arg.id not in known.tensors:
                    report.add("E0326", f"`{arg.id}` is no index and no tensor", arg.span, _LEFT)
            else:
                _read(arg, known, report)
    elif not isinstance(node, t.Int | t.Float):
        _read(node, known, report)


def _read(node: t.Expr, known: Declared, report: CheckReport) -> None:
    """`{[z] ...}[phi(x)]`, `P[tau(z)]`, `A[x, y]`."""
    if isinstance(node, t.Nested) and node.subs is not None:
        if node.other is not None or node.subs_other is not None:
            report.add("E0326", "on a left side nothing is read outside of a scope", node.span, _LEFT)
        _left(node.scope, known, report)
        subs = node.subs
    elif isinstance(node, t.Subscript):
        if node.other is not None:
            report.add("E0326", "on a left side nothing is read outside of a scope", node.span, _LEFT)
        subs = node.subs
    else:
        report.add("E0326", "nothing is recognized by this on a left side", node.span, _LEFT)
        return
    plain = all(isinstance(sub, t.Name) for sub in subs)
    if not plain and not (len(subs) == 1 and isinstance(subs[0], t.Call) and subs[0].function in known.maps):
        report.add(
            "E0326",
            "a left side reads at indexes, or at one unknown map of them",
            node.span,
            "`map phi: X * Y -> Z`",
        )


# ---- right sides ---------------------------------------------------------------------------------------------------


def _right(formula: t.Formula, known: Declared, report: CheckReport) -> None:
    for node in walk_expr(formula.scope):
        if isinstance(node, t.Traversal):
            _places(node, known, report)
        elif isinstance(node, t.Reduction):
            _ranged(node.binders, known, report)
        elif (
            isinstance(node, t.Binary)
            and node.op in {"/", "//", "%"}
            and isinstance(node.right, t.Int)
            and not node.right.value
        ):
            report.add("E0327", "this is a division by zero", node.span, "it has no value anywhere")
        elif isinstance(node, t.Call) and node.function == "stack" and node is formula.scope:
            for arg in node.args:
                if not isinstance(arg, t.Name) or arg.id not in known.tensors:
                    report.add("E0304", "`stack` takes unknown tensors", arg.span, "`tensor A, B` declares them")
        elif (
            isinstance(node, t.Call)
            and node.function.partition(".")[0] not in _FUNCTIONS | known.terms.keys() | known.maps.keys()
        ):
            if node.function in VOCABULARY | {"stack"}:
                report.add("E0326", f"`{node.function}` is nothing that a right side computes", node.span, _RIGHT)
        elif isinstance(node, t.Str | t.Inf | t.Pack | t.TupleExpr | t.ListExpr | t.Field | t.ForAll):
            report.add("E0326", "this is nothing that a right side computes", node.span, _RIGHT)
        elif isinstance(node, t.Compare) and not {*node.ops} <= {"==", "!=", "<", "<=", ">", ">="}:
            report.add("E0326", "positions and elements are compared by other signs", node.span,
                       "`==`, `!=`, `<`, `<=`, `>`, `>=`")  # fmt: skip


def _names(rule: t.Derivation, known: Declared, report: CheckReport) -> None:
    """Names that stand for another kind of thing than the place takes, or for two; and W0005 for those without a use."""
    declared = [*known.indexes, *known.maps, *known.terms, *known.tensors]
    for one in rule.declarations:
        own: tuple[t.Signature, ...] | tuple[t.Binder, ...] = ()
        if isinstance(one, t.TermDecl | t.IndexDecl):
            own = one.signatures if isinstance(one, t.TermDecl) else one.binders
        for each in own:
            if declared.count(each.name) > 1 or each.name in known.sets or each.name in known.again:
                report.add(
                    "E0213",
                    f"`{each.name}` is the name of two unknowns",
                    each.span,
                    "each unknown has a name of its own",
                )
    used: set[str] = set()
    for formula in (*rule.left, *rule.right):
        for node in walk_expr(formula.scope):
            if isinstance(node, t.Call):
                name, dot, way = node.function.partition(".")
                used.add(name)
                if dot and name in known.maps and way != "inverse":
                    report.add(
                        "E0201",
                        f"nothing is named `{node.function}` here",
                        node.span,
                        f"a map has `{name}.inverse`",
                    )
                if (
                    name in known.indexes.keys() | known.sets | known.tensors
                    and name not in known.terms.keys() | known.maps.keys()
                ):
                    report.add("E0326", f"`{name}` is no term and no map", node.span,
                               "`term f(x, y)`, `map phi: X -> Z` declare them")  # fmt: skip
            elif isinstance(node, t.Name):
                used.add(node.id)
                if node.id in known.maps.keys() | known.terms.keys() and node.id not in known.indexes:
                    kind = "map" if node.id in known.maps else "term"
                    report.add(
                        "E0326",
                        f"`{node.id}` is a {kind} and no value",
                        node.span,
                        f"`{node.id}(x)` is its value at x",
                    )
            elif isinstance(node, t.Binder):
                used.add(node.name)
                used |= names_in(node.range)
    for one in rule.declarations:
        if isinstance(one, t.Where):
            for node in walk_expr(one.conditions):
                used |= (
                    {node.id} if isinstance(node, t.Name) else {node.function} if isinstance(node, t.Call) else set()
                )
    used |= {known.indexes[name] or "" for name in used if name in known.indexes}
    used |= {each for name in used & known.maps.keys() for part in known.maps[name] for kind in part for each in kind}
    for one in rule.declarations:
        named: list[tuple[str, t.Node]] = []
        if isinstance(one, t.TermDecl):
            named = [(each.name, each) for each in one.signatures]
        elif isinstance(one, t.IndexDecl):
            named = [(each.name, each) for each in one.binders]
        elif isinstance(one, t.MapDecl):
            named = [(one.name, one)]
        elif isinstance(one, t.SetDecl | t.TensorDecl):
            named = [(name, one) for name in one.names]
        for name, at in named:
            if name not in used:
                report.add("W0005", f"`{name}` is never used", at.span, "an unknown without a use says nothing")


# ---- conditions ----------------------------------------------------------------------------------------------------


def _condition(node: t.Expr, known: Declared, report: CheckReport) -> None:
    if isinstance(node, t.Call) and node.function in PREDICATES:
        kinds = PREDICATES[node.function]
        wanted = [
            {"map": known.maps.keys(), "term": known.terms.keys(), "index": known.indexes.keys()}.get(kind)
            for kind in kinds
        ]
        if len(node.args) != len(wanted):
            report.add("E0301", f"`{node.function}` takes {len(wanted)} arguments, and gets {len(node.args)}", node.span,
                       _CONDITIONS)  # fmt: skip
        for arg, own, kind in zip(node.args, wanted, kinds, strict=False):
            if kind == "set":
                _set(arg, known, report)
            elif own is None or not isinstance(arg, t.Name) or arg.id not in own:
                what = f"an {kind}" if kind == "index" else f"a {kind}"
                report.add("E0304", f"`{node.function}` takes {what} here", arg.span, _CONDITIONS)
    elif isinstance(node, t.ForAll):
        _forall(node, known, report)
    elif isinstance(node, t.Compare) and len(node.operands) == 2 and node.ops[0] in {"<=", "=="}:
        left, right = node.operands
        if node.ops[0] == "<=":
            _set(left, known, report)
            for side in (right.left, right.right) if isinstance(right, t.Binary) and right.op == "|" else (right,):
                _set(side, known, report)
        elif (
            isinstance(left, t.Call)
            and isinstance(right, t.Call)
            and left.function == right.function in {"shape", "dtype"}
        ):
            for side in (left, right):
                if len(side.args) != 1 or not isinstance(side.args[0], t.Name) or side.args[0].id not in known.tensors:
                    report.add(
                        "E0304",
                        f"`{side.function}` takes an unknown tensor",
                        side.span,
                        "`tensor A, B` declares them",
                    )
        elif isinstance(left, t.Name):
            _set(left, known, report)
            _set(right, known, report)
        else:
            report.add("E0315", "nothing is known of this in a derivation", node.span, f"conditions: {_CONDITIONS}")
    else:
        report.add("E0315", "nothing is known of this in a derivation", node.span, f"conditions: {_CONDITIONS}")


def _forall(node: t.ForAll, known: Declared, report: CheckReport) -> None:
    """`forall x in X - V: f(x, y) == 0`."""
    body = node.body
    zero = (
        isinstance(body, t.Compare)
        and body.ops == ("==",)
        and isinstance(body.operands[1], t.Int)
        and body.operands[1].value == 0
    )
    call = body.operands[0] if isinstance(body, t.Compare) else None
    if not zero or not isinstance(call, t.Call) or call.function not in known.terms or node.name not in known.indexes:
        report.add("E0315", "nothing is known of this in a derivation", node.span, f"conditions: {_CONDITIONS}")
    elif not any(isinstance(arg, t.Name) and arg.id == node.name for arg in call.args):
        report.add(
            "E0315", f"`{call.function}` does not take `{node.name}` here", call.span, f"conditions: {_CONDITIONS}"
        )
    elif not isinstance(node.domain, t.Binary) or node.domain.op != "-":
        report.add("E0315", "a term is 0 on what is left of a set beside another one", node.domain.span, "`X - V`")
    else:
        _set(node.domain.left, known, report)
        _set(node.domain.right, known, report)


def _set(node: t.Expr, known: Declared, report: CheckReport) -> None:
    """A set of positions: its name, `U * V`, `hull(U, V)`, `image(phi, X * Y)`."""
    if isinstance(node, t.Name) and node.id in known.sets:
        return
    if isinstance(node, t.Binary) and node.op == "*":
        _set(node.left, known, report)
        _set(node.right, known, report)
    elif isinstance(node, t.Call) and node.function == "hull" and len(node.args) == 2:
        for arg in node.args:
            _set(arg, known, report)
    elif isinstance(node, t.Call) and node.function == "image" and len(node.args) == 2:
        first = node.args[0]
        if not isinstance(first, t.Name) or first.id not in known.maps:
            report.add("E0304", "`image` takes a map here", first.span, "`image(phi, X)`")
        _set(node.args[1], known, report)
    else:
        report.add("E0304", "this is no set", node.span, "a set is `X`, `X * Y`, `hull(U, V)` or `image(phi, X)`")


def _searches(rule: t.Derivation, known: Declared, report: CheckReport) -> None:
    """E0309 for what is known already, E0306 for a map of another set than its own."""
    left = {node.name for formula in rule.left for node in nodes(t.Binder, formula.scope)}
    ranges = {node.range.id for formula in rule.left for node in nodes(t.Binder, formula.scope) if isinstance(node.range, t.Name)}  # fmt: skip
    called = {node.function for formula in rule.left for node in nodes(t.Call, formula.scope)}
    given = ranges | called | {known.indexes[name] for name in left if name in known.indexes}
    seen: set[str] = set()
    for one in rule.statements:
        if not isinstance(one, t.Search):
            continue
        if one.name in seen:
            report.add("E0309", f"`{one.name}` is looked for already", one.span, "one `search` for each unknown")
        elif one.name in given:
            report.add(
                "E0309", f"the left side determines `{one.name}`", one.span, "`search` looks for what it does not"
            )
        seen.add(one.name)
        node = one.domain
        first = node.args[0] if isinstance(node, t.Call) and node.args else None
        if isinstance(node, t.Call) and one.name in known.maps and isinstance(first, t.Name) and first.id in known.sets:
            domain = known.maps[one.name][0]
            if unlike(domain, (frozenset({first.id}),)):
                report.add("E0306", f"`{one.name}` maps {shown(domain)}, and is looked for on {first.id}", first.span,
                           f"`{node.function}({shown(domain)})`")  # fmt: skip


# ---- results -------------------------------------------------------------------------------------------------------


def _results(rule: t.Derivation, known: Declared, report: CheckReport) -> None:
    """E0313 where nothing replaces the left side, E0306 and E0307 where a result runs through something else."""
    wanted = {formula.name: _runs(formula.scope, known) for formula in rule.left}
    names = [formula.name for formula in rule.right]
    if None in wanted and None not in names:
        hint = "without a name on the left, the last `expr` has none"
        report.add("E0313", f"no expression of `{rule.name}` replaces the left side", rule.span, hint)
    made: dict[str, tuple[frozenset[str], ...] | None] = {}
    later = [formula.name for formula in rule.right]
    for formula in rule.right:
        later = later[1:]
        _uses(formula, made, frozenset(name for name in later if name is not None), known, report)
        runs = _runs(formula.scope, known, made)
        if formula.name in wanted:
            _fits(formula, runs, wanted[formula.name], report)
        if formula.name is not None:
            made[formula.name] = runs


def _runs(
    node: t.Expr, known: Declared, made: dict[str, tuple[frozenset[str], ...] | None] | None = None
) -> tuple[frozenset[str], ...] | None:
    """The sets that a scope runs through; None where that is not known."""
    if isinstance(node, t.Restrict):
        return factors(node.domain)
    if isinstance(node, t.Nested) and node.subs is None and node.other is None:
        return _runs(node.scope, known, made)
    if isinstance(node, t.Name) and made is not None:
        return made.get(node.id)
    if not isinstance(node, t.Traversal):
        return None
    found: list[frozenset[str]] = []
    for place in node.places:
        own = place.range if isinstance(place, t.Binder) else None
        if own is not None:
            found.append(frozenset({own.id}) if isinstance(own, t.Name) else frozenset())
        else:
            name = known.indexes.get(place.name) if isinstance(place, t.Binder) else None
            found.append(frozenset() if name is None else frozenset({name}))
    return tuple(found)


def _fits(
    formula: t.Formula,
    runs: tuple[frozenset[str], ...] | None,
    wanted: tuple[frozenset[str], ...] | None,
    report: CheckReport,
) -> None:
    if runs is None or wanted is None:
        return
    if len(runs) != len(wanted):
        report.add("E0307", f"this runs through {shown(runs)}, and the left side through {shown(wanted)}", formula.span,
                   "a rule keeps what a result is")  # fmt: skip
    elif all(runs) and all(wanted) and sorted(map(shown1, runs)) != sorted(map(shown1, wanted)):
        hint = "`restrict(R, X)` leaves a part of it, `{..., other=0}` has a value outside"
        report.add(
            "E0306",
            f"this runs through {shown(runs)}, and the left side through {shown(wanted)}",
            formula.span,
            hint,
        )


def shown1(kind: frozenset[str]) -> str:
    return "/".join(sorted(kind))


def _uses(
    formula: t.Formula,
    made: dict[str, tuple[frozenset[str], ...] | None],
    later: frozenset[str],
    known: Declared,
    report: CheckReport,
) -> None:
    """Accesses of a formula to earlier ones: as many positions as they have, and none behind their end."""
    partly = {id(arg) for node in nodes(t.Call, formula.scope) if node.function in known.terms
              for arg in node.args}  # fmt: skip
    for node in walk_expr(formula.scope):
        if isinstance(node, t.Name) and node.id in later and not isinstance(formula.scope, t.Call):
            report.add(
                "E0201",
                f"`{node.id}` is made later",
                node.span,
                "formulas are computed from the first to the last",
            )
        if isinstance(node, t.Subscript) and isinstance(node.base, t.Name) and made.get(node.base.id) is not None:
            wanted = made[node.base.id] or ()
            count = sum(_count(sub, known) for sub in node.subs)
            if count > len(wanted) or (count < len(wanted) and id(node) not in partly):
                report.add("E0307", f"`{node.base.id}` has {len(wanted)} indexes, and gets {count}", node.span,
                           f"they run through {shown(wanted)}")  # fmt: skip


def _count(sub: t.Expr, known: Declared) -> int:
    """Number of position vectors in an index."""
    if isinstance(sub, t.Call):
        name, _, way = sub.function.partition(".")
        if name in known.maps:
            return len(known.maps[name][0 if way == "inverse" else 1])
    return 1


def _constant_reads(formulas: Sequence[t.Formula], report: CheckReport) -> None:
    """E0401 for reads at a number behind the size that a formula's index has."""
    sizes: dict[str, tuple[int | None, ...]] = {}
    for formula in formulas:
        for node in nodes(t.Subscript, formula.scope):
            if isinstance(node.base, t.Name) and node.base.id in sizes:
                for sub, size in zip(node.subs, sizes[node.base.id], strict=False):
                    if isinstance(sub, t.Int) and size is not None and sub.value >= size:
                        message = (
                            f"`{node.base.id}` has {size} positions along this index, and none numbered {sub.value}"
                        )
                        report.add("E0401", message, sub.span, "the first one is 0")
        scope = inside(formula.scope)
        if formula.name is not None and isinstance(scope, t.Traversal):
            sizes[formula.name] = tuple(
                place.range.value if isinstance(place, t.Binder) and isinstance(place.range, t.Int) else None
                for place in scope.places
            )
