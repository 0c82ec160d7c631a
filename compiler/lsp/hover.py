"""The text beside a name: its definition, types and shapes, costs, and how far a rule is proved."""

from __future__ import annotations

import re
from typing import Any

from dslc.catalogue.rows import RuleDef, definitions, status_of
from dslc.errors import DslcError
from dslc.inspection.describe import describe
from dslc.inspection.lookup import onnx_operators
from dslc.inspection.samples import sample
from dslc.lsp.declarations import declared_in
from dslc.lsp.names import Occurrence, Symbol, item_at
from dslc.lsp.session import DocumentView
from dslc.lsp.signatures import doc_of, vocabulary
from dslc.semantics.assume import Infeasible
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.env import Mismatch, Unbound
from dslc.semantics.library import Rules, rules_cache, standard
from dslc.syntax import tree as t
from dslc.syntax.printer import show
from dslc.syntax.vocabulary import NUMERICS

#: outcomes of what has no meaning, or none at sizes that are looked at
FAILS = (DslcError, Infeasible, Mismatch, Unbound, ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


def hover(view: DocumentView, word: Occurrence) -> str | None:
    """The meaning of a word, in Markdown; None where nothing is to be said."""
    symbol = word.symbol
    if not symbol or not view.rules:
        return _of_vocabulary(view.source.text[word.start : word.end], word.form)
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
        module = next((one for one in view.rules.modules if one.path == symbol.path), None)
        if module is None:
            return None
        own = ", ".join(f"`{name}`" for name, one in module.names.items() if one.module is module)
        return f"`{module.name}`: {own}"
    return _local(view, word, symbol)


def _of_vocabulary(name: str, form: str) -> str | None:
    """The meaning of a word of the language. Some name a type and a function: `dtype`."""
    known = vocabulary()
    found = known.get(name if form == "type" else f"{name}(") or known.get(name)
    if found and form in {"keyword", "builtin", "type"}:
        return f"{_code(found[0])}\n\n{found[1]}"
    return NUMERICS.get(name)


def operator_of(rules: Rules, symbol: Symbol) -> OperatorDef | None:
    """The operator that a symbol is."""
    found = (op for op in rules.operators.values() if op.short == symbol.name and op.module.path == symbol.path)
    return next(found, None)


def _code(text: str) -> str:
    return f"```rules\n{text.strip()}\n```"


def of_operator(rules: Rules, op: OperatorDef) -> str:
    """Signature, documentation, equations, and at some small shapes types and costs."""
    statements = [s for s in op.statements if not isinstance(s, t.OnnxMap | t.Example | t.Tags | t.Verify)]
    parts = [_code("\n".join([f"operator {op.signature}", *(f"  {s.span.text}" for s in statements)]))]
    parts.append(doc_of(op.syntax))
    facts = facts_of(rules, op)
    if "arguments" in facts:
        given = ", ".join(f"{name}: {type}" for name, type in facts["arguments"].items())
        results = ", ".join(f"{name}: {type}" for name, type in facts["results"].items())
        chosen = ", ".join(f"{name}={value}" for name, value in facts["attributes"].items())
        parts.append(f"At `{given}`{f' with `{chosen}`' if chosen else ''}: `{results}`, "
                     f"{facts['flops']:,} FLOPs, {facts['bytes']:,} bytes.")  # fmt: skip
    if facts.get("traits"):
        parts.append(f"Traits: {', '.join(facts['traits'])}.")
    nodes = list(dict.fromkeys(s.op for s in op.statements if isinstance(s, t.OnnxMap)))
    if nodes:
        parts.append(f"ONNX: {', '.join(f'`{node}`' for node in nodes)}.")
    return "\n\n".join(filter(None, parts))


def facts_of(rules: Rules, op: OperatorDef) -> dict[str, Any]:
    """The facts of an operator at small shapes, as `dslc show` prints them; none where no shapes fit it."""
    cache = rules_cache(rules, "facts of operators")
    if op.name not in cache:
        try:
            cache[op.name] = describe(rules, op, sample(rules, op))
        except FAILS:
            cache[op.name] = {}
    found: dict[str, Any] = cache[op.name]
    return found


def _attribute(rules: Rules, symbol: Symbol) -> str | None:
    operator = operator_of(rules, Symbol("operator", symbol.owner, symbol.path))
    found = next((attr for attr in operator.attrs if attr.name == symbol.name), None) if operator else None
    return None if found is None else f"{_code(found.span.text)}\n\nAn attribute of `{symbol.owner}`."


def rule_named(rules: Rules, path: str, name: str) -> RuleDef | None:
    """The rule of a file by its own name."""
    found = (one for _, one in definitions(rules) if one.short == name and one.module.path == path)
    return next((one for one in found if getattr(one, "trait", None) is None), None)


def status_text(rules: Rules, rule: RuleDef) -> str:
    """The status of a rule, in a few words."""
    if isinstance(rule, SubstitutionDef) and rule.syntax.partial:
        return "partial"
    try:
        status, counts, reason = status_of(rules, rule)
    except FAILS:
        return "unknown"
    said = ": ".join(part for part in (status, reason) if part) or "not proved yet"
    return said if counts or not status else f"{said} (says the lock beside it)"


def _definition(rules: Rules, symbol: Symbol) -> str | None:
    rule = rule_named(rules, symbol.path, symbol.name)
    if rule:
        parts = (_code(show(rule.syntax)), doc_of(rule.syntax), f"Status: {status_text(rules, rule)}.")
        return "\n\n".join(filter(None, parts))
    for module in rules.modules:
        if module.path == symbol.path:
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
    item = item_at(view, word.start)
    if item is None:
        return None
    known = declared_in(item)
    if known.locals.get(symbol.name, "type") != "type":
        node = known.nodes[symbol.name]
        return _code(node.span.text) + ("\n\nAn iterator." if isinstance(node, t.Binder) else "")
    params = [one for one in getattr(item, "params", ()) if isinstance(one, t.Param) and one.type]
    sizes = [one.span.text for one in params if re.search(rf"\b{symbol.name}\b", one.span.text.partition(":")[2])]
    return f"A size or type of {', '.join(f'`{each}`' for each in sizes)}." if sizes else None
