"""Random syntax trees: every node that the parser can make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

from dslc.errors import SourceText, Span
from dslc.syntax import tree as t

NOWHERE = Span(SourceText("generated", ""), 0, 0)
NAMES = ["a", "b", "c1", "X", "Y", "K", "long_name", "_private", "axis", "sizes", "another_long_name"]
TEXT = st.text(
    st.characters(blacklist_characters='"\n\r\0', blacklist_categories=("Cs", "Zl", "Zp", "Cc")), max_size=12
)
_Made = TypeVar("_Made")


class Maker:
    """Draws nodes; `depth` limits expressions."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def pick(self, *options: Any) -> Any:
        return options[self._draw(st.integers(0, len(options) - 1))]

    def one(self, *makers: Callable[[], _Made]) -> _Made:
        made: _Made = self.pick(*makers)()
        return made

    def some(self, maker: Callable[[], _Made], least: int = 0, most: int = 3) -> tuple[_Made, ...]:
        return tuple(maker() for _ in range(self._draw(st.integers(least, most))))

    def maybe(self, maker: Callable[[], _Made]) -> _Made | None:
        return maker() if self.flag() else None

    def flag(self) -> bool:
        return bool(self._draw(st.booleans()))

    def name(self) -> str:
        return str(self.pick(*NAMES))

    def names(self) -> tuple[str, ...]:
        return self.some(self.name, 1)

    def dotted(self) -> str:
        return str(self.pick(*NAMES, "a.stride", "std.conv", "layout.transpose"))

    def text(self) -> str:
        return str(self._draw(TEXT))

    def doc(self) -> str:
        return "\n".join(self.some(self.text, 1))

    # ---- expressions ----

    def leaf(self) -> t.Expr:
        kind = self.pick(0, 0, 1, 1, 2, 3, 4)
        if kind == 0:
            return t.Name(self.dotted(), span=NOWHERE)
        if kind == 1:
            return t.Int(self.pick(0, 1, 2, 17, 10**20), span=NOWHERE)
        if kind == 2:
            return t.Float(self.pick("0.5", "1e-5", "2.0E10", "1.25e+3"), span=NOWHERE)
        return t.Str(self.text(), span=NOWHERE) if kind == 3 else t.Inf(span=NOWHERE)

    def expr(self, depth: int = 3) -> t.Expr:
        if depth <= 0 or self.pick(True, False, False):
            return self.leaf()
        return self._inner(self.pick(*range(12)), depth - 1)

    def _inner(self, kind: int, d: int) -> t.Expr:
        def e() -> t.Expr:
            return self.expr(d)

        def element() -> t.Expr:
            return t.Pack(e(), span=NOWHERE) if self.flag() else e()

        if kind <= 1:
            op = self.pick(*"+ - | & * / // % @ ^ and or".split())
            return t.Binary(op, e(), e(), span=NOWHERE)
        if kind == 2:
            operands = self.some(e, 2)
            ops = tuple(self.pick(*"== != < <= > >= ~= in".split()) for _ in operands[1:])
            return t.Compare(operands, ops, span=NOWHERE)
        if kind == 3:
            return t.Unary(self.pick("-", "not"), e(), span=NOWHERE)
        if kind == 4:
            return t.Conditional(e(), e(), e(), span=NOWHERE)
        if kind == 5:
            return t.ForAll(self.name(), e(), e(), span=NOWHERE)
        if kind == 6:
            binders = self.some(lambda: self.binder(d), 1)
            return t.Reduction(self.pick("sum", "max", "all"), binders, self.maybe(e), e(), span=NOWHERE)
        if kind == 7:
            return t.ListExpr(self.some(element), span=NOWHERE)
        if kind == 8:
            base = self.one(lambda: t.Name(self.name(), span=NOWHERE), lambda: self.call(d), lambda: self.output(d))
            return t.Subscript(base, self.subs(d), self.maybe(e), span=NOWHERE)
        if kind == 9:
            return self.one(lambda: self.call(d), lambda: self.output(d))
        scope, other = self.scope(d), self.maybe(e)
        if self.flag():
            return t.Nested(scope, other, None, None, span=NOWHERE)
        return t.Nested(scope, other, self.subs(d), self.maybe(e), span=NOWHERE)

    def subs(self, d: int) -> tuple[t.Expr, ...]:
        return self.some(lambda: self.dim(d), 1)

    def dim(self, d: int) -> t.Expr:
        kind = self.pick(0, 0, 0, 1, 2, 3)
        if kind == 0:
            return self.expr(d)
        if kind == 1:
            return t.Pack(self.expr(d), span=NOWHERE)
        if kind == 2:
            return t.TupleExpr((t.Pack(self.expr(d), span=NOWHERE),), span=NOWHERE)
        return t.TupleExpr(self.some(lambda: self.expr(d), 2), span=NOWHERE)

    def call(self, d: int) -> t.Call:
        function = self.pick("max", self.dotted(), self.dotted())
        args = self.some(lambda: self.pick(self.expr(d), t.Pack(self.expr(d), span=NOWHERE)))
        keys = tuple(dict.fromkeys(self.some(self.name)))
        kwargs = tuple(t.Keyword(key, self.expr(d), span=NOWHERE) for key in keys)
        return t.Call(function, args, kwargs, self.maybe(self.name), span=NOWHERE)

    def output(self, d: int) -> t.Field:
        return t.Field(self.call(d), self.name(), span=NOWHERE)

    def binder(self, d: int = 1, star: bool = False) -> t.Binder:
        return t.Binder(star or self.flag(), self.name(), self.maybe(lambda: self.expr(d)), span=NOWHERE)

    def place(self, d: int = 1) -> t.Place:
        kind = self.pick(0, 0, 1, 2)
        if kind == 0:
            return self.binder(d)
        places = (self.binder(d, star=True),) if kind == 1 else self.some(lambda: self.binder(d), 2)
        return t.TuplePlace(places, span=NOWHERE)

    def traversal(self, d: int, guarded: bool = True) -> t.Traversal:
        where = self.maybe(lambda: self.expr(d)) if guarded else None
        places = self.some(lambda: self.place(d), 1 if where is not None else 0)
        return t.Traversal(places, where, self.expr(d), span=NOWHERE)

    def scope(self, d: int, joined: bool = True) -> t.Expr:
        kind = self.pick(0, 0, 1, 2, 3, 4 if joined else 0)
        if kind == 0:
            return self.traversal(d)
        if kind == 1:
            return self.call(d)
        if kind == 2:
            return t.Name(self.name(), span=NOWHERE)
        if kind == 3:
            return t.Restrict(self.scope(d, False), self.expr(d), span=NOWHERE)
        return t.Join(self.some(lambda: self.scope(d, False), 2), span=NOWHERE)

    # ---- declarations ----

    def type(self) -> t.TypeExpr:
        return t.TypeExpr(self.name(), self.maybe(lambda: self.some(lambda: self.dim(1))), span=NOWHERE)

    def param(self) -> t.Param:
        default = self.maybe(lambda: self.expr(1))
        return t.Param(self.flag(), self.name(), self.maybe(self.type), default, span=NOWHERE)

    def result(self) -> t.Param:
        return t.Param(self.flag(), self.name(), self.maybe(self.type), None, span=NOWHERE)

    def target(self) -> t.Defined:
        return t.Defined(self.name(), self.maybe(lambda: self.some(self.place)), span=NOWHERE)

    def entry(self) -> t.Entry:
        return t.Entry(self.pick("where", "index", self.name()), self.expr(2), span=NOWHERE)

    def where(self) -> t.Where:
        return t.Where(self.some(self.expr, 1), span=NOWHERE)

    def let(self) -> t.Let | t.LetMany | t.Function:
        kind = self.pick(0, 1, 2)
        if kind == 0:
            return t.Let(self.target(), self.expr(), span=NOWHERE)
        if kind == 1:
            return t.LetMany(self.some(self.name, 2), self.expr(), span=NOWHERE)
        return self.function()

    def function(self) -> t.Function:
        return t.Function(self.name(), self.some(self.name), self.expr(4), span=NOWHERE)

    def bind(self) -> t.Bind:
        return t.Bind(self.names(), self.expr(), span=NOWHERE)

    def tags(self) -> t.Tags:
        return t.Tags(self.names(), span=NOWHERE)

    def verify(self) -> t.Verify:
        return t.Verify(self.some(self.entry, 1), span=NOWHERE)

    def terms(self) -> t.TermDecl:
        made = self.some(lambda: t.Signature(self.name(), self.some(self.name), span=NOWHERE), 1)
        return t.TermDecl(made, span=NOWHERE)

    def search(self) -> t.Search:
        return t.Search(self.name(), self.expr(), span=NOWHERE)

    def onnx_parts(self, outputs: bool = True) -> tuple[Any, ...]:
        inputs = self.some(
            lambda: self.pick(self.param(), t.ListExpr(self.some(lambda: self.expr(1), 1), span=NOWHERE))
        )
        results = self.maybe(lambda: self.some(self.result, 1)) if outputs else None
        return self.dotted(), inputs, results, self.pick(1, 7, 13), self.pick(None, 21), self.some(self.entry)

    def onnx_map(self, outputs: bool = True) -> t.OnnxMap:
        return t.OnnxMap(*self.onnx_parts(outputs), span=NOWHERE)

    def operator_statement(self) -> t.Node:
        return self.one(
            lambda: t.Attr(self.name(), self.type(), self.maybe(self.expr), span=NOWHERE),
            self.where,
            self.let,
            lambda: t.Equation(self.target(), self.expr(), span=NOWHERE),
            lambda: t.EquationMany(self.some(self.name, 2), self.expr(), span=NOWHERE),
            self.onnx_map,
            lambda: t.Example(self.expr(), span=NOWHERE),
            self.tags,
            self.verify,
        )

    def side(self) -> tuple[t.Node, ...]:
        return self.some(
            lambda: self.one(
                self.bind,
                self.where,
                self.let,
                lambda: t.Const(self.target(), self.type(), self.expr(), span=NOWHERE),
                self.terms,
                self.search,
                self.tags,
                lambda: t.Correct(self.pick("auto", self.bind()), self.maybe(self.leaf), span=NOWHERE),
                self.verify,
                lambda: t.Trusted(self.text(), span=NOWHERE),
            ),
            1,
        )

    def declaration(self) -> t.Node:
        return self.one(
            lambda: t.IndexDecl(self.some(self.binder, 1), span=NOWHERE),
            self.terms,
            lambda: t.MapDecl(self.name(), self.expr(1), self.expr(1), span=NOWHERE),
            lambda: t.SetDecl(self.names(), span=NOWHERE),
            lambda: t.TensorDecl(self.names(), span=NOWHERE),
            self.where,
        )

    def formulas(self) -> tuple[t.Formula, ...]:
        return self.some(lambda: t.Formula(self.maybe(self.name), self.scope(3), span=NOWHERE), 1)

    def lowering_statement(self) -> t.Node:
        return self.one(
            self.where,
            self.let,
            lambda: t.Cost(self.some(self.entry, 1), span=NOWHERE),
            lambda: t.CallVendor(self.text(), self.some(self.entry), span=NOWHERE),
            lambda: t.RenderTemplate(self.text(), self.some(self.entry), span=NOWHERE),
            lambda: self.onnx_map(outputs=False),
            self.tags,
            self.verify,
        )

    def given(self) -> t.GivenItem:
        if self.flag():
            return t.GivenItem(self.name(), self.type(), None, span=NOWHERE)
        return t.GivenItem(self.name(), None, self.expr(), span=NOWHERE)

    def test_statement(self) -> t.Node:
        return self.one(
            lambda: t.Given(self.some(self.given, 1), span=NOWHERE),
            lambda: t.Expect(self.expr(), span=NOWHERE),
            lambda: t.Fires(self.flag(), self.some(self.bind, 1), span=NOWHERE),
            self.where,
        )

    # ---- items ----

    def item(self) -> Any:
        doc = self.maybe(self.doc)
        kind = self.pick(*range(11))
        if kind == 0:
            results = self.some(self.result, 1)
            params, statements = self.some(self.param, 0, 6), self.some(self.operator_statement, 0, 6)
            return t.Operator(self.name(), params, results, doc, statements, span=NOWHERE)  # type: ignore[arg-type]
        if kind == 1:
            return self.function()
        if kind == 2:
            statements = self.some(lambda: self.one(self.where, self.let, self.terms))
            laws, trusted = self.some(self.expr, 1), self.maybe(self.text)
            return t.Property(self.name(), self.some(self.param), doc, statements, laws, trusted, span=NOWHERE)  # type: ignore[arg-type]
        if kind == 3:
            values = (None, t.Int(0, span=NOWHERE), t.Float("0.5", span=NOWHERE), t.Name("concat", span=NOWHERE))
            traits = self.some(lambda: t.Trait(self.name(), self.pick(*values), span=NOWHERE), 1)
            return t.PropertyIs(self.dotted(), traits, span=NOWHERE)
        if kind == 4:
            left, arrow, right = self.side(), self.pick("=>", "<=>"), self.side()
            head = (self.flag(), self.name(), self.some(self.param), self.names(), doc)
            return t.Substitution(*head, left, arrow, right, span=NOWHERE)  # type: ignore[arg-type]
        if kind == 5:
            declared, left, right = self.some(self.declaration), self.formulas(), self.formulas()
            arrow = self.pick("=>", "<=>")
            last = self.some(lambda: self.one(self.search, self.tags, self.verify))
            return t.Derivation(self.name(), doc, declared, left, arrow, right, last, span=NOWHERE)  # type: ignore[arg-type]
        if kind == 6:
            equation = t.Equation(self.target(), self.expr(), span=NOWHERE)
            what: tuple[Any, Any] = (equation, ()) if self.flag() else (None, self.some(self.bind, 1))
            statements = self.some(self.lowering_statement)
            return t.Lowering(self.name(), self.some(self.param), self.name(), doc, *what, statements, span=NOWHERE)  # type: ignore[arg-type]
        if kind == 7:
            statements = self.some(lambda: self.one(self.where, self.let))
            return t.OnnxDef(*self.onnx_parts(), statements, self.expr(), span=NOWHERE)  # type: ignore[arg-type]
        if kind == 8:
            return t.Test(self.name(), doc, self.some(self.test_statement), span=NOWHERE)  # type: ignore[arg-type]
        if kind == 9:
            globs = self.some(lambda: self.pick("std.*", "fold_*", self.dotted()), 1)
            kinds = ("include", "exclude", "always")
            lines = self.some(lambda: t.RulesetStatement(self.pick(*kinds), globs, span=NOWHERE))
            return t.Ruleset(self.name(), doc, lines, span=NOWHERE)
        return t.Function(self.name(), self.some(self.name), self.expr(5), span=NOWHERE)

    def header(self) -> t.Header:
        requires = self.some(lambda: t.Requires(self.name(), self.pick(">=1.0", ">=1.0,<2.0"), span=NOWHERE))
        library = t.LibraryDecl(self.dotted(), "1.20.3", requires, span=NOWHERE) if self.flag() else None
        imports = self.some(
            lambda: t.Import(self.dotted(), self.flag(), self.maybe(self.name), self.maybe(self.names), span=NOWHERE)
        )
        return t.Header(1, library, imports, self.some(lambda: t.Export(self.names(), span=NOWHERE)), span=NOWHERE)


@st.composite
def files(draw: Callable[[st.SearchStrategy[Any]], Any]) -> t.File:
    make = Maker(draw)
    return t.File(NOWHERE.source, make.header(), make.some(make.item, 1), (), span=NOWHERE)
