"""The names that an item declares, by what they are."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.records import record
from dslc.syntax import tree as t
from dslc.syntax.scan import Token

#: what each kind of item is, as a symbol
_KINDS: dict[type[t.Node], str] = {
    t.Operator: "operator", t.Function: "function", t.Property: "rule", t.Substitution: "rule", t.Derivation: "rule",
    t.Lowering: "rule", t.Ruleset: "rule", t.Test: "test", t.PropertyIs: "is", t.OnnxDef: "onnx",
}  # fmt: skip
_INTRODUCES = frozenset("operator property substitution derivation lowering test ruleset let onnx".split())


def dotted(tokens: Sequence[Token], index: int) -> tuple[int, list[str]]:
    """The begin of the dotted name that a word is part of, and its parts up to that word."""
    parts, at = [tokens[index].text], index
    while at >= 2 and tokens[at - 1].text == "." and tokens[at - 2].kind == "word" and tokens[at - 2].text != "import":
        at -= 2
        parts.insert(0, tokens[at].text)
    return at, parts


@record
class Declared:
    """Names that an item declares.

    `locals`: name -> what it is coloured as; `nodes`: name -> where it is declared.
    `rests`: the name of `**a` -> the operator, as it is called, that has these attributes.
    """

    kind: str
    name: str
    attributes: frozenset[str]
    outputs: frozenset[str]
    locals: dict[str, str]
    rests: dict[str, str]
    nodes: dict[str, t.Node]

    def name_at(self, tokens: Sequence[Token], index: int) -> bool:
        """Return whether a word is (the last part of) the item's own name, behind its keyword."""
        at, parts = dotted(tokens, index)
        keyword = tokens[at - 1] if at else None
        if not keyword or keyword.text not in _INTRODUCES:
            return False
        if not keyword.line_start and (at < 2 or tokens[at - 2].text != "partial"):
            return False
        after = tokens[index + 1].text if index + 1 < len(tokens) else ""
        return ".".join(parts) == self.name and after != "." and (keyword.text != "let" or self.kind == "function")

    def declares(self, tokens: Sequence[Token], index: int) -> bool:
        """Return whether a word declares an attribute or an output: behind `attr`, or behind `->` with a type."""
        if tokens[index - 1].text == "attr":
            return True
        if tokens[index].text not in self.outputs:
            return False
        at = index - 1
        while at >= 0 and tokens[at].text != "->":
            if tokens[at].text in {"{", "onnx"}:
                return False
            at -= 1
        head = next((k for k in range(at, -1, -1) if tokens[k].text in _INTRODUCES and tokens[k].line_start), -1)
        return at >= 0 and head >= 0 and tokens[head].text == "operator"


def declared_in(item: t.Item) -> Declared:
    """Collect the names that an item declares."""
    kind = _KINDS[type(item)]
    name = item.op if isinstance(item, t.OnnxDef) else item.name
    attributes = outputs = frozenset[str]()
    if isinstance(item, t.Operator):
        attributes = frozenset(one.name for one in item.statements if isinstance(one, t.Attr))
        outputs = frozenset(one.name for one in item.outputs)
    names: dict[str, str] = {}
    places: dict[str, t.Node] = {}
    rests: dict[str, str] = {}
    for node in t.walk(item):
        found: dict[str | None, str] = {}
        if isinstance(node, t.Param):
            found = {node.name: "parameter", **({node.type.name: "type"} if node.type else {})}
        elif isinstance(node, t.Binder | t.ForAll):
            found = {node.name: "iterator"}
        elif isinstance(node, t.Let | t.Const | t.Equation):
            found = {node.target.name: "variable"}
        elif isinstance(node, t.Search | t.GivenItem | t.Formula):
            found = {node.name or "": "variable"}
        elif isinstance(node, t.LetMany | t.EquationMany | t.Bind | t.SetDecl | t.TensorDecl):
            found = dict.fromkeys(node.names, "variable")
        elif isinstance(node, t.Function | t.Signature):
            found = {**({} if node is item else {node.name: "function"}), **dict.fromkeys(node.params, "parameter")}
        elif isinstance(node, t.MapDecl):
            found = {node.name: "function"}
        elif isinstance(node, t.Call) and node.rest is not None:
            found = {node.rest: "variable"}
            rests.setdefault(node.rest, node.function)
        for each, form in found.items():
            names.setdefault(each or "", form)
            places.setdefault(each or "", node)
    for taken in (*attributes, "_"):
        names.pop(taken, None)
    return Declared(kind, name, attributes, outputs, names, rests, places)
