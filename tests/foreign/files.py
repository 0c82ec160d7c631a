"""Files of rules for tests: written, and taken through `import-rules` and `export-rules`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dslc.cli.main import run
from dslc.foreign.decisions import Import, imported_text
from dslc.foreign.importer import import_rules
from dslc.foreign.rule import ForeignRule


def rule_file(path: Path, imports: Sequence[str], *substitutions: str) -> Path:
    """A file with `import LINE` for each of `imports`, and some substitutions."""
    lines = [f"import {line}" for line in imports]
    path.write_text("\n".join(["dslc 1", *lines, "", *(f"substitution {text}" for text in substitutions), ""]))
    return path


def translated(rules: Sequence[ForeignRule], form: str, path: Path, *, guards: bool = False, **options: Any) -> Import:
    """Imports foreign rules, and writes the file that the command would write."""
    found = import_rules(rules, form, path, workers=0, guards=guards, **options)
    path.write_text(imported_text(found, form, "some.file"))
    return found


def imported(path: Path, form: str, out: Path, *more: str) -> int:
    """The exit code of `dslc import-rules`, in this process alone."""
    return run(["import-rules", "--from", form, str(path), "-o", str(out), "--workers", "0", *more])


def exported(path: Path, out: Path, *more: str) -> int:
    """The exit code of `dslc export-rules`, to TASO's format."""
    return run(["export-rules", "--to", "taso", str(path), "-o", str(out), *more])
