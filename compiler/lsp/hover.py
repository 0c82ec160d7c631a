"""The text beside a name: its definition, types and shapes, costs, and how far a rule is proved."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from lsprotocol import types as lsp

from dslc.catalogue.rows import RuleDef, definitions, status_of
from dslc.errors import DslcError
from dslc.inspection.describe import describe
from dslc.inspection.lookup import onnx_operators
from dslc.inspection.samples import sample
from dslc.lsp.declarations import declared_in
from dslc.lsp.names import BUILTIN, Occurrence, Symbol, item_at
from dslc.lsp.session import DocumentView, EditorSession
from dslc.semantics.checks.names import imports
from dslc.semantics.definitions import FunctionDef, OperatorDef, SubstitutionDef
from dslc.semantics.env import EvalError, Mismatch, Unbound
from dslc.semantics.installed import find_library, libraries
from dslc.semantics.library import Rules, rules_cache, standard
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t
from dslc.syntax.printer import show
from dslc.syntax.scan import HEADER_WORDS, ITEM_WORDS, Token, scan
from dslc.syntax.vocabulary import ATTRIBUTE_TYPES, CONSTANTS, DTYPE_NAMES, NUMERICS, TRAITS

# ---- text beside a name --------------------------------------------------------------------------------------------

_FAILS = (DslcError, EvalError, Mismatch, Unbound, ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


def hover(view: DocumentView, word: Occurrence) -> str | None:
    """The meaning of a word, in Markdown; None where nothing is to be said."""
    symbol = word.symbol
    if not symbol or not view.rules:
        return NUMERICS.get(view.source.text[word.start : word.end])
    if symbol.kind == "onnx":
        return of_onnx(view.rules, symbol.name)
    if symbol.kind == "operator":
        operator = operator_of(view.rules, symbol)
        return of_operator(view.rules, operator) if operator else None
    if symbol.kind == "attribute":
        return _attribute(view.rules, symbol)
    if symbol.kind in {"rule", "function"}:
        return _definition(view.rules, symbol)
    if symbol.kind == "module":
        module = next((one for one in view.rules.modules if one.file.source.path == symbol.path), None)
        if module is None:
            return None
        own = ", ".join(f"`{name}`" for name, one in module.names.items() if one.module is module)
        return f"`{module.name}`: {own}"
    return _local(view, word, symbol)


def operator_of(rules: Rules, symbol: Symbol) -> OperatorDef | None:
    """The operator that a symbol is."""
    found = (
        op for op in rules.operators.values() if op.short == symbol.name and op.module.file.source.path == symbol.path
    )
    return next(found, None)


def _code(text: str) -> str:
    return f"```rules\n{text.strip()}\n```"


def of_operator(rules: Rules, op: OperatorDef) -> str:
    """Signature, documentation, equations, and at some small shapes types and costs."""
    statements = [s for s in op.syntax.statements if not isinstance(s, t.OnnxMap | t.Example | t.Tags | t.Verify)]
    parts = [_code("\n".join([f"operator {op.signature}", *(f"  {s.span.text}" for s in statements)]))]
    if op.syntax.doc:
        parts.append(" ".join(op.syntax.doc.split()))
    facts = facts_of(rules, op)
    if "arguments" in facts:
        given = ", ".join(f"{name}: {type}" for name, type in facts["arguments"].items())
        results = ", ".join(f"{name}: {type}" for name, type in facts["results"].items())
        chosen = ", ".join(f"{name}={value}" for name, value in facts["attributes"].items())
        parts.append(f"At `{given}`{f' with `{chosen}`' if chosen else ''}: `{results}`, "
                     f"{facts['flops']:,} FLOPs, {facts['bytes']:,} bytes.")  # fmt: skip
    if facts.get("traits"):
        parts.append(f"Traits: {', '.join(facts['traits'])}.")
    nodes = list(dict.fromkeys(s.op for s in op.syntax.statements if isinstance(s, t.OnnxMap)))
    if nodes:
        parts.append(f"ONNX: {', '.join(f'`{node}`' for node in nodes)}.")
    return "\n\n".join(parts)


def facts_of(rules: Rules, op: OperatorDef) -> dict[str, Any]:
    """The facts of an operator at small shapes, as `dslc show` prints them; none where no shapes fit it."""
    cache = rules_cache(rules, "facts of operators")
    if op.name not in cache:
        try:
            cache[op.name] = describe(rules, op, sample(rules, op))
        except _FAILS:
            cache[op.name] = {}
    found: dict[str, Any] = cache[op.name]
    return found


def _attribute(rules: Rules, symbol: Symbol) -> str | None:
    operator = operator_of(rules, Symbol("operator", symbol.owner, symbol.path))
    found = next((attr for attr in operator.attrs if attr.name == symbol.name), None) if operator else None
    return None if found is None else f"{_code(found.span.text)}\n\nAn attribute of `{symbol.owner}`."


def rule_named(rules: Rules, path: str, name: str) -> RuleDef | None:
    """The rule of a file by its own name."""
    found = (one for _, one in definitions(rules) if one.syntax.name == name and one.module.file.source.path == path)
    return next((one for one in found if getattr(one, "trait", None) is None), None)


def status_text(rules: Rules, rule: RuleDef) -> str:
    """The status of a rule, in a few words."""
    if isinstance(rule, SubstitutionDef) and rule.syntax.partial:
        return "partial"
    try:
        status, counts, reason = status_of(rules, rule)
    except _FAILS:
        return "unknown"
    said = ": ".join(part for part in (status, reason) if part) or "not proved yet"
    return said if counts or not status else f"{said} (says the lock beside it)"


def _definition(rules: Rules, symbol: Symbol) -> str | None:
    rule = rule_named(rules, symbol.path, symbol.name)
    if rule:
        doc = " ".join((getattr(rule.syntax, "doc", None) or "").split())
        return "\n\n".join(
            part for part in (_code(show(rule.syntax)), doc, f"Status: {status_text(rules, rule)}.") if part
        )
    for module in rules.modules:
        if module.file.source.path == symbol.path:
            for item in module.file.items:
                if getattr(item, "name", None) == symbol.name:
                    return _code(item.span.text)
    return None


def of_onnx(rules: Rules, name: str) -> str | None:
    """The operators that an ONNX node is read as."""
    for known in (rules, standard()):
        clauses = known.onnx.get(name, ())
        if clauses:
            own = onnx_operators(known, name)
            lines = [f"ONNX `{name}`"]
            lines += [f"is `{op.name}`:\n\n{_code(f'operator {op.signature}')}" for op in own]
            read = [clause for clause in clauses if clause.value]
            lines += [f"is read as `{show(read[-1].value)}`"] if read and not own and read[-1].value else []
            return "\n\n".join(lines)
    return f"ONNX `{name}`, which no loaded library reads"


def _local(view: DocumentView, word: Occurrence, symbol: Symbol) -> str | None:
    """The declaration of a name inside an item."""
    found = item_at(view, word.start)
    if found is None:
        return None
    item = found[2]
    for node in t.walk(item):
        names: tuple[str | None, ...] = ()
        if isinstance(node, t.Param | t.Binder | t.Function | t.GivenItem | t.Search | t.MapDecl):
            names = (node.name,)
        elif isinstance(node, t.Let | t.Const | t.Equation):
            names = (node.target.name,)
        elif isinstance(node, t.Bind | t.LetMany):
            names = node.names
        if symbol.name in names:
            return _code(node.span.text) + ("\n\nAn iterator." if isinstance(node, t.Binder) else "")
    params = [one for one in getattr(item, "params", ()) if isinstance(one, t.Param) and one.type]
    sizes = [one.span.text for one in params if re.search(rf"\b{symbol.name}\b", one.span.text.partition(":")[2])]
    return f"A size or type of {', '.join(f'`{each}`' for each in sizes)}." if sizes else None


# ---- completions ---------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Za-z_]\w*$")
#: words that begin a statement, by the item that they stand in
_STATEMENTS: dict[str, tuple[str, ...]] = {
    "operator": ("attr", "where", "let", "onnx", "example", "tags", "verify"),
    "substitution": ("where", "let", "const", "term", "search", "tags", "correct", "verify", "trusted"),
    "property": ("where", "let", "term", "holds", "trusted"),
    "derivation": ("index", "term", "map", "set", "tensor", "where", "expr", "search", "tags", "verify"),
    "lowering": ("expr", "match", "where", "let", "cost", "call", "template", "onnx", "tags", "verify"),
    "test": ("given", "expect", "fires", "silent", "derives", "where"),
    "ruleset": ("include", "exclude", "always"),
}
_K = lsp.CompletionItemKind


def complete(session: EditorSession, view: DocumentView, offset: int) -> list[lsp.CompletionItem]:
    """The completions at an offset of a document, each name once."""
    found: dict[str, lsp.CompletionItem] = {}
    for item in _Place(session, view, offset).items():
        found.setdefault(item.label, item)
    return list(found.values())


def _named(
    names: Iterable[str], kind: lsp.CompletionItemKind, order: str = "", **rest: Any
) -> Iterator[lsp.CompletionItem]:
    """Names of one kind; `order` says where they stand among others."""
    return (
        lsp.CompletionItem(name, kind=kind, sort_text=f"{order}{name}" if order else None, **rest) for name in names
    )


class _Place:
    """A place in a document, by the tokens before it. A word that is half typed there does not count."""

    def __init__(self, session: EditorSession, view: DocumentView, offset: int) -> None:
        self.session, self.view, self.offset = session, view, offset
        typed = _WORD.search(view.source.text[max(0, offset - 200) : offset])
        self.begin = offset - (len(typed[0]) if typed else 0)
        self.seen = scan(view.source)
        self.tokens = [token for token in self.seen.tokens if token.end <= self.begin]
        found = item_at(view, offset)
        self.item = found[2] if found is not None else None
        self.word = self._item_word()

    def _item_word(self) -> str:
        """The keyword of the item at hand, from the text where the item cannot be read."""
        depth = 0
        for token in reversed(self.tokens):
            depth += (token.kind == "close") - (token.kind == "open")
            if token.line_start and token.text in ITEM_WORDS and depth < 0:
                return "substitution" if token.text == "partial" else token.text
        return ""

    def _last(self, back: int = 1) -> Token:
        return self.tokens[-back] if len(self.tokens) >= back else Token("end", "", 0, True)

    # ---- where ---------------------------------------------------------------------------------------------------

    def items(self) -> Iterator[lsp.CompletionItem]:
        last, third = self._last(), self._last(3).text
        texts = [token for token in self.seen.tokens if token.kind in {"doc", "string", "open_doc", "open_string"}]
        for token in (*self.seen.comments, *texts):
            if token.start <= self.offset <= token.end and token.kind in {"comment", "doc", "string"}:
                return
        head = self._header()
        if head is not None:
            yield from head
        elif last.text == "." and self._last(2).kind == "word":
            yield from self._of(self._last(2).text)
        elif last.text == "onnx":
            yield from _named(onnx_nodes(), _K.EnumMember)
        elif last.text == ":" and third in {"attr", "(", ",", "given", "->", "*"}:
            yield from _named(sorted(DTYPE_NAMES | ATTRIBUTE_TYPES), _K.TypeParameter)
        else:
            begins = _STATEMENTS.get(self.word, ()) if self.word else sorted(ITEM_WORDS | HEADER_WORDS)
            yield from _named(begins, _K.Keyword)
            if self.word == "property" and last.text == "is":
                yield from _named(sorted(TRAITS), _K.Keyword)
            yield from self._attributes()
            yield from self._locals()
            yield from self._visible()
            yield from _named(sorted(BUILTIN), _K.Function, "3")
            yield from _named(sorted(CONSTANTS | {"if", "else", "and", "or", "not", "forall", "in"}), _K.Keyword, "3")
            yield from self._importable()

    # ---- the header ----------------------------------------------------------------------------------------------

    def _header(self) -> Iterable[lsp.CompletionItem] | None:
        """Libraries, files and their names behind `import`; the file's own names behind `export`."""
        at = next((k for k in range(len(self.tokens) - 1, -1, -1) if self.tokens[k].line_start
                   and self.tokens[k].text in HEADER_WORDS | ITEM_WORDS), -1)  # fmt: skip
        if at < 0 or self.tokens[at].text not in {"import", "export"} or self.word:
            return None
        rest = [token.text for token in self.tokens[at + 1 :]]
        if self.tokens[at].text == "export":
            own = (i for i in self.view.pieces.file.items if not isinstance(i, t.Test | t.PropertyIs | t.OnnxDef))
            return _named((item.name for item in own if item.name and not item.name.startswith("_")), _K.Function)
        if "(" in rest:
            return None if ")" in rest else self._names_of("".join(rest[: rest.index("(")]))
        if rest and rest[-1] != ".":
            return None
        path = self.view.document.path
        beside = (one.stem for one in sorted(path.parent.glob("*.rules")) if one != path)
        return _named(beside if rest else sorted(libraries()), _K.Module)

    def _names_of(self, module: str) -> Iterator[lsp.CompletionItem]:
        """The names that a file or a library defines."""
        if module.startswith("."):
            paths = [self.view.document.path.parent / f"{module[1:].replace('.', '/')}.rules"]
        else:
            folder, rest = find_library(module)
            if not folder:
                return
            paths = [folder / f"{rest.replace('.', '/')}.rules"] if rest else sorted(folder.glob("*.rules"))
        for path in paths:
            try:
                items = self.session.files.tree(path.resolve()).items if path.is_file() else ()
            except DslcError:
                continue
            for item in items:
                if isinstance(item, t.Operator | t.Function) and not item.name.startswith("_"):
                    detail = " ".join(item.span.text.split("{")[0].split())
                    yield lsp.CompletionItem(item.name, kind=_K.Function, detail=detail)

    # ---- names ---------------------------------------------------------------------------------------------------

    def _of(self, head: str) -> Iterator[lsp.CompletionItem]:
        """Names behind a dot: a call's attributes, or a library's names."""
        module = self.view.module
        if self.item is not None and module is not None:
            owner = declared_in(self.item).rests.get(head)
            found = module.lookup(owner) if owner is not None else None
            if isinstance(found, OperatorDef):
                yield from _attributes_of(found)
        if module and head in module.aliases:
            others = module.aliases[head].names.items()
            own = (
                name for name, one in others if isinstance(one, OperatorDef | FunctionDef) and one.module is not module
            )
            yield from _named(own, _K.Function)

    def _attributes(self) -> Iterator[lsp.CompletionItem]:
        """The attributes of the operator whose call is open here, as `name=`."""
        depth = 0
        for at in range(len(self.tokens) - 1, 0, -1):
            token = self.tokens[at]
            depth += (token.kind == "close") - (token.kind == "open")
            if depth < 0:
                found = self.view.module.lookup(self.tokens[at - 1].text) if self.view.module else None
                if token.text == "(" and isinstance(found, OperatorDef) and self._last().text in {"(", ","}:
                    given = {one.text for one in self.tokens[at:]}
                    for item in _attributes_of(found):
                        if item.label not in given:
                            item.insert_text, item.sort_text = f"{item.label}=", f"0{item.label}"
                            yield item
                return

    def _locals(self) -> Iterator[lsp.CompletionItem]:
        """Tensors, attributes, sizes and iterators of the item at hand; all of its words up to here where it cannot be read yet."""
        if self.item is None:
            begins = [k for k, token in enumerate(self.tokens) if token.line_start and token.text in ITEM_WORDS]
            words = (token.text for token in self.tokens[begins[-1] if begins else 0 :] if token.kind == "word")
            yield from _named((word for word in words if word not in ITEM_WORDS), _K.Variable, "1")
            return
        known = declared_in(self.item)
        yield from _named(sorted(known.attributes), _K.Property, "1")
        for name, form in known.locals.items():
            yield from _named([name], _K.Variable, "1", detail=form)
        params = [param for param in getattr(self.item, "params", ()) if isinstance(param, t.Param)]
        sizes = (node.id.partition(".")[0] for param in params for node in nodes(t.Name, param))
        yield from _named(sizes, _K.TypeParameter, "1", detail="size")

    def _visible(self) -> Iterator[lsp.CompletionItem]:
        """The operators and functions that the file has or imports."""
        module = self.view.module
        for name, one in (module.names if module else {}).items():
            if isinstance(one, OperatorDef):
                doc = " ".join((one.syntax.doc or "").split())
                yield from _named([name], _K.Function, "2", detail=one.signature, documentation=doc)
            elif isinstance(one, FunctionDef):
                yield from _named([name], _K.Function, "2", detail=one.syntax.span.text)

    def _importable(self) -> Iterator[lsp.CompletionItem]:
        """The standard library's operators that the file does not import yet, each with the import that it needs."""
        module = self.view.module
        if not module or not self.word or module.library == "std":
            return
        for name, one in ((op.short, op) for op in standard().operators.values()):
            if name not in module.names and not name.startswith("_"):
                fix = imports(module.file, name)
                span = self.session.files.span(fix.span)
                edit = lsp.TextEdit(self.session.places(span.source).of(span), fix.text)
                more = {
                    "detail": f"import std ({name})",
                    "documentation": one.signature,
                    "additional_text_edits": [edit],
                }
                yield from _named([name], _K.Function, "4", **more)


def _attributes_of(operator: OperatorDef) -> Iterator[lsp.CompletionItem]:
    for attr in operator.attrs:
        yield lsp.CompletionItem(attr.name, kind=_K.Property, detail=attr.span.text)


@functools.cache
def onnx_nodes() -> tuple[str, ...]:
    """The names of ONNX's operators."""
    import onnx

    return tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))
