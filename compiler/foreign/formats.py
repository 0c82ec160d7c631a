"""The formats by name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from dslc.errors import Diagnostic, DslcError
from dslc.foreign import flexflow, taso, tensat
from dslc.foreign.rule import MOST_BYTES as RULE_MOST_BYTES
from dslc.foreign.rule import ForeignRule, damaged


def read_rules(
    form: str, path: Path, pairs: bool | None = None, numbering: taso.Numbering | None = None
) -> tuple[ForeignRule, ...]:
    """The rules of a file. `pairs` is for TENSAT's multi-pattern files, `numbering` for protobuf files (None: as they tell).

    FlexFlow's files are JSON, or protobuf as its generator writes it.

    Raises:
        DslcError: E0902 for a file that cannot be read, E1001 for one that is damaged or of another format.
    """
    try:
        if path.stat().st_size > RULE_MOST_BYTES:
            raise damaged(str(path), f"{path.stat().st_size} bytes are more than the {RULE_MOST_BYTES} that are read")
        data = path.read_bytes()
    except OSError as failure:
        raise DslcError([Diagnostic("E0902", f"{failure.strerror}: {path}", path=str(path))]) from None
    try:
        if form == "tensat":
            return tensat.read(data, str(path), pairs)
        if form == "taso":
            return taso.read(data, str(path), numbering)
        if path.suffix == ".pb" or looks_like(data) == "taso":
            return taso.read(data, str(path), numbering or "flexflow")
        return flexflow.read(data, str(path))
    except DslcError as problem:
        other = looks_like(data)
        if other in ("", form) or any(each.hint for each in problem.diagnostics):
            raise
        hint = _OF_DSLC if other == "dslc" else f"it looks like a file of {_WHOSE[other]}: `--from {other}`"
        raise DslcError([replace(each, hint=hint) for each in problem.diagnostics]) from None


_WHOSE = {"taso": "TASO's protobuf", "tensat": "TENSAT's text", "flexflow": "FlexFlow's JSON"}
_OF_DSLC = "it is a rule file of dslc already, which `dslc check` and `dslc optimize --rules` read"


HEAD = 4096  #: bytes that are looked at


def looks_like(data: bytes) -> str:
    """The format of which a file's beginning is, `dslc` for the language's own, else nothing."""
    head = data[:HEAD].removeprefix(b"\xef\xbb\xbf")
    text = head.strip()
    if text[:1] in (b"{", b"["):
        return "flexflow"
    if re.match(rb"(#[^\n]*\s+)*dslc \d", text):
        return "dslc"
    # rules of protobuf are parts of number 1, which have a length
    binary = any(byte < 9 for byte in head)
    if binary:
        return "taso" if head[:1] == b"\n" else ""
    return "tensat" if b"=>" in text or b"==" in text else ""
