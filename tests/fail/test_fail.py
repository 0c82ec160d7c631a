"""Wrong rule files: each states in its first lines what `dslc check` must say about it, and it must say just that.

    # expect: E0103 7:12-7:13
    # expect: E0110 9:1-9:4

is a code and the place of its label, from line:column to line:column (exclusive), or a code alone for what has no place in
the text. A file without such a line only helps another one (imports).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dslc.checking.files import check_files
from dslc.diagnostics.registry import pages
from dslc.diagnostics.render import FORMATS, render
from dslc.errors import Diagnostic

HERE = Path(__file__).parent
EXPECT = re.compile(rb"^# expect: ([EW]\d{4})(?: (\d+:\d+-\d+:\d+))?\s*$", re.M)


def expectations(path: Path) -> list[str]:
    return [f"{code.decode()} {place.decode()}".strip() for code, place in EXPECT.findall(path.read_bytes())]


def stated(findings: list[Diagnostic]) -> Iterator[str]:
    for finding in findings:
        if finding.span is None:
            yield finding.code
            continue
        source = finding.span.source
        (line, column), (end_line, end_column) = source.position(finding.span.start), source.position(finding.span.end)
        yield f"{finding.code} {line}:{column}-{end_line}:{end_column}"


CASES = [path for path in sorted(HERE.rglob("*.rules")) if expectations(path)]


@pytest.mark.parametrize("path", CASES, ids=lambda path: str(path.relative_to(HERE).with_suffix("")))
def test_case(path: Path) -> None:
    findings = check_files([path])
    assert list(stated(findings)) == expectations(path), render(findings, "full")
    assert all(finding.code in pages() for finding in findings)
    for form in FORMATS:
        assert render(findings, form)


def test_there_are_enough_and_each_lies_in_the_folder_of_its_block() -> None:
    assert len(CASES) >= 60
    for path in CASES:
        block = path.relative_to(HERE).parts[0]
        assert expectations(path)[0].startswith(block), path
