"""Name resolution in an item, and the walk over its expressions that looks every name up."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

from dslc.errors import Diagnostic, Fix, Span, instead
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, Remember, afresh
from dslc.semantics.library import Rules, standard
from dslc.semantics.nary import takes_many
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
        severity = "warning" if code.startswith("W") else "error"
        self.take(
            [Diagnostic(code, message, span, severity=severity, hint=hint, fix=fix, counterexample=counterexample)]
        )

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

    def kind(self, name: str) -> str | None:
        at: NameScope | None = self
        while at is not None:
            if name in at.kinds:
                return at.kinds[name]
            at = at.parent
        return None

    def names(self) -> list[str]:
        return [*self.kinds, *(self.parent.names() if self.parent else [])]

    # ---- expressions -------------------------------------------------------------------------------------------

    def check(self, expr: t.Expr | None, pattern: bool = False) -> None:
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
            self._binders(expr.binders, (expr.where, expr.body))
        elif isinstance(expr, t.ForAll):
            self.check(expr.domain)
            scope = self.inner()
            scope.bind(expr.name, "index")
            scope.check(expr.body)
        elif isinstance(expr, t.Traversal):
            flat = [b for p in expr.places for b in (p.places if isinstance(p, t.TuplePlace) else (p,))]
            self._binders(tuple(flat), (expr.where, expr.body))
        else:
            for child in children(expr):
                self.check(child, pattern and isinstance(expr, t.ListExpr | t.Pack))

    def _name(self, expr: t.Name, pattern: bool) -> None:
        name = expr.id
        if self.kind(name) is not None:
            self.used.add(name)
            return
        head = name.partition(".")[0]
        if "." in name and self.kind(head) is not None:
            self.used.add(head)
            return
        if pattern:
            root = self
            while root.parent is not None:
                root = root.parent
            root.bind(name, "value")
            self.used.add(name)
            return
        if name in CONSTANTS or name in DTYPE_NAMES or self.module.lookup(name) is not None:
            return
        self.unknown(name, expr.span)

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

    def _binders(self, binders: tuple[t.Binder, ...], bodies: tuple[t.Expr | None, ...]) -> None:
        scope = self.inner()
        for binder in binders:
            scope.check(binder.range)
            scope.bind(binder.name, "list" if binder.star else "index")
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
        if kind == "function":
            self.used.add(expr.function)
            count = self.functions.get(expr.function, len(expr.args))
            if len(expr.args) != count and not spliced:
                self._arity(expr, f"takes {_arguments(count)}, not {len(expr.args)}")
        elif kind is not None or ("." in expr.function and self.kind(head) is not None):
            self.used.add(head)
            count = self.functions.get(expr.function, len(expr.args))
            if len(expr.args) != count and not spliced:
                self._arity(expr, f"takes {_arguments(count)}, not {len(expr.args)}")
        elif isinstance(definition, FunctionDef):
            if len(expr.args) != len(definition.syntax.params) and not spliced:
                self._arity(expr, f"takes {_arguments(len(definition.syntax.params))}, not {len(expr.args)}")
        elif isinstance(definition, OperatorDef):
            known = {attr.name: attr for attr in definition.attrs}
            if expr.function not in VOCABULARY and not spliced:
                self._operator(expr, definition)
        elif expr.function not in VOCABULARY and expr.function not in self.extra and head not in self.extra:
            place = Span(expr.span.source, expr.span.start, expr.span.start + len(expr.function))
            self.unknown(expr.function, place, called=True)
        for arg in expr.args:
            # in a pattern, a lower-case name where a tensor may stand binds a number
            self.check(arg, pattern=self.pattern and isinstance(arg, t.Name) and arg.id[0].islower())
        if expr.rest is not None:
            self._rest(expr)
        given: set[str] = set()
        for keyword in expr.kwargs:
            if keyword.name in given:
                self.report.add("E0309", f"`{keyword.name}` is given twice", keyword.span)
            given.add(keyword.name)
            if known is not None and keyword.name not in known:
                options = difflib.get_close_matches(keyword.name, known, n=1)
                hint = (
                    f"did you mean `{options[0]}`?" if options else "attributes: " + ", ".join(known) if known else ""
                )
                fix = instead(keyword.span, keyword.name, options[0]) if options else None
                self.report.add(
                    "E0302", f"`{expr.function}` has no attribute `{keyword.name}`", keyword.span, hint, fix=fix
                )
            elif known is not None:
                problem = literal_problem(known[keyword.name], keyword.value)
                if problem:
                    self.report.add(
                        "E0304", f"the attribute `{keyword.name}` of `{expr.function}` {problem}", keyword.value.span
                    )
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
        first = expr.args[0] if expr.args else None
        dims = self.dims.get(first.id, ()) if isinstance(first, t.Name) else ()
        if (
            attr.type.name not in {"axis", "axes", "permutation"}
            or not dims
            or any(isinstance(d, t.Pack) for d in dims)
        ):
            return
        for entry in value.elements if isinstance(value, t.ListExpr) else (value,):
            negative = isinstance(entry, t.Unary)
            number = entry.operand if isinstance(entry, t.Unary) else entry
            if isinstance(number, t.Int) and not -len(dims) <= (-number.value if negative else number.value) < len(
                dims
            ):
                shown = first.id if isinstance(first, t.Name) else ""
                self.report.add("E0322", f"`{shown}` has {len(dims)} axes, and no axis {entry.span.text}", entry.span)

    def _missing(self, expr: t.Call, known: dict[str, t.Attr], given: set[str]) -> None:
        if self.kind("(equation)") is not None and not expr.kwargs:
            return  # a pointwise operator called on values
        for attr in known.values():
            if attr.default is None and attr.name not in given:
                hint = f"write `{attr.name}=...`; it is `{attr.type.span.text}`"
                self.report.add(
                    "E0303", f"the attribute `{attr.name}` of `{expr.function}` is missing", expr.span, hint
                )

    def _rest(self, expr: t.Call) -> None:
        assert expr.rest is not None
        if self.kind(expr.rest) is not None:
            self.used.add(expr.rest)
        elif self.pattern:
            root = self
            while root.parent is not None:
                root = root.parent
            root.bind(expr.rest, "attributes")
            self.used.add(expr.rest)
        else:
            self.report.add("E0323", f"`**{expr.rest}` is bound nowhere", expr.span)

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
    before = (
        header.imports[-1].span
        if header.imports
        else header.library.span
        if header.library is not None
        else header.span
    )
    # without imports and a library the first line is `dslc 1`
    end = before.end if before is not header.span else before.source.text.find("\n", before.start)
    end = len(before.source.text) if end < 0 else end
    return Fix(Span(before.source, end, end), f"\nimport std ({name})")


def _arguments(count: int) -> str:
    return "one argument" if count == 1 else f"{count} arguments"


def children(expr: t.Node) -> Iterable[t.Expr]:
    """The expressions directly below one that binds no names."""
    if isinstance(expr, t.Unary):
        return (expr.operand,)
    if isinstance(expr, t.Binary):
        return (expr.left, expr.right)
    if isinstance(expr, t.Compare):
        return expr.operands
    if isinstance(expr, t.Conditional):
        return (expr.then, expr.condition, expr.otherwise)
    if isinstance(expr, t.Pack):
        return (expr.value,)
    if isinstance(expr, t.TupleExpr):
        return expr.slots
    if isinstance(expr, t.ListExpr):
        return expr.elements
    if isinstance(expr, t.Field):
        return (expr.call,)
    if isinstance(expr, t.Join):
        return expr.parts
    if isinstance(expr, t.Restrict):
        return (expr.scope, expr.domain)
    if isinstance(expr, t.Nested):
        more = tuple(e for e in (expr.other, expr.subs_other) if e is not None)
        return (expr.scope, *more, *(expr.subs or ()))
    return ()


def fits_subscripts(dims: tuple[t.Expr, ...], subs: tuple[t.Expr, ...]) -> str:
    """Problem with the number of subscripts of a tensor with declared dimensions; empty where there is none."""
    packs = sum(isinstance(dim, t.Pack) for dim in dims)
    spliced = sum(isinstance(sub, t.Pack) for sub in subs)
    if not packs and not spliced and len(dims) != len(subs):
        axes, read = (
            f"{len(dims)} ax{'i' if len(dims) == 1 else 'e'}s",
            f"{len(subs)} subscript{'s' * (len(subs) != 1)}",
        )
        return f"has {axes} and is read with {read}"
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
