"""Findings that are kept between two checks: a check is done again only where something that it rests on has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dslc.errors import Diagnostic, Span
from dslc.prove.evidence.digest import bare, meanings, words_of
from dslc.records import record
from dslc.semantics.definitions import Checkable
from dslc.semantics.library import Rules
from dslc.syntax import tree as t
from dslc.syntax.printer import show

MOST = 20_000  #: results that are kept; the oldest go first


def bug(failure: Exception, span: Span) -> Diagnostic:
    """E0901 for what no check should raise."""
    message = f"dslc failed where it should not: {type(failure).__name__}: {failure}"
    return Diagnostic("E0901", message, span, hint="this is a bug in dslc; please report it")


@record
class _Text:
    """A definition without what no check of it reads: its digest, the names in it, and whether it has terms. `syntax` is kept alive."""

    syntax: t.Node
    digest: str
    words: tuple[str, ...]
    terms: bool


@dataclass(eq=False)
class CheckMemory:
    """Findings of earlier checks, by the check and a digest of all that it rests on."""

    _texts: dict[int, _Text] = field(default_factory=dict)
    #: findings of a check and a digest, and the syntax that they speak of: their places are those of these very objects
    known: dict[tuple[str, str], tuple[tuple[Diagnostic, ...], tuple[t.Node, ...]]] = field(default_factory=dict)

    def of(self, rules: Rules) -> Recall:
        """The memory as it serves one look at some rules."""
        if len(self._texts) > MOST:
            self._texts.clear()
        return Recall(self, rules)

    def text(self, syntax: t.Node) -> _Text:
        """The part of a definition that checks read."""
        found = self._texts.get(id(syntax))
        if not found:
            text = show(bare(syntax))
            terms = isinstance(syntax, t.Substitution | t.Property) and "term" in text
            digest = hashlib.sha256(f"{type(syntax).__name__}\0{text}".encode()).hexdigest()
            found = self._texts[id(syntax)] = _Text(syntax, digest, words_of(text), terms)
        return found


@dataclass(eq=False)
class Recall:
    """A `Remember` that does no check: it looks each up in the memory, and notes which are left to do."""

    memory: CheckMemory
    rules: Rules
    #: what is to be done: each does one check, and keeps what it finds
    left: list[Callable[[], None]] = field(default_factory=list)
    _digests: dict[int, tuple[str, tuple[t.Node, ...]]] = field(default_factory=dict)

    def __call__(
        self, check: str, definition: Checkable, find: Callable[[], Sequence[Diagnostic]]
    ) -> Sequence[Diagnostic]:
        digest, about = self._rests_on(definition)
        memory = self.memory.known
        found, spoken_of = memory.get((check, digest), (None, ()))
        if found is not None and (not found or [*map(id, spoken_of)] == [*map(id, about)]):
            return found

        def do() -> None:
            try:
                findings = tuple(find())
            except Exception as failure:  # a bug of one check takes no other findings away
                findings = (bug(failure, about[0].span),)
            if len(memory) >= MOST:
                del memory[next(iter(memory))]
            memory[check, digest] = findings, about if findings else ()

        self.left.append(do)
        return ()

    def _rests_on(self, definition: Checkable) -> tuple[str, tuple[t.Node, ...]]:
        """A digest of a definition and of every operator, function and trait that it reaches, and their syntax."""
        if id(definition) in self._digests:
            return self._digests[id(definition)]
        # a term stands for any operator, in the order in which these are known
        others = self.rules.operators.values() if self.memory.text(definition.syntax).terms else ()
        total, about = hashlib.sha256(), []
        for one, meaning in meanings(
            self.rules, definition, lambda found: self.memory.text(found.syntax).words, others
        ).items():
            total.update(f"\0{meaning}\0{self.memory.text(one.syntax).digest}".encode())
            about.append(one.syntax)
        result = self._digests[id(definition)] = total.hexdigest(), tuple(about)
        return result
