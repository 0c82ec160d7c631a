"""The findings of `dslc check` in files that are being edited: after a keystroke only what it touches is read and checked again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dslc.checking.files import meant, modules_at, sorted_once, wanted
from dslc.checking.memory import CheckMemory, bug
from dslc.errors import Diagnostic, DslcError, SourceText, Span
from dslc.semantics.library import Files, Rules, load_many
from dslc.syntax import tree as t
from dslc.syntax.names import check_names
from dslc.syntax.pieces import Pieces, read_pieces

LOOKS = 20  #: looks at a file until nothing is left to check: what one check finds may leave out or ask for another


@dataclass(frozen=True, slots=True)
class FileFindings:
    """The findings in a file as far as they are known, by place; `left` are checks to do before one looks again."""

    findings: tuple[Diagnostic, ...]
    left: tuple[Callable[[], None], ...] = ()


@dataclass(eq=False)
class Edited(Files):
    """Files of which some have other texts than those on disk, and what is remembered of them."""

    texts: dict[Path, Pieces] = field(default_factory=dict)
    memory: CheckMemory = field(default_factory=CheckMemory)
    #: the files that each one was last loaded with
    loaded: dict[Path, frozenset[str]] = field(default_factory=dict)

    def edit(self, path: Path, text: str) -> Pieces:
        """Gives a file a text; `path` is absolute. Lines end in a newline."""
        self.texts[path] = read_pieces(SourceText(str(path), text), self.texts.get(path))
        return self.texts[path]

    def close(self, path: Path) -> None:
        """Gives a file the text that it has on disk."""
        self.texts.pop(path, None)
        self.loaded.pop(path, None)

    def has(self, path: Path) -> bool:
        return path in self.texts or super().has(path)

    def head(self, path: Path) -> str:
        return self.texts[path].file.source.text if path in self.texts else super().head(path)

    def tree(self, path: Path) -> t.File:
        pieces = self.texts.get(path)
        if pieces is None:
            return super().tree(path)
        if pieces.findings:
            raise DslcError(pieces.findings)
        return pieces.file

    def span(self, span: Span) -> Span:
        """A place in the whole text of its file."""
        for pieces in self.texts.values():
            if span.source in pieces.starts:
                return pieces.span(span)
        return span

    def placed(self, finding: Diagnostic) -> Diagnostic:
        """A finding with all its places in whole texts."""
        for pieces in self.texts.values():
            finding = pieces.placed(finding)
        return finding

    def load(self, path: Path) -> Rules:
        """The definitions of a file and its imports. Raises DslcError."""
        return load_many([path], files=self)

    def load_readable(self, path: Path) -> Rules:
        """As `load`, of texts that are being typed: what cannot be read in them is left out."""
        return load_many([path], files=_Readable(self))

    def look(self, path: Path) -> FileFindings:
        """The findings that need no long check, and the checks that are left: when none is, those of `dslc check`."""
        pieces = self.texts[path]
        self.loaded.pop(path, None)
        early = pieces.findings or tuple(pieces.placed(finding) for finding in check_names(pieces.file))
        if early:
            return FileFindings(tuple(sorted_once(early)))
        try:
            rules = self.load(path)
        except DslcError as failure:
            return FileFindings(tuple(sorted_once(self.placed(one) for one in failure.diagnostics)))
        self.loaded[path] = frozenset(module.file.source.path for module in rules.modules)
        recall = self.memory.of(rules)
        try:
            found = meant(rules, modules_at(rules, [path]), remember=recall)
        except Exception as failure:  # whoever types goes on after a bug in a check
            return FileFindings((bug(failure, Span(pieces.file.source, 0, 0)),))
        kept = wanted((self.placed(one) for one in found), [pieces.file])
        if recall.left:
            # a comment ignores nothing only when all is known
            kept = [one for one in kept if one.code != "W0016"]
        return FileFindings(tuple(kept), tuple(recall.left))

    def concerns(self, path: Path, other: Path) -> bool:
        """Return whether findings in a file may depend on another one: it imports that, or could not be loaded."""
        return path not in self.loaded or str(other) in self.loaded[path]

    def looks(self, path: Path) -> Iterator[FileFindings]:
        """Looks at a file, with a break after each check; the last one has all findings."""
        for _ in range(LOOKS):
            look = self.look(path)
            yield look
            if not look.left:
                return
            for check in look.left:
                check()
                yield look

    def findings(self, path: Path) -> tuple[Diagnostic, ...]:
        """All findings in a file."""
        look = FileFindings(())
        for look in self.looks(path):  # noqa: B007
            pass
        return look.findings


@dataclass(frozen=True)
class _Readable(Files):
    """Edited files as far as they can be read."""

    edited: Edited

    def has(self, path: Path) -> bool:
        return self.edited.has(path)

    def head(self, path: Path) -> str:
        return self.edited.head(path)

    def tree(self, path: Path) -> t.File:
        pieces = self.edited.texts.get(path)
        return super().tree(path) if pieces is None else pieces.file
