"""Codes and messages for Lark's failures, by the token at which the grammar does not go on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lark import Lark, Token, UnexpectedInput
from lark.exceptions import UnexpectedToken

from dslc.errors import Diagnostic, Fix, SourceText, Span, closest, instead, suggested
from dslc.syntax.scan import HEADER_WORDS
from dslc.syntax.vocabulary import REDUCTIONS

_VALUES = frozenset("NAME INT NUMBER STRING INF LPAR LSQB LBRACE MINUS NOT FORALL REDUCE".split())
_SIGNS = frozenset("CMP IN ADDOP MINUS MULOP STAR CIRCUMFLEX AND OR IF DOT LSQB LPAR".split())
_AFTER_TARGET = frozenset({"EQUAL", "COMMA", "LSQB"})
#: signs of other languages, by their last two characters
_FOREIGN = {
    "**": "a power is written `a ^ b`",
    "&&": "write `and`",
    "||": "write `or`",
    "==": "one `=` defines, two compare",
}
_OURS = {"**": "^", "&&": " and ", "||": " or ", "==": "="}
#: words of other languages in the place of a statement's own
_MEANT = {
    "if": "where",
    "when": "where",
    "assert": "where",
    "require": "where",
    "def": "let",
    "var": "let",
    "func": "let",
}
_WORDS = {
    "NAME": "a name",
    "INT": "a whole number",
    "NUMBER": "a number",
    "STRING": "a string",
    "VERSION": "a version (1.0.0)",
    "LIBRARY": "the name of a library",
    "SPEC": "versions (>=1.0,<2.0)",
    "GLOB": "a pattern",
    "DOC": "documentation",
    "ARROW": "`=>`",
    "CMP": "a comparison",
    "REDUCE": "a reduction",
    "$END": "the end",
    "PARTIAL": "`partial`",
    "SILENT": "`silent`",
    "RELDOT": "`.`",
    "STAR": "`*`",
}


def _keywords(grammar: Lark, terminals: Iterable[str]) -> list[str]:
    found = []
    for name in terminals:
        pattern = next((t.pattern for t in grammar.terminals if t.name == name), None)
        value = "" if pattern is None else pattern.value
        if value.isalpha() and pattern is not None and pattern.type == "str":
            found.append(value)
    return sorted(found)


def describe(grammar: Lark, accepted: Iterable[str]) -> str:
    """The accepted terminals in words, shortest useful form."""
    names = set(accepted)
    parts = []
    if {"NAME", "INT", "LPAR"} <= names:
        parts.append("an expression")
        names -= _VALUES
    if "MULOP" in names or {"ADDOP", "CMP"} <= names:
        parts.append("an operator")
        names -= _SIGNS | {"RELDOT"}
        names -= {"DOT", "RELDOT"}
    names -= {"$END"} if len(names) > 1 else set()
    keywords = _keywords(grammar, names)
    many = len(keywords) > 4
    names -= {"NAME"} if many else set()
    rest = [_WORDS[name] for name in sorted(names) if name in _WORDS and _WORDS[name].strip("`") not in keywords]
    for terminal in grammar.terminals:
        if terminal.name in names and terminal.name not in _WORDS and not terminal.pattern.value.isalpha():
            rest.append(f"`{terminal.pattern.value}`")
    if many:
        parts.append("an item" if "operator" in keywords else "a statement")
    else:
        parts += [f"`{word}`" for word in keywords]
    parts += rest
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}" if parts else "nothing more"


def _shown(token: Token) -> str:
    text = str(token)
    return (
        f"`{text}`"
        if len(text) <= 30 and "\n" not in text
        else "documentation"
        if text.startswith('"""')
        else f"`{text[:27]}...`"
    )


def _accepts(grammar: Lark, text: str, start: str) -> set[str]:
    """The terminals that may follow a text that is a right beginning."""
    state: Any = grammar.parse_interactive(text, start=start)
    state.exhaust_lexer()
    return set(state.accepts())


def explain(grammar: Lark, source: SourceText, start: str, begin: int, end: int) -> Diagnostic:
    """Parses [begin, end) again, step by step, and says where and why it fails."""
    text = source.text[begin:end]
    state: Any = grammar.parse_interactive(text, start=start)
    try:
        tokens = list(state.exhaust_lexer())
        state.feed_eof(tokens[-1] if tokens else None)
    except UnexpectedInput as failure:
        at = failure.pos_in_stream if failure.pos_in_stream is not None else len(text)
        if isinstance(failure, UnexpectedToken) and failure.token.type == "$END":
            at = len(text)
        # The failing token has already made the parser reduce: what was possible before it, the text before it tells.
        accepted = _accepts(grammar, text[:at], start)
        if not isinstance(failure, UnexpectedToken):
            span = Span(source, begin + at, begin + at + 1)
            return Diagnostic("E0101", f"expected {describe(grammar, accepted)}, found `{span.text}`", span)
        word = _misspelt_before(text[:at]) if accepted <= _AFTER_TARGET else None
        if word is not None and str(failure.token).isidentifier():
            known = _keywords(grammar, _accepts(grammar, text[: word[0]], start))
            return _unknown_word(Span(source, begin + word[0], begin + word[1]), known)
        return _of_token(grammar, source, begin, failure.token, accepted)
    raise AssertionError("the text parses")


def _misspelt_before(text: str) -> tuple[int, int] | None:
    """The one name on the last line of a text."""
    found = re.search(r"(?:^|\n)[ \t]*([A-Za-z_]\w*)[ \t]+$", text)
    return found.span(1) if found else None


def _unknown_word(span: Span, known: Iterable[str], otherwise: str = "a statement or a definition") -> Diagnostic:
    words = list(known)
    meant = _MEANT.get(span.text)
    close = meant if meant in words else closest(span.text, words, 0.5)
    message, hint = f"`{span.text}` does not begin a statement here", suggested(close, f"expected {otherwise}")
    return Diagnostic("E0110", message, span, hint=hint, fix=instead(span, span.text, close))


def _target_before(text: str) -> tuple[int, int] | None:
    """The name of a target (`Y`, `Y[...]`) that ends a text, where it does not begin its line."""
    text = text.rstrip()
    if text.endswith("]"):
        depth, at = 0, len(text)
        while at > 0:
            at -= 1
            depth += (text[at] in "])}") - (text[at] in "[({")
            if not depth:
                break
        text = text[:at]
    name = re.search(r"[A-Za-z_]\w*$", text)
    if not name or not text[text.rfind("\n") + 1 : name.start()].strip():
        return None
    return name.start(), name.end()


def _no_reduction(text: str) -> str:
    """A hint where a word with iterators in brackets ends a text, as a reduction does: `mean[c]` before what it would take."""
    found = re.search(r"(?<!\w)([a-z]{3,})\s*\[[\w\s,:*]*\]?\s*$", text)
    if not found or found[1] in REDUCTIONS:
        return ""
    return f"`{found[1]}` is no reduction; these are: {', '.join(sorted(REDUCTIONS))}"


def _of_token(grammar: Lark, source: SourceText, begin: int, token: Token, accepted: set[str]) -> Diagnostic:
    expected = describe(grammar, accepted)
    if token.type == "$END":
        where = Span(source, begin + (token.start_pos or 0), begin + (token.end_pos or 0))
        return Diagnostic("E0113", f"something is missing after this: expected {expected}", where)
    at = begin + (token.start_pos or 0)
    span = Span(source, at, at + len(token))
    line = source.text[source.text.rfind("\n", 0, at) + 1 : at]
    if token.type == "DOC":
        hint = "documentation comes first between the braces of an item; elsewhere write a comment (`# ...`)"
        return Diagnostic("E0115", "documentation where there can be none", span, hint=hint)
    if str(token) == "=" and "CMP" in accepted:
        return Diagnostic("E0117", "`=` defines; a comparison is written `==`", span, fix=Fix(span, "=="))
    if str(token) in HEADER_WORDS and not line.strip():
        message = f"`{token}` after the first item" if token != "dslc" else "`dslc 1` is the first statement of a file"
        hint = "move it up, before the first item" if token != "dslc" else ""
        return Diagnostic("E0114", message, span, hint=hint)
    if accepted <= _AFTER_TARGET:
        # No sign separates statements, so what lacks an operator before it reads as the target of the next equation.
        target = _target_before(source.text[:at])
        if target is not None:
            name = Span(source, *target)
            message = f"expected an operator before `{name.text}`, or `=` after it"
            return Diagnostic("E0101", message, name, hint=_no_reduction(source.text[: target[0]]))
    keywords = _keywords(grammar, accepted)
    if token.type == "NAME" and not line.strip() and len(keywords) > 1:
        return _unknown_word(span, keywords, expected)
    pair = source.text[max(at - 1, 0) : at + 1]
    hint = _FOREIGN.get(pair, "")
    fix = Fix(Span(source, at - 1, at + 1), _OURS[pair]) if hint else None
    before = re.search(r"([A-Za-z_]\w*)\s*$", source.text[begin:at])
    if str(token) == "[" and before and before[1] in REDUCTIONS:
        hint = f"a reduction inside of a product, a quotient or a sum stands in parentheses: `({before[1]}[i] ...)`"
    if str(token) == "//" and not line.strip():
        hint = "a comment begins with `#`"
    if str(token) == ":":
        hint = _no_reduction(source.text[begin:at])
    return Diagnostic("E0101", f"expected {expected}, found {_shown(token)}", span, hint=hint, fix=fix)
