"""Types that a file does not write: of `let`s, intermediate tensors and results, shown behind their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from lsprotocol import types as lsp

from dslc.interpret.draft import bind_definitions
from dslc.ir.graph import Value
from dslc.lsp.hover import FAILS
from dslc.lsp.session import DocumentView
from dslc.semantics.assume import assumed, size_names
from dslc.semantics.definitions import Module, OperatorDef
from dslc.semantics.env import Env, Thunk
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t

CHOICES = 24  #: attributes at which a type has to be the same; where there are more it is not told
KEPT = 500  #: items whose types are kept

_known: dict[Any, dict[str, str]] = {}
#: names without a type: of results behind an arrow, and of what a statement defines without an index
_NAMES = re.compile(r"(?:->\s*|\n\s*(?:let )?)((?:\w+, )*\w+)(?= (?:=(?![=>])|\{))")
_words = re.compile(r"[A-Za-z_]\w*").findall


def hints(view: DocumentView, start: int, end: int) -> Iterator[lsp.InlayHint]:
    """The types that are not written in the items between two offsets."""
    for span, item in view.items if view.module else ():
        if isinstance(item, t.Operator | t.Substitution) and span.start <= end and start <= span.end:
            places: dict[str, int] = {}
            for names in _NAMES.finditer(span.text):
                for name in re.finditer(r"\w+", names[1]):
                    places.setdefault(name[0], span.start + names.start(1) + name.end())
            for one, text in _types(view, item, places).items():
                yield lsp.InlayHint(view.places.position(places[one]), f": {text}", lsp.InlayHintKind.Type)


def _types(view: DocumentView, item: t.Operator | t.Substitution, names: dict[str, int]) -> dict[str, str]:
    """The types of names that are the same at all ranks and attributes: `T[M, *S]`."""
    assert view.rules and view.module
    calls = [(call, view.module.called(call)) for call in nodes(t.Call, item)]
    # of what has the same text, and calls the same, all is the same
    key = item, *names, *(called for _, called in calls)
    if names and key not in _known:
        if len(_known) >= KEPT:
            _known.clear()
        numbers = {arg.bare: 1 for call, op in calls if isinstance(op, OperatorDef) for arg in call.args if arg.bare}
        texts: dict[str, set[str]] = {name: set() for name in names if all(name != param.name for param in item.params)}
        for env in _cases(view.rules, view.module, item):
            # a pattern finds numbers, too
            env.values = numbers | env.values
            for name, seen in texts.items():
                with suppress(*FAILS):
                    value = env.get(name)
                    if isinstance(value, Value):
                        seen.add(_text(item, value, env))
        _known[key] = {name: "".join(seen) for name, seen in texts.items() if len(seen) == 1 and all(seen)}
    return _known.get(key, {})


def _cases(rules: Rules, module: Module, item: t.Operator | t.Substitution) -> list[Env]:
    """The names of an item at all attributes, at two ranks of each pack. A rule's guards do not count."""
    sides = (*item.left, *item.right) if isinstance(item, t.Substitution) else ()
    body = item.statements if isinstance(item, t.Operator) else ()
    op = OperatorDef("", t.Operator(item.name, item.params, (), None, body, span=item.span), module)
    found: list[Env] = []
    for ranks in ((1, 2), (2, 1)):
        chosen = {pack: ranks[k % 2] for k, pack in enumerate(size_names(op)[0])}
        seen = len(found)
        with suppress(*FAILS):
            found += [choice.env for choice in islice(assumed(rules, op, chosen, "symbolic"), CHOICES)]
        if not seen < len(found) < seen + CHOICES:
            return []
    for env in found:
        bind_definitions(sides, env)
        for one in (each for each in sides if isinstance(each, t.Bind | t.LetMany)):
            for k, name in enumerate(one.names):
                env.bind(name, Thunk(partial(_result, one, k, env)))
    return found


def _result(bind: t.Bind | t.LetMany, k: int, env: Env) -> Any:
    value = evaluate(bind.value, env)
    return value[k] if len(bind.names) > 1 else value


def _text(item: t.Operator | t.Substitution, value: Value, env: Env) -> str:
    """The type of a value in the names of an item; empty where these do not say it."""
    sizes, element = ", ".join(map(str, value.type.shape)), value.type.dtype
    for pack in env.ranks:
        axes = re.escape(", ".join(map(str, env.get(pack))))
        sizes = re.sub(rf"(?:^|(?<=, )){axes}(?=,|$)", f"*{pack}", sizes)
    said = {*_words(item.span.text)}
    types = {one.type.name for one in item.params if one.type and env.values.get(one.type.name) is element}
    types |= {str(element)} & said
    return f"{types.pop()}[{sizes}]" if len(types) == 1 and said.issuperset(_words(sizes)) else ""
