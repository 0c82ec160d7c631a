"""The TextMate grammar of rule files (VS Code, GitHub, Sublime Text), made from the grammar and the vocabulary of the language.

`python -m dslc.syntax.textmate` writes it beside that grammar, from where editors' folders take it; a test compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from dslc.syntax.vocabulary import (
    ATTRIBUTE_TYPES,
    CONSTANTS,
    CONVERT,
    DTYPE_NAMES,
    FUNCTIONS_1,
    FUNCTIONS_N,
    INDEX_FUNCTIONS,
    PREDICATES,
    REDUCTIONS,
    TRAITS,
)

FILE = "dslc.tmLanguage.json"
SCOPE = "source.dslc"
#: words of expressions; all other words of the grammar begin statements or belong to them
_OPERATORS = frozenset("and or not if else forall in".split())


def words() -> frozenset[str]:
    """The words that the language's grammar has."""
    found = re.findall(r'"([a-z]+)"', _rules())
    return frozenset(found) - REDUCTIONS


def items() -> frozenset[str]:
    """The words behind which an item's name stands."""
    own = "operator|property|substitution|derivation|lowering|test|ruleset"
    return frozenset(re.findall(rf'^(?:{own}):.*?"([a-z]+)" NAME', _rules(), re.M))


def terminal(name: str) -> str:
    """The regular expression of one of the grammar's terminals."""
    found = re.search(rf"^{name}(?:\.\d+)?: /(.*)/$", _rules(), re.M)
    assert found, name
    return found[1]


def signs() -> list[str]:
    """The signs of the language's operators, the longest first."""
    lines = re.findall(r"^(?:ARROW|CMP|MINUS|STAR|ADDOP|MULOP): (.*)$", _rules(), re.M)
    own = {sign for line in lines for sign in re.findall(r'"([^"a-z]+)"', line)}
    return sorted(own | {"**", "++", "^", "->"}, key=lambda sign: (-len(sign), sign))


def _rules() -> str:
    return resources.files("dslc.grammar").joinpath("dslc.lark").read_text(encoding="utf-8")


def _any(found: Iterable[str]) -> str:
    return rf"\b(?:{'|'.join(sorted(found))})\b(?!\s*=[^=])"


def grammar() -> dict[str, Any]:
    """The grammar as its file has it."""
    keywords = words() - _OPERATORS - {"inf"}
    functions = FUNCTIONS_1 | FUNCTIONS_N | INDEX_FUNCTIONS | PREDICATES | {CONVERT}
    name = terminal("NAME")
    named = [
        {
            "match": rf"\b({'|'.join(sorted(items()))})\s+({name}(?:\.{name})*)",
            "captures": {"1": {"name": "keyword.declaration.dslc"}, "2": {"name": "entity.name.function.dslc"}},
        },
        {
            "match": rf"^\s*(onnx)\s+({name}(?:\.{name})*)",
            "captures": {"1": {"name": "keyword.control.dslc"}, "2": {"name": "support.class.onnx.dslc"}},
        },
        {
            "match": r"^\s*(dslc)\s+(\d+)",
            "captures": {"1": {"name": "keyword.control.dslc"}, "2": {"name": "constant.numeric.dslc"}},
        },
        {
            "match": rf"^\s*(import)\s+(\.?{name}(?:\.{name})*)",
            "captures": {"1": {"name": "keyword.control.import.dslc"}, "2": {"name": "entity.name.namespace.dslc"}},
        },
        {
            "match": rf"^\s*(library)\s+({name}(?:\.{name})*)\s+({terminal('VERSION')})",
            "captures": {
                "1": {"name": "keyword.control.dslc"}, "2": {"name": "entity.name.namespace.dslc"},
                "3": {"name": "constant.numeric.version.dslc"},
            },
        },
        {
            "match": rf"^\s*(attr)\s+({name})",
            "captures": {"1": {"name": "keyword.declaration.dslc"}, "2": {"name": "variable.parameter.attribute.dslc"}},
        },
    ]  # fmt: skip
    expressions = [
        {"name": "comment.line.number-sign.dslc", "match": terminal("COMMENT")},
        {
            "name": "string.quoted.docstring.dslc", "begin": '"""', "end": '"""',
            "beginCaptures": {"0": {"name": "punctuation.definition.string.begin.dslc"}},
            "endCaptures": {"0": {"name": "punctuation.definition.string.end.dslc"}},
        },
        {"name": "string.quoted.double.dslc", "match": terminal("STRING")},
        {"name": "constant.numeric.dslc", "match": rf"\b(?:{terminal('NUMBER')}|{terminal('INT')})\b"},
        {"name": "keyword.operator.word.dslc", "match": _any(_OPERATORS)},
        {"name": "keyword.operator.reduction.dslc", "match": rf"\b(?:{'|'.join(sorted(REDUCTIONS))})(?=\s*\[)"},
        {"name": "support.function.dslc", "match": rf"\b(?:{'|'.join(sorted(functions | REDUCTIONS))})(?=\s*\()"},
        {"name": "keyword.control.dslc", "match": _any(keywords)},
        {"name": "constant.language.dslc", "match": _any(CONSTANTS | {"inf"})},
        {"name": "support.type.dslc", "match": _any(DTYPE_NAMES | ATTRIBUTE_TYPES)},
        {"name": "storage.modifier.trait.dslc", "match": _any(TRAITS)},
        {"name": "variable.parameter.keyword.dslc", "match": rf"\b{name}(?=\s*=[^=>])"},
        {"name": "entity.name.function.call.dslc", "match": rf"\b{name}(?=\s*\()"},
        {"name": "variable.other.dslc", "match": rf"\b{name}\b"},
        {"name": "keyword.operator.dslc", "match": "|".join(re.escape(sign) for sign in signs())},
        {"name": "keyword.operator.assignment.dslc", "match": "="},
        {"name": "punctuation.dslc", "match": r"[\[\](){},:.]"},
        {"name": "invalid.illegal.dslc", "match": r"\S"},
    ]  # fmt: skip
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "information_for_contributors": [
            "Made by `python -m dslc.syntax.textmate` from dslc.lark: do not edit this file."
        ],
        "name": "dslc",
        "scopeName": SCOPE,
        "fileTypes": ["rules"],
        "patterns": [{"include": "#named"}, {"include": "#expressions"}],
        "repository": {"named": {"patterns": named}, "expressions": {"patterns": expressions}},
    }


def text() -> str:
    """The text of the grammar's file."""
    return json.dumps(grammar(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(str(resources.files("dslc.grammar").joinpath(FILE))).write_text(text(), encoding="utf-8")
