"""The description of a definition of a library: text, statement, guards and how far it is proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dslc.inspection.describe import trait_texts
from dslc.inspection.lookup import definition_named
from dslc.semantics.numerics import NONFINITE, error_of, numerics_of
from dslc.syntax import tree as t
from dslc.syntax.printer import show
from dslc.syntax.vocabulary import NUMERICS

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


def _status(rules: Rules, definition: Any) -> list[str]:
    """The status of a definition from its library's lock; then each prover's answer."""
    from dslc.prove.evidence.dependencies import recorded
    from dslc.prove.run.conclusion import trusted_reason
    from dslc.semantics.definitions import PropertyDef, SubstitutionDef

    syntax = definition.syntax
    if isinstance(syntax, t.Operator):
        return ["a definition: its equation is its meaning"]
    if not isinstance(definition, SubstitutionDef | PropertyDef):
        return ["unproved: parsed and resolved only"]
    if isinstance(syntax, t.Substitution) and syntax.partial:
        return ["partial: right almost everywhere, and not applied before a corrector exists"]
    found, counts = recorded(rules, definition)
    if not found:
        trusted = trusted_reason(definition)
        said = f', trusted: "{trusted}"' if trusted is not None else ""
        return [f"not proved yet{said}: `dslc verify` proves it"]
    lines = [": ".join(part for part in (found.status, found.types_text, found.reason) if part)]
    if not counts:
        lines.append("    says the dslc.lock beside it, and nobody here: `dslc verify` proves it")
    for one in found.verdicts:
        about = [part for part in (one.scope, one.reason) if part]
        if one.error_bound is not None:
            about.append(f"wrong with probability {one.error_bound:.1g} at most")
        lines.append(f"    {one.prover}: {one.answer}" + (f" ({'; '.join(about)})" if about else ""))
    if found.counterexample is not None:
        from dslc.prove.counterexample import text_of

        lines += ["    counterexample:", *(f"        {line}" for line in text_of(found.counterexample).splitlines())]
    return lines


def explain_rule(name: str, libraries: Sequence[str] = ()) -> str:
    """The text of `dslc explain NAME`.

    Raises:
        DslcError: E0909 where no definition, or more than one, has the name.
    """
    from dslc.semantics.installed import library_of
    from dslc.semantics.library import load_many

    rules = load_many(libraries or (library_of(name) or "std",))
    known = _all(rules)
    kind, definition = definition_named(
        known, name, "rule or operator", "`--rules LIB` names another library to look in"
    )
    full = definition.name
    syntax: t.Item = definition.syntax
    doc = getattr(syntax, "doc", None)
    lines = [f"{full}: {kind}, {definition.span}", ""]
    if doc:
        lines += [*(line.strip() for line in doc.strip().splitlines()), ""]
    lines += [f"    {line}".rstrip() for line in show(syntax).splitlines()]
    guards = [show(c) for node in t.children(syntax) if isinstance(node, t.Where) for c in node.conditions]
    if kind == "substitution" and guards:
        lines += ["", "guards:", *(f"    {guard}" for guard in guards)]
    if kind != "rule set":
        first, *more = _status(rules, definition)
        lines += ["", f"status: {first}", *more]
    said = numerics_of(syntax)
    lines += [f"numerics: {word} ({NUMERICS[word]})" for word in said]
    error = error_of(syntax)
    if error is not None:
        lines.append(f"error: {error:g} of the largest element at most, in 32 bits")
    if NONFINITE in said:
        lines.append("    `dslc optimize --strict-floats` leaves it out")
    flags = trait_texts(rules, full)
    lines += [f"properties: {', '.join(flags)}"] if flags else []
    tests = [test for test in rules.tests if test.name == full]
    if kind == "substitution":
        lines.append(f"tests: {len(tests)}")
    return "\n".join(lines) + "\n"
