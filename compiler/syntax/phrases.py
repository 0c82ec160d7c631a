"""Expressions, types and statements as documents of `layout`, with the fewest parentheses that a reader wants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dslc.syntax import tree as t
from dslc.syntax.layout import HARD, LINE, Align, Doc, Fill, Group, Line, Nest, Value, join

# Precedences, as in the grammar: an expression below its place's gets parentheses.
CHOICE, OR, AND, NOT, COMPARE, SUM, REDUCTION, PRODUCT, MINUS, POWER, PRIMARY = range(11)
_LEVELS = {"or": OR, "and": AND, "+": SUM, "-": SUM, "|": SUM, "&": SUM, "^": POWER}


def level(node: t.Expr) -> int:
    """The precedence of an expression."""
    match node:
        case t.Conditional():
            return CHOICE
        case t.Binary():
            return _LEVELS.get(node.op, PRODUCT)
        case t.Unary():
            return NOT if node.op == "not" else MINUS
        case t.ForAll():
            return NOT
        case t.Compare():
            return COMPARE
        case t.Reduction():
            return REDUCTION
        case _:
            return PRIMARY


def commas(parts: Iterable[Doc]) -> Doc:
    """`a, b, c`, as many on each line as fit, aligned."""
    return Align(Fill(tuple(parts)))


def expr(node: t.Expr, place: int = CHOICE) -> Doc:
    """An expression where something that binds at least as tightly as `place` is wanted."""
    doc = _expr(node)
    return doc if level(node) >= place else ("(", Align(doc), ")")


def _operand(node: t.Expr, place: int) -> Doc:
    """An operand; a reduction, and `and` below `or`, get parentheses even where the grammar needs none."""
    unclear = isinstance(node, t.Reduction) or (place == AND and level(node) == AND)
    return expr(node, PRIMARY if unclear else place)


def _expr(node: t.Expr) -> Doc:
    match node:
        case t.Name():
            return node.id
        case t.Int():
            return str(node.value)
        case t.Float():
            return node.text
        case t.Str():
            return f'"{node.value}"'
        case t.Inf():
            return "inf"
        case t.Unary():
            return ("not ", expr(node.operand, NOT)) if node.op == "not" else ("-", expr(node.operand, MINUS))
        case t.Binary():
            return _binary(node)
        case t.Compare():
            return _operators([_operand(part, SUM) for part in node.operands], node.ops, 2)
        case t.Conditional():
            return _conditional(node)
        case t.ForAll():
            return ("forall ", node.name, " in ", expr(node.domain), ": ", expr(node.body, NOT))
        case t.Reduction():
            bound: Doc = (node.kind, "[", domain(node.binders, node.where), "]")
            return (bound, Group(Nest(4, (LINE, expr(node.body, REDUCTION)))))
        case t.Pack():
            return ("*", expr(node.value, PRIMARY))
        case t.TupleExpr():
            return ("(", commas(map(expr, node.slots)), ")")
        case t.ListExpr():
            elements = [expr(element) for element in node.elements]
            if any(isinstance(element, t.ListExpr) for element in node.elements):
                return ("[", Align(Group(join((",", LINE), elements))), "]")
            return ("[", commas(elements), "]")
        case t.Subscript():
            return (expr(node.base), *subscripts(node.subs, node.other))
        case t.Call():
            arguments = [expr(argument) for argument in node.args]
            arguments += [(keyword.name, "=", expr(keyword.value)) for keyword in node.kwargs]
            arguments += [] if node.rest is None else [f"**{node.rest}"]
            return (node.function, "(", commas(arguments), ")")
        case t.Field():
            return (expr(node.call), ".", node.name)
        case t.Nested():
            other: Doc = (",", LINE, "other=", expr(node.other)) if node.other else ()
            subs = () if node.subs is None else subscripts(node.subs, node.subs_other)
            return ("{", Align((Group((expr(node.scope), other)),)), "}", *subs)
        case t.Traversal():
            where: Doc = (" where ", expr(node.where)) if node.where else ()
            places: Doc = ("[", commas(map(place, node.places)), where, "]")
            return (places, Group((LINE, expr(node.body))))
        case t.Join():
            return _operators([expr(part) for part in node.parts], ["++"] * (len(node.parts) - 1))
        case t.Restrict():
            return ("restrict(", commas([expr(node.scope), expr(node.domain)]), ")")


def _operators(operands: Sequence[Doc], signs: Sequence[str], by: int = 0) -> Doc:
    """A chain that breaks before its signs, `by` behind the first operand."""
    parts: list[Doc] = []
    for sign, operand in zip(signs, operands[1:], strict=True):
        parts += [LINE, sign, " ", operand]
    return Align(Group((operands[0], Nest(by, tuple(parts)))))


def _is_fraction(node: t.Expr) -> bool:
    """A number such as `1/2` or `-1/6`, written without blanks."""
    if not isinstance(node, t.Binary) or node.op != "/" or not isinstance(node.right, t.Int):
        return False
    top = node.left.operand if isinstance(node.left, t.Unary) and node.left.op == "-" else node.left
    return isinstance(top, t.Int)


def _binary(node: t.Binary) -> Doc:
    if node.op == "^":
        return (expr(node.left, PRIMARY), " ^ ", expr(node.right, MINUS))
    if _is_fraction(node):
        return (expr(node.left), "/", expr(node.right))
    own = level(node)
    tighter = {OR: AND, AND: NOT, SUM: REDUCTION, PRODUCT: MINUS}[own]
    operands, signs = [node.right], [node.op]
    first: t.Expr = node.left
    while isinstance(first, t.Binary) and level(first) == own and not _is_fraction(first):
        operands.append(first.right)
        signs.append(first.op)
        first = first.left
    docs = [
        _operand(first, own if _is_fraction(first) else tighter),
        *(_operand(operand, tighter) for operand in reversed(operands)),
    ]
    return _operators(docs, signs[::-1])


def _conditional(node: t.Conditional) -> Doc:
    parts: list[Doc] = []
    here: t.Expr = node
    while isinstance(here, t.Conditional):
        parts += [_operand(here.then, OR), " if ", expr(here.condition, OR), " else", LINE]
        here = here.otherwise
    if isinstance(here, t.Int | t.Float | t.Name | t.Inf):
        parts[-1] = " "
    return Align(Group((*parts, _operand(here, CHOICE))))


def subscripts(subs: Sequence[t.Expr], other: t.Expr | None) -> tuple[Doc, ...]:
    """`[subs, other=value]`."""
    parts = [expr(sub) for sub in subs]
    if other:
        parts.append(("other=", expr(other)))
    return ("[", commas(parts), "]")


def binder(node: t.Binder) -> Doc:
    """`i`, `*d: D`."""
    star = "*" if node.star else ""
    return (f"{star}{node.name}: ", expr(node.range)) if node.range else f"{star}{node.name}"


def place(node: t.Place) -> Doc:
    """An iterator, or a merged dimension taken apart: `(g, c)`."""
    if isinstance(node, t.TuplePlace):
        return ("(", join(", ", (binder(part) for part in node.places)), ")")
    return binder(node)


def domain(binders: Sequence[t.Binder], where: t.Expr | None) -> Doc:
    """The iterators of a reduction and their condition."""
    parts = commas(map(binder, binders))
    return (parts, " where ", expr(where)) if where else parts


def type_(node: t.TypeExpr) -> Doc:
    """`T[*P, M]`."""
    if node.dims is None:
        return node.name
    return (node.name, "[", commas(map(expr, node.dims)), "]")


def param(node: t.Param) -> Doc:
    """`X: T[M] = 0`."""
    declared: Doc = (": ", type_(node.type)) if node.type else ()
    default: Doc = (" = ", expr(node.default)) if node.default else ()
    return ("*" if node.star else "", node.name, declared, default)


def target(node: t.Defined) -> Doc:
    """The left side of `=`."""
    if node.places is None:
        return node.name
    return (node.name, "[", commas(map(place, node.places)), "]")


def onnx_input(node: t.OnnxInput) -> Doc:
    """An input of an `onnx` clause: a parameter or a list."""
    return param(node) if isinstance(node, t.Param) else expr(node)


def entries(nodes: Sequence[t.Entry]) -> Doc:
    """`name = value, ...`."""
    return commas((entry.name, " = ", expr(entry.value)) for entry in nodes)


def attr_map(nodes: Sequence[t.Entry]) -> Doc:
    """`{ name = value, ... }`; nothing without entries."""
    return Group(Nest(4, (LINE, "{ ", entries(nodes), " }"))) if nodes else ()


def value(node: t.Expr, head: Doc) -> Doc:
    """`head = value`."""
    if isinstance(node, t.Conditional):
        return (head, Group((" =", Nest(2, (LINE, expr(node))))))
    if isinstance(node, t.Reduction):
        return (head, " =", Value(4, expr(node)))
    return (head, " = ", expr(node))


def bind(node: t.Bind) -> Doc:
    """`Y, Z = value`."""
    return value(node.value, ", ".join(node.names))


def function(node: t.Function) -> Doc:
    """`let f(x) = body`."""
    head = f"let {node.name}({', '.join(node.params)}) ="
    return Group((head, Nest(2, (LINE, expr(node.body)))))


def onnx_head(op: str, node: t.OnnxMap | t.OnnxDef, since: bool = True) -> Doc:
    """`onnx Op(inputs) -> outputs since A until B`."""
    outputs: Doc = () if node.outputs is None else (" -> ", join(", ", (param(output) for output in node.outputs)))
    opsets = f" since {node.since}" if since or node.since != 1 else ""
    opsets += "" if node.until is None else f" until {node.until}"
    return (f"onnx {op}(", commas(map(onnx_input, node.inputs)), ")", outputs, opsets)


def keyword(word: str, pad: int, rest: Doc) -> Doc:
    """A keyword padded to a width, and what follows it."""
    return (word.ljust(pad), " ", rest)


def names(words: Sequence[str]) -> Doc:
    """Names with commas between them."""
    return commas(words)


def statement(node: t.Node, pad: int = 0) -> Doc:
    """One statement of an item; keywords are padded to `pad` letters, attribute names to the longest neighbour's."""
    match node:
        case t.Where():
            return keyword("where", pad, commas(map(expr, node.conditions)))
        case t.Let():
            return keyword("let", pad, value(node.value, target(node.target)))
        case t.LetMany():
            return keyword("let", pad, value(node.value, ", ".join(node.names)))
        case t.Function():
            return function(node)
        case t.Attr():
            default: Doc = (" = ", expr(node.default)) if node.default else ()
            return ("attr ", f"{node.name}:".ljust(pad), " ", type_(node.type), default)
        case t.Equation():
            return value(node.value, target(node.target))
        case t.EquationMany():
            return value(node.value, ", ".join(node.names))
        case t.Bind():
            return bind(node)
        case t.OnnxMap():
            return (onnx_head(node.op, node), attr_map(node.attrs))
        case t.Example():
            return ("example ", expr(node.value))
        case t.Tags():
            return ("tags ", names(node.names))
        case t.Verify():
            return ("verify ", entries(node.entries))
        case t.Const():
            return ("const ", value(node.value, (target(node.target), ": ", type_(node.type))))
        case t.Search():
            return (f"search {node.name} in ", expr(node.domain))
        case t.Correct():
            limit: Doc = (" limit ", expr(node.limit)) if node.limit else ()
            return ("correct ", node.what if isinstance(node.what, str) else bind(node.what), limit)
        case t.Trusted():
            return f'trusted "{node.reason}"'
        case t.Fires():
            inner = Align(Group(join(Line("  "), (bind(entry) for entry in node.binds))))
            return keyword("silent" if node.silent else "fires", pad, ("{ ", inner, " }"))
        case t.Derives():
            sides = [
                Align(Group(join(Line("  "), (bind(entry) for entry in side)))) for side in (node.left, node.right)
            ]
            return keyword("derives", pad, ("{ ", sides[0], Line(" "), "=> ", sides[1], " }"))
        case t.Given():
            return keyword("given", pad, commas(map(given, node.items)))
        case t.Expect():
            return keyword("expect", pad, expr(node.value))
        case t.RulesetStatement():
            return (f"{node.kind} ", names(node.globs))
        case t.Cost():
            return keyword("cost", pad, entries(node.entries))
        case t.CallVendor():
            return (keyword("call", pad, f'"{node.function}"'), attr_map(node.attrs) or " { }")
        case t.RenderTemplate():
            return (f'template "{node.template}"', attr_map(node.attrs))
        case _:
            return declaration(node, pad)


def declaration(node: t.Node, pad: int) -> Doc:
    """A declaration of a derivation (`term` stands in other rules too)."""
    match node:
        case t.IndexDecl():
            return keyword("index", pad, commas(map(binder, node.binders)))
        case t.TermDecl():
            parts = (f"{entry.name}({', '.join(entry.params)})" for entry in node.signatures)
            return keyword("term", pad, commas(parts))
        case t.MapDecl():
            return keyword("map", pad, (f"{node.name}: ", expr(node.domain), " -> ", expr(node.codomain)))
        case t.SetDecl():
            return keyword("set", pad, names(node.names))
        case t.TensorDecl():
            return keyword("tensor", pad, names(node.names))
        case t.Formula():
            head = "" if node.name is None else f"{node.name} = "
            return keyword("expr", pad, (head, expr(node.scope)))
        case _:
            raise TypeError(f"no statement: {type(node).__name__}")


def trait(node: t.Trait) -> Doc:
    """`identity 0`."""
    return (node.name, " ", expr(node.value)) if node.value else node.name


def given(node: t.GivenItem) -> Doc:
    """`A: f32[2]` or `X = value`."""
    if node.type:
        return (node.name, ": ", type_(node.type))
    assert node.value
    return (node.name, " = ", expr(node.value))


def lines(parts: Iterable[Doc]) -> Doc:
    """Parts on lines of their own, aligned."""
    return Align(join(HARD, parts))
