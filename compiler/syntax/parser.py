"""Reading `.rules` text into the syntax tree."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import lark
from lark import Lark, Token, UnexpectedInput

from dslc.errors import Diagnostic, DslcError, Fix, SourceText, Span, closest, instead, suggested
from dslc.folders import cache_folder
from dslc.store import Store
from dslc.syntax import scan
from dslc.syntax import tree as t
from dslc.syntax.build import Builder
from dslc.syntax.expected import explain
from dslc.syntax.shipped import shipped
from dslc.syntax.vocabulary import KEYWORDS, REDUCTIONS

#: the version of the language that this module reads
LANGUAGE = 1
RESERVED = KEYWORDS | REDUCTIONS


MAX_DEPTH = 200  #: depth of a syntax tree; later stages recurse on it
MAX_BYTES = 4 * 2**20  #: bytes of a file: hostile input must not take memory
MOST_TABLES = 4  #: versions of the grammar whose tables are kept

#: the grammar's rules from which a text may start
_STARTS = ["start", "items", "header_line"]


@functools.cache
def grammar(strict: bool = False) -> Lark:
    """The LALR parser; `strict` also refuses grammars whose terminals or rules collide (used by a test).

    Its tables take half a second to build: dslc is installed with them, else they are kept between runs.
    """
    if strict:
        return _built(_text(), strict=True)
    store, key = Store(cache_folder() / "grammar", MOST_TABLES), table_key()
    for ready in (shipped().read, store.get):
        found = ready(key)
        if found is not None:
            with contextlib.suppress(Exception):  # tables of another parser generator may raise anything
                return Lark.load(io.BytesIO(found))
    made = tables()
    store.put(key, made)
    return Lark.load(io.BytesIO(made))


def tables() -> bytes:
    """The tables of the grammar's parser, made anew."""
    out = io.BytesIO()
    _built(_text()).save(out)
    return out.getvalue()


def table_key() -> str:
    """A digest of the grammar and of what makes tables of it, under which these may be kept."""
    return hashlib.sha256(f"{lark.__version__} {_STARTS}{_text()}".encode()).hexdigest()[:40]


def _text() -> str:
    return resources.files("dslc.grammar").joinpath("dslc.lark").read_text(encoding="utf-8")


def _built(text: str, strict: bool = False) -> Lark:
    return Lark(text, parser="lalr", start=_STARTS, propagate_positions=True, maybe_placeholders=True, strict=strict)


def decode(data: bytes, path: str) -> SourceText:
    """The text of a file: UTF-8, a byte order mark is dropped, lines end in a newline.

    Raises:
        DslcError: E0107 where it is not UTF-8, E0108 where it is too large.
    """
    if len(data) > MAX_BYTES:
        hint = "split it into several files"
        raise DslcError([Diagnostic("E0108", f"the file is larger than {MAX_BYTES >> 20} MiB", path=path, hint=hint)])
    if path.endswith(".onnx"):
        hint = "`dslc why-not RULE MODEL` says where a rule applies in a model"
        raise DslcError([Diagnostic("E0107", "this is an ONNX model, not a rule file", path=path, hint=hint)])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        hint = "convert it, for example with `iconv -t UTF-8`"
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            hint = "it looks like UTF-16: save it as UTF-8"
        message = (
            f"the file is not UTF-8 text: byte 0x{data[failure.start]:02x} at offset {failure.start} (line {line})"
        )
        raise DslcError([Diagnostic("E0107", message, path=path, hint=hint)]) from None
    return SourceText(path, text.replace("\r\n", "\n").replace("\r", "\n"))


def read_source(path: str | os.PathLike[str]) -> SourceText:
    """Reads a `.rules` file.

    Raises:
        DslcError: E0902 where it cannot be read, E0107 and E0108 as `decode`.
    """
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as failure:
        raise DslcError([Diagnostic("E0902", f"cannot read {path}: {failure.strerror}", path=str(path))]) from None
    return decode(data, str(path))


def _reserved(source: SourceText, tree: Any, offset: int) -> list[Diagnostic]:
    """Keywords in the place of names; left of `=` and in the names of files and ONNX operators they are allowed."""
    found = []
    exempt: set[int] = set()
    for node in tree.iter_subtrees_topdown():
        if node.data == "module":
            exempt.update(id(child) for child in node.children)
        for index, child in enumerate(node.children):
            if not isinstance(child, Token) or child.type != "NAME" or str(child) not in RESERVED:
                continue
            if index == 0 and node.data in ("entry", "kwarg"):
                continue
            dotted = len(node.children) > 1 and child == "onnx"
            if node.data == "qname" and (index > 0 or id(node) in exempt or dotted):
                continue
            at = offset + (child.start_pos or 0)
            message = f"`{child}` is a reserved word and names nothing"
            hint = (
                f"it is a word of equations; `dslc show {child}` says which operator is meant"
                if child in REDUCTIONS
                else ""
            )
            found.append(Diagnostic("E0205", message, Span(source, at, at + len(child)), hint=hint))
    return sorted(found, key=place_of)


def place_of(finding: Diagnostic) -> int:
    """The place of a finding in its file."""
    return finding.span.start if finding.span else 0


def _too_deep(node: t.Node) -> t.Node | None:
    """A node that lies deeper than MAX_DEPTH in `node`."""
    todo: list[tuple[t.Node, int]] = [(node, 1)]
    while todo:
        here, depth = todo.pop()
        if depth > MAX_DEPTH:
            return here
        todo.extend((child, depth + 1) for child in t.children(here))
    return None


class _Reader:
    """Parses the chunks of one file and collects everything that is wrong."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self.findings: list[Diagnostic] = []

    def _report(self, code: str, message: str, start: int, end: int, hint: str = "", fix: Fix | None = None) -> None:
        self.findings.append(Diagnostic(code, message, Span(self._source, start, end), hint=hint, fix=fix))

    def _piece(self, start: str, begin: int, end: int) -> Any:
        """Parse [begin, end); None where it is reported as broken."""
        try:
            tree = grammar().parse(self._source.text[begin:end], start=start)
        except UnexpectedInput:
            self.findings.append(explain(grammar(), self._source, start, begin, end))
            return None
        builder = Builder(self._source, begin)
        built = builder.transform(tree)
        for item in built if isinstance(built, tuple) else (built,):
            deep = _too_deep(item) if isinstance(item, t.Node) else None
            if deep:
                at = deep.span.start
                hint = "give names to its parts with `let`"
                self._report("E0109", f"this expression is nested more than {MAX_DEPTH} deep", at, at + 1, hint)
                return None
        self.findings += _reserved(self._source, tree, begin) + builder.findings
        return built

    def items(self, chunk: scan.Chunk) -> tuple[t.Item, ...]:
        """The items of a chunk; where it fails at the beginning of a line, those before that line."""
        if chunk.broken:
            return ()
        before = len(self.findings)
        found: tuple[t.Item, ...] | None = self._piece("items", chunk.start, chunk.end)
        if found is not None:
            return found
        span = self.findings[before].span
        if not span or span.start <= chunk.start or self._source.position(span.start)[1] != 1:
            return ()
        kept: tuple[t.Item, ...] | None = self._piece("items", chunk.start, span.start)
        if kept is None:
            del self.findings[before + 1 :]
        return kept or ()

    def header(self, chunk: scan.Chunk, every: list[scan.Token]) -> t.Header:
        """The header, from those of its statements that can be read."""
        tokens = [token for token in every if token.start < chunk.end]
        if not tokens or tokens[0].text != "dslc":
            hint = "the first statement of every file is `dslc 1`"
            span = (every[0].start, every[0].end) if every else (0, 0)
            fix = Fix(Span(self._source, 0, 0), "dslc 1\n")
            self._report("E0105", "the file does not begin with `dslc 1`", *span, hint, fix)
        found: list[Any] = []
        for number, line in enumerate(scan.header_chunks(self._source, tokens, chunk.end)):
            end = line.start + len(line.word)
            if chunk.broken:
                break
            if line.word not in scan.HEADER_WORDS:
                if number > 0 or tokens[0].text == "dslc":
                    self._unknown(line.word, line.start, end)
            elif line.word == "dslc" and number > 0:
                self._report("E0114", "`dslc 1` is the first statement of a file, and occurs once", line.start, end)
            elif line.word == "library" and found and not isinstance(found[-1], int):
                self._report("E0114", "`library` comes directly after `dslc 1`, and occurs once", line.start, end)
            else:
                found.append(self._piece("header_line", line.start, line.end))
        if found and isinstance(found[0], int) and found[0] != LANGUAGE:
            number_token = tokens[1]
            message = f"version {found[0]} of the language is not known to this dslc, which reads version {LANGUAGE}"
            self._report("E0106", message, number_token.start, number_token.end)
        return t.Header(
            LANGUAGE,
            next((part for part in found if isinstance(part, t.LibraryDecl)), None),
            tuple(part for part in found if isinstance(part, t.Import)),
            tuple(part for part in found if isinstance(part, t.Export)),
            span=Span(self._source, tokens[0].start if tokens else 0, chunk.end),
        )

    def _unknown(self, word: str, start: int, end: int) -> None:
        if word == "requires":
            self._report("E0114", "`requires` belongs below a `library` line", start, end)
            return
        close = closest(word, [*scan.HEADER_WORDS, *scan.ITEM_WORDS, "requires"], 0.5)
        hint = suggested(close, "expected `library`, `import`, `export` or an item")
        fix = instead(Span(self._source, start, end), word, close)
        self._report("E0110", f"`{word}` does not begin a statement here", start, end, hint, fix)


def parse_with_errors(source: SourceText) -> tuple[t.File, list[Diagnostic]]:
    """The tree of everything that can be read, and what is wrong with the rest (one broken item costs one item).

    Never raises for any text; a text with findings should not be used further, except to look for more of them.
    Equal texts of one path are parsed once.
    """
    file, findings = _parsed(source.path, source.text)
    return file, list(findings)


@functools.lru_cache(maxsize=256)
def _parsed(path: str, text: str) -> tuple[t.File, tuple[Diagnostic, ...]]:
    source = SourceText(path, text)
    if len(text) > MAX_BYTES:
        finding = Diagnostic("E0108", f"the text is larger than {MAX_BYTES >> 20} MiB", path=source.path)
        header = t.Header(LANGUAGE, None, (), (), span=Span(source, 0, 0))
        return t.File(source, header, (), (), span=Span(source, 0, len(text))), (finding,)
    seen = scan.scan(source)
    first, *rest = seen.chunks
    reader = _Reader(source)
    header = reader.header(first, seen.tokens)
    items: list[t.Item] = []
    for chunk in rest:
        if len(reader.findings) >= scan.MAX_FINDINGS:
            break
        items += reader.items(chunk)
    findings = sorted(seen.findings + reader.findings, key=place_of)
    return whole(source, header, items, seen), tuple(findings)


def whole(source: SourceText, header: t.Header, items: Iterable[t.Item], seen: scan.Scan) -> t.File:
    """A file of its parts, with the comments that were seen."""
    comments = tuple(
        t.Comment(token.text.rstrip(), token.line_start, span=Span(source, token.start, token.end))
        for token in seen.comments
    )
    return t.File(source, header, tuple(items), comments, span=Span(source, 0, len(source.text)))


def read_items(source: SourceText, chunk: scan.Chunk) -> tuple[tuple[t.Item, ...], list[Diagnostic]]:
    """The items of one chunk of a text, and what is wrong with it."""
    reader = _Reader(source)
    return reader.items(chunk), reader.findings


def read_header(source: SourceText, chunk: scan.Chunk, tokens: list[scan.Token]) -> tuple[t.Header, list[Diagnostic]]:
    """The header of a text, its first chunk, and what is wrong with it. `tokens` are those of the whole text."""
    reader = _Reader(source)
    return reader.header(chunk, tokens), reader.findings


def parse(source: SourceText) -> t.File:
    """The tree of a whole file.

    Raises:
        DslcError: with everything that is wrong (blocks E01 and E0205).
    """
    file, findings = parse_with_errors(source)
    if findings:
        raise DslcError(findings)
    return file
