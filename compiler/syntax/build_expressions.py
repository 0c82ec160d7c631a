"""From Lark's parse tree to the syntax tree: expressions and scopes, one method a grammar rule."""

from __future__ import annotations

from typing import Any

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from dslc.errors import Diagnostic, SourceText, Span
from dslc.syntax import tree as t

Args = list[Any]


@v_args(meta=True)
class ExpressionBuilder(Transformer_NonRecursive[Token, Any]):
    """Builds frozen nodes with spans into one source; `offset` shifts positions when a piece of a file is parsed.

    `findings` collects what the grammar cannot say (E0116).
    """

    def __init__(self, source: SourceText, offset: int = 0) -> None:
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

    def list_expr(self, meta: Meta, c: Args) -> t.ListExpr:
        return t.ListExpr(tuple(x for x in c if x is not None), span=self._span(meta))

    def pack(self, meta: Meta, c: Args) -> t.Pack:
        return t.Pack(c[-1], span=self._span(meta))

    def merged(self, meta: Meta, c: Args) -> t.TupleExpr:
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
        # `X[]` is the one element of a tensor of rank 0
        subs, other = c[1] or ((), None)
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
