"""The syntax tree of a `.rules` file. Nodes are frozen; equality ignores spans, so a reprinted file compares equal.

The whole vocabulary of the language stands in this one file, in the order of the grammar, and nothing else does: whoever reads a tree
imports it as `t`, and what is not here cannot be in a tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from dslc.errors import SourceText, Span


@dataclass(frozen=True, kw_only=True)
class Node:
    """Anything with a place in a file."""

    span: Span = field(compare=False, repr=False)


# ---- expressions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Name(Node):
    """A name, possibly dotted (`a.stride`, `std.conv`)."""

    id: str


@dataclass(frozen=True)
class Int(Node):
    value: int


@dataclass(frozen=True)
class Float(Node):
    """`text` keeps the digits that were written, so that printing gives them back and exact proofs may read them."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)


@dataclass(frozen=True)
class Str(Node):
    value: str


@dataclass(frozen=True)
class Inf(Node):
    pass


@dataclass(frozen=True)
class Unary(Node):
    op: Literal["-", "not"]
    operand: Expr


@dataclass(frozen=True)
class Binary(Node):
    """`+ - | & * / // % @ ^ and or`."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Compare(Node):
    """A chain `a < b <= c`; `ops[i]` stands between `operands[i]` and `operands[i + 1]` (`== != <= >= < > ~= in`)."""

    operands: tuple[Expr, ...]
    ops: tuple[str, ...]


@dataclass(frozen=True)
class Conditional(Node):
    """`then if condition else otherwise`."""

    then: Expr
    condition: Expr
    otherwise: Expr


@dataclass(frozen=True)
class ForAll(Node):
    name: str
    domain: Expr
    body: Expr


@dataclass(frozen=True)
class Binder(Node):
    """An iterator: `i`, `i: N`, `*d`, `*d: D`."""

    star: bool
    name: str
    range: Expr | None


@dataclass(frozen=True)
class Reduction(Node):
    """`sum[k: K, *r where c] body`."""

    kind: str
    binders: tuple[Binder, ...]
    where: Expr | None
    body: Expr


@dataclass(frozen=True)
class Pack(Node):
    """`*e`: the elements of a list, spliced."""

    value: Expr


@dataclass(frozen=True)
class TupleExpr(Node):
    """`(g, c)`: a merged dimension or an index into one; `(*d)` has one pack slot."""

    slots: tuple[Expr, ...]


@dataclass(frozen=True)
class ListExpr(Node):
    elements: tuple[Expr, ...]


@dataclass(frozen=True)
class Subscript(Node):
    """`base[subs, other=...]`; base is a Name, a Call or a Field."""

    base: Expr
    subs: tuple[Expr, ...]
    other: Expr | None


@dataclass(frozen=True)
class Call(Node):
    """`f(args, k=v, **rest)`."""

    function: str
    args: tuple[Expr, ...]
    kwargs: tuple[Keyword, ...]
    rest: str | None


@dataclass(frozen=True)
class Keyword(Node):
    name: str
    value: Expr


@dataclass(frozen=True)
class Field(Node):
    """`f(...).Y`: one output of a call."""

    call: Expr
    name: str


# ---- scopes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TuplePlace(Node):
    """`(g, c)` or `(*d: D)` on the left of an equation: one merged dimension taken apart."""

    places: tuple[Binder, ...]


Place: TypeAlias = Binder | TuplePlace


@dataclass(frozen=True)
class Traversal(Node):
    """`[places where c] body`."""

    places: tuple[Place, ...]
    where: Expr | None
    body: Expr


@dataclass(frozen=True)
class Nested(Node):
    """`{scope, other=value}[subs]`; `subs` is None where the whole scope is meant."""

    scope: Expr
    other: Expr | None
    subs: tuple[Expr, ...] | None
    subs_other: Expr | None = None


@dataclass(frozen=True)
class Join(Node):
    """`P ++ Q`."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Restrict(Node):
    scope: Expr
    domain: Expr


Expr: TypeAlias = (
    Name
    | Int
    | Float
    | Str
    | Inf
    | Unary
    | Binary
    | Compare
    | Conditional
    | ForAll
    | Reduction
    | Pack
    | TupleExpr
    | ListExpr
    | Subscript
    | Call
    | Field
    | Traversal
    | Nested
    | Join
    | Restrict
)


# ---- declarations --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TypeExpr(Node):
    """`T[*P, M, K]`; dims is None for a bare name (`int`, `axis`), () for rank 0."""

    name: str
    dims: tuple[Expr, ...] | None


@dataclass(frozen=True)
class Param(Node):
    star: bool
    name: str
    type: TypeExpr | None
    default: Expr | None


@dataclass(frozen=True)
class Defined(Node):
    """Left side of `=`; places is None without brackets."""

    name: str
    places: tuple[Place, ...] | None


@dataclass(frozen=True)
class Attr(Node):
    name: str
    type: TypeExpr
    default: Expr | None


@dataclass(frozen=True)
class Where(Node):
    conditions: tuple[Expr, ...]


@dataclass(frozen=True)
class Let(Node):
    target: Defined
    value: Expr


@dataclass(frozen=True)
class LetMany(Node):
    names: tuple[str, ...]
    value: Expr


@dataclass(frozen=True)
class Function(Node):
    """`let f(x) = e`: expanded where it is used."""

    name: str
    params: tuple[str, ...]
    body: Expr


@dataclass(frozen=True)
class Equation(Node):
    target: Defined
    value: Expr


@dataclass(frozen=True)
class EquationMany(Node):
    names: tuple[str, ...]
    value: Expr


@dataclass(frozen=True)
class Entry(Node):
    """`name = value` inside `{ }`, `cost` or `verify`."""

    name: str
    value: Expr


@dataclass(frozen=True)
class OnnxMap(Node):
    """`onnx Op(inputs) -> outputs since A until B { ... }` inside an operator. `until` is exclusive."""

    op: str
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[Param, ...] | None
    since: int
    until: int | None
    attrs: tuple[Entry, ...]


OnnxInput: TypeAlias = Param | ListExpr


@dataclass(frozen=True)
class Example(Node):
    value: Expr


@dataclass(frozen=True)
class Tags(Node):
    names: tuple[str, ...]


@dataclass(frozen=True)
class Verify(Node):
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Bind(Node):
    names: tuple[str, ...]
    value: Expr


@dataclass(frozen=True)
class Const(Node):
    target: Defined
    type: TypeExpr
    value: Expr


@dataclass(frozen=True)
class Signature(Node):
    name: str
    params: tuple[str, ...]


@dataclass(frozen=True)
class TermDecl(Node):
    signatures: tuple[Signature, ...]


@dataclass(frozen=True)
class Search(Node):
    name: str
    domain: Expr


@dataclass(frozen=True)
class Correct(Node):
    """`correct auto limit 0.25` or `correct Y = expr`."""

    what: str | Bind
    limit: Expr | None


@dataclass(frozen=True)
class Trusted(Node):
    reason: str


@dataclass(frozen=True)
class IndexDecl(Node):
    binders: tuple[Binder, ...]


@dataclass(frozen=True)
class MapDecl(Node):
    name: str
    domain: Expr
    codomain: Expr


@dataclass(frozen=True)
class SetDecl(Node):
    names: tuple[str, ...]


@dataclass(frozen=True)
class TensorDecl(Node):
    names: tuple[str, ...]


@dataclass(frozen=True)
class Formula(Node):
    """`expr R = scope` in a derivation; name is None for the anonymous one."""

    name: str | None
    scope: Expr


@dataclass(frozen=True)
class Cost(Node):
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class CallVendor(Node):
    function: str
    attrs: tuple[Entry, ...]


@dataclass(frozen=True)
class RenderTemplate(Node):
    template: str
    attrs: tuple[Entry, ...]


@dataclass(frozen=True)
class Given(Node):
    items: tuple[GivenItem, ...]


@dataclass(frozen=True)
class GivenItem(Node):
    """`A: f32[2, 3]` or `X = randn(1, 4)`."""

    name: str
    type: TypeExpr | None
    value: Expr | None


@dataclass(frozen=True)
class Expect(Node):
    value: Expr


@dataclass(frozen=True)
class Fires(Node):
    silent: bool
    binds: tuple[Bind, ...]


@dataclass(frozen=True)
class Derives(Node):
    """`derives { Y = matmul(A, B) => Y = {[i: 2] ...} }`: what one application of a derivation makes, in the direction of the arrow."""

    left: tuple[Bind, ...]
    right: tuple[Bind, ...]


@dataclass(frozen=True)
class RulesetStatement(Node):
    """`include`, `exclude`, or `always`: what is included and applied by `--apply` wherever it matches."""

    kind: Literal["include", "exclude", "always"]
    globs: tuple[str, ...]


# ---- items ---------------------------------------------------------------------------------------------------

OperatorStatement: TypeAlias = (
    Attr | Where | Let | LetMany | Function | Equation | EquationMany | OnnxMap | Example | Tags | Verify
)
GraphStatement: TypeAlias = (
    Bind | Where | Let | LetMany | Function | Const | TermDecl | Search | Tags | Correct | Verify | Trusted
)


@dataclass(frozen=True)
class Operator(Node):
    name: str
    params: tuple[Param, ...]
    outputs: tuple[Param, ...]
    doc: str | None
    statements: tuple[OperatorStatement, ...]


@dataclass(frozen=True)
class OnnxDef(Node):
    """`onnx Op(inputs) ... = expr`: an import-only clause."""

    op: str
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[Param, ...] | None
    since: int
    until: int | None
    attrs: tuple[Entry, ...]
    statements: tuple[Where | Let | LetMany | Function, ...]
    value: Expr


@dataclass(frozen=True)
class Property(Node):
    name: str
    params: tuple[Param, ...]
    doc: str | None
    statements: tuple[Where | Let | LetMany | Function | TermDecl, ...]
    laws: tuple[Expr, ...]
    trusted: str | None


@dataclass(frozen=True)
class Trait(Node):
    """`associative`, `identity 0`, `inverse concat`: value is a number, a name or None."""

    name: str
    value: Expr | None


@dataclass(frozen=True)
class PropertyIs(Node):
    name: str
    traits: tuple[Trait, ...]


@dataclass(frozen=True)
class Substitution(Node):
    partial: bool
    name: str
    params: tuple[Param, ...]
    outputs: tuple[str, ...]
    doc: str | None
    left: tuple[GraphStatement, ...]
    arrow: str
    right: tuple[GraphStatement, ...]


@dataclass(frozen=True)
class Derivation(Node):
    name: str
    doc: str | None
    declarations: tuple[IndexDecl | TermDecl | MapDecl | SetDecl | TensorDecl | Where, ...]
    left: tuple[Formula, ...]
    arrow: str
    right: tuple[Formula, ...]
    statements: tuple[Search | Tags | Verify, ...]


@dataclass(frozen=True)
class Lowering(Node):
    """Either `expr` (target = value) or `match` (binds) says what it runs."""

    name: str
    params: tuple[Param, ...]
    device: str
    doc: str | None
    expr: Equation | None
    match: tuple[Bind, ...]
    statements: tuple[
        Where | Let | LetMany | Function | Cost | CallVendor | RenderTemplate | OnnxMap | Tags | Verify, ...
    ]


@dataclass(frozen=True)
class Test(Node):
    name: str
    doc: str | None
    statements: tuple[Given | Expect | Fires | Derives | Where, ...]


@dataclass(frozen=True)
class Ruleset(Node):
    name: str
    doc: str | None
    statements: tuple[RulesetStatement, ...]


Item: TypeAlias = (
    Operator | Function | Property | PropertyIs | Substitution | Derivation | Lowering | OnnxDef | Test | Ruleset
)


@dataclass(frozen=True)
class Requires(Node):
    library: str
    spec: str


@dataclass(frozen=True)
class LibraryDecl(Node):
    name: str
    version: str
    requires: tuple[Requires, ...]


@dataclass(frozen=True)
class Import(Node):
    """`import .conv (conv)`; relative means a sibling file of this library."""

    module: str
    relative: bool
    alias: str | None
    names: tuple[str, ...] | None


@dataclass(frozen=True)
class Export(Node):
    names: tuple[str, ...]


@dataclass(frozen=True)
class Header(Node):
    language: int
    library: LibraryDecl | None
    imports: tuple[Import, ...]
    exports: tuple[Export, ...]


@dataclass(frozen=True)
class Comment(Node):
    """`own_line` is false for a comment that follows code on its line."""

    text: str
    own_line: bool


@dataclass(frozen=True)
class File(Node):
    source: SourceText = field(compare=False, repr=False)
    header: Header
    items: tuple[Item, ...]
    comments: tuple[Comment, ...] = field(compare=False)


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below a node, in the order in which they are written."""
    for entry in fields(node):
        value = getattr(node, entry.name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from (part for part in value if isinstance(part, Node))


def walk(node: Node) -> Iterator[Node]:
    """A node and everything below it, parents first."""
    todo = [node]
    while todo:
        here = todo.pop()
        yield here
        todo.extend(reversed(tuple(children(here))))
