"""Checks of substitutions and laws: both sides define the outputs, the right side uses what is bound, nothing is unused."""

from __future__ import annotations

from fractions import Fraction

from dslc.errors import Diagnostic, DslcError, Span
from dslc.semantics.checks.names import CheckReport, NameScope
from dslc.semantics.checks.operators import check_condition, check_function, check_results
from dslc.semantics.definitions import OperatorDef, PropertyDef, SubstitutionDef
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.numerics import entries, error_in, errors, words
from dslc.semantics.walk import names_in, nodes, walk_expr
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONSTANTS, DTYPE_NAMES, KEYWORDS, NUMERICS


def declare_params(params: tuple[t.Param, ...], scope: NameScope) -> None:
    """Tensors, and the sizes, packs and element types of their types."""
    for param in params:
        if param.name in KEYWORDS:
            scope.report.add("E0205", f"`{param.name}` is a reserved word", param.span)
        if param.name in scope.kinds:
            scope.report.add("E0309", f"`{param.name}` is declared twice", param.span)
        scope.bind(param.name, "tensor")
        if param.type is not None:
            scope.dims[param.name] = param.type.dims or ()
    for param in params:
        if param.type is None:
            continue
        for node in nodes(t.Name, param.type.dims or ()):
            if scope.kinds.get(node.id) == "tensor":
                scope.report.add("E0213", f"`{node.id}` is a tensor and a size", node.span)
            scope.kinds.setdefault(node.id, "size")
        if param.type.name not in DTYPE_NAMES:
            if not param.type.name[0].isupper():
                scope.report.add("E0305", f"there is no element type `{param.type.name}`", param.type.span)
            scope.kinds.setdefault(param.type.name, "type")


def errors_of(rules: Rules, sub: SubstitutionDef) -> list[Diagnostic]:
    """Errors in the form of a substitution; only one without errors may be used as a rule."""
    report = CheckReport()
    check_substitution(rules, sub, report)
    return [one for one in report.found if one.severity == "error"]


def check_substitution(rules: Rules, sub: SubstitutionDef, report: CheckReport) -> None:
    syntax = sub.syntax
    scope = NameScope(sub.module, rules, report)
    declare_params(syntax.params, scope)
    _side(syntax.left, scope, pattern=True)
    _outputs(sub, syntax.left, "left", report)
    bound = set(scope.kinds)
    used_left = set(scope.used)
    scope.used.clear()
    right = scope.inner()
    # outputs are bound anew on the right; what else the left binds may be used there
    for name in syntax.outputs:
        right.kinds.pop(name, None)
    if syntax.arrow == "<=>":
        right.pattern = True
    _side(syntax.right, right, pattern=syntax.arrow == "<=>")
    _outputs(sub, syntax.right, "right", report)
    _unbound(sub, bound, report)
    _partial(rules, sub, report)
    for entry in entries(syntax):
        _numerics(entry, report)
    for entry in errors(syntax):
        if error_in(entry) is None:
            hint = "by how much a result in 32 bits may be off, relative to its largest element"
            report.add("E0326", "`error` is a number above 0 and at most 1", entry.value.span, hint)
    for param in syntax.params:
        if param.name not in used_left and param.name not in scope.used:
            report.add("W0005", f"the tensor `{param.name}` is never used", param.span)
    if any(d.code == "E0313" and d.span is not None and d.span.starts_in(syntax.span) for d in report.found):
        return
    for side, used in ((syntax.left, used_left | scope.used), (syntax.right, scope.used)):
        for statement in side:
            if isinstance(statement, t.Bind):
                for one in statement.names:
                    if one not in syntax.outputs and one not in used and len(statement.names) == 1:
                        report.add("W0005", f"`{one}` is never used", statement.span)
            elif isinstance(statement, t.Let) and statement.target.name not in used:
                report.add("W0005", f"`{statement.target.name}` is never used", statement.span)


def _numerics(entry: t.Entry, report: CheckReport) -> None:
    said = words(entry)
    unknown = [word for word in said if word not in NUMERICS]
    if unknown or not said or len(set(said)) < len(said):
        what = (
            f"`{unknown[0]}` says nothing of floating-point numbers"
            if unknown
            else "`numerics` is a word or a list of words"
        )
        report.add("E0326", what, entry.value.span, "any of " + ", ".join(NUMERICS))
    elif "exact" in said and len(said) > 1 and set(said) & {"reassociates", "cancels"}:
        report.add("E0326", "what is exact neither reassociates nor cancels", entry.value.span)


def _side(statements: tuple[t.GraphStatement, ...], scope: NameScope, pattern: bool) -> None:
    for statement in statements:
        if isinstance(statement, t.TermDecl):
            for signature in statement.signatures:
                scope.bind(signature.name, "term")
                scope.functions[signature.name] = len(signature.params)
        elif isinstance(statement, t.Search):
            scope.check(statement.domain)
            scope.bind(statement.name, "value")
        elif isinstance(statement, t.Function):
            scope.bind(statement.name, "function")
            scope.functions[statement.name] = len(statement.params)
    scope.pattern = pattern
    defined: set[str] = set()
    for statement in statements:
        if isinstance(statement, t.Bind):
            scope.check(statement.value)
            check_results(statement.names, statement.value, statement.span, scope)
            for name in statement.names:
                if name in defined or scope.kinds.get(name) in {"size", "type"}:
                    report_code = "E0309" if name in defined else "E0213"
                    scope.report.add(report_code, f"`{name}` is bound twice", statement.span)
                elif scope.kind(name) == "tensor" and name in scope.dims:
                    scope.report.add("E0309", f"`{name}` is a parameter already", statement.span)
                defined.add(name)
                scope.bind(name, "tensor")
        elif isinstance(statement, t.Let):
            scope.pattern = False
            inner = scope.inner()
            for place in statement.target.places or ():
                for binder in place.places if isinstance(place, t.TuplePlace) else (place,):
                    inner.check(binder.range)
                    inner.bind(binder.name, "index")
            inner.check(statement.value)
            scope.pattern = pattern
            scope.bind(statement.target.name, "value")
        elif isinstance(statement, t.LetMany):
            scope.check(statement.value)
            for name in statement.names:
                scope.bind(name, "value")
        elif isinstance(statement, t.Const):
            _const(statement, scope)
        elif isinstance(statement, t.Correct):
            _correct(statement, scope)
    # conditions may use what a later line binds
    scope.pattern = False
    for statement in statements:
        if isinstance(statement, t.Where):
            for condition in statement.conditions:
                _bindings(condition, scope)
                check_condition(condition, scope)
        elif isinstance(statement, t.Function):
            check_function(statement, scope)


def _correct(statement: t.Correct, scope: NameScope) -> None:
    """Names that a correction reads; it may use all that both sides bind."""
    pattern, scope.pattern = scope.pattern, False
    if isinstance(statement.what, t.Bind):
        scope.check(statement.what.value)
        check_results(statement.what.names, statement.what.value, statement.what.span, scope)
    if statement.limit is not None:
        scope.check(statement.limit)
    scope.pattern = pattern


def _bindings(condition: t.Expr, scope: NameScope) -> None:
    """`where q == p + [*u, *w]` binds a name that is not known yet."""
    if isinstance(condition, t.Compare) and condition.ops == ("==",):
        for side in condition.operands:
            for part in side.elements if isinstance(side, t.ListExpr) else (side,):
                if isinstance(part, t.Name) and part.id.partition(".")[0] == part.id and scope.kind(part.id) is None:
                    others = [o for o in condition.operands if o is not side]
                    again = part.id in names_in(tuple(others))
                    if not again and scope.module.lookup(part.id) is None and part.id not in CONSTANTS:
                        scope.bind(part.id, "value")


def _const(statement: t.Const, scope: NameScope) -> None:
    inner = scope.inner()
    for dim in statement.type.dims or ():
        scope.check(dim)
    for place in statement.target.places or ():
        for binder in place.places if isinstance(place, t.TuplePlace) else (place,):
            inner.check(binder.range)
            inner.bind(binder.name, "list" if binder.star else "index")
    inner.check(statement.value)
    scope.bind(statement.target.name, "tensor")
    scope.dims[statement.target.name] = statement.type.dims or ()


def _outputs(sub: SubstitutionDef, side: tuple[t.GraphStatement, ...], where: str, report: CheckReport) -> None:
    bound = {name for s in side if isinstance(s, t.Bind) for name in s.names}
    bound |= {s.target.name for s in side if isinstance(s, t.Const)}
    for name in sub.syntax.outputs:
        if name not in bound:
            report.add(
                "E0313", f"the {where} side of `{sub.syntax.name}` does not bind `{name}`", _last(side, sub.syntax.span)
            )


def _last(side: tuple[t.GraphStatement, ...], default: Span) -> Span:
    binds = [s.span for s in side if isinstance(s, t.Bind)]
    return binds[-1] if binds else default


def _unbound(sub: SubstitutionDef, bound: set[str], report: CheckReport) -> None:
    """A name that was reported as unknown on the right side is one that the left side should bind."""
    spans = [(s.span.start, s.span.end) for s in sub.syntax.right]
    for k, found in enumerate(report.found):
        if found.code == "E0201" and found.span is not None and found.span.source is sub.syntax.span.source:
            inside = any(start <= found.span.start < end for start, end in spans)
            if inside and found.message.endswith("here") and not _called(sub, found.span):
                name = found.message.split("`")[1]
                report.found[k] = type(found)(
                    "E0323", f"`{name}` is bound neither on the left nor on the right", found.span, hint=found.hint
                )


def _called(sub: SubstitutionDef, span: Span) -> bool:
    return any(node.span.start == span.start for node in nodes(t.Call, sub.syntax.right))


def _partial(rules: Rules, sub: SubstitutionDef, report: CheckReport) -> None:
    corrects = [s for s in (*sub.syntax.left, *sub.syntax.right) if isinstance(s, t.Correct)]
    if sub.syntax.partial and not corrects:
        report.add(
            "E0601",
            f"`{sub.syntax.name}` is partial and has no `correct`",
            sub.syntax.span,
            "write `correct auto`",
        )
    seen: set[str] = set()
    for correct in corrects:
        given = set(correct.what.names) if isinstance(correct.what, t.Bind) else {*sub.syntax.outputs}
        if seen & given:
            said = f"`{sub.syntax.name}` is corrected twice"
            report.add("E0609", said, correct.span, "one `correct` for each output, or one `correct auto`")
        seen |= given
        if (
            isinstance(correct.what, t.Bind)
            and isinstance(correct.what.value, t.Name)
            and correct.what.value.id in given
        ):
            said = f"`{correct.what.value.id}` is what is to be corrected"
            report.add(
                "E0609",
                said,
                correct.what.value.span,
                "write what is right where the sides differ, or `correct auto`",
            )
        if not sub.syntax.partial:
            report.add("E0602", f"`{sub.syntax.name}` is not partial, so nothing is to be corrected", correct.span)
        if correct.limit is not None and not _is_fraction(rules, sub, correct.limit):
            report.add(
                "E0603", f"the limit {correct.limit.span.text} is no fraction between 0 and 1", correct.limit.span
            )
        names = correct.what.names if isinstance(correct.what, t.Bind) else ()
        wrong = [name for name in names if name not in sub.syntax.outputs]
        if wrong or (isinstance(correct.what, str) and correct.what != "auto"):
            said = (
                f"`{wrong[0]}` is no output of `{sub.syntax.name}`"
                if wrong
                else f"`{correct.what}` says not how it is corrected"
            )
            report.add("E0604", said, correct.span, "`correct auto`, or `correct Y = ...` for an output Y")


def _is_fraction(rules: Rules, sub: SubstitutionDef, limit: t.Expr) -> bool:
    """Return whether a limit is more than 0 and 1 at most; one that depends on sizes may be."""
    try:
        found = evaluate(limit, Env(sub.module, rules))
    except Unbound:
        return True
    except (Mismatch, DslcError, ArithmeticError, TypeError):
        return False
    return isinstance(found, int | float | Fraction) and not isinstance(found, bool) and 0 < found <= 1


def check_property(rules: Rules, law: PropertyDef, report: CheckReport) -> None:
    scope = NameScope(law.module, rules, report)
    declare_params(law.syntax.params, scope)
    scope.pattern = True
    for statement in law.syntax.statements:
        if isinstance(statement, t.TermDecl):
            for signature in statement.signatures:
                scope.bind(signature.name, "term")
                scope.functions[signature.name] = len(signature.params)
        elif isinstance(statement, t.Function):
            scope.bind(statement.name, "function")
            scope.functions[statement.name] = len(statement.params)
            check_function(statement, scope)
    lets = [s for s in law.syntax.statements if isinstance(s, t.Let)]
    for one in lets:
        scope.bind(one.target.name, "value")
    for expr in law.syntax.laws:
        if not isinstance(expr, t.Compare):
            report.add("E0321", f"`{expr.span.text}` is no equation", expr.span, "a law is written `left == right`")
        scope.check(expr)
    for one in lets:
        scope.check(one.value, pattern=False)
    for statement in law.syntax.statements:
        if isinstance(statement, t.Where):
            for condition in statement.conditions:
                _attribute_names(condition, scope)
                check_condition(condition, scope)


def _attribute_names(condition: t.Expr, scope: NameScope) -> None:
    """A law is stated for all values of the names that its guards mention."""
    for node in walk_expr(condition):
        if not isinstance(node, t.Name) or not node.id[0].islower() or node.id in CONSTANTS:
            continue
        head = node.id.partition(".")[0]
        if scope.kind(head) is None and not isinstance(scope.module.lookup(node.id), OperatorDef):
            scope.bind(head, "value")
