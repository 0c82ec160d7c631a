"""From Lark's parse tree to the syntax tree of `tree.py`: one method a grammar rule."""

from __future__ import annotations

from typing import Any

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from dslc.errors import Diagnostic, Source, Span
from dslc.syntax import tree as t

Args = list[Any]


def _doc(token: Token | None) -> str | None:
    return None if token is None else str(token)[3:-3]


def _number(token: Token | None, default: int) -> int:
    return default if token is None else int(token)


@v_args(meta=True)
class Builder(Transformer_NonRecursive[Token, Any]):
    """Builds frozen nodes with spans into one source; `offset` shifts positions when a piece of a file is parsed.

    `findings` collects what the grammar cannot say (E0116).
    """

    def __init__(self, source: Source, offset: int = 0) -> None:
        super().__init__(visit_tokens=False)
        self._source = source
        self._offset = offset
        self.findings: list[Diagnostic] = []

    def _span(self, meta: Meta) -> Span:
        if meta.empty:
            return Span(self._source, self._offset, self._offset)
        return Span(self._source, meta.start_pos + self._offset, meta.end_pos + self._offset)

    def _token_span(self, token: Token) -> Span:
        start = token.start_pos or 0
        end = token.end_pos if token.end_pos is not None else start + len(token)
        return Span(self._source, start + self._offset, end + self._offset)

    def _expr(self, child: Any) -> Any:
        """A bare token in expression place (a name that is called or subscripted) as a node."""
        return t.Name(str(child), span=self._token_span(child)) if isinstance(child, Token) else child

    # ---- expressions ----

    def number(self, meta: Meta, c: Args) -> t.Float:
        return t.Float(str(c[0]), span=self._span(meta))

    def integer(self, meta: Meta, c: Args) -> t.Int:
        return t.Int(int(c[0]), span=self._span(meta))

    def string(self, meta: Meta, c: Args) -> t.Str:
        return t.Str(str(c[0])[1:-1], span=self._span(meta))

    def infinity(self, meta: Meta, c: Args) -> t.Inf:
        return t.Inf(span=self._span(meta))

    def qname(self, meta: Meta, c: Args) -> t.Name:
        return t.Name(".".join(str(part) for part in c), span=self._span(meta))

    def ternary(self, meta: Meta, c: Args) -> t.Conditional:
        return t.Conditional(c[0], c[1], c[2], span=self._span(meta))

    def _chain(self, meta: Meta, c: Args, op: str | None = None) -> Any:
        node, rest = c[0], c[1:]
        if op is not None:
            rest = [x for right in rest for x in (op, right)]
        # A child's span leaves its parentheses out; the whole chain's, and the place of a sign, take them in.
        whole = self._span(meta)
        for k in range(0, len(rest), 2):
            end = rest[k + 1].span.end
            if k + 2 == len(rest):
                end = whole.end
            elif isinstance(rest[k + 2], Token):
                end = self._offset + (rest[k + 2].start_pos or 0)
                end -= len(self._source.text[whole.start : end]) - len(self._source.text[whole.start : end].rstrip())
            node = t.Binary(str(rest[k]), node, rest[k + 1], span=Span(self._source, whole.start, end))
        return node

    def disjunction(self, meta: Meta, c: Args) -> Any:
        return self._chain(meta, c, "or")

    def conjunction(self, meta: Meta, c: Args) -> Any:
        return self._chain(meta, c, "and")

    def negated(self, meta: Meta, c: Args) -> t.Unary:
        return t.Unary("not", c[0], span=self._span(meta))

    def neg(self, meta: Meta, c: Args) -> t.Unary:
        return t.Unary("-", c[-1], span=self._span(meta))

    def forall(self, meta: Meta, c: Args) -> t.ForAll:
        return t.ForAll(str(c[0]), c[1], c[2], span=self._span(meta))

    def comparison(self, meta: Meta, c: Args) -> t.Compare:
        return t.Compare(tuple(c[::2]), tuple(str(op) for op in c[1::2]), span=self._span(meta))

    def sum(self, meta: Meta, c: Args) -> Any:
        return self._chain(meta, c)

    def chain(self, meta: Meta, c: Args) -> Any:
        return self._chain(meta, c)

    def pow(self, meta: Meta, c: Args) -> t.Binary:
        return t.Binary("^", c[0], c[1], span=self._span(meta))

    def reduction(self, meta: Meta, c: Args) -> t.Reduction:
        binders, where = c[1]
        return t.Reduction(str(c[0]), binders, where, c[2], span=self._span(meta))

    def domain(self, meta: Meta, c: Args) -> tuple[tuple[t.Binder, ...], Any]:
        return tuple(x for x in c[:-1] if x is not None), c[-1]

    def binder(self, meta: Meta, c: Args) -> t.Binder:
        return t.Binder(c[0] is not None, str(c[1]), c[2], span=self._span(meta))

    def list(self, meta: Meta, c: Args) -> t.ListExpr:
        return t.ListExpr(tuple(x for x in c if x is not None), span=self._span(meta))

    def pack(self, meta: Meta, c: Args) -> t.Pack:
        return t.Pack(c[-1], span=self._span(meta))

    def tuple(self, meta: Meta, c: Args) -> t.TupleExpr:
        return t.TupleExpr(tuple(c), span=self._span(meta))

    def other(self, meta: Meta, c: Args) -> tuple[str, Any]:
        return ("other", c[0])

    def subscripts(self, meta: Meta, c: Args) -> tuple[tuple[Any, ...], Any]:
        subs = tuple(x for x in c if x is not None and not isinstance(x, tuple))
        others = [x[1] for x in c if isinstance(x, tuple)]
        for value in others[1:]:
            self.findings.append(Diagnostic("E0116", "`other=` is given twice", value.span))
        return subs, others[0] if others else None

    def subscript(self, meta: Meta, c: Args) -> t.Subscript:
        subs, other = c[1]
        return t.Subscript(self._expr(c[0]), subs, other, span=self._span(meta))

    def kwarg(self, meta: Meta, c: Args) -> t.Keyword:
        return t.Keyword(str(c[0]), c[1], span=self._span(meta))

    def rest(self, meta: Meta, c: Args) -> tuple[str, str, Span]:
        return ("rest", str(c[0]), self._span(meta))

    def args(self, meta: Meta, c: Args) -> Args:
        return c

    def call(self, meta: Meta, c: Args) -> t.Call:
        function = str(c[0]) if isinstance(c[0], Token) else c[0].id
        given = c[1] or []
        rest = [x[1] for x in given if isinstance(x, tuple)]
        self._check_order(given)
        return t.Call(
            function,
            tuple(x for x in given if not isinstance(x, tuple | t.Keyword)),
            tuple(x for x in given if isinstance(x, t.Keyword)),
            rest[0] if rest else None,
            span=self._span(meta),
        )

    def _check_order(self, given: Args) -> None:
        """Arguments without a name first, then distinct names, then at most one `**rest`."""
        names: set[str] = set()
        previous = 0
        for argument in given:
            if isinstance(argument, tuple):
                rank, what, span = 2, f"**{argument[1]}", argument[2]
            elif isinstance(argument, t.Keyword):
                rank, what, span = 1, argument.name, argument.span
            else:
                rank, what, span = 0, "an argument without a name", argument.span
            if rank < previous:
                message = f"{what if rank == 0 else f'`{what}`'} after `{'**' if previous == 2 else 'name='}`"
                hint = "write arguments without a name first, then named ones, then `**rest`"
                self.findings.append(Diagnostic("E0116", message, span, hint=hint))
            elif rank == 2 == previous or what in names:
                self.findings.append(Diagnostic("E0116", f"`{what}` is given twice", span))
            previous = max(previous, rank)
            if rank:
                names.add(what)

    def projection(self, meta: Meta, c: Args) -> t.Field:
        return t.Field(c[0], str(c[1]), span=self._span(meta))

    # ---- scopes ----

    def places(self, meta: Meta, c: Args) -> tuple[t.Place, ...]:
        return tuple(c)

    def merged_pack(self, meta: Meta, c: Args) -> t.Binder:
        return t.Binder(True, str(c[1]), c[2], span=self._span(meta))

    def tuple_place(self, meta: Meta, c: Args) -> t.TuplePlace:
        return t.TuplePlace(tuple(c), span=self._span(meta))

    def traversal(self, meta: Meta, c: Args) -> t.Traversal:
        return t.Traversal(c[0] or (), c[1], c[2], span=self._span(meta))

    def nested(self, meta: Meta, c: Args) -> t.Nested:
        subs, subs_other = c[2] if c[2] is not None else (None, None)
        return t.Nested(c[0], c[1], subs, subs_other, span=self._span(meta))

    def scope(self, meta: Meta, c: Args) -> t.Join:
        return t.Join(tuple(c), span=self._span(meta))

    def whole(self, meta: Meta, c: Args) -> t.Name:
        return t.Name(str(c[0]), span=self._span(meta))

    def restrict(self, meta: Meta, c: Args) -> t.Restrict:
        return t.Restrict(c[0], c[1], span=self._span(meta))

    # ---- declarations ----

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

    def target(self, meta: Meta, c: Args) -> t.Target:
        return t.Target(str(c[0]), c[1], span=self._span(meta))

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

    def ruleset_include(self, meta: Meta, c: Args) -> t.RulesetStatement:
        return t.RulesetStatement(True, tuple(c), span=self._span(meta))

    def ruleset_exclude(self, meta: Meta, c: Args) -> t.RulesetStatement:
        return t.RulesetStatement(False, tuple(c), span=self._span(meta))

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
