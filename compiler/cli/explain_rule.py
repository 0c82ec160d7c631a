"""What a library says about one of its definitions: text, statement, guards and how far it is proved."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dslc.errors import Diagnostic, DslcError
from dslc.syntax import tree as t
from dslc.syntax.printer import show

if TYPE_CHECKING:
    from dslc.semantics.library import Rules


def _all(rules: Rules) -> dict[str, tuple[str, Any]]:
    """Every named definition with its kind, by qualified name; operators win over rules of the same name."""
    found: dict[str, tuple[str, Any]] = {}
    for kind, table in (
        ("operator", rules.operators),
        ("substitution", rules.substitutions),
        ("law", rules.laws),
        ("derivation", rules.derivations),
        ("lowering", rules.lowerings),
        ("rule set", rules.rulesets),
    ):
        for name, definition in table.items():
            found.setdefault(name, (kind, definition))
    return found


def _find(name: str, known: dict[str, tuple[str, Any]]) -> str:
    if name in known:
        return name
    short = [full for full in known if full.rpartition(".")[2] == name]
    if len(short) == 1:
        return short[0]
    if short:
        hint = f"say one of {', '.join(short)}"
        raise DslcError([Diagnostic("E0909", f"several libraries define `{name}`", hint=hint)], exit_code=2)
    close = difflib.get_close_matches(name, [*known, *(full.rpartition(".")[2] for full in known)], n=1)
    hint = f"did you mean `{close[0]}`?" if close else "`--rules LIB` names another library to look in"
    raise DslcError([Diagnostic("E0909", f"no rule or operator is named `{name}`", hint=hint)], exit_code=2)


def _status(syntax: t.Node) -> str:
    """How much is known to be true of a definition."""
    if isinstance(syntax, t.Operator):
        return "a definition: its equation is its meaning"
    reason = syntax.trusted if isinstance(syntax, t.Property) else None
    if isinstance(syntax, t.Substitution):
        reason = next((s.reason for s in (*syntax.left, *syntax.right) if isinstance(s, t.Trusted)), None)
        if syntax.partial:
            return "partial: right almost everywhere, and not applied before a corrector exists"
    if reason is not None:
        return f'unproved, trusted: "{reason}"'
    if isinstance(syntax, t.Derivation | t.Lowering):
        return "unproved: parsed and resolved only"
    return "unproved: checked by tests"


def _numerics(syntax: t.Node) -> str:
    for node in t.walk(syntax):
        if isinstance(node, t.Entry) and node.name == "numerics" and isinstance(node.value, t.Name):
            return node.value.id
    return ""


def explain_rule(name: str, libraries: Sequence[str] = ()) -> str:
    """The text of `dslc explain NAME`.

    Raises:
        DslcError: E0909 where no definition, or more than one, has the name.
    """
    from dslc.semantics.library import load_many

    rules = load_many(libraries or ("std",))
    known = _all(rules)
    full = _find(name, known)
    kind, definition = known[full]
    syntax: t.Item = definition.syntax
    doc = getattr(syntax, "doc", None)
    lines = [f"{full}: {kind}, {definition.syntax.span}", ""]
    if doc:
        lines += [*(line.strip() for line in doc.strip().splitlines()), ""]
    lines += [f"    {line}".rstrip() for line in show(syntax).splitlines()]
    guards = [show(c) for node in t.children(syntax) if isinstance(node, t.Where) for c in node.conditions]
    if kind == "substitution" and guards:
        lines += ["", "guards:", *(f"    {guard}" for guard in guards)]
    if kind != "rule set":
        lines += ["", f"status: {_status(syntax)}"]
    if _numerics(syntax):
        lines.append(f"rounding: {_numerics(syntax)}")
    traits = rules.traits.get(full)
    if traits is not None:
        flags = [word for word in ("associative", "commutative", "idempotent", "involution") if getattr(traits, word, False)]
        flags += [f"{word} {getattr(traits, word)}" for word in ("identity", "absorbing") if getattr(traits, word, None) is not None]
        flags += [f"{word} {other}" for word, other in getattr(traits, "named", {}).items()]
        lines += [f"properties: {', '.join(flags)}"] if flags else []
    tests = [test for test in rules.tests if test.name == full]
    if kind == "substitution":
        lines.append(f"tests: {len(tests)}")
    return "\n".join(lines) + "\n"
