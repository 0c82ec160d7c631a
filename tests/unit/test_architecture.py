"""Imports go one way: from the command line towards the syntax, never back."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import dslc

ROOT = Path(dslc.__file__).parent
#: a module may import from its own stage and from earlier ones
ORDER = [
    "records", "version", "folders", "deadline", "outside", "terminal", "errors", "store", "processes", "grammar", "syntax",
    "diagnostics", "ir", "analysis", "reporting", "semantics", "inspection", "interpret", "templates", "codegen", "derivation",
    "prove", "onnx", "match", "kernels", "sessions", "egraph", "generate", "foreign", "mutate", "cost", "fuse", "cuda", "report",
    "search", "catalogue", "checking", "lsp", "api", "testing", "cli",
]  # fmt: skip


@functools.cache
def body(path: Path) -> tuple[ast.stmt, ...]:
    """The statements that a module's text consists of."""
    return tuple(ast.parse(path.read_text(encoding="utf-8")).body)


def inside(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, and all that stand in them: expressions hold none."""
    for one in statements:
        yield one
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            for below in getattr(one, field, ()):
                # a handler and a case have their statements below them
                yield from inside([below] if isinstance(below, ast.stmt) else below.body)


@functools.cache
def parts(path: Path) -> tuple[ast.stmt, ...]:
    """All statements of a module, wherever they stand."""
    return tuple(inside(body(path)))


@functools.cache
def untyped(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """The imports of a module, wherever they stand, but for those of its types."""
    types = [node for node in parts(path) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    left_out = {id(part) for part in inside(types)}
    return tuple(
        node for node in parts(path) if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in left_out
    )


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
    """The modules that one imports, as `dslc.a.b`, those of its types included."""
    for node in parts(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


#: modules that import each other, imports of types counted, by the reason; without a reason: to be mended
CIRCLES = {
    "scalars are put in normal form as they are made": {"ir.scalar", "ir.fold", "ir.show"},
    "a call in an expression is an operator, which is made of expressions": {
        "semantics.apply", "semantics.evaluate", "semantics.operator_env", "semantics.scopes", "semantics.types",
    },
}  # fmt: skip


def test_files_need_each_other_only_where_the_thing_itself_does() -> None:
    names = {".".join(("dslc", *path.relative_to(ROOT).with_suffix("").parts)): path for path in ROOT.rglob("*.py")}
    knows = {
        name: {other for other in imported(path) if other in names and other != name} for name, path in names.items()
    }
    found = set()
    for name in names:
        reached, todo = set(), [name]
        while todo:
            more = knows[todo.pop()] - reached
            reached |= more
            todo += more
        found |= {name} & reached
    assert {name.removeprefix("dslc.") for name in found} == set().union(*CIRCLES.values())


#: the rooms of the optimizer, in the order in which one may know another
ROOMS = ["options", "candidates", "rewrites", "region_rewrites", "strategies", "runs", "generators", "phases"]


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
    assert {path.name for path in (ROOT / "search").iterdir() if path.is_dir() and path.name != "__pycache__"} == {
        *ROOMS
    }
    rows = re.findall(
        r"^\| `(\w+)/` \|", (DOCS / "architecture.md").read_text("utf-8").partition("**`search/`.**")[2], re.M
    )
    assert rows == ROOMS


#: tools beside the way of a model, and the files of the commands that import them
TOOLS = {
    "generate": {"cli/generate.py"}, "foreign": {"cli/import_rules.py", "cli/export_rules.py"}, "lsp": {"cli/lsp.py"},
    "cuda": {"cli/cuda.py"},
}  # fmt: skip


def test_tools_are_imported_by_their_own_commands() -> None:
    """All else finds them in registries or entry points, and can be read without them."""
    wrong = []
    for path in sorted([*ROOT.rglob("*.py"), *(ROOT.parent / "codegen").rglob("*.py")]):
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else f"codegen/{path.name}"
        for other in {*imports(path)} & {*TOOLS}:
            if not name.startswith(f"{other}/") and name not in TOOLS[other]:
                wrong.append(f"{name} imports dslc.{other}")
    assert wrong == []


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
    "Fact", "Source", "Strategy", "Space", "Index", "Kernel", "Candidate", "Contender", "Target", "Machine", "RunState", "Mutant",
    "Facts", "Deadline", "Limits",
)  # fmt: skip
#: names that several exported classes still have, and how many; to be lowered only
HOMONYMS = """
    Binary:2 Box:2 Builder:2 Call:2 Choice:2 Closure:2 Declared:2 Degree:2 Difference:2 Draft:2 Entries:2 Entry:2 Env:2 Equal:2
    Equation:2 EvaluateTuning:2 Field:2 Frame:2 Function:2 Generator:2 Group:2 Import:2 Instance:2 Kernels:2 Let:2 Level:2
    Named:2 Node:2 Number:3 Occurrence:2 Operator:2 Pack:2 Part:2 Piece:2 Place:2 Pointer:2 Poly:2 Quotient:2 Reason:2 Rest:2
    Rules:2 Shared:2 Shown:2 Signature:2 Store:2 Task:2 Tensor:2 Term:2 Undecided:2 Unfit:2 Unknown:2 Unusable:2 Value:2
    Variable:2 Variant:2 Verdict:2
"""


def test_the_words_in_the_code_name_modules_that_exist() -> None:
    page = (DOCS / "words.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([^`]+)` \|$", page, re.M)
    assert 70 <= len(rows) <= 110
    assert [module for _, _, module in rows if not any((base / module).is_file() for base in (ROOT, ROOT.parent))] == []
    words = [word for row, _, _ in rows for word in row.split(", ")]
    assert len(words) == len(set(words))
    assert "words.md" in (DOCS / "architecture.md").read_text("utf-8")


def exported() -> dict[str, list[str]]:
    """The modules that define an exported class, by its name."""
    found: dict[str, list[str]] = {}
    for base in (ROOT, ROOT.parent / "codegen"):
        for path in sorted(base.rglob("*.py")):
            for node in body(path):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(f"{base.name}/{path.relative_to(base)}")
    return found


def test_a_word_is_one_class() -> None:
    found = exported()
    left = {name: int(count) for name, _, count in (each.partition(":") for each in HOMONYMS.split())}
    assert {name: places for name, places in found.items() if len(places) > left.get(name, 1)} == {}
    assert set(ENGINE).isdisjoint(left)
    assert {"Fact", "Source", "Strategy", "Index", "Kernel"} <= set(found)


def listed() -> Iterator[tuple[list[str], str]]:
    """The folders that each list of modules is about, and the names that its items begin with."""
    page = (DOCS / "architecture.md").read_text("utf-8").partition("## Stages")[2].partition("\n## ")[0]
    folders: list[str] = []
    for line in page.splitlines():
        if line.startswith("**"):
            folders = [one for one in re.findall(r"`([a-z_/]+)/`", line.split("**")[1]) if (ROOT / one).is_dir()]
            folders += [
                one for one in ("codegen", "codegen/host", "codegen/cuda") if f"`{one}/`" in line.split("**")[1]
            ]
        item = re.match(r"\s*- ((?:`[a-z_/]+`(?:, )?)+):", line)
        for name in re.findall(r"`([a-z_/]+)`", item[1]) if item else []:
            yield folders, name


def test_lists_of_modules_name_modules_that_exist() -> None:
    found = list(listed())
    assert len(found) > 150
    wrong = []
    for folders, name in found:
        bases = [base / folder for folder in folders or [""] for base in (ROOT, ROOT.parent)]
        bases += [*(base / "extract" for base in bases), ROOT, ROOT.parent]
        if not any((base / name).is_dir() or (base / f"{name}.py").is_file() for base in bases):
            wrong.append(f"{folders}: {name}")
    assert wrong == []


def test_where_to_change_what_names_files_that_exist() -> None:
    page = (DOCS / "architecture.md").read_text("utf-8").partition("## Where to change what")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (a|an|the|another) [^|]+ \|", page, re.M)
    assert len(rows) >= 12
    names = [name for name in re.findall(r"`([\w/.*]+)`", page) if "/" in name and "*" not in name]
    bases = (ROOT, ROOT / "search", DOCS.parent)
    assert [
        name for name in names if not any((base / name).exists() or (base / f"{name}.py").is_file() for base in bases)
    ] == []


def test_a_module_serves_after_all_that_it_defines() -> None:
    """What stands behind `if __name__ == "__main__"` does not exist yet when the module is run as a process."""
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        lines = body(path)
        mains = [k for k, one in enumerate(lines) if isinstance(one, ast.If) and "__main__" in ast.unparse(one.test)]
        wrong += [str(path.relative_to(ROOT)) for k in mains if k < len(lines) - 1]
    assert wrong == []


def test_imports_of_a_module_come_first() -> None:
    """Two modules made one leave their imports in two places; types' circles alone need one below."""
    late = []
    for path in sorted(ROOT.rglob("*.py")):
        lines = body(path)
        head = {k for k, one in enumerate(lines) if isinstance(one, ast.Import | ast.ImportFrom)}
        rest = {k for k, one in enumerate(lines) if not isinstance(one, ast.Expr | ast.Import | ast.ImportFrom)}
        late += [str(path.relative_to(ROOT)) for k in head if rest and k > min(rest)]
    assert sorted(set(late)) == ["ir/scalar.py"]
