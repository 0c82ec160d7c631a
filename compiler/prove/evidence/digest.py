"""Content hashes of rules: a proof holds as long as the hash of all that it rests on is the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from dslc.semantics.definitions import NO_TRAITS, FunctionDef, OperatorDef, PropertyDef, SubstitutionDef
from dslc.semantics.library import Rules, rules_cache
from dslc.syntax import tree as t
from dslc.syntax.printer import show

#: raised whenever a prover changes what it may answer: proofs of other versions are made again
PROVER_VERSION = 6

_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def rule_digest(rules: Rules, definition: SubstitutionDef | PropertyDef) -> str:
    """SHA-256 over a rule's printed normal form and that of every operator, function and trait that it uses, transitively.

    Which definition each word means counts, whatever file that stands in. Docstrings, tags, examples, ONNX mappings and what is said
    of rounding do not count: no proof depends on them. Nor do operators that only stand for a `term`.
    """
    total = hashlib.sha256(f"{PROVER_VERSION}".encode())
    for one, meaning in meanings(rules, definition, lambda found: _text(rules, found)[1]).items():
        total.update(f"\0{meaning}\0{_text(rules, one)[0]}".encode())
    return total.hexdigest()


def used_by(rules: Rules, definition: SubstitutionDef | PropertyDef) -> tuple[OperatorDef | FunctionDef, ...]:
    """The operators and functions that a rule uses, transitively."""
    found = meanings(rules, definition, lambda one: _text(rules, one)[1])
    return tuple(one for one in found if isinstance(one, OperatorDef | FunctionDef))


def meanings(
    rules: Rules, root: Any, words: Callable[[Any], Sequence[str]], others: Iterable[Any] = ()
) -> dict[Any, str]:
    """A definition and all that it uses, transitively, each with its name, its traits, and which of these its words mean.

    A text does not say that: imports may be exchanged, names be shadowed, and two files of a library may have a function of one name.

    Args:
        words: of a definition's text.
        others: definitions that are used without being named.
    """
    order = list(dict.fromkeys((root, *others)))
    number = {one: k for k, one in enumerate(order)}
    found: dict[Any, str] = {}
    for one in order:
        traits = rules.traits_of(one.name) if isinstance(one, OperatorDef) else NO_TRAITS
        named = sorted(traits.named.items())
        lines = [type(one).__name__, one.name, str(replace(traits, named=dict(named)))]
        meant = [(word, one.module.lookup(word)) for word in words(one)]
        for word, other in meant + [(trait, rules.operators.get(name)) for trait, name in named]:
            if other is not None:
                if other not in number:
                    number[other] = len(order)
                    order.append(other)
                lines.append(f"{word}={number[other]}")
        found[one] = "\n".join(lines)
    return found


def words_of(text: str) -> tuple[str, ...]:
    """Candidate names in a text, in order."""
    return tuple(dict.fromkeys(_WORD.findall(text)))


def _text(rules: Rules, definition: Any) -> tuple[str, tuple[str, ...]]:
    """A definition's text without what no proof depends on, and the words in it."""
    syntax = getattr(definition, "syntax", None)
    cache = rules_cache(rules, "digest texts")
    # the syntax is kept: another one of a later time may have its number
    found: tuple[Any, str, tuple[str, ...]] | None = cache.get(id(syntax))
    if found is None:
        text = "" if syntax is None else show(bare(syntax))
        found = cache[id(syntax)] = (syntax, text, words_of(text))
    return found[1:]


def bare(syntax: Any) -> Any:
    """Without what no proof depends on."""
    if isinstance(syntax, t.Operator):
        kept = tuple(s for s in syntax.statements if not isinstance(s, t.OnnxMap | t.Example | t.Tags))
        return replace(syntax, doc=None, statements=kept)
    if isinstance(syntax, t.Substitution):
        left, right = (
            tuple(s for s in side if not isinstance(s, t.Tags | t.Verify)) for side in (syntax.left, syntax.right)
        )
        return replace(syntax, doc=None, left=left, right=right)
    return replace(syntax, doc=None) if hasattr(syntax, "doc") else syntax
