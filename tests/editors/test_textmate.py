"""The editors' grammar is made from the language's, and colours every file that there is."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

import dslc
from dslc.errors import SourceText
from dslc.syntax import textmate
from dslc.syntax.scan import scan
from dslc.syntax.vocabulary import KEYWORDS
from tests.editors.colours import Colours

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("rules/*/*.rules"))
EXTENSION = ROOT / "editors" / "vscode"


def made() -> str:
    return resources.files("dslc.grammar").joinpath(textmate.FILE).read_text(encoding="utf-8")


def test_the_grammar_of_editors_is_up_to_date() -> None:
    assert made() == textmate.text(), "run `python -m dslc.syntax.textmate`"


def test_its_words_are_those_of_the_language() -> None:
    assert textmate.words() == KEYWORDS
    for sign in textmate.signs():
        (token,) = scan(SourceText("sign", sign)).tokens
        assert token.kind == "sign"
    assert {"+", "==", "=>", "<=>", "->", "@"} <= set(textmate.signs())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_file_is_coloured_without_an_error(path: Path) -> None:
    found = list(Colours(json.loads(made())).of(path.read_text("utf-8")))
    assert [(line, text) for line, text, scope in found if scope.startswith("invalid")] == []
    assert any(scope.startswith(("entity.name.function", "keyword")) for _, _, scope in found)


def test_what_words_are_coloured_as() -> None:
    text = (
        'operator conv(X: T[N]) -> Y: T[N] {\n  """Two\n  lines."""\n  attr pads: ints = 0  # none\n  where floating(T), N >= 1\n'
        "  Y[i] = sum[k: 3] exp(X[i + k, other=0]) * 1.5e-3\n  onnx Conv(X)\n}\nsubstitution p.q(é) {}\n"
    )
    found = [(part, scope.removesuffix(".dslc")) for _, part, scope in Colours(json.loads(made())).of(text)]
    for each in (
        ("operator", "keyword.declaration"), ("conv", "entity.name.function"), ("  lines.\"\"\"", "string.quoted.docstring"),
        ("pads", "variable.parameter.attribute"), ("# none", "comment.line.number-sign"), ("where", "keyword.control"),
        ("floating", "support.function"), (">=", "keyword.operator"), ("sum", "keyword.operator.reduction"),
        ("exp", "support.function"), ("other", "variable.parameter.keyword"), ("1.5e-3", "constant.numeric"),
        ("Conv", "support.class.onnx"), ("p.q", "entity.name.function"), ("é", "invalid.illegal"),
    ):  # fmt: skip
        assert each in found


def test_the_engine_of_vs_code_finds_no_error_either() -> None:
    node = shutil.which("node")
    if node is None or not (EXTENSION / "node_modules" / "vscode-textmate").is_dir():
        pytest.skip("needs node, and `npm install` in editors/vscode")
    grammar = ROOT / "grammar" / textmate.FILE
    ran = subprocess.run(
        [node, str(EXTENSION / "colours.js"), str(grammar), *map(str, FILES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    counts = json.loads(ran.stdout.splitlines()[-1])
    own: dict[str, int] = {}
    for path in FILES:
        for _, _, scope in Colours(json.loads(made())).of(path.read_text("utf-8")):
            own[scope] = own.get(scope, 0) + 1
    # the small interpreter of these tests sees what the engine sees
    assert {scope: counts.get(scope) for scope in own if "string" not in scope} == {
        scope: count for scope, count in own.items() if "string" not in scope
    }


def test_the_extension_is_of_this_language() -> None:
    package = json.loads((EXTENSION / "package.json").read_text("utf-8"))
    (of_language,) = package["contributes"]["languages"]
    (coloured,) = package["contributes"]["grammars"]
    assert of_language["extensions"] == [".rules"]
    assert coloured["scopeName"] == textmate.SCOPE
    assert package["contributes"]["configuration"]["properties"]["dslc.command"]["default"] == ["dslc", "lsp"]
    assert package["version"] == dslc.__version__
