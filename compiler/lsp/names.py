"""The meaning of each word of a rule file: one answer for going there, finding all uses, renaming and colouring."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from dslc.errors import SourceText
from dslc.lsp.declarations import Declared, declared_in, dotted
from dslc.lsp.session import DocumentView, EditorSession
from dslc.records import record
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t
from dslc.syntax.scan import ITEM_WORDS, Token, scan
from dslc.syntax.vocabulary import (
    ATTRIBUTE_TYPES,
    CONSTANTS,
    CONVERT,
    DTYPE_NAMES,
    FUNCTIONS_1,
    FUNCTIONS_N,
    INDEX_FUNCTIONS,
    KEYWORDS,
    PREDICATES,
    REDUCTIONS,
    TRAITS,
)

# ---- meanings of words ---------------------------------------------------------------------------------------------

Kind: TypeAlias = Literal["operator", "function", "rule", "attribute", "output", "local", "onnx", "module"]

#: a text is looked at by several requests between two keys
scanned = lru_cache(8)(scan)
#: makers of tensors in tests
GENERATORS = frozenset("randn rand randint zeros ones iota".split())
BUILTIN = FUNCTIONS_1 | FUNCTIONS_N | INDEX_FUNCTIONS | PREDICATES | REDUCTIONS | {CONVERT}


@record
class Symbol:
    """Something with a name. `path`: the file that defines it; `owner`: the operator of an attribute or output, the item of a local."""

    kind: Kind
    name: str
    path: str = ""
    owner: str = ""


@record
class Occurrence:
    """A word at [start, end) of a text; `form` is what it is coloured as, `defines` whether it is where its symbol comes from."""

    start: int
    end: int
    symbol: Symbol | None
    form: str
    defines: bool = False


@record
class Text:
    """A file to look through: its text, its items with their places in it, and what it means, where that is known."""

    source: SourceText
    items: tuple[tuple[int, int, t.Item], ...]
    module: Module | None
    rules: Rules | None


def rule_of(rules: Rules, module: Module, name: str) -> t.Node | None:
    """The rule, law or rule set that a name of a file's library means."""
    for table in (rules.substitutions, rules.laws, rules.derivations, rules.lowerings, rules.rulesets):
        found = table.get(name) or table.get(f"{module.library}.{name}")
        if found:
            syntax: t.Node = found.syntax
            return syntax
    return None


def definition(found: object) -> Symbol | None:
    """The symbol of an operator or function."""
    if not isinstance(found, OperatorDef | FunctionDef):
        return None
    return Symbol("operator" if isinstance(found, OperatorDef) else "function", found.short, found.module.path)


#: the symbol of a word, and its colour
_Meaning: TypeAlias = tuple[Symbol | None, str]


@dataclass(slots=True)
class _Walk:
    """Goes through the tokens of a text."""

    text: Text
    tokens: Sequence[Token]
    #: open brackets: the word before each, and what it calls
    stack: list[tuple[str, OperatorDef | None]] = field(default_factory=list)
    #: what the last bracket called that was closed
    closed: OperatorDef | None = None
    #: the locals so far
    seen: set[Symbol] = field(default_factory=set)

    def run(self) -> Iterator[Occurrence]:
        items = iter([*self.text.items, None])
        item = next(items)
        inside: Declared | None = None
        statement = ""
        for index, token in enumerate(self.tokens):
            while item is not None and token.start >= item[1]:
                item, inside = next(items), None
            if item is not None and inside is None and token.start >= item[0]:
                inside = declared_in(item[2])
                self.stack.clear()
                statement = ""
            if token.kind == "open":
                self.stack.append(self._opened(index))
            elif token.kind == "close" and self.stack:
                self.closed = self.stack.pop()[1]
            elif token.kind == "word":
                if token.line_start and token.text in KEYWORDS | ITEM_WORDS:
                    statement = token.text
                yield self._word(
                    index, token, inside, item[0] if item is not None and inside is not None else -1, statement
                )

    # ---- tokens around -------------------------------------------------------------------------------------------

    def _at(self, index: int) -> Token:
        return self.tokens[index] if 0 <= index < len(self.tokens) else Token("end", "", 0, False)

    def _opened(self, index: int) -> tuple[str, OperatorDef | None]:
        if self.tokens[index].text != "(" or self._at(index - 1).kind != "word":
            return self.tokens[index].text, None
        _, parts = dotted(self.tokens, index - 1)
        found = self.text.module.lookup(".".join(parts)) if self.text.module else None
        return self.tokens[index].text, found if isinstance(found, OperatorDef) else None

    # ---- words ---------------------------------------------------------------------------------------------------

    def _word(self, index: int, token: Token, inside: Declared | None, item: int, statement: str) -> Occurrence:
        if not inside:
            (symbol, form), defines = self._outside(index, token, statement), False
        elif inside.name_at(self.tokens, index):
            (symbol, form), defines = (
                self._own_name(index, token.text, inside),
                inside.kind not in {"test", "is", "onnx"},
            )
        else:
            symbol, form = self._meant(index, token, inside, item, statement)
            own = symbol is not None and symbol.kind in {"attribute", "output"} and symbol.owner == inside.name
            defines = own and inside.declares(self.tokens, index)
        # a local comes from where it is first said
        if symbol is not None and symbol.kind == "local" and symbol not in self.seen:
            self.seen.add(symbol)
            defines = True
        return Occurrence(token.start, token.end, symbol, form, defines)

    def _own_name(self, index: int, name: str, inside: Declared) -> _Meaning:
        """The name of an item, where its keyword introduces it."""
        if inside.kind in {"test", "is"}:
            return self._named(name, index), "rule"
        path = "" if inside.kind == "onnx" else self.text.source.path
        return Symbol(inside.kind, name, path), inside.kind  # type: ignore[arg-type]

    def _meant(self, index: int, token: Token, inside: Declared, item: int, statement: str) -> _Meaning:
        path, name = self.text.source.path, token.text
        start, parts = dotted(self.tokens, index)
        before, after = self._at(start - 1), self._at(index + 1)
        if before.text == "onnx":
            return Symbol("onnx", ".".join(parts)), "onnx"
        if before.text == "." and self._at(start - 2).text == ")":
            owner = self.closed
            return (Symbol("output", name, owner.module.path, owner.short) if owner else None), "property"
        if len(parts) > 1:
            return self._of_dotted(parts, inside)
        if statement == "verify" and name != "verify":
            return None, "property" if after.text == "=" else "constant"
        if statement == "tags":
            return None, "tag"
        if statement in {"include", "exclude", "always"} and inside.kind == "rule":
            return self._named(name, index), "rule"
        if after.text == "=" and self.stack and (self.stack[-1][0] == "(" or self._is_entry(statement, inside)):
            operator = self.stack[-1][1]
            if not operator or all(attr.name != name for attr in operator.attrs):
                return None, "property"
            return Symbol("attribute", name, operator.module.path, operator.short), "property"
        if name in inside.attributes:
            return Symbol("attribute", name, path, inside.name), "property"
        if name in inside.outputs and inside.kind == "operator":
            return Symbol("output", name, path, inside.name), "parameter"
        if name in inside.locals:
            return Symbol("local", name, path, str(item)), inside.locals[name]
        if name in KEYWORDS or (name in REDUCTIONS and after.text in "[("):
            return None, "keyword"
        module = self.text.module
        found = module.lookup(name) if module else None
        if symbol := definition(found):
            return symbol, symbol.kind
        if module and name in module.aliases and after.text == ".":
            return Symbol("module", name, module.aliases[name].path), "module"
        if (name in BUILTIN or (inside.kind == "test" and name in GENERATORS)) and after.text == "(":
            return None, "builtin"
        if name in DTYPE_NAMES | CONSTANTS | ATTRIBUTE_TYPES:
            return None, "type" if name not in CONSTANTS else "constant"
        if inside.kind == "is" and name in TRAITS:
            return None, "keyword"
        return Symbol("local", name, path, str(item)), "size"

    def _is_entry(self, statement: str, inside: Declared) -> bool:
        """Return whether a name before `=` is that of an entry, as ONNX calls it."""
        nested = len(self.stack) > 1 or inside.kind == "onnx"
        return self.stack[-1][0] == "{" and nested and statement in {"onnx", "call", "template"}

    def _of_dotted(self, parts: list[str], inside: Declared) -> _Meaning:
        """The last word of a dotted name: `a.stride` of a call's attributes, or a library's definition."""
        module = self.text.module
        owner = inside.rests.get(parts[0])
        if owner is not None and module is not None:
            found = module.lookup(owner)
            if isinstance(found, OperatorDef) and any(attr.name == parts[1] for attr in found.attrs):
                return Symbol("attribute", parts[1], found.module.path, found.short), "property"
        if module is not None and (found := module.lookup(".".join(parts))) is not None:
            return definition(found), "operator"
        return None, "property"

    def _named(self, name: str, index: int) -> Symbol | None:
        """The symbol that a test, a trait or a rule set speaks of."""
        _, parts = dotted(self.tokens, index)
        whole = ".".join(parts)
        module, rules = self.text.module, self.text.rules
        for _, _, item in self.text.items:
            if getattr(item, "name", None) == name and not isinstance(item, t.Test | t.PropertyIs) and len(parts) == 1:
                return Symbol(declared_in(item).kind, name, self.text.source.path)  # type: ignore[arg-type]
        if not module or not rules:
            return None
        if found := definition(module.lookup(whole)):
            return found
        syntax = rule_of(rules, module, whole)
        if syntax:
            return Symbol("rule", name, syntax.span.source.path)
        return definition(rules.operators.get(whole) or rules.operators.get(f"{module.library}.{whole}"))

    def _outside(self, index: int, token: Token, statement: str) -> _Meaning:
        """A word of the header, or of an item that cannot be read."""
        module, name = self.text.module, token.text
        start, parts = dotted(self.tokens, index)
        if statement == "import" and name not in {"import", "as"}:
            relative = self._at(start - 1).text == "."
            before = self._at(start - 1 - relative).text
            if before == "import":
                return self._imported(name, relative), "module"
            if before == "as":
                return None, "module"
        if name in KEYWORDS:
            return None, "keyword"
        if statement in {"dslc", "library"}:
            return None, "module"
        if statement in {"import", "export"}:
            return self._named(name, index), "operator"
        found = definition(module.lookup(".".join(parts))) if module else None
        return found, "operator" if found else "variable"

    def _imported(self, name: str, relative: bool) -> Symbol | None:
        module, rules = self.text.module, self.text.rules
        for item in module.file.header.imports if module and rules else ():
            if item.module.split(".")[-1] == name and item.relative == relative:
                for one in rules.modules if rules else ():
                    if one.name.rsplit(".", 1)[-1] == name or one.library == item.module:
                        return Symbol("module", name, one.path)
        return None


def occurrences(text: Text) -> tuple[Occurrence, ...]:
    """Every word of a text with what it stands for, in order; never raises for any text."""
    return tuple(_Walk(text, scanned(text.source).tokens).run())


# ---- words of documents --------------------------------------------------------------------------------------------


def _items(session: EditorSession, file: t.File) -> tuple[tuple[int, int, t.Item], ...]:
    spans = [(session.files.span(item.span), item) for item in file.items]
    return tuple(sorted(((span.start, span.end, item) for span, item in spans), key=lambda one: one[0]))


@lru_cache(1024)
def of_module(session: EditorSession, module: Module, rules: Rules) -> tuple[Occurrence, ...]:
    """The words of a file as it was loaded."""
    return occurrences(Text(module.file.source, _items(session, module.file), module, rules))


@lru_cache(8)
def words(session: EditorSession, view: DocumentView) -> tuple[Occurrence, ...]:
    """The words of a document."""
    return occurrences(Text(view.source, _items(session, view.pieces.file), view.module, view.rules))


def word_at(found: tuple[Occurrence, ...], offset: int) -> Occurrence | None:
    """The word that an offset is in, or directly behind."""
    best = None
    for one in found:
        if one.start <= offset <= one.end:
            best = one
            if offset < one.end:
                return one
    return best


def everywhere(session: EditorSession, symbol: Symbol) -> Iterator[tuple[Module, Occurrence]]:
    """Occurrences of a symbol in all files that can be loaded, each place once."""
    seen: set[tuple[str, int]] = set()
    for rules in session.world():
        for module in rules.modules:
            path = module.path
            if symbol.name not in module.file.source.text:
                continue
            for one in of_module(session, module, rules):
                if one.symbol == symbol and (path, one.start) not in seen:
                    seen.add((path, one.start))
                    yield module, one


def item_at(view: DocumentView, offset: int) -> t.Item | None:
    """The item that an offset is in."""
    return next((item for span, item in view.items if span.start <= offset <= span.end), None)


def named_at(text: str, start: int, end: int, name: str) -> tuple[int, int]:
    """The place of an item's name; the item's first character where it has none."""
    found = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)").search(text, start, end)
    return found.span() if found else (start, min(start + 1, end))
