"""Tuned numbers stand in `Tuning` dataclasses, each with what it means and its unit; modules have none of their own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import dslc
import dslc.codegen

#: the package, and where its code generation lies in a repository
ROOTS = {Path(dslc.__file__).parent: "", Path(dslc.codegen.__file__).parent: "codegen"}
#: numbers that modules may still have: facts of formats, of devices, of the language and of mathematics; none that is tuned
ALLOWED = {
    "codegen": 14, "onnx": 12, "cuda": 9, "foreign": 6, "generate": 6, "prove": 6, "syntax": 5, "interpret": 3, "cost": 1, "egraph": 1,
    "fuse": 1, "match": 1, "processes": 1, "semantics": 1,
}  # fmt: skip


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


def numbers(text: str) -> Iterator[str]:
    """Names that a module gives to numbers."""
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_number(value):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if is_number(value):
                yield name
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from (ast.unparse(name) for name, value in zip(names, values, strict=False) if is_number(value))


def modules() -> Iterator[tuple[Path, str]]:
    """Modules by their place in the package, with their text."""
    found = {Path(inside, path.relative_to(root)): path for root, inside in ROOTS.items() for path in root.rglob("*.py")}
    yield from ((place, found[place].read_text("utf-8")) for place in sorted(found))


def tuned_values(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, str]]:
    """Classes of tuned numbers, each with its docstring."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Tuning"):
            yield node, ast.get_docstring(node) or ""


def test_numbers_of_a_module_are_found() -> None:
    text = "A = 1 << 4\n_B, C = 0.5, 'x'\nD: float = -2.0\nE = (1, 2)\nF = A\nG = ()\nH = frozenset((1, 2))\n"
    assert list(numbers(text)) == ["A", "_B", "D", "E", "H"]


def test_modules_have_few_numbers_of_their_own() -> None:
    found: dict[str, list[str]] = {}
    for place, text in modules():
        found.setdefault(place.parts[0], []).extend(f"{place}: {name}" for name in numbers(text))
    more = {stage: names for stage, names in found.items() if len(names) > ALLOWED.get(stage, 0)}
    assert not more, "put tuned numbers into a `Tuning` value beside what they tune:\n" + "\n".join(map("\n".join, more.values()))


def test_every_tuned_number_says_what_it_is() -> None:
    silent, classes = [], 0
    for place, module in modules():
        for node, text in tuned_values(ast.parse(module)):
            classes += 1
            said = {name for line in re.findall(r"^ +([a-z_]+(?:, [a-z_]+)*): ", text, re.M) for name in line.split(", ")}
            fields = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
            silent += [f"{place}: {name}" for name in fields if name not in said]
    assert silent == []
    assert classes > 150
