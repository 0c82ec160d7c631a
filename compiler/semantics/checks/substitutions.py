"""Checks of substitutions and laws: both sides define the outputs, the right side uses what is bound, nothing is unused."""

from __future__ import annotations

from fractions import Fraction

from dslc.errors import Diagnostic, DslcError
from dslc.semantics.checks.names import CheckReport, NameScope
from dslc.semantics.definitions import OperatorDef, PropertyDef, SubstitutionDef
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.numerics import entries, error_in, errors, words
from dslc.semantics.walk import binders_of, conditions_in, dims_of, names_in, nodes
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONSTANTS, DTYPE_NAMES, KEYWORDS, NUMERICS


def declare_params(params: tuple[t.Param, ...], scope: NameScope) -> None:
    """Tensors, and the sizes, packs and element types of their types."""
    for param in params:
        if param.name in KEYWORDS:
            scope.report.add("E0205", f"`{param.name}` is a reserved word", param)
        if param.name in scope.kinds:
            scope.report.add("E0309", f"`{param.name}` is declared twice", param)
        scope.bind(param.name, "tensor")
        if param.type:
            scope.dims[param.name] = dims_of(param.type)
    for param in params:
        if not param.type:
            continue
        for node in nodes(t.Name, dims_of(param.type)):
            if scope.kinds.setdefault(node.id, "size") == "tensor":
                scope.report.add("E0213", f"`{node.id}` is a tensor and a size", node)
        if param.type.name not in DTYPE_NAMES:
            if not param.type.name[0].isupper():
                scope.report.add("E0305", f"there is no element type `{param.type.name}`", param.type)
            scope.kinds.setdefault(param.type.name, "type")


def errors_of(rules: Rules, sub: SubstitutionDef) -> list[Diagnostic]:
    """Errors in the form of a substitution; only one without errors may be used as a rule."""
    report = CheckReport()
    check_substitution(rules, sub, report)
    return [one for one in report.found if one.severity == "error"]


def check_substitution(rules: Rules, sub: SubstitutionDef, report: CheckReport) -> None:
    """Check both sides of a substitution and what it declares."""
    syntax = sub.syntax
    scope = NameScope(sub.module, rules, report)
    declare_params(syntax.params, scope)
    _side(syntax.left, scope, pattern=True)
    _outputs(sub, syntax.left, "left", report)
    used_left = set(scope.used)
    scope.used.clear()
    right = scope.inner()
    right.pattern = syntax.arrow == "<=>"
    _side(syntax.right, right, right.pattern)
    _outputs(sub, syntax.right, "right", report)
    _unbound(sub, report)
    _partial(rules, sub, report)
    for entry in entries(syntax):
        _numerics(entry, report)
    for entry in errors(syntax):
        if error_in(entry) is None:
            hint = "by how much a result in 32 bits may be off, relative to its largest element"
            report.add("E0326", "`error` is a number above 0 and at most 1", entry.value, hint)
    for param in syntax.params:
        if param.name not in used_left and param.name not in scope.used:
            report.add("W0005", f"the tensor `{param.name}` is never used", param)
    if any(d.code == "E0313" and d.span is not None and d.span.starts_in(syntax.span) for d in report.found):
        return
    for side, used in ((syntax.left, used_left | scope.used), (syntax.right, scope.used)):
        for statement in side:
            match statement:
                case t.Bind((name,)) if name not in used and name not in syntax.outputs:
                    report.add("W0005", f"`{name}` is never used", statement)
                case t.Let(t.Defined(name)) if name not in used:
                    report.add("W0005", f"`{name}` is never used", statement)


def _numerics(entry: t.Entry, report: CheckReport) -> None:
    said = words(entry)
    unknown = [word for word in said if word not in NUMERICS]
    if unknown or not said or len(set(said)) < len(said):
        what = "`numerics` is a word or a list of words"
        what = f"`{unknown[0]}` says nothing of floating-point numbers" if unknown else what
        report.add("E0326", what, entry.value, "any of " + ", ".join(NUMERICS))
    elif "exact" in said and len(said) > 1 and set(said) & {"reassociates", "cancels"}:
        report.add("E0326", "what is exact neither reassociates nor cancels", entry.value)


def _side(statements: tuple[t.GraphStatement, ...], scope: NameScope, pattern: bool) -> None:
    for statement in statements:
        if isinstance(statement, t.TermDecl | t.Function):
            scope.declare(statement)
        elif isinstance(statement, t.Search):
            scope.check(statement.domain)
            scope.bind(statement.name, "value")
    scope.pattern = pattern
    defined: set[str] = set()
    for statement in statements:
        if isinstance(statement, t.Bind):
            scope.check(statement.value)
            scope.results(statement.names, statement.value, statement.span)
            for name in statement.names:
                if name in defined or scope.kinds.get(name) in {"size", "type"}:
                    code = "E0309" if name in defined else "E0213"
                    scope.report.add(code, f"`{name}` is bound twice", statement)
                elif scope.kind(name) == "tensor" and name in scope.dims:
                    scope.report.add("E0309", f"`{name}` is a parameter already", statement)
                defined.add(name)
                scope.bind(name, "tensor")
        elif isinstance(statement, t.Let):
            inner = scope.inner()
            # a call of an operator is a part of the pattern, wherever it is written
            inner.pattern = pattern and isinstance(scope.module.called(statement.value), OperatorDef)
            inner.place(binders_of(statement.target.places))
            inner.check(statement.value)
            scope.declare(statement)
        elif isinstance(statement, t.LetMany):
            scope.check(statement.value)
            scope.declare(statement)
        elif isinstance(statement, t.Const):
            inner = scope.inner()
            for dim in dims_of(statement.type):
                scope.check(dim)
            inner.place(binders_of(statement.target.places))
            inner.check(statement.value)
            scope.bind(statement.target.name, "tensor")
            scope.dims[statement.target.name] = dims_of(statement.type)
        elif isinstance(statement, t.Correct):
            # a correction may use all that both sides bind
            scope.pattern = False
            if isinstance(statement.what, t.Bind):
                scope.check(statement.what.value)
                scope.results(statement.what.names, statement.what.value, statement.what.span)
            scope.check(statement.limit)
            scope.pattern = pattern
    # conditions may use what a later line binds
    scope.pattern = False
    for statement in statements:
        if isinstance(statement, t.Where):
            for condition in statement.conditions:
                _bindings(condition, scope)
                scope.condition(condition)
        elif isinstance(statement, t.Function):
            scope.function(statement)


def _bindings(condition: t.Expr, scope: NameScope) -> None:
    """`where q == p + [*u, *w]` binds a name that is not known yet."""
    for side in condition.equated:
        others = names_in(tuple(other for other in condition.equated if other is not side)) | CONSTANTS
        for part in side.elements if isinstance(side, t.ListExpr) else (side,):
            name = part.bare
            if name is None or "." in name or name in others or scope.kind(name) is not None:
                continue
            if not scope.module.lookup(name):
                scope.bind(name, "value")


def _outputs(sub: SubstitutionDef, side: tuple[t.GraphStatement, ...], where: str, report: CheckReport) -> None:
    bound = {name for s in side if isinstance(s, t.Bind) for name in s.names}
    bound |= {s.target.name for s in side if isinstance(s, t.Const)}
    place = ([s.span for s in side if isinstance(s, t.Bind)] or [sub.span])[-1]
    for name in sub.syntax.outputs:
        if name not in bound:
            report.add("E0313", f"the {where} side of `{sub.short}` does not bind `{name}`", place)


def _unbound(sub: SubstitutionDef, report: CheckReport) -> None:
    """A name that was reported as unknown on the right side is one that the left side should bind."""
    called = {node.span.start for node in nodes(t.Call, sub.right)}
    for k, found in enumerate(report.found):
        span = found.span
        if found.code != "E0201" or not span or span.start in called or not found.message.endswith("here"):
            continue
        if any(span.starts_in(s.span) for s in sub.right):
            message = f"`{found.message.split('`')[1]}` is bound neither on the left nor on the right"
            report.found[k] = Diagnostic("E0323", message, span, hint=found.hint)


def _partial(rules: Rules, sub: SubstitutionDef, report: CheckReport) -> None:
    corrects = [s for s in sub.syntax.statements if isinstance(s, t.Correct)]
    if sub.syntax.partial and not corrects:
        report.add("E0601", f"`{sub.short}` is partial and has no `correct`", sub.syntax, "write `correct auto`")
    seen: set[str] = set()
    for correct in corrects:
        bind = correct.what if isinstance(correct.what, t.Bind) else None
        names = bind.names if bind else ()
        given = {*(names if bind else sub.syntax.outputs)}
        if seen & given:
            hint = "one `correct` for each output, or one `correct auto`"
            report.add("E0609", f"`{sub.short}` is corrected twice", correct, hint)
        seen |= given
        if bind and isinstance(bind.value, t.Name) and bind.value.id in given:
            hint = "write what is right where the sides differ, or `correct auto`"
            report.add("E0609", f"`{bind.value.id}` is what is to be corrected", bind.value, hint)
        if not sub.syntax.partial:
            report.add("E0602", f"`{sub.short}` is not partial, so nothing is to be corrected", correct)
        limit = correct.limit
        if limit and not _is_fraction(rules, sub, limit):
            report.add("E0603", f"the limit {limit.span.text} is no fraction between 0 and 1", limit)
        wrong = [name for name in names if name not in sub.syntax.outputs]
        if wrong or correct.what not in {bind, "auto"}:
            said = f"`{correct.what}` says not how it is corrected"
            said = f"`{wrong[0]}` is no output of `{sub.short}`" if wrong else said
            report.add("E0604", said, correct, "`correct auto`, or `correct Y = ...` for an output Y")


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
    """Check the names, equations and guards of a law."""
    scope = NameScope(law.module, rules, report)
    declare_params(law.syntax.params, scope)
    scope.pattern = True
    for statement in law.syntax.statements:
        if isinstance(statement, t.TermDecl | t.Function):
            scope.declare(statement)
        if isinstance(statement, t.Function):
            scope.function(statement)
    lets = [s for s in law.syntax.statements if isinstance(s, t.Let)]
    for one in lets:
        scope.declare(one)
    for expr in law.syntax.laws:
        if not isinstance(expr, t.Compare):
            report.add("E0321", f"`{expr.span.text}` is no equation", expr, "a law is written `left == right`")
        scope.check(expr)
    for one in lets:
        scope.check(one.value)
    for condition in conditions_in(law.syntax.statements):
        _attribute_names(condition, scope)
        scope.condition(condition)


def _attribute_names(condition: t.Expr, scope: NameScope) -> None:
    """A law is stated for all values of the names that its guards mention."""
    for node in t.walk(condition):
        if not isinstance(node, t.Name) or not node.id[0].islower() or node.id in CONSTANTS:
            continue
        head = node.id.partition(".")[0]
        if scope.kind(head) is None and not isinstance(scope.module.lookup(node.id), OperatorDef):
            scope.bind(head, "value")
