"""Expressions of a `.rules` file, and what every node of a syntax tree has. Read it as a part of `dslc.syntax.tree`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, dataclass_transform

from dslc.errors import Span


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Immutable:
    """A frozen dataclass, as every class below it."""

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)


class Node(Immutable, kw_only=True):
    """Anything with a place in a file."""

    span: Span = field(compare=False, repr=False)

    @property
    def bare(self) -> str | None:
        """The identifier of a bare name; None for everything else."""
        return None

    @property
    def equated(self) -> tuple[Expr, ...]:
        """The sides of `a == b`; none of everything else."""
        return ()


# ---- expressions ---------------------------------------------------------------------------------------------


class Name(Node):
    """A name, possibly dotted (`a.stride`, `std.conv`)."""

    id: str

    @property
    def bare(self) -> str:
        return self.id

    @property
    def head(self) -> str:
        """The part before the first dot."""
        return self.id.partition(".")[0]


class Int(Node):
    """A whole number."""

    value: int


class Float(Node):
    """`text` keeps the digits that were written, so that printing gives them back and exact proofs may read them."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)


class Str(Node):
    """A text in quotes."""

    value: str


class Inf(Node):
    """`inf`."""


class Unary(Node):
    """`-x` or `not c`."""

    op: Literal["-", "not"]
    operand: Expr


class Binary(Node):
    """`+ - | & * / // % @ ^ and or`."""

    op: str
    left: Expr
    right: Expr


class Compare(Node):
    """A chain `a < b <= c`; `ops[i]` stands between `operands[i]` and `operands[i + 1]` (`== != <= >= < > ~= in`)."""

    operands: tuple[Expr, ...]
    ops: tuple[str, ...]

    @property
    def equated(self) -> tuple[Expr, ...]:
        return self.operands if self.ops == ("==",) else ()


class Conditional(Node):
    """`then if condition else otherwise`."""

    then: Expr
    condition: Expr
    otherwise: Expr


class ForAll(Node):
    """`forall x in domain: body`."""

    name: str
    domain: Expr
    body: Expr


class Binder(Node):
    """An iterator: `i`, `i: N`, `*d`, `*d: D`."""

    star: bool
    name: str
    range: Expr | None


class Reduction(Node):
    """`sum[k: K, *r where c] body`."""

    kind: str
    binders: tuple[Binder, ...]
    where: Expr | None
    body: Expr


class Pack(Node):
    """`*e`: the elements of a list, spliced."""

    value: Expr


class TupleExpr(Node):
    """`(g, c)`: a merged dimension or an index into one; `(*d)` has one pack slot."""

    slots: tuple[Expr, ...]


class ListExpr(Node):
    """`[a, b]`."""

    elements: tuple[Expr, ...]


class Subscript(Node):
    """`base[subs, other=...]`; base is a Name, a Call or a Field."""

    base: Expr
    subs: tuple[Expr, ...]
    other: Expr | None


class Call(Node):
    """`f(args, k=v, **rest)`."""

    function: str
    args: tuple[Expr, ...]
    kwargs: tuple[Keyword, ...]
    rest: str | None


class Keyword(Node):
    """`name=value` among arguments."""

    name: str
    value: Expr


class Field(Node):
    """`f(...).Y`: one output of a call."""

    call: Expr
    name: str


# ---- scopes --------------------------------------------------------------------------------------------------


class TuplePlace(Node):
    """`(g, c)` or `(*d: D)` on the left of an equation: one merged dimension taken apart."""

    places: tuple[Binder, ...]


Place: TypeAlias = Binder | TuplePlace


class Traversal(Node):
    """`[places where c] body`."""

    places: tuple[Place, ...]
    where: Expr | None
    body: Expr


class Nested(Node):
    """`{scope, other=value}[subs]`; `subs` is None where the whole scope is meant."""

    scope: Expr
    other: Expr | None
    subs: tuple[Expr, ...] | None
    subs_other: Expr | None = None


class Join(Node):
    """`P ++ Q`."""

    parts: tuple[Expr, ...]


class Restrict(Node):
    """`restrict(scope, domain)`."""

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


# ---- walks ---------------------------------------------------------------------------------------------------

# the attributes of each kind of node that may hold others
_PARTS: dict[type[Node], tuple[str, ...]] = {}
#: annotations of attributes that hold none
_PLAIN = {"Span", "str", "int", "bool", "str | None", "int | None", "tuple[str, ...]", "tuple[str, ...] | None"}


def _parts(node: Node) -> tuple[str, ...]:
    """The attributes of a node that may hold others, the last one first."""
    kind = type(node)
    if kind not in _PARTS:
        _PARTS[kind] = tuple(each.name for each in reversed(fields(kind)) if each.type not in _PLAIN)
    return _PARTS[kind]


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below a node, in the order in which they are written."""
    for name in reversed(_parts(node)):
        value = getattr(node, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Node):
                yield part


def walk(root: Any) -> Iterator[Node]:
    """Every node below a node (or a tuple of them), parents first, in the order of the text."""
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(reversed(node))
        elif isinstance(node, Node):
            yield node
            # what is on the stack last is taken first
            for name in _parts(node):
                stack.append(getattr(node, name))
