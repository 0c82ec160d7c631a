"""Scalar expressions as text, in the notation of the language."""

from __future__ import annotations

from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, Sym, Table

_INFIX = {"+", "*", "/", "//", "%", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or"}


def show_scalar(node: Scalar) -> str:
    """One line; operands are `$0`, `$1`, ... Deterministic, so it also orders terms; kept with the node."""
    return ScalarText(None).go(node)


def show_with(node: Scalar, operands: tuple[str, ...]) -> str:
    """As `show_scalar`, with names for the operands."""
    return ScalarText(operands).go(node)


class ScalarText:
    """Expressions as text; other notations override `fresh`."""

    def __init__(self, operands: tuple[str, ...] | None) -> None:
        self._operands = operands

    def go(self, node: Scalar) -> str:
        if self._operands is not None:
            return self.fresh(node)
        if node._text is None:
            node._text = self.fresh(node)
        return node._text

    def fresh(self, node: Scalar) -> str:
        if isinstance(node, Num):
            value = node.value
            if isinstance(value, bool):
                return "true" if value else "false"
            return str(value)
        if isinstance(node, Sym | Iter):
            return node.name
        if isinstance(node, Read):
            name = f"${node.operand}" if self._operands is None else self._operands[node.operand]
            inside = [self.go(part) for part in node.index]
            if node.other:
                inside.append(f"other={self.go(node.other)}")
            return f"{name}[{', '.join(inside)}]"
        if isinstance(node, Table):
            return f"{_matrix(node.values)}[{', '.join(self.go(part) for part in node.index)}]"
        if isinstance(node, Reduce):
            binders = ", ".join(f"{i.name}: {self.go(e)}" for i, e in node.ranges)
            where = f" where {self.go(node.where)}" if node.where else ""
            return f"({node.kind}[{binders}{where}] {self._inner(node.body)})"
        assert isinstance(node, Apply)
        if node.name == "select":
            condition, then, otherwise = node.args
            return f"({self.go(then)} if {self.go(condition)} else {self.go(otherwise)})"
        if node.name == "+":
            return self._sum(node)
        if node.name in _INFIX:
            return f" {node.name} ".join(self._inner(arg) for arg in node.args)
        return f"{node.name}({', '.join(self.go(arg) for arg in node.args)})"

    def _sum(self, node: Apply) -> str:
        text = ""
        for arg in node.args:
            part = self.go(arg) if arg.op == "*" else self._inner(arg)
            if part.startswith("-1 * "):
                part = "-" + part[5:]
            if not text:
                text = part
            elif part.startswith("-"):
                text += f" - {part[1:]}"
            else:
                text += f" + {part}"
        return text

    def _inner(self, node: Scalar) -> str:
        text = self.go(node)
        wrap = (node.op in _INFIX) or (isinstance(node, Num) and "/" in text)
        return f"({text})" if wrap else text


def _matrix(values: tuple[object, ...]) -> str:
    inside = ", ".join(_matrix(v) if isinstance(v, tuple) else str(v) for v in values)
    return f"[{inside}]"
