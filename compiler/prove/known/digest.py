"""Content hashes of rules: a proof holds as long as the hash of all that it rests on is the same."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any

from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, PropertyDef, SubstitutionDef
from dslc.semantics.library import Rules, rules_cache
from dslc.syntax import tree as t
from dslc.syntax.printer import show

#: raised whenever a prover changes what it may answer: proofs of other versions are made again
PROVER_VERSION = 5

_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def rule_digest(rules: Rules, definition: SubstitutionDef | PropertyDef) -> str:
    """SHA-256 over a rule's printed normal form and that of every operator, function and trait that it uses, transitively.

    Docstrings, tags, examples, ONNX mappings and what is said of rounding do not count: no proof depends on them.
    """
    used = {found.name: _operator_text(rules, found) for found in used_by(rules, definition)}
    own = _text(rules, definition.name, definition.syntax)
    total = hashlib.sha256(f"{PROVER_VERSION}\0{definition.name}\0{own}".encode())
    for name in sorted(used):
        total.update(f"\0{name}\0{used[name]}".encode())
    return total.hexdigest()


def used_by(rules: Rules, definition: SubstitutionDef | PropertyDef) -> tuple[OperatorDef | FunctionDef, ...]:
    """The operators and functions that a rule uses, transitively."""
    used: dict[str, OperatorDef | FunctionDef] = {}
    stack = [(_text(rules, definition.name, definition.syntax), definition.module)]
    while stack:
        text, module = stack.pop()
        for word in _WORD.findall(text):
            found = module.lookup(word)
            if isinstance(found, OperatorDef | FunctionDef) and found.name not in used:
                used[found.name] = found
                stack.append((_operator_text(rules, found), found.module))
    return tuple(used.values())


def _operator_text(rules: Rules, definition: Any) -> str:
    text = _text(rules, definition.name, definition.syntax)
    return f"{text}\n{rules.traits_of(definition.name)}" if isinstance(definition, OperatorDef) else text


def _text(rules: Rules, name: str, syntax: Any) -> str:
    cache = rules_cache(rules, "digest texts")
    found: tuple[Any, str] | None = cache.get(id(syntax))
    if found is None:
        # the syntax is kept: another one of a later time may have its number
        found = cache[id(syntax)] = (syntax, show(bare(syntax)))
    return found[1]


def bare(syntax: Any) -> Any:
    """Without what no proof depends on."""
    if isinstance(syntax, t.Operator):
        kept = tuple(s for s in syntax.statements if not isinstance(s, t.OnnxMap | t.Example | t.Tags))
        return replace(syntax, doc=None, statements=kept)
    if isinstance(syntax, t.Substitution):
        left, right = (tuple(s for s in side if not isinstance(s, t.Tags | t.Verify)) for side in (syntax.left, syntax.right))
        return replace(syntax, doc=None, left=left, right=right)
    return replace(syntax, doc=None) if hasattr(syntax, "doc") else syntax


def modules_digest(modules: tuple[Module, ...]) -> str:
    """SHA-256 over the texts of some files."""
    total = hashlib.sha256()
    for module in sorted(modules, key=lambda one: one.name):
        total.update(f"{module.name}\0{module.file.source.text}\0".encode())
    return total.hexdigest()
