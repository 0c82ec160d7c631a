"""Imports go one way: from the command line towards the syntax, never back."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import dslc

ROOT = Path(dslc.__file__).parent
#: a module may import from its own stage and from earlier ones
ORDER = [
    "version", "folders", "deadline", "errors", "store", "processes", "grammar", "syntax", "diagnostics", "ir", "analysis",
    "reporting", "semantics", "inspection", "interpret", "templates", "codegen", "derivation", "prove", "onnx", "match", "kernels",
    "sessions", "egraph", "generate", "foreign", "mutate", "cost", "fuse", "cuda", "report", "search", "catalogue", "checking", "lsp",
    "cli", "api",
    "testing",
]  # fmt: skip


@functools.cache
def parts(path: Path) -> tuple[ast.AST, ...]:
    """All that a module's text consists of."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def untyped(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """The imports of a module, wherever they stand, but for those of its types."""
    types = [node for node in parts(path) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    left_out = {id(part) for node in types for part in ast.walk(node)}
    return tuple(node for node in parts(path) if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in left_out)


def imports(path: Path) -> Iterator[str]:
    for node in parts(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dslc."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("dslc."))


def test_imports_point_to_earlier_stages() -> None:
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        stage = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if stage in {"__init__", "__main__"}:
            continue
        for other in imports(path):
            if other in ORDER and ORDER.index(other) > ORDER.index(stage):
                wrong.append(f"{path.relative_to(ROOT)} imports dslc.{other}")
    assert not wrong, "\n".join(wrong)


def imported(path: Path) -> Iterator[str]:
    """The modules that one imports, as `dslc.a.b`."""
    for node in untyped(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def test_files_need_each_other_only_where_the_thing_itself_does() -> None:
    """Scalars are put in normal form as they are made; a call in an expression is an operator, which is made of expressions."""
    names = {".".join(("dslc", *path.relative_to(ROOT).with_suffix("").parts)): path for path in ROOT.rglob("*.py")}
    knows = {name: {other for other in imported(path) if other in names and other != name} for name, path in names.items()}
    found = set()
    for name in names:
        reached, todo = set(), [name]
        while todo:
            more = knows[todo.pop()] - reached
            reached |= more
            todo += more
        found |= {name} & reached
    assert {name.removeprefix("dslc.") for name in found} == {
        "ir.scalar", "ir.fold", "ir.show",
        "semantics.apply", "semantics.evaluate", "semantics.operator_env", "semantics.scopes", "semantics.types",
    }  # fmt: skip


#: the rooms of the optimizer, in the order in which one may know another
ROOMS = ["rewrites", "finders", "strategies", "runs", "generators", "phases"]


def of_room(path: Path) -> Iterator[str]:
    """Rooms that a module of the optimizer imports from, but for its types."""
    for node in untyped(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dslc.search."):
            yield (node.module or "").split(".")[2]


def test_rooms_of_the_optimizer_know_earlier_ones() -> None:
    wrong = []
    for at, room in enumerate(ROOMS):
        for path in sorted((ROOT / "search" / room).glob("*.py")):
            wrong += [f"{room}/{path.name} imports {other}" for other in of_room(path) if other not in ROOMS[: at + 1]]
    assert not wrong, "\n".join(wrong)
    assert {path.name for path in (ROOT / "search").iterdir() if path.is_dir() and path.name != "__pycache__"} == {*ROOMS}
    rows = re.findall(r"^\| `(\w+)/` \|", (DOCS / "architecture.md").read_text("utf-8").partition("**`search/`.**")[2], re.M)
    assert rows == ROOMS


def test_every_stage_has_a_place() -> None:
    stages = {path.name.removesuffix(".py") for path in ROOT.iterdir() if not path.name.startswith("__")}
    assert {stage for stage in stages if stage != "py.typed"} <= {*ORDER, "rules"}


def test_the_table_of_stages_has_them_all_in_order() -> None:
    table = (DOCS / "architecture.md").read_text("utf-8").partition("## Stages")[0]
    rows = re.findall(r"^\| (`[^|]+) \|", table, re.M)
    assert [name.removesuffix(".py") for row in rows for name in re.findall(r"`([a-z_.]+)/?`", row)] == ORDER


DOCS = Path(__file__).parents[2] / "docs"
#: words that mean one thing each: no two classes may have such a name
ENGINE = (
    "Fact", "Source", "Strategy", "Space", "Index", "Kernel", "Candidate", "Contender", "Target", "Machine", "Run", "Mutant", "Facts",
    "Deadline", "Limits",
)  # fmt: skip


def test_the_glossary_names_modules_that_exist() -> None:
    page = (DOCS / "glossary.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([^`]+)` \|$", page, re.M)
    assert 35 <= len(rows) <= 65
    assert [module for _, _, module in rows if not (ROOT / module).is_file()] == []
    words = [word for row, _, _ in rows for word in row.split(", ")]
    assert len(words) == len(set(words))
    assert "glossary.md" in (DOCS / "architecture.md").read_text("utf-8")


def test_a_word_of_the_engine_is_one_class() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in parts(path):
            if isinstance(node, ast.ClassDef) and node.name in ENGINE:
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
    assert {"Fact", "Source", "Strategy", "Index", "Kernel"} <= set(found)
