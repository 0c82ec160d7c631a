"""The printer, which is the formatter: tree to text, with comments and single blank lines where they were."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dslc.errors import SourceText
from dslc.syntax import phrases as p
from dslc.syntax import tree as t
from dslc.syntax.layout import Doc, render
from dslc.syntax.parser import parse
from dslc.syntax.scan import Token, scan
from dslc.syntax.units import Unit, import_line, of_header, of_item

WIDTH = 120  #: columns of a line
#: where comments behind code begin, if the code leaves room
COMMENT_COLUMN = 48
_ENDLESS = 10**9  #: columns where nothing is broken


@dataclass(slots=True)
class _Piece:
    """Printed lines with their place in the original text."""

    start: int
    end: int
    lines: list[str]
    indent: int = 0
    opens: bool = False
    closes: bool = False
    behind: list[str] = field(default_factory=list)


def _printed(unit: Unit) -> list[str]:
    first, *rest = str(unit.doc).split("\n") if unit.raw else render(unit.doc, WIDTH, unit.indent)
    return [" " * unit.indent + first, *rest]


def _verbatim(source: SourceText, unit: Unit) -> list[str]:
    """A unit with comments inside keeps its own layout, moved to its indentation."""
    line_start = source.text.rfind("\n", 0, unit.start) + 1
    shift = unit.indent - (unit.start - line_start)
    first, *rest = source.text[unit.start : unit.end].split("\n")
    out = [" " * unit.indent + first.rstrip()]
    for line in rest:
        body = line.strip()
        out.append(" " * max(0, len(line) - len(line.lstrip()) + shift) + body if body else "")
    return out


class _Formatter:
    def __init__(self, source: SourceText, file: t.File) -> None:
        self._source = source
        self._file = file
        found = scan(source)
        self._tokens = found.tokens
        self._starts = [token.start for token in found.tokens]
        self._comments = found.comments
        self._comment_starts = [token.start for token in found.comments]

    def _own(self, start: int, end: int) -> Sequence[Token]:
        return self._tokens[bisect_left(self._starts, start) : bisect_left(self._starts, end)]

    def _commented(self, unit: Unit) -> bool:
        at = bisect_left(self._comment_starts, unit.start)
        return at < len(self._comments) and self._comments[at].start < unit.end

    def _pieces(self) -> list[_Piece]:
        header = self._file.header
        items = sorted(self._file.items, key=lambda item: item.span.start)
        end = items[0].span.start if items else len(self._source.text)
        units = of_header(header, self._own(0, end))
        for item in items:
            units += of_item(item, self._own(item.span.start, item.span.end))
        pieces = []
        for unit in units:
            lines = _verbatim(self._source, unit) if self._commented(unit) and not unit.raw else _printed(unit)
            pieces.append(_Piece(unit.start, unit.end, lines, unit.indent, unit.opens, unit.closes))
        return pieces

    def text(self) -> str:
        pieces = self._pieces()
        starts = [piece.start for piece in pieces]
        alone = []
        for comment in self._comments:
            after = bisect_left(starts, comment.start)
            before = pieces[after - 1] if after else None
            if before and comment.start < before.end:
                continue  # printed with the unit that it is in
            text = comment.text.rstrip()
            if comment.line_start or not before:
                indent = pieces[after].indent if after < len(pieces) else 0
                if after < len(pieces) and pieces[after].closes:
                    indent += 2
                alone.append(_Piece(comment.start, comment.end, [" " * indent + text], indent))
            else:
                before.behind.append(text)
                before.end = comment.end
        return self._join(sorted([*pieces, *alone], key=lambda piece: piece.start))

    def _join(self, pieces: Sequence[_Piece]) -> str:
        out: list[str] = []
        previous: _Piece | None = None
        for piece in pieces:
            if previous and not previous.opens and not piece.closes:
                between = self._source.text[previous.end : piece.start]
                out += [""] if between.count("\n") > 1 else []
            out += piece.lines
            if piece.behind:
                pad = max(len(out[-1]) + 2, COMMENT_COLUMN)
                out[-1] = out[-1].ljust(pad) + " ".join(piece.behind)
            previous = piece
        return "\n".join(out) + "\n" if out else ""


def format_source(source: SourceText) -> str:
    """The text of a file in the one true layout: at most 120 columns, comments and single blank lines kept.

    Formatting twice changes nothing more, and the result parses to an equal tree.

    Raises:
        DslcError: where the text does not parse.
    """
    return _Formatter(source, parse(source)).text()


def print_file(file: t.File) -> str:
    """A tree as text, for trees that were made and not read: no comments, an empty line between items."""
    blocks = [of_header(file.header), *(of_item(item) for item in file.items)]
    return "\n".join("".join(line + "\n" for unit in units for line in _printed(unit)) for units in blocks)


def show(node: t.Node, width: int = _ENDLESS) -> str:
    """Any node as text, for messages: expressions, types and statements on one line, items on as many as they need."""
    if isinstance(node, t.File):
        return print_file(node)
    if isinstance(node, t.Header | t.Item) and not isinstance(node, t.Function):
        units = of_header(node) if isinstance(node, t.Header) else of_item(node)
        return "\n".join(line for unit in units for line in _printed(unit))
    doc = _DOCS.get(type(node), p.expr if isinstance(node, t.Expr) else p.statement)
    return "\n".join(render(doc(node), width))


#: what is neither an expression nor a statement, nor an item
_DOCS: Mapping[type[t.Node], Callable[[Any], Doc]] = {
    t.TypeExpr: p.type_,
    t.Param: p.param,
    t.Defined: p.target,
    t.Binder: p.place,
    t.TuplePlace: p.place,
    t.Entry: lambda node: p.entries([node]),
    t.Keyword: lambda node: (node.name, "=", p.expr(node.value)),
    t.GivenItem: p.given,
    t.Signature: lambda node: f"{node.name}({', '.join(node.params)})",
    t.Trait: p.trait,
    t.Function: p.function,
    t.Comment: lambda node: node.text,
    t.LibraryDecl: lambda node: f"library {node.name} {node.version}",
    t.Requires: lambda node: f"requires {node.library} {node.spec}",
    t.Import: import_line,
    t.Export: lambda node: ("export ", p.names(node.names)),
}
