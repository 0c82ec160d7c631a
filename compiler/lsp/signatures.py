"""Signatures of operators, functions and the language's own words, and which parameter of one is being typed."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from importlib import resources

from lsprotocol import types as lsp

from dslc.lsp.cursor import Cursor
from dslc.semantics.definitions import FunctionDef, OperatorDef
from dslc.semantics.nary import takes_many
from dslc.syntax import tree as t


@functools.cache
def vocabulary() -> Mapping[str, tuple[str, str]]:
    """The words of the language, a function's with its parenthesis: the form in which each is written, and its meaning."""
    page = resources.files("dslc.grammar").joinpath("vocabulary.md").read_text("utf-8")
    rows = re.findall(r"^\| `(([a-z_]+\(?)[^`]*)` \| (.*) \|$", page, re.M)
    return {word: (form, meaning) for form, word, meaning in rows}


def doc_of(item: t.Item) -> str:
    """The documentation of an item in one line."""
    return " ".join((getattr(item, "doc", None) or "").split())


def signature(item: t.Operator | t.Function) -> tuple[str, list[str]]:
    """The text of a call with all that may be given, and its parts."""
    if isinstance(item, t.Function):
        return f"{item.name}({', '.join(item.params)})", [*item.params]
    own = (*item.params, *(one for one in item.statements if isinstance(one, t.Attr)))
    parts = [" ".join(one.span.text.split()).removeprefix("attr ") for one in own]
    return f"{item.name}({', '.join(parts)}) -> {', '.join(one.span.text for one in item.outputs)}", parts


def signature_help(place: Cursor) -> lsp.SignatureHelp | None:
    """The signatures of what is called at a place, and the parameter that is typed there."""
    call = None if place.in_text else place.call()
    if not call:
        return None
    name, arguments = call
    view, found = place.view, []

    def show(label: str, parts: list[str], doc: str, inputs: int, many: bool) -> None:
        own = [lsp.ParameterInformation(part) for part in parts]
        found.append(lsp.SignatureInformation(label, doc, own, _active(parts, inputs, many, arguments)))

    own = re.search(
        rf"\b(?:let|term\b.*?)\s({re.escape(name)}\([^()]*\))", view.source.text[place.begin : place.offset]
    )
    meant = view.module.lookup(name) if view.module and view.rules and not own else None
    if isinstance(meant, OperatorDef | FunctionDef) and view.rules:
        many = isinstance(meant, OperatorDef) and takes_many(view.rules, meant)
        show(*signature(meant.syntax), doc_of(meant.syntax), len(meant.syntax.params), many)
    for form, meaning in [(own[1], "")] if own else filter(None, [vocabulary().get(f"{name}(")]):
        parts = form.partition("(")[2][:-1].split(", ")
        show(form, parts, meaning, len(parts), parts[-1] == "...")
    return lsp.SignatureHelp(found, 0, found[0].active_parameter) if found else None


def _active(parts: Sequence[str], inputs: int, many: bool, arguments: list[list[str]]) -> int:
    """The parameter that the last argument is for; the first attribute that is not given yet where all inputs are."""
    names = [part.lstrip("*").partition(":")[0] for part in parts]
    named = [one[0] for one in arguments if one[1:2] == ["="]]
    if arguments[-1][1:2] == ["="] or arguments[-1][:1] == ["**"]:
        return names.index(arguments[-1][0]) if arguments[-1][0] in names else len(names)
    at = len(arguments) - 1 - len(named)
    if at < inputs or many:
        return min(at, inputs - 1)
    return next((k for k in range(inputs, len(names)) if names[k] not in named), len(names))
