"""The syntax tree of a `.rules` file. Nodes are frozen; equality ignores spans, so a reprinted file compares equal.

The whole vocabulary of the language stands in this module and that of expressions, in the order of the grammar, and nothing else does:
whoever reads a tree imports this one as `t`, and what is not here cannot be in a tree.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from dslc.errors import SourceText
from dslc.syntax.expressions import (
    Binary,
    Binder,
    Call,
    Compare,
    Conditional,
    Expr,
    Field,
    Float,
    ForAll,
    Inf,
    Int,
    Join,
    Keyword,
    ListExpr,
    Name,
    Nested,
    Node,
    Pack,
    Place,
    Reduction,
    Restrict,
    Str,
    Subscript,
    Traversal,
    TupleExpr,
    TuplePlace,
    Unary,
    children,
    walk,
)

# ---- declarations --------------------------------------------------------------------------------------------


class TypeExpr(Node):
    """`T[*P, M, K]`; dims is None for a bare name (`int`, `axis`), () for rank 0."""

    name: str
    dims: tuple[Expr, ...] | None


class Param(Node):
    """`*X: T[M] = default` among parameters and outputs."""

    star: bool
    name: str
    type: TypeExpr | None
    default: Expr | None


class Defined(Node):
    """Left side of `=`; places is None without brackets."""

    name: str
    places: tuple[Place, ...] | None


class Attr(Node):
    """`attr name: type = default`."""

    name: str
    type: TypeExpr
    default: Expr | None


class Where(Node):
    """`where conditions`."""

    conditions: tuple[Expr, ...]


class Let(Node):
    """`let target = value`."""

    target: Defined
    value: Expr


class LetMany(Node):
    """`let a, b = value`."""

    names: tuple[str, ...]
    value: Expr


class Function(Node):
    """`let f(x) = e`: expanded where it is used."""

    name: str
    params: tuple[str, ...]
    body: Expr


class Equation(Node):
    """`Y[i] = value`."""

    target: Defined
    value: Expr


class EquationMany(Node):
    """`Y, Z = value`."""

    names: tuple[str, ...]
    value: Expr


class Entry(Node):
    """`name = value` inside `{ }`, `cost` or `verify`."""

    name: str
    value: Expr


class OnnxMap(Node):
    """`onnx Op(inputs) -> outputs since A until B { ... }` inside an operator. `until` is exclusive."""

    op: str
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[Param, ...] | None
    since: int
    until: int | None
    attrs: tuple[Entry, ...]


OnnxInput: TypeAlias = Param | ListExpr


class Example(Node):
    """`example comparison`."""

    value: Expr


class Tags(Node):
    """`tags a, b`."""

    names: tuple[str, ...]


class Verify(Node):
    """`verify name = value, ...`."""

    entries: tuple[Entry, ...]


class Bind(Node):
    """`Y = value` on a side of a rule."""

    names: tuple[str, ...]
    value: Expr


class Const(Node):
    """`const C[i]: type = value`."""

    target: Defined
    type: TypeExpr
    value: Expr


class Signature(Node):
    """`f(x, y)` in a `term` line."""

    name: str
    params: tuple[str, ...]


class TermDecl(Node):
    """`term f(x), g(y)`."""

    signatures: tuple[Signature, ...]


class Search(Node):
    """`search name in domain`."""

    name: str
    domain: Expr


class Correct(Node):
    """`correct auto limit 0.25` or `correct Y = expr`."""

    what: str | Bind
    limit: Expr | None


class Trusted(Node):
    """`trusted "reason"`."""

    reason: str


class IndexDecl(Node):
    """`index x: X, y`."""

    binders: tuple[Binder, ...]


class MapDecl(Node):
    """`map phi: X -> Z`."""

    name: str
    domain: Expr
    codomain: Expr


class SetDecl(Node):
    """`set U, V`."""

    names: tuple[str, ...]


class TensorDecl(Node):
    """`tensor A, B`."""

    names: tuple[str, ...]


class Formula(Node):
    """`expr R = scope` in a derivation; name is None for the anonymous one."""

    name: str | None
    scope: Expr


class Cost(Node):
    """`cost flops = ..., bytes = ...`."""

    entries: tuple[Entry, ...]


class CallVendor(Node):
    """`call "function" { ... }`."""

    function: str
    attrs: tuple[Entry, ...]


class RenderTemplate(Node):
    """`template "file" { ... }`."""

    template: str
    attrs: tuple[Entry, ...]


class Given(Node):
    """`given items`."""

    items: tuple[GivenItem, ...]


class GivenItem(Node):
    """`A: f32[2, 3]` or `X = randn(1, 4)`."""

    name: str
    type: TypeExpr | None
    value: Expr | None


class Expect(Node):
    """`expect condition`."""

    value: Expr


class Fires(Node):
    """`fires { ... }` or `silent { ... }`."""

    silent: bool
    binds: tuple[Bind, ...]


class Derives(Node):
    """`derives { Y = matmul(A, B) => Y = {[i: 2] ...} }`: what one application of a derivation makes, in the direction of the arrow."""

    left: tuple[Bind, ...]
    right: tuple[Bind, ...]


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


class Operator(Node):
    """`operator f(X) -> Y { ... }`."""

    name: str
    params: tuple[Param, ...]
    outputs: tuple[Param, ...]
    doc: str | None
    statements: tuple[OperatorStatement, ...]


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


class Property(Node):
    """`property NAME(params) { ... holds laws }`."""

    name: str
    params: tuple[Param, ...]
    doc: str | None
    statements: tuple[Where | Let | LetMany | Function | TermDecl, ...]
    laws: tuple[Expr, ...]
    trusted: str | None


class Trait(Node):
    """`associative`, `identity 0`, `inverse concat`: value is a number, a name or None."""

    name: str
    value: Expr | None


class PropertyIs(Node):
    """`property NAME is traits`."""

    name: str
    traits: tuple[Trait, ...]


class Substitution(Node):
    """`substitution NAME(params) -> outputs { left => right }`."""

    partial: bool
    name: str
    params: tuple[Param, ...]
    outputs: tuple[str, ...]
    doc: str | None
    left: tuple[GraphStatement, ...]
    arrow: str
    right: tuple[GraphStatement, ...]

    @property
    def statements(self) -> tuple[GraphStatement, ...]:
        """Statements of both sides."""
        return (*self.left, *self.right)


class Derivation(Node):
    """`derivation NAME { left => right }`."""

    name: str
    doc: str | None
    declarations: tuple[IndexDecl | TermDecl | MapDecl | SetDecl | TensorDecl | Where, ...]
    left: tuple[Formula, ...]
    arrow: str
    right: tuple[Formula, ...]
    statements: tuple[Search | Tags | Verify, ...]

    @property
    def searches(self) -> list[Search]:
        return [one for one in self.statements if isinstance(one, Search)]

    @property
    def ways(self) -> list[tuple[tuple[Formula, ...], tuple[Formula, ...]]]:
        """Left and right side of each direction."""
        return [(self.left, self.right), (self.right, self.left)][: 1 + (self.arrow == "<=>")]


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


class Test(Node):
    """`test NAME { ... }`."""

    name: str
    doc: str | None
    statements: tuple[Given | Expect | Fires | Derives | Where, ...]


class Ruleset(Node):
    """`ruleset NAME { ... }`."""

    name: str
    doc: str | None
    statements: tuple[RulesetStatement, ...]


Item: TypeAlias = (
    Operator | Function | Property | PropertyIs | Substitution | Derivation | Lowering | OnnxDef | Test | Ruleset
)


class Requires(Node):
    """`requires library >=1.0`."""

    library: str
    spec: str


class LibraryDecl(Node):
    """`library NAME VERSION`, and what it requires."""

    name: str
    version: str
    requires: tuple[Requires, ...]


class Import(Node):
    """`import .conv (conv)`; relative means a sibling file of this library."""

    module: str
    relative: bool
    alias: str | None
    names: tuple[str, ...] | None


class Export(Node):
    """`export names`."""

    names: tuple[str, ...]


class Header(Node):
    """The statements before the items."""

    language: int
    library: LibraryDecl | None
    imports: tuple[Import, ...]
    exports: tuple[Export, ...]


class Comment(Node):
    """`own_line` is false for a comment that follows code on its line."""

    text: str
    own_line: bool


class File(Node):
    """A whole file."""

    source: SourceText = field(compare=False, repr=False)
    header: Header
    items: tuple[Item, ...]
    comments: tuple[Comment, ...] = field(compare=False)
