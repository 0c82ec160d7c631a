"""Findings in files, folders and libraries, and the edits that they come with, made: all that help, until none is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from dslc.checking.files import Edited, check_files
from dslc.diagnostics.render import render
from dslc.errors import Diagnostic, DslcError, Fix, error
from dslc.records import record
from dslc.semantics.installed import find_library
from dslc.store import rule_files, write_file
from dslc.syntax.parser import read_source

ROUNDS = 20  #: rounds after which mending ends: one edit may make room for another


@record
class Mended:
    """A file with the edits of its diagnostics: its text, what was mended in the order of the edits, and what is left."""

    path: Path
    text: str
    mended: tuple[Diagnostic, ...]
    left: tuple[Diagnostic, ...]


def mend(files: Edited, path: Path) -> Mended:
    """Makes the edits that the diagnostics of an edited file come with; one after which there are more errors is not kept."""
    text = files.texts[path].file.source.text
    left = files.findings(path)
    done: list[Diagnostic] = []
    refused: set[tuple[str, str]] = set()
    seen = {text}
    for _ in range(ROUNDS):
        wanted = [one for one in left if _own(one, path) and (one.code, one.message) not in refused]
        if not wanted:
            break
        for tried in (apart(wanted), *([one] for one in wanted)):
            fixed = applied(text, [one.fix for one in tried if one.fix])
            files.edit(path, fixed)
            found = files.findings(path)
            if fixed not in seen and _better(left, found, tried):
                seen.add(fixed)
                text, left = fixed, found
                done += tried
                break
            if len(tried) == 1:
                refused.add((tried[0].code, tried[0].message))
            files.edit(path, text)
    files.edit(path, text)
    return Mended(path, text, tuple(done), left)


def _own(finding: Diagnostic, path: Path) -> bool:
    return finding.fix is not None and finding.fix.span.source.path == str(path)


def _better(before: Sequence[Diagnostic], after: Sequence[Diagnostic], tried: Sequence[Diagnostic]) -> bool:
    """True where less is found; or as much, and in the place of what was mended only findings with edits, or wrong syntax."""
    if _weight(after) != _weight(before):
        return _weight(after) < _weight(before)
    known = {(one.code, one.message) for one in before}
    new = [one for one in after if (one.code, one.message) not in known]
    gone = {(one.code, one.message) for one in tried} - {(one.code, one.message) for one in after}
    return bool(gone) and all(one.fix is not None or _stage(one) == 0 for one in new)


def _weight(findings: Iterable[Diagnostic]) -> tuple[int, int]:
    """A measure that an edit must lower: how early the check of a file ends, and then how much is found."""
    stages = [_stage(one) for one in findings]
    return -min(stages, default=4), len(stages)


def _stage(finding: Diagnostic) -> int:
    """The stage that a finding lets a check reach: with wrong syntax no names, with wrong imports no meaning."""
    if finding.severity != "error":
        return 3
    return (
        0 if finding.code.startswith("E01") else 1 if finding.code.startswith("E02") and finding.code != "E0201" else 2
    )


def apart(findings: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Findings whose edits touch nothing that one before edits."""
    out: list[Diagnostic] = []
    end = -1
    for one in sorted(findings, key=lambda each: each.fix.span.start if each.fix is not None else 0):
        if one.fix and one.fix.span.start > end:
            out.append(one)
            end = one.fix.span.end
    return out


def applied(text: str, fixes: Iterable[Fix]) -> str:
    """A text after edits that are apart."""
    for fix in sorted(fixes, key=lambda each: each.span.start, reverse=True):
        text = text[: fix.span.start] + fix.text + text[fix.span.end :]
    return text


def files_of(names: Sequence[str]) -> list[Path]:
    """The files that paths and names of installed libraries stand for.

    Raises:
        DslcError: E0902 or E0203 where there is no such thing.
    """
    out: list[Path] = []
    for name in names:
        path = Path(name)
        if not path.exists() and path.suffix != ".rules" and "/" not in name:
            folder, rest = find_library(name)
            if not folder:
                message = f"no file, folder or installed library is named `{name}`"
                raise error("E0203", message, path=name)
            out += [folder / (rest.replace(".", "/") + ".rules")] if rest else sorted(folder.glob("*.rules"))
        else:
            out += rule_files([name])
    return out


@record
class Checked:
    """Findings of `dslc check` in some rule files, in the order of their places; `str` gives the text that it prints."""

    files: tuple[Path, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        """True where there is no error; warnings may be left."""
        return not any(finding.severity == "error" for finding in self.diagnostics)

    def __str__(self) -> str:
        if not self.diagnostics:
            return f"{len(self.files)} file{'s' * (len(self.files) != 1)} checked, nothing found"
        return render(self.diagnostics, "full").rstrip()


def checked(names: Sequence[str], overlapping: bool = False) -> Checked:
    """The findings in files, folders and libraries. Raises DslcError as `files_of`."""
    paths = files_of(names)
    # a file that is named stands for itself; of a folder or a library every file is meant
    folders = {path.parent for name in names if not Path(name).is_file() for path in files_of([name])}
    return Checked(tuple(paths), tuple(check_files(paths, overlapping, sorted(folders))))


def fixed(names: Sequence[str]) -> list[Mended]:
    """Makes the edits that findings come with, in files on the disk. Raises DslcError as `files_of`, and E0903."""
    out = []
    files = Edited()
    for path in files_of(names):
        whole = path.resolve()
        try:
            text = read_source(whole).text
        except DslcError:
            continue  # it is said when the file is checked
        files.edit(whole, text)
        mended = mend(files, whole)
        files.close(whole)
        if mended.text != text:
            write_file(path, mended.text)
            out.append(mended)
    return out
