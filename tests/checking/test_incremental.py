"""What is checked again after an edit finds what `dslc check` finds in the whole text, always."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from dslc.checking.files import Edited, check_files
from dslc.errors import Diagnostic, SourceText
from dslc.syntax import tree as t
from dslc.syntax.parser import parse_with_errors
from dslc.syntax.pieces import read_pieces

STD = Path(str(resources.files("dslc.rules"))) / "std"
#: files whose rules are checked within a moment
QUICK = ("linalg", "logic", "order", "taso", "norm_rules", "attention_rules")


def shown(found: Diagnostic) -> tuple[Any, ...]:
    """All that a diagnostic says, and where."""
    place = (str(found.span), found.span.end) if found.span is not None else (found.path, 0)
    labels = tuple((str(label.span), label.message) for label in found.secondary)
    fix = (found.fix.span.start, found.fix.span.end, found.fix.text) if found.fix is not None else None
    return (
        found.code,
        found.severity,
        found.message,
        place,
        found.label,
        found.hint,
        found.counterexample,
        labels,
        fix,
    )


def edits(text: str, count: int, seed: int) -> Iterator[str]:
    """Texts with one edit each: something typed, gone, renamed, moved, doubled, or the rest of the file missing."""
    drawn = random.Random(seed)
    items = [m.start() for m in re.finditer(r"^(?:operator|substitution|property|test)\b", text, re.M)] or [0]
    for _ in range(count):
        at, kind = drawn.randrange(len(text)), drawn.randrange(8)
        if kind == 0:
            yield text[:at] + drawn.choice(["x", " ", "\n", "{", ")", '"""', "# c", "é", "operator ", ", "]) + text[at:]
        elif kind == 1:
            yield text[:at] + text[at + drawn.randrange(1, 30) :]
        elif kind == 2:
            one, other = (drawn.choice(list(re.finditer(r"\b[A-Za-z_]\w*", text))) for _ in range(2))
            yield text[: one.start()] + other[0] + text[one.end() :]
        elif kind == 3 and (numbers := list(re.finditer(r"\b\d\b", text))):
            one = drawn.choice(numbers)
            yield text[: one.start()] + str(drawn.randrange(5)) + text[one.end() :]
        elif kind == 4:
            begin = drawn.choice(items)
            yield text + text[begin : text.find("\n}\n", begin) + 3]
        elif kind == 5:
            begin = drawn.choice(items)
            yield text[:begin] + text[text.find("\n}\n", begin) + 3 :]
        elif kind == 6:
            yield text[:at]
        else:
            yield text[:at].rstrip("\n") + "\n# a comment of its own\n\n" + text[at:]


@pytest.mark.parametrize("path", sorted(STD.glob("*.rules"))[::2], ids=lambda path: path.stem)
def test_a_text_in_pieces_is_the_text(path: Path) -> None:
    text = path.read_text("utf-8")
    pieces = read_pieces(SourceText(str(path), text))
    for edited in edits(text, 1, seed=len(text)):
        source = SourceText(str(path), edited)
        again, (file, findings) = read_pieces(source, pieces), parse_with_errors(source)
        assert again.file == file
        assert [shown(one) for one in again.findings] == [shown(one) for one in findings]
        places = [again.span(node.span) for node in t.walk(again.file)]
        assert [(one.start, one.end) for one in places] == [(node.span.start, node.span.end) for node in t.walk(file)]


def test_items_that_did_not_change_stay_the_same_objects() -> None:
    text = (STD / "logic.rules").read_text("utf-8")
    before = read_pieces(SourceText("logic.rules", text))
    after = read_pieces(SourceText("logic.rules", text.replace("operator", "# one line more\noperator", 1)), before)
    kept = {id(item) for item in before.file.items}
    assert sum(id(item) in kept for item in after.file.items) >= len(after.file.items) - 1


def test_findings_after_edits_are_those_of_a_check_from_scratch(tmp_path: Path) -> None:
    folder = Path(copytree(STD, tmp_path / "std")).resolve()
    files = Edited()
    for number, name in enumerate(QUICK):
        path = folder / f"{name}.rules"
        text = path.read_text("utf-8")
        files.edit(path, text)
        for edited in edits(text, 1, seed=number + 900):
            files.edit(path, edited)
            path.write_text(edited, encoding="utf-8")
            assert [shown(one) for one in files.findings(path)] == [shown(one) for one in check_files([path])], edited
        files.edit(path, text)
        path.write_text(text, encoding="utf-8")


def test_an_edit_of_an_import_counts_where_it_is_used(tmp_path: Path) -> None:
    operators, rules = tmp_path / "operators.rules", tmp_path / "rules.rules"
    operators.write_text('dslc 1\noperator f(X: T[N]) -> Y: T[N] {\n  """F."""\n  Y[i] = X[i]\n}\n', encoding="utf-8")
    text = "dslc 1\nimport .operators (f)\n\nsubstitution g(X: T[N]) -> Y {\n  Y = f(X)\n  =>\n  Y = f(f(X))\n}\n"
    rules.write_text(text, encoding="utf-8")
    files = Edited()
    files.edit(rules, text)
    before = [one.code for one in files.findings(rules)]
    longer = operators.read_text("utf-8").replace("Y: T[N]", "Y: T[2 * N]").replace("= X[i]", "= X[i // 2]")
    files.edit(operators, longer)
    after = [one.code for one in files.findings(rules)]
    operators.write_text(longer, encoding="utf-8")
    assert after == [one.code for one in check_files([rules])] != before
    files.close(operators)
    assert [one.code for one in files.findings(rules)] == after


def test_a_chain_of_edits_in_two_files_that_import_each_other(tmp_path: Path) -> None:
    drawn = random.Random(4)
    folder = tmp_path.resolve()
    base = {name: (STD / f"{name}.rules").read_text("utf-8") for name in ("logic", "order", "pointwise")}
    head = "dslc 1\nimport .pointwise\nimport .logic (logical_not)\n\n"
    own = (
        head + 'operator twice(X: bool[*S]) -> Y: bool[*S] {\n  """Not not."""\n  Y = logical_not(logical_not(X))\n}\n'
    )
    own += "substitution undone(X: bool[*S]) -> Y {\n  Y = twice(X)\n  =>\n  Y = logical_not(logical_not(X))\n}\n"
    texts = {**base, "own": own}
    files = Edited()
    for name, text in texts.items():
        (folder / f"{name}.rules").write_text(text, encoding="utf-8")
    for name in ("own", "logic"):
        files.edit(folder / f"{name}.rules", texts[name])
    kept = [dict(texts)]
    for _ in range(5):
        name = drawn.choice(["own", "own", "logic"])
        # now and then everything is undone
        texts = dict(drawn.choice(kept)) if drawn.random() < 0.4 else texts
        texts[name] = next(edits(texts[name], 1, seed=drawn.randrange(10**6)))
        for each in ("own", "logic"):
            path = folder / f"{each}.rules"
            files.edit(path, texts[each])
            path.write_text(texts[each], encoding="utf-8")
        for each in ("own", "logic"):
            path = folder / f"{each}.rules"
            assert [shown(one) for one in files.findings(path)] == [shown(one) for one in check_files([path])], texts
        if not files.texts[folder / "logic.rules"].findings:
            kept.append(dict(texts))
