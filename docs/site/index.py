"""The index of operators and rules, made from the libraries: a page for each of their files, and tables of all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from docs.site.markdown import code, fenced, slug, table
from docs.site.mathematics import all_equations, outside
from dslc.catalogue.rows import OperatorRow, RuleDef, RuleRow, all_rules, definitions, operators
from dslc.errors import DslcError
from dslc.inspection.describe import bounds, clause_text, clauses_of, describe, trait_texts
from dslc.inspection.samples import sample
from dslc.semantics.definitions import Module, OperatorDef
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules, load_many
from dslc.semantics.numerics import error_of, numerics_of
from dslc.syntax import tree as t
from dslc.syntax.printer import show
from dslc.syntax.vocabulary import NUMERICS

#: what is shown of a table of users or of examples before it says how many more there are
SHOWN = 40


@dataclass(frozen=True, eq=False)
class Index:
    """The rows of some libraries, and where on the site each definition is. `thorough`: bounds of reads are proved anew."""

    rules: Rules
    operators: dict[str, OperatorRow]
    rows: dict[str, RuleRow]
    users: dict[str, list[str]]
    thorough: bool

    def place(self, name: str) -> str:
        """The path of a definition's page from the site's root, and its anchor."""
        definition = self.rules.operators.get(name) or _rule(self.rules, name)
        return f"{page_of(definition.module)}#{slug(short(name, definition.module))}"

    def link(self, name: str, page: str) -> str:
        """A definition's name as a link from a page."""
        place = self.place(name)
        at, _, anchor = place.partition("#")
        up = "../" * page.count("/")
        return f"[{code(name)}]({f'#{anchor}' if at == page else up + place})"


def short(name: str, module: Module) -> str:
    """A definition's name without that of its library."""
    return name.removeprefix(f"{module.library}.")


def _rule(rules: Rules, name: str) -> RuleDef:
    for table_ in (rules.substitutions, rules.laws, rules.derivations, rules.lowerings):
        if name in table_:
            return table_[name]
    raise KeyError(name)


def page_of(module: Module) -> str:
    """The page of a file of a library."""
    return f"index/{module.library}/{Path(module.file.source.path).stem}.md"


def index_of(libraries: tuple[str, ...], thorough: bool = False) -> Index:
    """Everything that some libraries and what they import define."""
    rules = load_many(libraries)
    rows = {row.name: row for row in all_rules(rules)}
    users: dict[str, list[str]] = {}
    for row in rows.values():
        for name in row.operators:
            users.setdefault(name, []).append(row.name)
    return Index(rules, {row.name: row for row in operators(rules)}, rows, users, thorough)


def pages(index: Index) -> Iterator[tuple[str, str]]:
    """Path and text of every page."""
    yield "index/operators.md", _operators(index)
    yield "index/onnx.md", _onnx(index)
    yield "index/rules.md", _rules(index)
    for module in index.rules.modules:
        text = of_module(index, module)
        if text:
            yield page_of(module), text


# ---- tables --------------------------------------------------------------------------------------------------------


def _operators(index: Index) -> str:
    page = "index/operators.md"
    out = f"# Operators\n\n{len(index.operators)} operators, made from their libraries. `dslc list operators` prints the same.\n\n"
    for library in dict.fromkeys(module.library for module in index.rules.modules):
        own = [row for row in index.operators.values() if row.name.rpartition(".")[0] == library]
        if own:
            cells = [
                (index.link(row.name, page), ", ".join(map(code, row.onnx)), str(row.used_by), row.doc) for row in own
            ]
            out += f"## {library}\n\n" + table(("operator", "ONNX", "in rules", "what it computes"), cells)
    return out


def _onnx(index: Index) -> str:
    page = "index/onnx.md"
    rows = []
    for onnx in sorted(index.rules.onnx, key=str.casefold):
        own = {row.name: None for row in index.operators.values() if onnx in row.onnx}
        since = min(clause.since for clause in index.rules.onnx[onnx])
        rows.append((code(onnx), str(since), ", ".join(index.link(name, page) for name in own)))
    return (
        f"# ONNX operators\n\n{len(rows)} ONNX operators that are read, and the operators that they become. "
        "A node that no clause describes is kept word for word.\n\n"
        + table(("ONNX", "from opset", "read as, or with"), rows)
    )


def _rules(index: Index) -> str:
    page = "index/rules.md"
    out = f"# Rules\n\n{len(index.rows)} rules, made from their libraries. `dslc list rules` prints the same.\n\n"
    for library in dict.fromkeys(module.library for module in index.rules.modules):
        own = [row for row in index.rows.values() if _rule(index.rules, row.name).module.library == library]
        if own:
            cells = [(index.link(row.name, page), row.kind, _status(row), row.doc) for row in own]
            out += f"## {library}\n\n" + table(("rule", "kind", "status", "what it does"), cells)
    return out


def _status(row: RuleRow) -> str:
    return row.status or {"derivation": "tested by its instances", "lowering": "compared when it runs"}.get(
        row.kind, "not proved yet"
    )


# ---- a file --------------------------------------------------------------------------------------------------------


def of_module(index: Index, module: Module) -> str:
    """The page of a file: its operators, rules and rule sets; empty where it has none."""
    own = [op for op in index.rules.operators.values() if op.module is module]
    rules = [one for _, one in definitions(index.rules) if one.module is module]
    sets = [one for one in index.rules.rulesets.values() if one.module is module]
    if not own and not rules and not sets:
        return ""
    page = page_of(module)
    out = f"# {module.library}: {Path(module.file.source.path).name}\n\n"
    about = _about(module)
    out += f"{about}\n\n" if about else ""
    for op in own:
        out += _operator(index, op, page)
    for rule in rules:
        out += _of_rule(index, rule, page)
    for ruleset in sets:
        out += f"## {ruleset.syntax.name}\n\nA rule set. {_doc(ruleset.syntax.doc)}\n\n" + fenced(
            show(ruleset.syntax), "rules"
        )
    return out


def _about(module: Module) -> str:
    """The comment that a file begins with."""
    lines: list[str] = []
    for line in module.file.source.text.splitlines()[1:]:
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return _doc(" ".join(lines))


def _doc(doc: str | None) -> str:
    """A text as Markdown: what is no code there must not become markup."""
    parts = re.split(r"(`[^`]*`)", " ".join((doc or "").split()))
    return "".join(
        one if one.startswith("`") else re.sub(r"([*_])", r"\\\1", escape(one, quote=False)) for one in parts
    )


def _operator(index: Index, op: OperatorDef, page: str) -> str:
    out = f"## {op.short}\n\n{_doc(op.syntax.doc)}\n\n" + fenced(f"operator {op.signature}", "rules")
    guards = [show(one) for two in op.syntax.statements if isinstance(two, t.Where) for one in two.conditions]
    out += f"Where {', '.join(map(code, guards))}:\n\n" if guards else ""
    out += f'<div class="equations">{"".join(all_equations(op.syntax.statements))}</div>\n\n'
    notes = dict.fromkeys(note for one in op.syntax.statements for note in outside(one))
    out += "".join(f"- {_doc(note)}\n" for note in notes) + ("\n" if notes else "")
    attrs = [
        (code(one.name), code(show(one.type)), code(show(one.default)) if one.default is not None else "")
        for one in op.attrs
    ]
    out += table(("attribute", "type", "default"), attrs)
    clauses = [clause_text(index.rules, one) for one in clauses_of(index.rules, op)]
    read = [one for one in index.operators[op.name].onnx if one not in {each["op"] for each in clauses}]
    out += table(("ONNX", "opsets", "clause"), [(code(one["op"]), _opsets(one), code(one["text"])) for one in clauses])
    facts = [
        ("read with others from", ", ".join(map(code, read))),
        ("properties", ", ".join(map(code, trait_texts(index.rules, op.name)))),
    ]
    facts += [("reads", _bounds(index, op)), ("for example", _instance(index.rules, op))] if index.thorough else []
    examples = [show(one.value) for one in op.syntax.statements if isinstance(one, t.Example)]
    tests = sum(test.name == op.name for test in index.rules.tests)
    blocks = [f"{tests} `test` block{'' if tests == 1 else 's'}"] if tests else []
    facts.append(("tests", ", ".join([*map(code, examples[:SHOWN]), *blocks])))
    users = index.users.get(op.name, [])
    own = [one for one in users if _rule(index.rules, one).module.library == op.module.library]
    facts.append((f"in {len(own)} rule{'' if len(own) == 1 else 's'}", _named(index, own, page)))
    others = [one for one in users if one not in set(own)]
    facts.append(("in rules of other libraries", _named(index, others, page)))
    return out + table(("fact", "value"), [row for row in facts if row[1]])


def _named(index: Index, rules: list[str], page: str) -> str:
    """Links to some rules, and how many more there are."""
    more = f" and {len(rules) - SHOWN} more" if len(rules) > SHOWN else ""
    return ", ".join(index.link(one, page) for one in rules[:SHOWN]) + more


def _opsets(clause: dict[str, Any]) -> str:
    return f"{clause['since']} to {clause['until'] - 1}" if clause["until"] else f"{clause['since']} and newer"


def _bounds(index: Index, op: OperatorDef) -> str:
    """How far its reads are proved to stay in bounds, as `dslc show` says it."""
    found = bounds(index.rules, op)
    parts = [f"{found['proved']} for all sizes"]
    parts += [f"{found['bounded']} at sampled attributes"] if found["bounded"] else []
    parts += [f"{found['assumed']} data-dependent and assumed"] if found["assumed"] else []
    return f"in bounds: {found['status']} ({', '.join(parts)})"


def _instance(rules: Rules, op: OperatorDef) -> str:
    """Types of a small use, with its operations and bytes; empty where no small one is found."""
    try:
        facts = describe(rules, op, sample(rules, op, {}, {}, {}))
    except (DslcError, Mismatch):
        return ""
    if "arguments" not in facts:
        return ""
    given = ", ".join(f"{name}: {kind}" for name, kind in facts["arguments"].items())
    given += "".join(f", {name} = {value}" for name, value in facts["attributes"].items())
    made = ", ".join(f"{name}: {kind}" for name, kind in facts["results"].items())
    return f"{code(f'{given} -> {made}')}: {facts['flops']:,} operations, {facts['bytes']:,} bytes"


def _of_rule(index: Index, rule: RuleDef, page: str) -> str:
    row = index.rows[rule.name]
    out = f"## {short(rule.name, rule.module)}\n\n"
    doc = _doc(getattr(rule.syntax, "doc", None))
    out += f"{row.kind.capitalize()}. {doc}\n\n" + fenced(show(rule.syntax), "rules")
    said = numerics_of(rule.syntax)
    facts = [("status", f"{_status(row)}{f': {_doc(row.reason)}' if row.reason else ''}")]
    facts += [("rounding", "; ".join(f"{word} ({NUMERICS[word]})" for word in said))]
    error = error_of(rule.syntax)
    facts += [("error", f"{error:g} of the largest element at most, in 32 bits" if error is not None else "")]
    facts += [("rule sets", ", ".join(map(code, row.sets))), ("tests", str(row.tests) if row.tests else "")]
    facts += [("operators", ", ".join(index.link(name, page) for name in row.operators))]
    return out + table(("fact", "value"), [row for row in facts if row[1]])
