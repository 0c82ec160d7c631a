"""Checks of derivations, lowerings, tests, rule sets, exports and imports."""

from __future__ import annotations

import fnmatch

from dslc.errors import Diagnostic
from dslc.semantics.checks.costs import check_cost
from dslc.semantics.checks.derivations import check_unknowns
from dslc.semantics.checks.names import VOCABULARY, CheckReport, NameScope
from dslc.semantics.checks.substitutions import declare_params
from dslc.semantics.definitions import DerivationDef, FunctionDef, LoweringDef, Module, RulesetDef, TestDef
from dslc.semantics.library import Rules, without, word_of
from dslc.semantics.targets import DEVICES, TEMPLATED
from dslc.semantics.trust import NoTemplate, mistake, template_text
from dslc.semantics.vendor import wrong
from dslc.semantics.walk import binders_of, dims_of, names_in, nodes
from dslc.syntax import tree as t

#: predicates and sets that `where` and `search` of a derivation know, and the tensors' operations of expressions
_DERIVATION = frozenset(
    """bijective image total reads unlike hull inverse affine_bijections divisors rounded_up halves guarded flattenings groupings
    sections nonzero_box nonzero_positions stack tile_sizes dtype shape restrict disjoint""".split()
)
_LOWERING = frozenset("stride regular dense size aligned bytes pointwise linear constant elements".split())
_GENERATORS = frozenset("randn rand randint zeros ones iota onnx".split())


def check_derivation(rules: Rules, rule: DerivationDef, report: CheckReport) -> None:
    """Check names, conditions and forms of a derivation."""
    syntax = rule.syntax
    scope = NameScope(rule.module, rules, report)
    scope.extra = _DERIVATION
    for one in syntax.declarations:
        if isinstance(one, t.IndexDecl):
            for binder in one.binders:
                if scope.kinds.get(binder.name) == "index":
                    report.add("E0309", f"the index `{binder.name}` is declared twice", binder)
                scope.bind(binder.name, "index")
        elif isinstance(one, t.SetDecl | t.TensorDecl):
            for name in one.names:
                scope.bind(name, "set" if isinstance(one, t.SetDecl) else "tensor")
        elif isinstance(one, t.MapDecl):
            scope.bind(one.name, "map")
        if isinstance(one, t.IndexDecl | t.MapDecl):
            for name in names_in(one):
                scope.kinds.setdefault(name, "set")
    for one in syntax.declarations:
        if isinstance(one, t.TermDecl):
            scope.declare(one)
    for name in ("tile_sizes", "vector_sizes"):
        scope.bind(name, "set")
    for formula in (*syntax.left, *syntax.right):
        if formula.name is not None:
            scope.bind(formula.name, "tensor")
    for formula in (*syntax.left, *syntax.right):
        scope.check(formula.scope)
    scope.conditions(syntax.declarations)
    for statement in syntax.statements:
        if isinstance(statement, t.Search):
            if scope.kind(statement.name) is None:
                report.add("E0201", f"nothing is named `{statement.name}` here", statement)
            scope.check(statement.domain)
    left, right = ({f.name for f in side if f.name} for side in (syntax.left, syntax.right))
    if left and right and not (left & right or left <= right):
        report.add("E0313", f"no expression of `{syntax.name}` has a name on both sides", syntax)
    check_unknowns(rule, report)


def check_lowering(rules: Rules, rule: LoweringDef, report: CheckReport) -> None:
    """Check names, device and emitted code of a lowering."""
    syntax = rule.syntax
    scope = NameScope(rule.module, rules, report)
    scope.extra = _LOWERING
    if syntax.device not in DEVICES:
        hint = "one of " + ", ".join(sorted(DEVICES))
        report.add("E0701", f"there is no device `{syntax.device}`", syntax, hint)
    declare_params(syntax.params, scope)
    emits = [s for s in syntax.statements if isinstance(s, t.CallVendor | t.RenderTemplate | t.OnnxMap)]
    if len(emits) != 1:
        hint = "one of `call`, `template` and `onnx`"
        report.add("E0702", f"`{syntax.name}` emits {len(emits)} things", syntax, hint)
    scope.pattern = True
    if syntax.expr:
        _lowered(syntax.expr, scope)
    for bind in syntax.match:
        for node in nodes(t.Name, bind.value):
            if scope.kind(node.id) is None and "." not in node.id and node.id[0].isupper():
                scope.bind(node.id, "tensor")
        scope.check(bind.value)
        for name in bind.names:
            scope.bind(name, "tensor")
    scope.pattern = False
    for statement in syntax.statements:
        if isinstance(statement, t.Function):
            scope.declare(statement)
        if isinstance(statement, t.Let | t.Function | t.Where):
            scope.statement(statement)
        if isinstance(statement, t.Let):
            scope.declare(statement)
        if isinstance(statement, t.OnnxMap):
            for given in statement.inputs:
                if isinstance(given, t.Param) and given.name != "_" and scope.kind(given.name) is None:
                    report.add("E0703", f"nothing is named `{given.name}` in this lowering", given)
        if isinstance(statement, t.Cost | t.CallVendor | t.RenderTemplate | t.OnnxMap):
            for entry in statement.entries if isinstance(statement, t.Cost) else statement.attrs:
                _entry(entry, scope)
        if isinstance(statement, t.Cost):
            check_cost(statement, scope)
        elif isinstance(statement, t.RenderTemplate) and syntax.device in DEVICES:
            _template(rule, statement, report)
        elif isinstance(statement, t.CallVendor):
            names = {param.name for param in syntax.params} | {name for bind in syntax.match for name in bind.names}
            names |= {syntax.expr.target.name} if syntax.expr else set()
            report.take(wrong(statement, frozenset(name for name in names if scope.kind(name) == "tensor")))


def _template(rule: LoweringDef, statement: t.RenderTemplate, report: CheckReport) -> None:
    """W0015 for a template that cannot be read, is none of Jinja's, or is for a device without templates."""
    hint = ""
    if rule.syntax.device not in TEMPLATED:
        problem = f"a template on `{rule.syntax.device}` is nobody's kernel: those are on {' or '.join(TEMPLATED)}"
        report.add("W0015", f"the template of `{rule.short}` is left out: {problem}", statement)
        return
    try:
        mistaken = mistake(template_text(rule.module, statement.template))
        problem = f"`{statement.template}` is none of Jinja's: {mistaken}" if mistaken else ""
    except NoTemplate as missing:
        problem, hint = str(missing), "templates are files in the folder of the file that names them, or below"
    if problem:
        report.add("W0015", f"the template of `{rule.short}` is left out: {problem}", statement, hint)


def _lowered(equation: t.Equation, scope: NameScope) -> None:
    """In a lowering's expression, an unknown lower-case name is an integer coefficient, an unknown function a term."""
    for binder in binders_of(equation.target.places):
        scope.iterator(binder)
    for node in t.walk(equation.value):
        if isinstance(node, t.Binder):
            scope.iterator(node)
        elif isinstance(node, t.Name) and scope.kind(node.id) is None and node.id[0].islower():
            scope.bind(node.id, "value")
        elif isinstance(node, t.Call):
            known = node.function in _LOWERING | VOCABULARY or scope.kind(node.function) is not None
            if not known and not scope.module.lookup(node.function):
                scope.bind(node.function, "term")
    scope.check(equation.value)
    scope.bind(equation.target.name, "tensor")


def _entry(entry: t.Entry, scope: NameScope) -> None:
    """As `check`, with the code of lowerings for what is unknown."""
    report = scope.report
    before = len(report.found)
    scope.check(entry.value)
    for k, found in enumerate(report.found[before:], before):
        if found.code == "E0201":
            report.found[k] = Diagnostic("E0703", found.message, found.span, hint=found.hint)


def check_test(rules: Rules, test: TestDef, report: CheckReport) -> None:
    """Check names and statements of a test."""
    syntax = test.syntax
    module = test.module
    scope = NameScope(module, rules, report)
    scope.extra = _GENERATORS
    head = syntax.name.rsplit(".", 1)[-1]
    names = {getattr(item, "name", None) for item in module.file.items if not isinstance(item, t.Test)}
    if (
        head not in names
        and not module.lookup(syntax.name)
        and not any(f"{module.library}.{head}" in table for table in (rules.operators, rules.substitutions, rules.laws))
    ):
        report.add("E0214", f"nothing is named `{syntax.name}`", syntax, "a test bears the name of what it tests")
    for statement in syntax.statements:
        if isinstance(statement, t.Given):
            for item in statement.items:
                for dim in dims_of(item.type):
                    scope.check(dim)
                scope.check(item.value)
                scope.bind(item.name, "tensor")
        elif isinstance(statement, t.Expect):
            scope.check(statement.value)
            if isinstance(statement.value, t.Int | t.Float | t.Str) or (
                isinstance(statement.value, t.Binary) and statement.value.op not in {"and", "or"}
            ):
                report.add("E0321", f"`{statement.value.span.text}` is no condition", statement.value)
        elif isinstance(statement, t.Fires | t.Derives):
            for binds in (statement.binds,) if isinstance(statement, t.Fires) else (statement.left, statement.right):
                inner = scope.inner()
                for bind in binds:
                    inner.check(bind.value)
                    for name in bind.names:
                        inner.bind(name, "tensor")
        else:
            scope.statement(statement)


def check_ruleset(rules: Rules, rule: RulesetDef, report: CheckReport) -> None:
    """E0214 for names of a rule set that nothing has."""
    known = {*rules.operators, *rules.substitutions, *rules.derivations, *rules.lowerings, *rules.laws, *rules.rulesets}
    short = {name.rsplit(".", 1)[-1] for name in known}
    for statement in rule.syntax.statements:
        for glob in statement.globs:
            if glob not in short and not fnmatch.filter(known, glob) and not fnmatch.filter(short, glob):
                report.add("E0214", f"`{glob}` names nothing", statement)


def check_header(rules: Rules, module: Module, report: CheckReport) -> None:
    """Exports that exist, imports that are used, exported rules that have a test."""
    file = module.file
    own = {getattr(item, "name", None): item for item in file.items if not isinstance(item, t.Test | t.PropertyIs)}
    tested = {test.short.rsplit(".", 1)[-1] for test in rules.tests}
    for export in file.header.exports:
        for name in export.names:
            if name.startswith("_"):
                report.add("E0206", f"`{name}` is private to its file", export)
            elif name not in own and name not in module.names:
                report.add("E0210", f"this file has no `{name}` to export", export)
            elif isinstance(own.get(name), t.Substitution) and name not in tested:
                report.add("W0006", f"the exported rule `{name}` has no test", own[name])
    mentioned = _mentioned(file)
    for item in file.header.imports:
        for name in item.names or ():
            if name in module.names and name not in mentioned:
                report.add(
                    "W0007", f"`{name}` is imported and never used", word_of(item, name), fix=without(item, name)
                )
    for one in file.items:
        if isinstance(one, t.Function) and isinstance(module.names.get(one.name), FunctionDef):
            NameScope(module, rules, report).function(one)


def _mentioned(file: t.File) -> set[str]:
    """Every name and called function of a file, with the parts of dotted ones."""
    found: set[str] = set()
    for node in t.walk(tuple(file.items)):
        for text in (getattr(node, "id", None), getattr(node, "function", None), getattr(node, "value", None)):
            if isinstance(text, str):
                found |= {text, text.partition(".")[0]}
        if isinstance(node, t.PropertyIs | t.Test):
            found.add(node.name)
    for export in file.header.exports:
        found |= set(export.names)
    return found
