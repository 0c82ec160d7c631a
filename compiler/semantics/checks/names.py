"""Name resolution in an item, and the walk over its expressions that looks every name up."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

from dslc.errors import Diagnostic, Fix, Span, instead
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, Remember, afresh
from dslc.semantics.library import Rules, standard
from dslc.semantics.nary import takes_many
from dslc.semantics.walk import binders_of, conditions_in, nodes
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import (
    CONSTANTS,
    CONVERT,
    DTYPE_NAMES,
    FUNCTIONS_1,
    INDEX_FUNCTIONS,
    PREDICATES,
    REDUCTIONS,
)

VOCABULARY = FUNCTIONS_1 | INDEX_FUNCTIONS | PREDICATES | REDUCTIONS | {CONVERT}


@dataclass
class CheckReport:
    """Collects diagnostics; the same finding at the same place is kept once."""

    found: list[Diagnostic] = field(default_factory=list)
    remember: Remember = afresh

    def add(
        self,
        code: str,
        message: str,
        span: Span | None,
        hint: str = "",
        fix: Fix | None = None,
        counterexample: str = "",
    ) -> None:
        found = Diagnostic(
            code, message, span, hint=hint, fix=fix, counterexample=counterexample,
            severity="warning" if code.startswith("W") else "error",
        )  # fmt: skip
        self.take([found])

    def take(self, found: Iterable[Diagnostic]) -> None:
        """Adds findings, each once."""
        for new in found:
            if not any(d.code == new.code and d.span is new.span and d.message == new.message for d in self.found):
                self.found.append(new)


class NameScope:
    """Names of an item by kind; inner scopes (binders) see the outer ones. `used` is shared with the item's other scopes."""

    def __init__(self, module: Module, rules: Rules, report: CheckReport, parent: NameScope | None = None) -> None:
        self.module, self.rules, self.report, self.parent = module, rules, report, parent
        self.kinds: dict[str, str] = {}
        self.dims: dict[str, tuple[t.Expr, ...]] = parent.dims if parent else {}
        self.used: set[str] = parent.used if parent else set()
        self.functions: dict[str, int] = parent.functions if parent else {}
        #: functions beside the vocabulary that this kind of item knows
        self.extra: frozenset[str] = parent.extra if parent else frozenset()
        #: on the left side of a rule, an unknown name in an attribute's place is bound there
        self.pattern: bool = parent.pattern if parent else False

    def inner(self) -> NameScope:
        return NameScope(self.module, self.rules, self.report, self)

    def bind(self, name: str, kind: str) -> None:
        self.kinds[name] = kind

    def declare(self, statement: t.Node) -> None:
        """Binds what a statement names: functions and terms with their parameters, `let`s as values."""
        if isinstance(statement, t.Let):
            self.bind(statement.target.name, "value")
        elif isinstance(statement, t.LetMany):
            for name in statement.names:
                self.bind(name, "value")
        elif isinstance(statement, t.Function | t.TermDecl):
            signatures = statement.signatures if isinstance(statement, t.TermDecl) else (statement,)
            for each in signatures:
                self.bind(each.name, "term" if isinstance(statement, t.TermDecl) else "function")
                self.functions[each.name] = len(each.params)

    def place(self, binders: Iterable[t.Binder]) -> None:
        """Binds iterators, whose ranges may use those before."""
        for binder in binders:
            self.check(binder.range)
            self.bind(binder.name, "list" if binder.star else "index")

    def kind(self, name: str) -> str | None:
        at: NameScope | None = self
        while at is not None:
            if name in at.kinds:
                return at.kinds[name]
            at = at.parent
        return None

    def names(self) -> list[str]:
        return [*self.kinds, *(self.parent.names() if self.parent else [])]

    def condition(self, expr: t.Expr) -> None:
        self.check(expr)
        if isinstance(expr, t.Int | t.Float | t.Str | t.Inf | t.ListExpr) or (
            isinstance(expr, t.Binary) and expr.op not in {"and", "or"}
        ):
            self.report.add("E0315", f"`{expr.span.text}` is no condition", expr.span)

    def conditions(self, statements: Iterable[t.Node]) -> None:
        """Checks all `where` statements among some."""
        for expr in conditions_in(statements):
            self.condition(expr)

    def function(self, function: t.Function) -> None:
        """Checks the body of a function."""
        inner = self.inner()
        for param in function.params:
            inner.bind(param, "value")
        inner.check(function.body)
        for node in nodes(t.Call, function.body):
            if node.function == function.name:
                hint = "`let` functions are never recursive"
                self.report.add("E0317", f"`{function.name}` calls itself", node.span, hint)

    def results(self, names: tuple[str, ...], value: t.Expr, span: Span) -> None:
        """Checks that there are as many names as a call has outputs."""
        definition = self.module.lookup(value.function) if isinstance(value, t.Call) else None
        if (
            not isinstance(value, t.Call)
            or not isinstance(definition, OperatorDef)
            or self.kind(value.function) is not None
        ):
            return
        count = len(definition.syntax.outputs)
        many = self.rules.traits_of(definition.name).inverse is not None and len(names) >= 2
        if count != len(names) and not many:
            results = "one result" if count == 1 else f"{count} results"
            self.report.add("E0325", f"{len(names)} names for the {results} of `{value.function}`", span)

    # ---- expressions -------------------------------------------------------------------------------------------

    def check(self, expr: t.Node | None, pattern: bool = False) -> None:
        """Looks up every name of an expression. In `pattern` places unknown names are bound."""
        if expr is None or isinstance(expr, t.Int | t.Float | t.Str | t.Inf):
            return
        if isinstance(expr, t.Name):
            self._name(expr, pattern)
        elif isinstance(expr, t.Call):
            self._call(expr)
        elif isinstance(expr, t.Subscript):
            self._subscript(expr)
        elif isinstance(expr, t.Field):
            self.check(expr.call)
            self._output(expr)
        elif isinstance(expr, t.Reduction):
            self._inside(expr.binders, expr.where, expr.body)
        elif isinstance(expr, t.ForAll):
            self.check(expr.domain)
            scope = self.inner()
            scope.bind(expr.name, "index")
            scope.check(expr.body)
        elif isinstance(expr, t.Traversal):
            self._inside(binders_of(expr.places), expr.where, expr.body)
        else:
            for child in t.children(expr):
                self.check(child, pattern and isinstance(expr, t.ListExpr | t.Pack))

    def _name(self, expr: t.Name, pattern: bool) -> None:
        name, (head, dot, _) = expr.id, expr.id.partition(".")
        if self.kind(name) is not None:
            self.used.add(name)
        elif dot and self.kind(head) is not None:
            self.used.add(head)
        elif pattern:
            self._bind_outside(name, "value")
        elif name not in CONSTANTS | DTYPE_NAMES and self.module.lookup(name) is None:
            self.unknown(name, expr.span)

    def _bind_outside(self, name: str, kind: str) -> None:
        """Binds a name in the outermost scope, as what a pattern says is known to all of the item."""
        root = self
        while root.parent is not None:
            root = root.parent
        root.bind(name, kind)
        self.used.add(name)

    def unknown(self, name: str, span: Span, called: bool = False) -> None:
        visible = {*self.names(), *self.module.names, *VOCABULARY}
        elsewhere = {op.short for op in standard().operators.values()} - visible if called else set()
        options = sorted(visible | elsewhere)
        cased = [option for option in options if option.lower() == name.lower()]
        close = [name] if name in elsewhere else cased or difflib.get_close_matches(name, options, n=1)
        hint = f"did you mean `{close[0]}`?" if close and close[0] != name else ""
        fix = instead(span, name, close[0]) if hint else None
        if close and close[0] in elsewhere:
            hint = f"{hint} `import std ({close[0]})` brings it".strip()
            fix = imports(self.module.file, close[0]) if close[0] == name else None
        self.report.add("E0201", f"nothing is named `{name}` here", span, hint, fix=fix)

    def _inside(self, binders: Iterable[t.Binder], *bodies: t.Expr | None) -> None:
        scope = self.inner()
        scope.place(binders)
        for body in bodies:
            scope.check(body)

    def _subscript(self, expr: t.Subscript) -> None:
        self.check(expr.base)
        for sub in expr.subs:
            self.check(sub)
        self.check(expr.other)
        if isinstance(expr.base, t.Name) and expr.base.id in self.dims and self.kind(expr.base.id) == "tensor":
            problem = fits_subscripts(self.dims[expr.base.id], expr.subs)
            if problem:
                self.report.add("E0307", f"`{expr.base.id}` {problem}", expr.span)

    # ---- calls -------------------------------------------------------------------------------------------------

    def _call(self, expr: t.Call) -> None:
        spliced = any(isinstance(arg, t.Pack) for arg in expr.args)
        kind = self.kind(expr.function)
        head = expr.function.partition(".")[0]
        definition = self.module.lookup(expr.function)
        known: dict[str, t.Attr] | None = None
        wanted: int | None = None
        if kind is not None or ("." in expr.function and self.kind(head) is not None):
            self.used.add(expr.function if kind == "function" else head)
            wanted = self.functions.get(expr.function)
        elif isinstance(definition, FunctionDef):
            wanted = len(definition.syntax.params)
        elif isinstance(definition, OperatorDef):
            known = {attr.name: attr for attr in definition.attrs}
            if expr.function not in VOCABULARY and not spliced:
                self._operator(expr, definition)
        elif expr.function not in VOCABULARY and expr.function not in self.extra and head not in self.extra:
            place = Span(expr.span.source, expr.span.start, expr.span.start + len(expr.function))
            self.unknown(expr.function, place, called=True)
        if wanted not in {None, len(expr.args)} and not spliced:
            count = "one argument" if wanted == 1 else f"{wanted} arguments"
            self._arity(expr, f"takes {count}, not {len(expr.args)}")
        for arg in expr.args:
            # in a pattern, a lower-case name where a tensor may stand binds a number
            self.check(arg, pattern=self.pattern and isinstance(arg, t.Name) and arg.id[0].islower())
        if expr.rest is not None:
            if self.kind(expr.rest) is not None:
                self.used.add(expr.rest)
            elif self.pattern:
                self._bind_outside(expr.rest, "attributes")
            else:
                self.report.add("E0323", f"`**{expr.rest}` is bound nowhere", expr.span)
        given: set[str] = set()
        for keyword in expr.kwargs:
            if keyword.name in given:
                self.report.add("E0309", f"`{keyword.name}` is given twice", keyword.span)
            given.add(keyword.name)
            if known is not None and keyword.name not in known:
                options = difflib.get_close_matches(keyword.name, known, n=1)
                hint = "attributes: " + ", ".join(known) if known else ""
                hint = f"did you mean `{options[0]}`?" if options else hint
                fix = instead(keyword.span, keyword.name, options[0]) if options else None
                message = f"`{expr.function}` has no attribute `{keyword.name}`"
                self.report.add("E0302", message, keyword.span, hint, fix)
            elif known is not None:
                problem = literal_problem(known[keyword.name], keyword.value)
                if problem:
                    message = f"the attribute `{keyword.name}` of `{expr.function}` {problem}"
                    self.report.add("E0304", message, keyword.value.span)
                self._axes(expr, known[keyword.name], keyword.value)
            self.check(keyword.value, pattern=self.pattern)
        if known is not None and expr.rest is None and (kind is None):
            self._missing(expr, known, given)

    def _output(self, expr: t.Field) -> None:
        definition = self.module.lookup(expr.call.function) if isinstance(expr.call, t.Call) else None
        if isinstance(definition, OperatorDef):
            names = [output.name for output in definition.syntax.outputs]
            if expr.name not in names:
                hint = "outputs: " + ", ".join(names)
                self.report.add("E0324", f"`{definition.short}` has no output `{expr.name}`", expr.span, hint)

    def _axes(self, expr: t.Call, attr: t.Attr, value: t.Expr) -> None:
        """Axes that are written down, of a tensor whose rank is."""
        name = expr.args[0].id if expr.args and isinstance(expr.args[0], t.Name) else ""
        dims = self.dims.get(name, ())
        if attr.type.name not in {"axis", "axes", "permutation"} or any(isinstance(d, t.Pack) for d in dims):
            return
        for entry in value.elements if isinstance(value, t.ListExpr) and dims else (value,) if dims else ():
            number = entry.operand if isinstance(entry, t.Unary) else entry
            at = number.value * (-1 if isinstance(entry, t.Unary) else 1) if isinstance(number, t.Int) else 0
            if not -len(dims) <= at < len(dims):
                self.report.add("E0322", f"`{name}` has {len(dims)} axes, and no axis {entry.span.text}", entry.span)

    def _missing(self, expr: t.Call, known: dict[str, t.Attr], given: set[str]) -> None:
        if self.kind("(equation)") is not None and not expr.kwargs:
            return  # a pointwise operator called on values
        for attr in known.values():
            if attr.default is None and attr.name not in given:
                hint = f"write `{attr.name}=...`; it is `{attr.type.span.text}`"
                message = f"the attribute `{attr.name}` of `{expr.function}` is missing"
                self.report.add("E0303", message, expr.span, hint)

    def _operator(self, expr: t.Call, op: OperatorDef) -> None:
        most = len(op.syntax.params)
        least = sum(1 for param in op.syntax.params if param.default is None)
        if takes_many(self.rules, op) and len(expr.args) >= 1:
            return
        if not least <= len(expr.args) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            names = ", ".join(param.name for param in op.syntax.params)
            self._arity(expr, f"takes {wanted} tensor{'s' * (most != 1)} ({names}), not {len(expr.args)}")

    def _arity(self, expr: t.Call, text: str) -> None:
        self.report.add("E0301", f"`{expr.function}` {text}", expr.span)


def imports(file: t.File, name: str) -> Fix:
    """The edit that imports a name of the standard library, behind the other imports."""
    header = file.header
    before = header.imports[-1].span if header.imports else (header.library or header).span
    # without imports and a library the first line is `dslc 1`
    end = before.end if before is not header.span else before.source.text.find("\n", before.start)
    end = len(before.source.text) if end < 0 else end
    return Fix(Span(before.source, end, end), f"\nimport std ({name})")


def fits_subscripts(dims: tuple[t.Expr, ...], subs: tuple[t.Expr, ...]) -> str:
    """Problem with the number of subscripts of a tensor with declared dimensions; empty where there is none."""
    packs = sum(isinstance(dim, t.Pack) for dim in dims)
    spliced = sum(isinstance(sub, t.Pack) for sub in subs)
    if not packs and not spliced and len(dims) != len(subs):
        axes = f"{len(dims)} ax{'i' if len(dims) == 1 else 'e'}s"
        return f"has {axes} and is read with {len(subs)} subscript{'s' * (len(subs) != 1)}"
    if packs and not spliced:
        return "has any number of axes and is read with single subscripts; a pack needs `*i`"
    if len(subs) - spliced > len(dims) - packs and not packs:
        return f"has {len(dims)} axes and is read with {len(subs) - spliced} subscripts and a list"
    return ""


_LISTS = {"ints", "floats", "axes", "permutation"}


def literal_problem(attr: t.Attr, value: t.Expr) -> str:
    """Problem with a literal for the attribute's declared type; empty where there is none, or it is unknown."""
    kind, listed = attr.type.name, attr.type.dims is not None or attr.type.name in _LISTS
    text = attr.type.span.text
    if isinstance(value, t.Str) and kind != "string":
        return f"is `{text}`, and this is a string"
    if isinstance(value, t.Name) and value.id in {"true", "false"} and kind != "bool":
        return f"is `{text}`, and this is a truth value"
    if isinstance(value, t.Name) and value.id in DTYPE_NAMES and kind != "dtype" and value.id != "bool":
        return f"is `{text}`, and this is an element type"
    if isinstance(value, t.Int | t.Float) and kind in {"string", "dtype"}:
        return f"is `{text}`, and this is a number"
    if kind == "bool" and (isinstance(value, t.Float) or (isinstance(value, t.Int) and value.value not in {0, 1})):
        return f"is `{text}`, and this is a number"
    if isinstance(value, t.Float) and kind in {"int", "ints", "axis", "axes", "permutation"}:
        return f"is `{text}`, and this is no integer"
    if isinstance(value, t.ListExpr) and not listed:
        return f"is `{text}`, and this is a list"
    if isinstance(value, t.ListExpr) and attr.type.dims and isinstance(attr.type.dims[0], t.Int):
        count, given = attr.type.dims[0].value, len(value.elements)
        if count != 2 and count != given and not any(isinstance(e, t.Pack) for e in value.elements):
            return f"has {count} entries, and this list has {given}"
    return ""
