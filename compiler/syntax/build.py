"""From Lark's parse tree to the syntax tree of `tree.py`: one method a grammar rule."""

from __future__ import annotations

from typing import Any

from lark import Token, v_args
from lark.tree import Meta

from dslc.syntax import tree as t
from dslc.syntax.build_expressions import ExpressionBuilder

Args = list[Any]


def _doc(token: Token | None) -> str | None:
    return None if token is None else str(token)[3:-3]


def _number(token: Token | None, default: int) -> int:
    return default if token is None else int(token)


@v_args(meta=True)
class Builder(ExpressionBuilder):
    """Declarations, items and headers."""

    def type(self, meta: Meta, c: Args) -> t.TypeExpr:
        return t.TypeExpr(str(c[0]), c[1], span=self._span(meta))

    def brackets(self, meta: Meta, c: Args) -> tuple[Any, ...]:
        return tuple(x for x in c if x is not None)

    def params(self, meta: Meta, c: Args) -> Args:
        return c

    def param(self, meta: Meta, c: Args) -> t.Param:
        return t.Param(c[0] is not None, str(c[1]), c[2], c[3], span=self._span(meta))

    def outputs(self, meta: Meta, c: Args) -> Args:
        return c

    def output(self, meta: Meta, c: Args) -> t.Param:
        return t.Param(c[0] is not None, str(c[1]), c[2], None, span=self._span(meta))

    def target(self, meta: Meta, c: Args) -> t.Defined:
        return t.Defined(str(c[0]), c[1], span=self._span(meta))

    def target_places(self, meta: Meta, c: Args) -> tuple[t.Place, ...]:
        return c[0] or ()

    def attr(self, meta: Meta, c: Args) -> t.Attr:
        return t.Attr(str(c[0]), c[1], c[2], span=self._span(meta))

    def where(self, meta: Meta, c: Args) -> t.Where:
        return t.Where(tuple(c), span=self._span(meta))

    def let(self, meta: Meta, c: Args) -> t.Let:
        return t.Let(c[0], c[1], span=self._span(meta))

    def let_many(self, meta: Meta, c: Args) -> t.LetMany:
        return t.LetMany(tuple(str(x) for x in c[:-1]), c[-1], span=self._span(meta))

    def function(self, meta: Meta, c: Args) -> t.Function:
        return t.Function(str(c[0]), tuple(c[1] or ()), c[2], span=self._span(meta))

    def equation(self, meta: Meta, c: Args) -> t.Equation:
        return t.Equation(c[0], c[1], span=self._span(meta))

    def equation_many(self, meta: Meta, c: Args) -> t.EquationMany:
        return t.EquationMany(tuple(str(x) for x in c[:-1]), c[-1], span=self._span(meta))

    def name_list(self, meta: Meta, c: Args) -> tuple[str, ...]:
        return tuple(str(x) for x in c)

    def inputs(self, meta: Meta, c: Args) -> Args:
        return c

    def attr_map(self, meta: Meta, c: Args) -> tuple[t.Entry, ...]:
        return tuple(x for x in c if x is not None)

    def entry(self, meta: Meta, c: Args) -> t.Entry:
        return t.Entry(str(c[0]), c[1], span=self._span(meta))

    def onnx_map(self, meta: Meta, c: Args) -> t.OnnxMap:
        op, inputs, outputs, since, until, attrs = c
        outs = None if outputs is None else tuple(outputs)
        end = None if until is None else int(until)
        return t.OnnxMap(op.id, tuple(inputs or ()), outs, _number(since, 1), end, attrs or (), span=self._span(meta))

    def onnx_def(self, meta: Meta, c: Args) -> t.OnnxDef:
        op, inputs, outputs, since, until, attrs, *statements, value = c
        outs = None if outputs is None else tuple(outputs)
        end = None if until is None else int(until)
        return t.OnnxDef(
            op.id,
            tuple(inputs or ()),
            outs,
            _number(since, 1),
            end,
            attrs or (),
            tuple(statements),
            value,
            span=self._span(meta),
        )

    def example(self, meta: Meta, c: Args) -> t.Example:
        return t.Example(c[0], span=self._span(meta))

    def tags(self, meta: Meta, c: Args) -> t.Tags:
        return t.Tags(c[0], span=self._span(meta))

    def verify(self, meta: Meta, c: Args) -> t.Verify:
        return t.Verify(tuple(c), span=self._span(meta))

    def bind(self, meta: Meta, c: Args) -> t.Bind:
        return t.Bind(c[0], c[1], span=self._span(meta))

    def const(self, meta: Meta, c: Args) -> t.Const:
        return t.Const(c[0], c[1], c[2], span=self._span(meta))

    def signature(self, meta: Meta, c: Args) -> t.Signature:
        return t.Signature(str(c[0]), tuple(c[1] or ()), span=self._span(meta))

    def term(self, meta: Meta, c: Args) -> t.TermDecl:
        return t.TermDecl(tuple(c), span=self._span(meta))

    def search(self, meta: Meta, c: Args) -> t.Search:
        return t.Search(str(c[0]), c[1], span=self._span(meta))

    def correct(self, meta: Meta, c: Args) -> t.Correct:
        what = str(c[0]) if isinstance(c[0], Token) else c[0]
        return t.Correct(what, c[1], span=self._span(meta))

    def trusted(self, meta: Meta, c: Args) -> t.Trusted:
        return t.Trusted(str(c[0])[1:-1], span=self._span(meta))

    def index(self, meta: Meta, c: Args) -> t.IndexDecl:
        return t.IndexDecl(tuple(c), span=self._span(meta))

    def map(self, meta: Meta, c: Args) -> t.MapDecl:
        return t.MapDecl(str(c[0]), c[1], c[2], span=self._span(meta))

    def set(self, meta: Meta, c: Args) -> t.SetDecl:
        return t.SetDecl(c[0], span=self._span(meta))

    def tensor(self, meta: Meta, c: Args) -> t.TensorDecl:
        return t.TensorDecl(c[0], span=self._span(meta))

    def formula(self, meta: Meta, c: Args) -> t.Formula:
        return t.Formula(None if c[0] is None else str(c[0]), c[1], span=self._span(meta))

    def cost(self, meta: Meta, c: Args) -> t.Cost:
        return t.Cost(tuple(c), span=self._span(meta))

    def call_vendor(self, meta: Meta, c: Args) -> t.CallVendor:
        return t.CallVendor(str(c[0])[1:-1], c[1], span=self._span(meta))

    def render_template(self, meta: Meta, c: Args) -> t.RenderTemplate:
        return t.RenderTemplate(str(c[0])[1:-1], c[1] or (), span=self._span(meta))

    def onnx_node(self, meta: Meta, c: Args) -> t.OnnxMap:
        op, inputs, since, until, attrs = c
        end = None if until is None else int(until)
        return t.OnnxMap(op.id, tuple(inputs or ()), None, _number(since, 1), end, attrs or (), span=self._span(meta))

    def given(self, meta: Meta, c: Args) -> t.Given:
        return t.Given(tuple(c), span=self._span(meta))

    def given_type(self, meta: Meta, c: Args) -> t.GivenItem:
        return t.GivenItem(str(c[0]), c[1], None, span=self._span(meta))

    def given_value(self, meta: Meta, c: Args) -> t.GivenItem:
        return t.GivenItem(str(c[0]), None, c[1], span=self._span(meta))

    def expect(self, meta: Meta, c: Args) -> t.Expect:
        return t.Expect(c[0], span=self._span(meta))

    def fires(self, meta: Meta, c: Args) -> t.Fires:
        silent = isinstance(c[0], Token)
        return t.Fires(silent, tuple(c[1:] if silent else c), span=self._span(meta))

    def derives(self, meta: Meta, c: Args) -> t.Derives:
        arrow = next(k for k, each in enumerate(c) if isinstance(each, Token))
        return t.Derives(tuple(c[:arrow]), tuple(c[arrow + 1 :]), span=self._span(meta))

    def ruleset_include(self, meta: Meta, c: Args) -> t.RulesetStatement:
        return t.RulesetStatement("include", tuple(c), span=self._span(meta))

    def ruleset_exclude(self, meta: Meta, c: Args) -> t.RulesetStatement:
        return t.RulesetStatement("exclude", tuple(c), span=self._span(meta))

    def ruleset_always(self, meta: Meta, c: Args) -> t.RulesetStatement:
        return t.RulesetStatement("always", tuple(c), span=self._span(meta))

    def glob(self, meta: Meta, c: Args) -> str:
        return str(c[0]) if isinstance(c[0], Token) else str(c[0].id)

    # ---- items ----

    def operator(self, meta: Meta, c: Args) -> t.Operator:
        name, params, outputs, doc, *statements = c
        return t.Operator(
            str(name), tuple(params or ()), tuple(outputs), _doc(doc), tuple(statements), span=self._span(meta)
        )

    def doc(self, meta: Meta, c: Args) -> Token:
        token: Token = c[0]
        return token

    def laws(self, meta: Meta, c: Args) -> tuple[Any, ...]:
        return tuple(c)

    def property(self, meta: Meta, c: Args) -> t.Property:
        name, params, doc, *statements, laws, trusted = c
        reason = None if trusted is None else trusted.reason
        return t.Property(
            str(name), tuple(params or ()), _doc(doc), tuple(statements), laws, reason, span=self._span(meta)
        )

    def property_is(self, meta: Meta, c: Args) -> t.PropertyIs:
        return t.PropertyIs(c[0].id, tuple(c[1:]), span=self._span(meta))

    def trait(self, meta: Meta, c: Args) -> t.Trait:
        value = c[1]
        if isinstance(value, Token):
            span = self._token_span(value)
            kinds: dict[str, Any] = {
                "INT": lambda: t.Int(int(value), span=span),
                "NUMBER": lambda: t.Float(str(value), span=span),
            }
            value = kinds.get(value.type, lambda: t.Name(str(value), span=span))()
        return t.Trait(str(c[0]), value, span=self._span(meta))

    def graph_side(self, meta: Meta, c: Args) -> tuple[Any, ...]:
        return tuple(c)

    def substitution(self, meta: Meta, c: Args) -> t.Substitution:
        partial, name, params, outputs, doc, left, arrow, right = c
        return t.Substitution(
            partial is not None,
            str(name),
            tuple(params or ()),
            outputs,
            _doc(doc),
            left,
            str(arrow),
            right,
            span=self._span(meta),
        )

    def derivation(self, meta: Meta, c: Args) -> t.Derivation:
        name, doc, *parts = c
        at = next(k for k, part in enumerate(parts) if isinstance(part, Token))
        left = tuple(x for x in parts[:at] if isinstance(x, t.Formula))
        right = tuple(x for x in parts[at + 1 :] if isinstance(x, t.Formula))
        return t.Derivation(
            str(name),
            _doc(doc),
            tuple(x for x in parts[:at] if not isinstance(x, t.Formula)),
            left,
            str(parts[at]),
            right,
            tuple(x for x in parts[at + 1 :] if not isinstance(x, t.Formula)),
            span=self._span(meta),
        )

    def lowering_expr(self, meta: Meta, c: Args) -> t.Equation:
        return t.Equation(c[0], c[1], span=self._span(meta))

    def lowering_match(self, meta: Meta, c: Args) -> tuple[t.Bind, ...]:
        return tuple(c)

    def lowering(self, meta: Meta, c: Args) -> t.Lowering:
        name, params, device, doc, what, *statements = c
        return t.Lowering(
            str(name),
            tuple(params or ()),
            str(device),
            _doc(doc),
            what if isinstance(what, t.Equation) else None,
            () if isinstance(what, t.Equation) else what,
            tuple(statements),
            span=self._span(meta),
        )

    def test(self, meta: Meta, c: Args) -> t.Test:
        return t.Test(str(c[0]), _doc(c[1]), tuple(c[2:]), span=self._span(meta))

    def ruleset(self, meta: Meta, c: Args) -> t.Ruleset:
        return t.Ruleset(str(c[0]), _doc(c[1]), tuple(c[2:]), span=self._span(meta))

    # ---- header ----

    def language(self, meta: Meta, c: Args) -> int:
        return int(c[0])

    def requires(self, meta: Meta, c: Args) -> t.Requires:
        return t.Requires(str(c[0]), str(c[1]), span=self._span(meta))

    def library(self, meta: Meta, c: Args) -> t.LibraryDecl:
        return t.LibraryDecl(str(c[0]), str(c[1]), tuple(c[2:]), span=self._span(meta))

    def module(self, meta: Meta, c: Args) -> tuple[bool, str]:
        return c[0] is not None, c[1].id

    def import_stmt(self, meta: Meta, c: Args) -> t.Import:
        relative, module = c[0]
        alias = None if c[1] is None else str(c[1])
        return t.Import(module, relative, alias, c[2], span=self._span(meta))

    def export_stmt(self, meta: Meta, c: Args) -> t.Export:
        return t.Export(c[0], span=self._span(meta))

    def header(self, meta: Meta, c: Args) -> t.Header:
        return t.Header(
            c[0],
            next((x for x in c if isinstance(x, t.LibraryDecl)), None),
            tuple(x for x in c if isinstance(x, t.Import)),
            tuple(x for x in c if isinstance(x, t.Export)),
            span=self._span(meta),
        )

    def items(self, meta: Meta, c: Args) -> tuple[Any, ...]:
        return tuple(c)

    def start(self, meta: Meta, c: Args) -> tuple[t.Header, tuple[Any, ...]]:
        return c[0], tuple(c[1:])
