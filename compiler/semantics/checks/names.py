"""Name resolution in an item, and the walk over its expressions that looks every name up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dslc.errors import Diagnostic, Fix, Span, closest, instead, suggested
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, Remember, afresh
from dslc.semantics.library import Rules, standard
from dslc.semantics.nary import takes_many
from dslc.semantics.walk import binders_of, conditions_in, nodes, span_of
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
        at: t.Node | Span | None,
        hint: str = "",
        fix: Fix | None = None,
        counterexample: str = "",
    ) -> None:
        found = Diagnostic(
            code, message, span_of(at), hint=hint, fix=fix, counterexample=counterexample,
            severity="warning" if code.startswith("W") else "error",
        )  # fmt: skip
        self.take([found])

    def failed(self, node: t.Node) -> bool:
        """Return whether an error was found in a node."""
        return any(d.severity == "error" and d.span is not None and d.span.starts_in(node.span) for d in self.found)

    def take(self, found: Iterable[Diagnostic]) -> None:
        """Adds findings, each once."""
        for new in found:
            if not any(d.code == new.code and d.span is new.span and d.message == new.message for d in self.found):
                self.found.append(new)


@dataclass
class NameScope:
    """Names of an item by kind; inner scopes (binders) see the outer ones. `used` is shared with the item's other scopes."""

    module: Module
    rules: Rules
    report: CheckReport
    #: functions beside the vocabulary that this kind of item knows
    extra: frozenset[str] = frozenset()
    parent: NameScope | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    dims: dict[str, tuple[t.Expr, ...]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    functions: dict[str, int] = field(default_factory=dict)
    #: on the left side of a rule, an unknown name in an attribute's place is bound there
    pattern: bool = False

    def inner(self) -> NameScope:
        return replace(self, parent=self, kinds={})

    def bind(self, name: str, kind: str) -> None:
        self.kinds[name] = kind

    def iterator(self, binder: t.Binder) -> None:
        self.bind(binder.name, "list" if binder.star else "index")

    def declare(self, statement: t.Node) -> None:
        """Binds what a statement names: functions and terms with their parameters, `let`s as values."""
        if isinstance(statement, t.Let):
            self.bind(statement.target.name, "value")
        elif isinstance(statement, t.LetMany):
            for name in statement.names:
                self.bind(name, "value")
        elif isinstance(statement, t.Function | t.TermDecl):
            for each in statement.signatures if isinstance(statement, t.TermDecl) else (statement,):
                self.bind(each.name, "function" if each is statement else "term")
                self.functions[each.name] = len(each.params)

    def statement(self, statement: t.Node) -> None:
        """Checks what statements of any item say: values, the bodies of functions, conditions."""
        if isinstance(statement, t.Let | t.LetMany):
            self.check(statement.value)
        elif isinstance(statement, t.Function):
            self.function(statement)
        elif isinstance(statement, t.Where):
            self.conditions((statement,))

    def place(self, binders: Iterable[t.Binder]) -> None:
        """Binds iterators, whose ranges may use those before."""
        for binder in binders:
            self.check(binder.range)
            self.iterator(binder)

    def kind(self, name: str) -> str | None:
        if name in self.kinds or not self.parent:
            return self.kinds.get(name)
        return self.parent.kind(name)

    def names(self) -> list[str]:
        return [*self.kinds, *(self.parent.names() if self.parent else [])]

    def condition(self, expr: t.Expr) -> None:
        self.check(expr)
        if isinstance(expr, t.Int | t.Float | t.Str | t.Inf | t.ListExpr) or (
            isinstance(expr, t.Binary) and expr.op not in {"and", "or"}
        ):
            self.report.add("E0315", f"`{expr.span.text}` is no condition", expr)

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
                self.report.add("E0317", f"`{function.name}` calls itself", node, hint)

    def results(self, names: tuple[str, ...], value: t.Expr, span: Span) -> None:
        """Checks that there are as many names as a call has outputs."""
        definition = self.module.called(value)
        if (
            not isinstance(value, t.Call)
            or not isinstance(definition, OperatorDef)
            or self.kind(value.function) is not None
        ):
            return
        count = len(definition.outputs)
        many = self.rules.traits_of(definition.name).inverse is not None and len(names) >= 2
        if count != len(names) and not many:
            results = "one result" if count == 1 else f"{count} results"
            self.report.add("E0325", f"{len(names)} names for the {results} of `{value.function}`", span)

    # ---- expressions -------------------------------------------------------------------------------------------

    def check(self, expr: t.Node | None, pattern: bool = False) -> None:
        """Looks up every name of an expression. In `pattern` places unknown names are bound."""
        if not expr or isinstance(expr, t.Int | t.Float | t.Str | t.Inf):
            return
        match expr:
            case t.Name():
                self._name(expr, pattern)
            case t.Call():
                self._call(expr)
            case t.Reduction(_, binders, where, body):
                self._inside(binders, where, body)
            case t.Traversal(places, where, body):
                self._inside(binders_of(places), where, body)
            case t.ForAll(name, domain, body):
                self._inside([t.Binder(False, name, domain, span=expr.span)], body)
            case _:
                for child in t.children(expr):
                    self.check(child, pattern and isinstance(expr, t.ListExpr | t.Pack))
                if isinstance(expr, t.Subscript):
                    self._subscript(expr)
                elif isinstance(expr, t.Field):
                    self._output(expr)

    def _name(self, expr: t.Name, pattern: bool) -> None:
        name, head = expr.id, expr.head
        if self.kind(name) is not None:
            self.used.add(name)
        elif self.kind(head) is not None:
            self.used.add(head)
        elif pattern:
            self._bind_outside(name, "value")
        elif name not in CONSTANTS | DTYPE_NAMES and not self.module.lookup(name):
            self.unknown(name, expr.span)

    def _bind_outside(self, name: str, kind: str) -> None:
        """Binds a name in the outermost scope, as what a pattern says is known to all of the item."""
        if self.parent:
            self.parent._bind_outside(name, kind)
        else:
            self.bind(name, kind)
            self.used.add(name)

    def unknown(self, name: str, span: Span, called: bool = False) -> None:
        visible = {*self.names(), *self.module.names, *VOCABULARY}
        elsewhere = {op.short for op in standard().operators.values()} - visible if called else set()
        options = sorted(visible | elsewhere)
        cased = [option for option in options if option.lower() == name.lower()]
        close = name if name in elsewhere else cased[0] if cased else closest(name, options)
        other = close if close != name else None
        hint, fix = suggested(other), instead(span, name, other)
        if close in elsewhere:
            hint = f"{hint} `import std ({close})` brings it".strip()
            fix = imports(self.module.file, name) if close == name else None
        self.report.add("E0201", f"nothing is named `{name}` here", span, hint, fix=fix)

    def _inside(self, binders: Iterable[t.Binder], *bodies: t.Expr | None) -> None:
        scope = self.inner()
        scope.place(binders)
        for body in bodies:
            scope.check(body)

    def _subscript(self, expr: t.Subscript) -> None:
        name = expr.base.bare
        if name in self.dims and self.kind(name) == "tensor":
            problem = fits_subscripts(self.dims[name], expr.subs)
            if problem:
                self.report.add("E0307", f"`{name}` {problem}", expr)

    # ---- calls -------------------------------------------------------------------------------------------------

    def _call(self, expr: t.Call) -> None:
        spliced = any(isinstance(arg, t.Pack) for arg in expr.args)
        kind = self.kind(expr.function)
        head = expr.function.partition(".")[0]
        definition = self.module.lookup(expr.function)
        known: dict[str, t.Attr] | None = None
        wanted: int | None = None
        if kind is not None or self.kind(head) is not None:
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
                self.report.add("E0323", f"`**{expr.rest}` is bound nowhere", expr)
        given: set[str] = set()
        for keyword in expr.kwargs:
            if keyword.name in given:
                self.report.add("E0309", f"`{keyword.name}` is given twice", keyword)
            given.add(keyword.name)
            if known is not None and keyword.name not in known:
                close = closest(keyword.name, known)
                hint = suggested(close, "attributes: " + ", ".join(known) if known else "")
                message, fix = (
                    f"`{expr.function}` has no attribute `{keyword.name}`",
                    instead(keyword.span, keyword.name, close),
                )
                self.report.add("E0302", message, keyword, hint, fix)
            elif known is not None:
                problem = literal_problem(known[keyword.name], keyword.value)
                if problem:
                    message = f"the attribute `{keyword.name}` of `{expr.function}` {problem}"
                    self.report.add("E0304", message, keyword.value)
                self._axes(expr, known[keyword.name], keyword.value)
            self.check(keyword.value, pattern=self.pattern)
        if known is not None and expr.rest is None:
            self._missing(expr, known, given)

    def _output(self, expr: t.Field) -> None:
        definition = self.module.called(expr.call)
        if isinstance(definition, OperatorDef):
            names = [output.name for output in definition.outputs]
            if expr.name not in names:
                hint = "outputs: " + ", ".join(names)
                self.report.add("E0324", f"`{definition.short}` has no output `{expr.name}`", expr, hint)

    def _axes(self, expr: t.Call, attr: t.Attr, value: t.Expr) -> None:
        """Axes that are written down, of a tensor whose rank is."""
        name = (expr.args[0].bare if expr.args else None) or ""
        dims = self.dims.get(name, ())
        if attr.type.name not in {"axis", "axes", "permutation"} or any(isinstance(d, t.Pack) for d in dims):
            return
        for entry in value.elements if isinstance(value, t.ListExpr) and dims else (value,) if dims else ():
            number = entry.operand if isinstance(entry, t.Unary) else entry
            at = number.value * (-1 if isinstance(entry, t.Unary) else 1) if isinstance(number, t.Int) else 0
            if not -len(dims) <= at < len(dims):
                self.report.add("E0322", f"`{name}` has {len(dims)} axes, and no axis {entry.span.text}", entry)

    def _missing(self, expr: t.Call, known: dict[str, t.Attr], given: set[str]) -> None:
        if self.kind("(equation)") is not None and not expr.kwargs:
            return  # a pointwise operator called on values
        for attr in known.values():
            if not attr.default and attr.name not in given:
                hint = f"write `{attr.name}=...`; it is `{attr.type.span.text}`"
                message = f"the attribute `{attr.name}` of `{expr.function}` is missing"
                self.report.add("E0303", message, expr, hint)

    def _operator(self, expr: t.Call, op: OperatorDef) -> None:
        most = len(op.params)
        least = sum(param.default is None for param in op.params)
        if not least <= len(expr.args) <= most and not (takes_many(self.rules, op) and expr.args):
            wanted = f"{least}" if least == most else f"{least} to {most}"
            names = ", ".join(param.name for param in op.params)
            self._arity(expr, f"takes {wanted} tensor{'s' * (most != 1)} ({names}), not {len(expr.args)}")

    def _arity(self, expr: t.Call, text: str) -> None:
        self.report.add("E0301", f"`{expr.function}` {text}", expr)


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
    this = ""
    match value:
        case t.Str() if kind != "string":
            this = "a string"
        case t.Name("true" | "false") if kind != "bool":
            this = "a truth value"
        case t.Name(name) if name in DTYPE_NAMES - {"bool"} and kind != "dtype":
            this = "an element type"
        case t.Float() | t.Int() if kind in {"string", "dtype"}:
            this = "a number"
        case t.Float() if kind == "bool":
            this = "a number"
        case t.Int(number) if kind == "bool" and number not in {0, 1}:
            this = "a number"
        case t.Float() if kind in {"int", "ints", "axis", "axes", "permutation"}:
            this = "no integer"
        case t.ListExpr() if not listed:
            this = "a list"
        case t.ListExpr(elements) if attr.type.dims and isinstance(attr.type.dims[0], t.Int):
            count, given = attr.type.dims[0].value, len(elements)
            if count not in {2, given} and not any(isinstance(each, t.Pack) for each in elements):
                return f"has {count} entries, and this list has {given}"
    return this and f"is `{attr.type.span.text}`, and this is {this}"
