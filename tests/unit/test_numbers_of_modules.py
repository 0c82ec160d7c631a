"""Numbers of modules stand as constants, each documented by a `#:` comment with its meaning and unit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dslc
import dslc.codegen

#: the package, and where its code generation lies in a repository
ROOTS = {Path(dslc.__file__).parent: "", Path(dslc.codegen.__file__).parent: "codegen"}


def is_number(node: ast.expr) -> bool:
    """A literal, or what is made of literals alone."""
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, float)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts):
            return bool(elts) and all(map(is_number, elts))
        case ast.Call(func=ast.Name(id="range" | "frozenset" | "float" | "int"), args=elts):
            return bool(elts) and all(map(is_number, elts))
    return False


def documented(node: ast.stmt, lines: list[str]) -> bool:
    """A comment stands behind a statement, or above it."""
    return " #" in lines[(node.end_lineno or node.lineno) - 1] or lines[node.lineno - 2].startswith("#")


def undocumented(text: str) -> Iterator[str]:
    """Names that a module gives to numbers without a word."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if documented(node, lines):
            continue
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_number(value):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if is_number(value):
                yield name
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from (ast.unparse(name) for name, value in zip(names, values, strict=False) if is_number(value))


def modules() -> Iterator[tuple[Path, str]]:
    """Modules by their place in the package, with their text."""
    found = {
        Path(inside, path.relative_to(root)): path for root, inside in ROOTS.items() for path in root.rglob("*.py")
    }
    yield from ((place, found[place].read_text("utf-8")) for place in sorted(found))


def test_numbers_of_a_module_are_found() -> None:
    text = "A = 1 << 4\n_B, C = 0.5, 'x'\nD: float = -2.0\nE = (1, 2)\nF = A\nG = ()\nH = frozenset((1, 2))\n"
    text += "#: bytes\nI = 3\nJ = 4  #: seconds\n"
    assert list(undocumented(text)) == ["A", "_B", "D", "E", "H"]


def test_every_number_of_a_module_says_what_it_is() -> None:
    found = [f"{place}: {name}" for place, text in modules() for name in undocumented(text)]
    assert found == [], "say by `#: ` what each number means, and its unit"
