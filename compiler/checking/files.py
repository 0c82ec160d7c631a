"""Every mistake in rule files that can be found without running them: from the text of a file to what its rules mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dslc.checking.memory import CheckMemory, bug
from dslc.checking.project import project_of
from dslc.checking.suppression import suppress
from dslc.errors import Diagnostic, DslcError, SourceText, Span
from dslc.records import record
from dslc.semantics.definitions import Module, Remember, SubstitutionDef, afresh
from dslc.semantics.library import Files, Rules, load_many
from dslc.syntax import tree as t
from dslc.syntax.names import check_names
from dslc.syntax.parser import parse_with_errors, read_source
from dslc.syntax.pieces import Pieces, read_pieces

# ---- findings from texts -------------------------------------------------------------------------------------------


def check_files(paths: Sequence[Path], overlapping: bool = False, folders: Iterable[Path] = ()) -> list[Diagnostic]:
    """All findings in some files, by place: syntax and names in each, then imports, then what the rules mean.

    What files mean is only looked at where their syntax and names are right. `overlapping`: also rules that match the same graphs.
    `folders`: those that were asked for as such, so that every file belongs to the folder's library.
    """
    files: list[t.File] = []
    findings: list[Diagnostic] = []
    for path in paths:
        try:
            file, found = parse_with_errors(read_source(path))
        except DslcError as failure:
            findings += failure.diagnostics
            continue
        files.append(file)
        findings += found or check_names(file)
    if findings:
        return sorted_once(findings)
    try:
        rules = load_many(paths, folders)
    except DslcError as failure:
        return sorted_once(failure.diagnostics)
    return wanted(meant(rules, modules_at(rules, paths), overlapping), files, overlapping)


def wanted(findings: Iterable[Diagnostic], files: Sequence[t.File], overlapping: bool = False) -> list[Diagnostic]:
    """Findings about the meaning of some files, by place: without the warnings that their comments or their project ignore."""
    kept = suppress(sorted_once(findings), files, overlapping)
    for folder in dict.fromkeys(Path(file.source.path).parent for file in files):
        try:
            ignore = project_of(folder).ignore
        except DslcError as failure:
            kept += [one for one in failure.diagnostics if str(one) not in map(str, kept)]
            continue
        kept = [one for one in kept if one.code not in ignore or Path(_place(one)[0]).parent != folder]
    return kept


def modules_at(rules: Rules, paths: Iterable[Path]) -> list[Module]:
    """The modules that some files are."""
    asked = {str(path.resolve()) for path in paths}
    return [module for module in rules.modules if str(module.place) in asked]


def meant(
    rules: Rules, modules: Sequence[Module], overlapping: bool = False, remember: Remember = afresh
) -> list[Diagnostic]:
    """Mistakes in the meaning of some modules, in no order. What takes long is asked of `remember` first."""
    from dslc.interpret.check import check_all
    from dslc.interpret.special import unlabelled
    from dslc.semantics.trust import template_of

    found = check_all(rules, modules, remember=remember)
    # what cannot be looked for is a mistake of the rule, not of whoever uses it; there an unused tensor is no warning any more
    unmatched = _unmatched(rules, modules, found, remember)
    places = {finding.span for finding in unmatched}
    found = [finding for finding in found if finding.code != "W0005" or finding.span not in places] + unmatched
    from dslc.prove.run.verify import mistake_in, wrong_laws

    mistakes = tuple(found)
    for law in rules.laws.values():
        if law.module in modules and not mistake_in(rules, law, mistakes):
            found += remember("law", law, partial(wrong_laws, rules, law))
    mistakes = tuple(found)
    for sub in rules.substitutions.values():
        if sub.module in modules and not mistake_in(rules, sub, mistakes):
            found += remember("special", sub, partial(unlabelled, rules, sub))
        if sub.syntax.partial and sub.module in modules and not mistake_in(rules, sub, mistakes):
            from dslc.prove.partial.rules import one_sided

            found += remember("partial", sub, partial(one_sided, rules, sub))
    if any(rule.module in modules for rule in rules.lowerings.values()):
        from dslc.onnx.lowerings import unknown_nodes

        found += unknown_nodes(rules, modules)
    if any(rule.module in modules and template_of(rule) is not None for rule in rules.lowerings.values()):
        from dslc.fuse.template_checks import check_templates

        found += check_templates(rules, modules, found)
    if overlapping:
        from dslc.semantics.checks.overlap import overlaps

        found += overlaps(rules, frozenset(modules))
    return found


def sorted_once(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Findings by place, each once."""
    seen: dict[tuple[str, str, str], Diagnostic] = {}
    for finding in findings:
        seen.setdefault((finding.code, str(finding.span or finding.path), finding.message), finding)
    return sorted(seen.values(), key=_place)


def _place(finding: Diagnostic) -> tuple[str, int]:
    return (finding.span.source.path, finding.span.start) if finding.span else (finding.path, 0)


def _unmatched(
    rules: Rules, modules: Sequence[Module], found: Sequence[Diagnostic], remember: Remember
) -> list[Diagnostic]:
    """E0323 for every rule whose left side binds too little to be looked for in a graph, unless another mistake in it is known."""
    wrong = [finding.span for finding in found if finding.severity == "error" and finding.span]
    findings: list[Diagnostic] = []
    for rule in rules.substitutions.values():
        # a mistake in the text of a rule mostly keeps it from being matched as well, and is what is to be mended
        if rule.module in modules and not any(span.starts_in(rule.span) for span in wrong):
            findings += remember("matched", rule, partial(_unlooked, rules, rule))
    return findings


def _unlooked(rules: Rules, rule: SubstitutionDef) -> Sequence[Diagnostic]:
    from dslc.match.compile import compile_directions

    try:
        compile_directions(rules, rule)
    except DslcError as failure:
        return failure.diagnostics
    return ()


# ---- files that are being edited -----------------------------------------------------------------------------------

LOOKS = 20  #: looks at a file until nothing is left to check: what one check finds may leave out or ask for another


@record
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
        if not pieces:
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
        self.loaded[path] = frozenset(module.path for module in rules.modules)
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
        return pieces.file if pieces else super().tree(path)
