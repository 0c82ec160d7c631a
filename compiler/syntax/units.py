"""The lines of an item in order: its head, documentation, statements and closing brace, each with its place in the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from dslc.records import record
from dslc.syntax import phrases as p
from dslc.syntax import tree as t
from dslc.syntax.layout import LINE, Doc, Group, Nest
from dslc.syntax.scan import Token

INDENT = 2  #: spaces of one level


@record
class Unit:
    """Something that begins on a line of its own. `raw` text (documentation) is printed as it is."""

    start: int
    end: int
    indent: int
    doc: Doc
    raw: bool = False
    opens: bool = False
    closes: bool = False


class UnitPlaces:
    """Finds the words and signs of one item that are no nodes of the tree. Without tokens every place is 0."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._depths = list(self._depth_of(tokens))

    @staticmethod
    def _depth_of(tokens: Sequence[Token]) -> Iterator[int]:
        depth = 0
        for token in tokens:
            depth -= token.kind == "close"
            yield depth
            depth += token.kind == "open"

    def find(self, texts: Sequence[str], depth: int, after: int = 0) -> tuple[int, int]:
        """Start and end of the first of `texts` at a depth of brackets."""
        for token, at in zip(self._tokens, self._depths, strict=True):
            if at == depth and token.start >= after and token.text in texts:
                return token.start, token.end
        return 0, 0

    def doc(self) -> tuple[int, int]:
        return next(((token.start, token.end) for token in self._tokens if token.kind == "doc"), (0, 0))

    def before(self, offset: int) -> int:
        """End of the last token before an offset."""
        return max((token.end for token in self._tokens if token.start < offset), default=0)

    @property
    def start(self) -> int:
        return self._tokens[0].start if self._tokens else 0

    @property
    def last(self) -> tuple[int, int]:
        return (self._tokens[-1].start, self._tokens[-1].end) if self._tokens else (0, 0)


def _doc(places: UnitPlaces, text: str | None) -> Iterator[Unit]:
    if text is not None:
        yield Unit(*places.doc(), INDENT, f'"""{text}"""', raw=True)


def _statement(node: t.Node, pad: int = 0) -> Unit:
    return Unit(node.span.start, node.span.end, INDENT, p.statement(node, pad))


def _statements(nodes: Sequence[t.Node], pad: int = 0) -> Iterator[Unit]:
    """Statements; the names of attributes that follow each other are padded to the longest."""
    for index, node in enumerate(nodes):
        if isinstance(node, t.Attr):
            first = last = index
            while first > 0 and isinstance(nodes[first - 1], t.Attr):
                first -= 1
            while last + 1 < len(nodes) and isinstance(nodes[last + 1], t.Attr):
                last += 1
            longest = max(len(run.name) + 1 for run in nodes[first : last + 1] if isinstance(run, t.Attr))
            yield _statement(node, longest)
        else:
            yield _statement(node, pad)


def _params(word: str, params: Sequence[t.Param], outputs: Doc) -> Doc:
    """A head that breaks before its arrow first."""
    listed = p.commas(map(p.param, params))
    return (word, "(", listed, ")", Group(Nest(4, (LINE, "-> ", outputs))))


def _framed(head: Doc, item: Any, places: UnitPlaces, *inside: Iterable[Unit]) -> list[Unit]:
    """An item in braces: its head, documentation, what is inside, and the closing brace."""
    start, end = places.last
    _, opened = places.find("{", 0)
    opening = Unit(places.start, opened, 0, (head, " {"), opens=True)
    return [opening, *_doc(places, item.doc), *chain(*inside), Unit(start, end, 0, "}", closes=True)]


def _arrow(item: t.Substitution | t.Derivation, places: UnitPlaces) -> list[Unit]:
    return [Unit(*places.find(("=>", "<=>"), 1), INDENT, item.arrow)]


def _holds(item: t.Property, places: UnitPlaces) -> Iterator[Unit]:
    laws_at, _ = places.find(("holds",), 1)
    trusted_at, _ = places.find(("trusted",), 1) if item.trusted is not None else places.last
    laws = p.lines((p.expr(law), "," * (index + 1 < len(item.laws))) for index, law in enumerate(item.laws))
    yield Unit(laws_at, places.before(trusted_at), INDENT, ("holds ", laws))
    if item.trusted is not None:
        yield Unit(trusted_at, places.before(places.last[0]), INDENT, f'trusted "{item.trusted}"')


def _lowered(item: t.Lowering, places: UnitPlaces) -> Iterator[Unit]:
    start, end = places.find(("expr", "match"), 1)
    if item.expr:
        end = item.expr.span.end
        yield Unit(start, end, INDENT, ("expr  ", p.value(item.expr.value, p.target(item.expr.target))))
    else:
        end = max((entry.span.end for entry in item.match), default=end)
        yield Unit(start, end, INDENT, ("match ", p.lines(p.bind(entry) for entry in item.match)))
    for node in item.statements:
        if isinstance(node, t.OnnxMap):
            doc = (p.onnx_head(node.op, node, since=False), p.attr_map(node.attrs))
            yield Unit(node.span.start, node.span.end, INDENT, doc)
        else:
            yield _statement(node, 5 if item.expr else 0)


def _onnx(item: t.OnnxDef, places: UnitPlaces) -> Iterator[Unit]:
    head: Doc = (p.onnx_head(item.op, item), p.attr_map(item.attrs))
    value = ("= ", p.expr(item.value))
    if not item.statements:
        yield Unit(places.start, places.last[1], 0, Group((head, Nest(INDENT, (LINE, value)))))
        return
    yield Unit(places.start, places.before(item.statements[0].span.start), 0, head)
    yield from _statements(item.statements)
    start, _ = places.find(("=",), 0, item.statements[-1].span.end)
    yield Unit(start, places.last[1], INDENT, value)


def of_item(item: t.Item, tokens: Sequence[Token] = ()) -> list[Unit]:
    """The units of an item; `tokens` are its own, from first to last."""
    places = UnitPlaces(tokens)
    match item:
        case t.Operator():
            outputs = p.commas(map(p.param, item.outputs))
            head = _params(f"operator {item.name}", item.params, outputs)
            return _framed(head, item, places, _statements(item.statements))
        case t.Substitution():
            word = f"{'partial ' if item.partial else ''}substitution {item.name}"
            head = _params(word, item.params, p.names(item.outputs))
            return _framed(head, item, places, _statements(item.left), _arrow(item, places), _statements(item.right))
        case t.Property():
            head = (f"property {item.name}(", p.commas(map(p.param, item.params)), ")")
            return _framed(head, item, places, _statements(item.statements), _holds(item, places))
        case t.Derivation():
            # keywords are as wide as the longest of the declarations, so that what they declare is aligned
            pad = 6 if any(isinstance(node, t.TensorDecl) for node in item.declarations) else 5
            left = _statements([*item.declarations, *item.left], pad)
            right = _statements([*item.right, *item.statements], pad)
            return _framed(f"derivation {item.name}", item, places, left, _arrow(item, places), right)
        case t.Lowering():
            params = ("(", p.commas(map(p.param, item.params)), ")") if item.params else ""
            return _framed(
                (f"lowering {item.name}", params, f" on {item.device}"), item, places, _lowered(item, places)
            )
        case t.OnnxDef():
            return list(_onnx(item, places))
        case t.Test():
            return _framed(f"test {item.name}", item, places, _statements(item.statements, 6))
        case t.Ruleset():
            return _framed(f"ruleset {item.name}", item, places, _statements(item.statements))
        case t.Function():
            return [Unit(places.start, places.last[1], 0, p.function(item))]
        case t.PropertyIs():
            traits = p.commas(map(p.trait, item.traits))
            return [Unit(places.start, places.last[1], 0, (f"property {item.name} is ", traits))]


def import_line(node: t.Import) -> Doc:
    """`import .module as alias (names)`."""
    alias = "" if node.alias is None else f" as {node.alias}"
    listed: Doc = "" if node.names is None else (" (", p.names(node.names), ")")
    return (f"import {'.' if node.relative else ''}{node.module}{alias}", listed)


def of_header(header: t.Header, tokens: Sequence[Token] = ()) -> list[Unit]:
    """The units of a header; `tokens` are its own."""
    version = (tokens[0].start, tokens[1].end) if len(tokens) > 1 else (0, 0)
    units = [Unit(*version, 0, f"dslc {header.language}")]
    places = UnitPlaces(tokens)
    library = header.library
    if library:
        first = library.requires[0].span.start if library.requires else library.span.end
        units.append(Unit(library.span.start, places.before(first), 0, f"library {library.name} {library.version}"))
        for line in library.requires:
            units.append(Unit(line.span.start, line.span.end, 0, f"requires {line.library} {line.spec}"))
    rest: list[t.Import | t.Export] = sorted([*header.imports, *header.exports], key=lambda node: node.span.start)
    for node in rest:
        doc = import_line(node) if isinstance(node, t.Import) else ("export ", p.names(node.names))
        units.append(Unit(node.span.start, node.span.end, 0, doc))
    return units
