"""Equations of the language as MathML, which browsers set without a script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dslc.syntax import tree as t
from dslc.syntax.printer import show

# how tightly a text binds: what stands in something tighter gets parentheses
OR, AND, COMPARISON, SUM, PRODUCT, POWER, ATOM = range(7)
_SIGNS = {"+": "+", "-": "−", "*": "·", "%": "mod", "@": "@", "|": "∪", "&": "∩", "and": "∧", "or": "∨"}
_LEVELS = {"or": OR, "and": AND, "+": SUM, "-": SUM, "|": SUM, "&": SUM}
_RELATIONS = {"==": "=", "!=": "≠", "<=": "≤", ">=": "≥", "<": "<", ">": ">", "~=": "≈", "in": "∈"}
_REDUCTIONS = {"sum": "∑", "prod": "∏", "max": "max", "min": "min", "any": "⋁", "all": "⋀"}
_FENCES = {"abs": "||", "floor": "⌊⌋", "ceil": "⌈⌉"}
_WORDS = {"pi": "π", "inf": "∞", "nan": "NaN", "epsilon": "ε", "alpha": "α", "beta": "β", "gamma": "γ"}


def equation(statement: t.Let | t.LetMany | t.Function | t.Equation | t.EquationMany) -> str:
    """A statement of an operator as a `math` element."""
    match statement:
        case t.Let() | t.Equation():
            body = _row(_target(statement.target), _sign("="), _of(statement.value))
        case t.LetMany() | t.EquationMany():
            body = _row(_commas(map(_name, statement.names)), _sign("="), _of(statement.value))
        case t.Function():
            body = _row(
                _name(statement.name),
                _fenced("()", _commas(map(_name, statement.params))),
                _sign("="),
                _of(statement.body),
            )
    return f'<math display="block" displaystyle="true">{body}</math>'


def outside(statement: t.Node) -> list[str]:
    """What reads outside of their bounds give, in words: an equation in print has no place for it."""
    found: dict[str, None] = {}
    for one in t.walk(statement):
        if isinstance(one, t.Subscript) and one.other is not None:
            found[f"{show(one.base)} is {show(one.other)} outside of its bounds"] = None
    return list(found)


def _of(node: t.Expr, least: int = OR) -> str:
    """An expression, in parentheses where it binds less than `least`."""
    text = _bare(node)
    return text if _level(node) >= least else _fenced("()", text)


def _level(node: t.Expr) -> int:
    match node:
        case t.Binary():
            return POWER if node.op == "^" else _LEVELS.get(node.op, PRODUCT)
        case t.Unary():
            return COMPARISON if node.op == "not" else SUM
        case t.Compare():
            return COMPARISON
        case t.Conditional() | t.ForAll():
            return OR
        case t.Reduction():
            return SUM
        case _:
            return ATOM


def _bare(node: t.Expr) -> str:
    match node:
        case t.Name():
            return _name(node.id)
        case t.Int():
            return f"<mn>{node.value}</mn>"
        case t.Float():
            return _number(node.text)
        case t.Inf():
            return "<mi>∞</mi>"
        case t.Str():
            return f"<mtext>“{escape(node.value)}”</mtext>"
        case t.Unary():
            return _row(_sign("−" if node.op == "-" else "¬"), _of(node.operand, PRODUCT))
        case t.Binary():
            return _binary(node)
        case t.Compare():
            parts = [_of(node.operands[0], SUM)]
            for op, operand in zip(node.ops, node.operands[1:], strict=True):
                parts += [_sign(_RELATIONS.get(op, op)), _of(operand, SUM)]
            return _row(*parts)
        case t.Conditional():
            return _cases(node)
        case t.ForAll():
            return _row(
                _sign("∀"), _name(node.name), _sign("∈"), _of(node.domain, SUM), _sign(":"), _of(node.body, COMPARISON)
            )
        case t.Reduction():
            under = _commas(_binder(one) for one in node.binders)
            if node.where is not None:
                under = _row(under, _sign(":"), _of(node.where))
            sign = _REDUCTIONS.get(node.kind, node.kind)
            # a word that a limit stands under is no operator that stretches
            big = _sign(sign) if len(sign) == 1 else f"<mi>{sign}</mi>"
            return _row(f"<munder>{big}{_row(under)}</munder>", _of(node.body, PRODUCT))
        case t.Pack():
            return f'<mrow class="pack">{_of(node.value, ATOM)}</mrow>'
        case t.TupleExpr():
            return _fenced("()", _commas(map(_of, node.slots)))
        case t.ListExpr():
            return _fenced("[]", _commas(map(_of, node.elements)))
        case t.Subscript():
            return f"<msub>{_of(node.base, ATOM)}{_row(_commas(map(_of, node.subs)))}</msub>"
        case t.Call():
            return _call(node)
        case t.Field():
            return _row(_of(node.call), _sign("."), _name(node.name))
        case _:
            return f"<mtext>{escape(show(node))}</mtext>"


def _binary(node: t.Binary) -> str:
    if node.op in ("/", "//"):
        fraction = f"<mfrac>{_row(_of(node.left))}{_row(_of(node.right))}</mfrac>"
        return fraction if node.op == "/" else _fenced("⌊⌋", fraction)
    if node.op == "^":
        # a fraction in a power would hang on its numerator alone
        return f"<msup>{_row(_of(node.left, ATOM))}{_row(_of(node.right))}</msup>"
    level = _level(node)
    return _row(
        _of(node.left, _left(node.left, level)), _sign(_SIGNS.get(node.op, node.op)), _of(node.right, level + 1)
    )


def _left(node: t.Expr, level: int) -> int:
    """What a left operand has to bind as: a reduction would take along what follows."""
    return ATOM if isinstance(node, t.Reduction) else level


def _cases(node: t.Conditional) -> str:
    rows, rest = [], node
    while True:
        rows.append((_of(rest.then), _row("<mtext>if\u00a0</mtext>", _of(rest.condition))))
        if not isinstance(rest.otherwise, t.Conditional):
            break
        rest = rest.otherwise
    rows.append((_of(rest.otherwise), "<mtext>otherwise</mtext>"))
    table = "".join(f"<mtr><mtd>{value}</mtd><mtd>{when}</mtd></mtr>" for value, when in rows)
    return _row('<mo stretchy="true">{</mo>', f'<mtable columnalign="left left">{table}</mtable>')


def _call(node: t.Call) -> str:
    (first, *more) = node.args or (None,)
    alone = first is not None and not more and not node.kwargs and not node.rest
    if alone and isinstance(first, t.Expr):
        if node.function == "sqrt":
            return f"<msqrt>{_of(first)}</msqrt>"
        if node.function in _FENCES:
            return _fenced(_FENCES[node.function], _of(first))
    arguments = [_of(one) for one in node.args]
    arguments += [_row(_name(one.name), _sign("="), _of(one.value)) for one in node.kwargs]
    arguments += [_row(_sign("∗∗"), _name(node.rest))] if node.rest else []
    return _row(_name(node.function), _fenced("()", _commas(arguments)))


def _target(node: t.Defined) -> str:
    if not node.places:
        return _name(node.name)
    return f"<msub>{_name(node.name)}{_row(_commas(map(_place, node.places)))}</msub>"


def _place(node: t.Place) -> str:
    if isinstance(node, t.TuplePlace):
        return _fenced("()", _commas(map(_binder, node.places)))
    return _binder(node)


def _binder(node: t.Binder) -> str:
    name = f'<mrow class="pack">{_name(node.name)}</mrow>' if node.star else _name(node.name)
    return name if node.range is None else _row(name, _sign("<"), _of(node.range, SUM))


def _name(text: str) -> str:
    return f"<mi>{escape(_WORDS.get(text, text))}</mi>"


def _number(text: str) -> str:
    digits, exponent, power = text.lower().partition("e")
    if not exponent:
        return f"<mn>{escape(text)}</mn>"
    ten = f"<msup><mn>10</mn><mn>{escape(str(int(power))).replace('-', '−')}</mn></msup>"
    return ten if digits in ("1", "1.0") else _row(f"<mn>{escape(digits)}</mn>", _sign("·"), ten)


def _sign(text: str) -> str:
    return f"<mo>{escape(text)}</mo>"


def _fenced(fence: str, body: str) -> str:
    return _row(f'<mo fence="true">{fence[0]}</mo>', body, f'<mo fence="true">{fence[1]}</mo>')


def _commas(parts: Iterable[str]) -> str:
    return _sign(",").join(parts)


def _row(*parts: str) -> str:
    return f"<mrow>{''.join(parts)}</mrow>"


def all_equations(statements: Sequence[t.Node]) -> list[str]:
    """The statements of an operator that say what it computes, each as a `math` element."""
    shown = t.Let | t.LetMany | t.Function | t.Equation | t.EquationMany
    return [equation(one) for one in statements if isinstance(one, shown)]
