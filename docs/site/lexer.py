"""Colours of `.rules` blocks: a Pygments lexer that reads the grammar of the editors, so no keyword is listed twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, ClassVar

from pygments.lexer import Lexer
from pygments.lexers import LEXERS
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String, Text, _TokenType

from dslc.syntax.textmate import FILE

__all__ = ["RulesLexer"]

#: token of a TextMate scope, by the longest prefix that is listed
TOKENS: Mapping[str, _TokenType] = {
    "comment": Comment.Single, "string.quoted.docstring": String.Doc, "string": String.Double, "constant.numeric": Number,
    "constant.language": Keyword.Constant, "keyword.declaration": Keyword.Declaration, "keyword.control": Keyword,
    "keyword.control.import": Keyword.Namespace, "keyword.operator": Operator, "keyword.operator.word": Operator.Word,
    "keyword.operator.reduction": Name.Builtin, "support.function": Name.Builtin, "support.type": Keyword.Type,
    "support.class.onnx": Name.Class, "storage.modifier": Name.Decorator, "entity.name.function": Name.Function,
    "entity.name.namespace": Name.Namespace, "variable.parameter": Name.Attribute, "variable.other": Name, "punctuation": Punctuation,
    "invalid": Error,
}  # fmt: skip


def token(scope: str) -> _TokenType:
    """The token of a scope like `keyword.control.dslc`."""
    parts = scope.split(".")
    return next((TOKENS[name] for k in range(len(parts), 0, -1) if (name := ".".join(parts[:k])) in TOKENS), Text)


def patterns(grammar: Mapping[str, Any], included: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The patterns of a grammar in their order, includes resolved."""
    for pattern in included:
        if "include" in pattern:
            yield from patterns(grammar, grammar["repository"][pattern["include"].removeprefix("#")]["patterns"])
        else:
            yield pattern


class RulesLexer(Lexer):
    """A lexer of the rule language."""

    name = "dslc rules"
    aliases: ClassVar[list[str]] = ["rules"]
    filenames: ClassVar[list[str]] = ["*.rules"]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        grammar = json.loads(resources.files("dslc.grammar").joinpath(FILE).read_text("utf-8"))
        self._patterns = [
            (re.compile(text, re.M | re.S if "begin" in one else re.M), one)
            for one in patterns(grammar, grammar["patterns"])
            for text in (one.get("match") or f"{one['begin']}.*?(?:{one['end']}|\\Z)",)
        ]

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, _TokenType, str]]:
        """Place, token and characters of all of a text: of the patterns that match at a place the first one."""
        at = 0
        while at < len(text):
            found = next(
                ((m, one) for regex, one in self._patterns if (m := regex.match(text, at)) and m.end() > at), None
            )
            if found is None:
                yield at, Text, text[at]
                at += 1
                continue
            match, pattern = found
            if "name" in pattern:
                yield at, token(pattern["name"]), match[0]
            else:
                for group, capture in pattern["captures"].items():
                    begin, end = match.span(int(group))
                    if at < begin:
                        yield at, Text, text[at:begin]
                    yield begin, token(capture["name"]), text[begin:end]
                    at = end
            at = match.end()


def register() -> None:
    """Make `rules` a language of Pygments in this process."""
    LEXERS["RulesLexer"] = (__name__, RulesLexer.name, tuple(RulesLexer.aliases), tuple(RulesLexer.filenames), ())
