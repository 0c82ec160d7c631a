"""From Lark's parse tree to the syntax tree of `tree.py`: nodes by a table, and a method for each rule with a form of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from dslc.errors import Diagnostic, SourceText, Span
from dslc.syntax import tree as t

Args = list[Any]

#: rules whose children are the fields of a node, in order
_CLOSED: Mapping[str, type[Any]] = {
    "type": t.TypeExpr, "param": t.Param, "output": t.Param, "target": t.Defined, "attr": t.Attr, "let": t.Let,
    "function": t.Function, "equation": t.Equation, "lowering_expr": t.Equation, "entry": t.Entry, "onnx_map": t.OnnxMap,
    "example": t.Example, "tags": t.Tags, "bind": t.Bind, "const": t.Const, "signature": t.Signature, "search": t.Search,
    "correct": t.Correct, "trusted": t.Trusted, "map": t.MapDecl, "set": t.SetDecl, "tensor": t.TensorDecl,
    "formula": t.Formula, "call_vendor": t.CallVendor, "render_template": t.RenderTemplate, "given_type": t.GivenItem,
    "expect": t.Expect, "trait": t.Trait, "substitution": t.Substitution, "requires": t.Requires, "export_stmt": t.Export,
    "number": t.Float, "integer": t.Int, "string": t.Str, "infinity": t.Inf, "whole": t.Name, "ternary": t.Conditional,
    "forall": t.ForAll, "binder": t.Binder, "merged_pack": t.Binder, "kwarg": t.Keyword, "projection": t.Field,
    "traversal": t.Traversal, "restrict": t.Restrict,
}  # fmt: skip
#: rules of which the node's last field takes all children that are left
_OPEN: Mapping[str, type[Any]] = {
    "where": t.Where, "verify": t.Verify, "term": t.TermDecl, "index": t.IndexDecl, "cost": t.Cost, "given": t.Given,
    "operator": t.Operator, "property_is": t.PropertyIs, "test": t.Test, "ruleset": t.Ruleset, "library": t.LibraryDecl,
    "ruleset_include": t.RulesetStatement, "ruleset_exclude": t.RulesetStatement, "ruleset_always": t.RulesetStatement,
    "list_expr": t.ListExpr, "merged": t.TupleExpr, "tuple_place": t.TuplePlace, "scope": t.Join,
}  # fmt: skip
#: rules that are the tuple of their children
_TUPLES = frozenset(
    "params outputs inputs brackets attr_map name_list laws graph_side lowering_match places items args".split()
)
#: chains of operators with the same precedence, and the operator where the grammar leaves it out
_CHAINS = {"disjunction": "or", "conjunction": "and", "sum": None, "chain": None}


def _word(child: Any) -> Any:
    """A token as what it says: `"text"` → text; what is no token stays."""
    if not isinstance(child, Token):
        return child
    if child.type == "INT":
        return int(child)
    cut = {"STRING": 1, "DOC": 3}.get(child.type, 0)
    return str(child)[cut : len(child) - cut]


def _at_token(children: Args) -> tuple[Args, Token, Args]:
    """Children before the first token, the token, and those behind it."""
    at = next(k for k, each in enumerate(children) if isinstance(each, Token))
    return children[:at], children[at], children[at + 1 :]


def _derivation(children: Args) -> Args:
    name, doc, *parts = children
    before, arrow, behind = _at_token(parts)
    (left, declarations), (right, statements) = (
        [tuple(x for x in side if isinstance(x, t.Formula) is formula) for formula in (True, False)]
        for side in (before, behind)
    )
    return [name, doc, declarations, left, arrow, right, statements]


def _lowering(children: Args) -> Args:
    *head, what, _ = [*children[:5], None]
    expr, match = (what, ()) if isinstance(what, t.Equation) else (None, what)
    return [*head, expr, match, tuple(children[5:])]


def _header(children: Args) -> Args:
    libraries, imports, exports = (
        tuple(x for x in children if isinstance(x, kind)) for kind in (t.LibraryDecl, t.Import, t.Export)
    )
    return [children[0], libraries[0] if libraries else None, imports, exports]


def _fires(children: Args) -> Args:
    silent = isinstance(children[0], Token)
    return [children[0] if silent else None, tuple(children[1:] if silent else children)]


def _derives(children: Args) -> Args:
    left, _, right = _at_token(children)
    return [tuple(left), tuple(right)]


def _named(children: Args) -> Args:
    return [tuple(map(str, children[:-1])), children[-1]]


#: rules with a form of their own: the node, and its fields from the children
_MADE: Mapping[str, tuple[type[Any], Callable[[Args], Args]]] = {
    "qname": (t.Name, lambda c: [".".join(c)]),
    "negated": (t.Unary, lambda c: ["not", c[0]]),
    "neg": (t.Unary, lambda c: ["-", c[-1]]),
    "comparison": (t.Compare, lambda c: [tuple(c[::2]), tuple(map(str, c[1::2]))]),
    "pow": (t.Binary, lambda c: ["^", c[0], c[1]]),
    "reduction": (t.Reduction, lambda c: [c[0], *c[1], c[2]]),
    "pack": (t.Pack, lambda c: [c[-1]]),
    # `X[]` is the one element of a tensor of rank 0
    "subscript": (t.Subscript, lambda c: [c[0], *(c[1] or ((), None))]),
    "nested": (t.Nested, lambda c: [*c[:2], *(c[2] or (None, None))]),
    "let_many": (t.LetMany, _named),
    "equation_many": (t.EquationMany, _named),
    "onnx_def": (t.OnnxDef, lambda c: [*c[:6], tuple(c[6:-1]), c[-1]]),
    "onnx_node": (t.OnnxMap, lambda c: [*c[:2], None, *c[2:]]),
    "given_value": (t.GivenItem, lambda c: [c[0], None, c[1]]),
    "fires": (t.Fires, _fires),
    "derives": (t.Derives, _derives),
    "property": (t.Property, lambda c: [*c[:3], tuple(c[3:-2]), c[-2], c[-1] and c[-1].reason]),
    "derivation": (t.Derivation, _derivation),
    "lowering": (t.Lowering, _lowering),
    "import_stmt": (t.Import, lambda c: [*c[0], *c[1:]]),
    "header": (t.Header, _header),
}
#: rules that are no nodes
_VALUES: Mapping[str, Callable[[Args], Any]] = {
    "domain": lambda c: (tuple(c[:-1]), c[-1]),
    "other": lambda c: ("other", c[0]),
    "target_places": lambda c: c[0] or (),
    "glob": lambda c: str(c[0]) if isinstance(c[0], Token) else c[0].id,
    "doc": lambda c: c[0],
    "language": lambda c: int(c[0]),
    "module": lambda c: (c[1].id, c[0]),
    "start": lambda c: (c[0], tuple(c[1:])),
}
_NODES = {*_CLOSED.values(), *_OPEN.values(), *(kind for kind, _ in _MADE.values())}
_TYPES = {kind: [str(each.type) for each in fields(kind) if each.name != "span"] for kind in _NODES}


@v_args(meta=True)
class Builder(Transformer_NonRecursive[Token, Any]):
    """Builds frozen nodes with spans into one source; `offset` shifts positions when a piece of a file is parsed.

    `findings` collects what the grammar cannot say (E0116).
    """

    def __init__(self, source: SourceText, offset: int = 0) -> None:
        super().__init__(visit_tokens=False)
        self._source = source
        self._offset = offset
        self.findings: list[Diagnostic] = []

    def __default__(self, data: str, children: Args, meta: Meta) -> Any:
        if data in _TUPLES:
            return tuple(_word(child) for child in children if child is not None)
        if data in _CHAINS:
            return self._chain(meta, children, _CHAINS[data])
        if data in _VALUES:
            return _VALUES[data](children)
        if data in _CLOSED:
            return self._node(_CLOSED[data], meta, children)
        if data in _MADE:
            made, parts = _MADE[data]
            return self._node(made, meta, parts(children))
        kind = _OPEN[data]
        if kind is t.RulesetStatement:
            children = [data.removeprefix("ruleset_"), *children]
        fixed = len(_TYPES[kind]) - 1
        rest = tuple(child for child in children[fixed:] if child is not None)
        return self._node(kind, meta, [*children[:fixed], rest])

    def _node(self, kind: type[Any], meta: Meta, children: Args) -> Any:
        """A node whose fields are some children; those that are missing at the end are left out."""
        missing = [None] * (len(_TYPES[kind]) - len(children))
        # the tokens of a node without fields say nothing
        values = [self._field(child, type) for child, type in zip([*children, *missing], _TYPES[kind], strict=False)]
        return kind(*values, span=self._span(meta))

    def _field(self, child: Any, type: str) -> Any:
        """A child as the value of a field of a type."""
        if type == "bool":
            return child is not None
        if child is None:
            # an `onnx` clause without a `since` stands since opset 1
            return () if type.startswith("tuple") and not type.endswith("None") else 1 if type == "int" else None
        if type.startswith("Expr") and isinstance(child, Token):
            literal: Any = {"INT": t.Int, "NUMBER": t.Float}.get(child.type, t.Name)
            start = self._offset + (child.start_pos or 0)
            return literal(_word(child), span=Span(self._source, start, start + len(child)))
        return child.id if type == "str" and isinstance(child, t.Name) else _word(child)

    def _span(self, meta: Meta) -> Span:
        if meta.empty:
            return Span(self._source, self._offset, self._offset)
        return Span(self._source, meta.start_pos + self._offset, meta.end_pos + self._offset)

    def _chain(self, meta: Meta, c: Args, op: str | None) -> Any:
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

    def subscripts(self, meta: Meta, c: Args) -> tuple[tuple[Any, ...], Any]:
        subs = tuple(x for x in c if not isinstance(x, tuple))
        others = [x[1] for x in c if isinstance(x, tuple)]
        for value in others[1:]:
            self.findings.append(Diagnostic("E0116", "`other=` is given twice", value.span))
        return subs, others[0] if others else None

    def rest(self, meta: Meta, c: Args) -> tuple[str, str, Span]:
        return ("rest", str(c[0]), self._span(meta))

    def call(self, meta: Meta, c: Args) -> t.Call:
        given = c[1] or ()
        self._check_order(given)
        return t.Call(
            str(c[0]) if isinstance(c[0], Token) else c[0].id,
            tuple(x for x in given if not isinstance(x, tuple | t.Keyword)),
            tuple(x for x in given if isinstance(x, t.Keyword)),
            next((x[1] for x in given if isinstance(x, tuple)), None),
            span=self._span(meta),
        )

    def _check_order(self, given: tuple[Any, ...]) -> None:
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
