"""Which substitutions a run uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from dslc.errors import Diagnostic, DslcError
from dslc.match import CompiledRule, compile_directions
from dslc.mutate.partial import PartialRule, compiled
from dslc.semantics.definitions import RulesetDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.numerics import keeps_nonfinite
from dslc.semantics.trust import template_of

#: the rule set of a library that is searched with where nobody names another
DEFAULT = "default"


def chosen_rules(
    rules: Rules, only: Sequence[str] = (), disable: Sequence[str] = (), strict_floats: bool = False
) -> list[CompiledRule]:
    """Every direction of the substitutions of the rule sets `only`, without those of `disable`, and none that are partial.

    Where `only` names none, each library's rule set `default` is meant, and all of a library that has none.

    `strict_floats` leaves out those that say that they change infinities, NaN or overflows (`verify numerics = nonfinite`).
    A name is qualified or short, and may be a pattern (`std.merge_*`). `name^-1` disables only the reverse of a two-way rule.

    Raises:
        DslcError: E0909 for a rule or rule set that does not exist.
    """
    names, reverse_only = _chosen(rules, only, disable, strict_floats)
    found = [rule for name in names for rule in _directions(rules, rules.substitutions[name])]
    return [rule for rule in found if rule.name not in reverse_only]


def chosen_partial(
    rules: Rules, only: Sequence[str] = (), disable: Sequence[str] = (), strict_floats: bool = False
) -> tuple[PartialRule, ...]:
    """The partial substitutions among those that `chosen_rules` speaks of, which need a correction.

    Raises:
        DslcError: as `chosen_rules`.
    """
    names, reverse_only = _chosen(rules, only, disable, strict_floats)
    found = compiled(rules, (rules.substitutions[name] for name in names))
    return tuple(one for one in found if one.rule.name not in reverse_only)


def _chosen(rules: Rules, only: Sequence[str], disable: Sequence[str], strict_floats: bool) -> tuple[list[str], set[str]]:
    """The names of substitutions, and of those whose reverse alone is left out."""
    findings: list[Diagnostic] = []
    names = list(rules.substitutions)
    if only:
        kept: set[str] = set()
        for name in only:
            ruleset = _ruleset(rules, name)
            found = _members(rules, ruleset) if ruleset is not None else _matching(names, name)
            if not found:
                hint = "rule sets: " + ", ".join(rules.rulesets)
                findings.append(Diagnostic("E0909", f"no rule set and no rule is named `{name}`", hint=hint))
            kept |= found
        names = [name for name in names if name in kept]
    else:
        kept = _defaults(rules)
        names = [name for name in names if name in kept]
    reverse_only: set[str] = set()
    for name in disable:
        base = name.removesuffix("^-1")
        found = _matching(list(rules.substitutions), base)
        if not found:
            findings.append(Diagnostic("E0909", f"no rule is named `{name}`", hint=_nearest(base, rules)))
        if base != name:
            reverse_only |= {f"{one}^-1" for one in found}
        else:
            names = [one for one in names if one not in found]
    if findings:
        raise DslcError(findings, 2)
    if strict_floats:
        names = [name for name in names if keeps_nonfinite(rules.substitutions[name].syntax)]
    return names, reverse_only


def _directions(rules: Rules, definition: SubstitutionDef) -> tuple[CompiledRule, ...]:
    return () if definition.syntax.partial else compile_directions(rules, definition)


def _defaults(rules: Rules) -> set[str]:
    """What is searched with where nobody says anything."""
    kept: set[str] = set()
    chosen = {name.rpartition(".")[0]: one for name, one in rules.rulesets.items() if name.rpartition(".")[2] == DEFAULT}
    for name in rules.substitutions:
        if name.rpartition(".")[0] not in chosen:
            kept.add(name)
    for one in chosen.values():
        kept |= _members(rules, one)
    return kept


def left_out(rules: Rules, libraries: Sequence[str], derived: bool = False) -> list[str]:
    """What of some libraries a run does not use, in words, one line for each library that has any of it.

    Args:
        derived: whether the run derives programs from expressions.
    """
    out = []
    for library in libraries:

        def own(names: Iterable[str], library: str = library) -> int:
            return sum(name.rpartition(".")[0] == library for name in names)

        counts = [
            (0 if derived else own(rules.derivations), "derivation"),
            (own(name for name, one in rules.lowerings.items() if not one.syntax.match and template_of(one) is None), "lowering"),
        ]
        parts = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
        if parts:
            text = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
            was = "was" if sum(count for count, _ in counts) == 1 else "were"
            out.append(f"of {library} {text} {was} left out: nothing in this run uses them")
    return out


def not_standard(names: Iterable[str]) -> list[str]:
    """The rules that some library of a user's brought."""
    return [name for name in names if not name.startswith("std.")]


def _ruleset(rules: Rules, name: str) -> RulesetDef | None:
    if name in rules.rulesets:
        return rules.rulesets[name]
    found = [one for key, one in rules.rulesets.items() if key.rpartition(".")[2] == name]
    return found[0] if len(found) == 1 else None


def _members(rules: Rules, ruleset: RulesetDef) -> set[str]:
    """Statements in their order: each adds rules or rule sets, or takes some away."""
    out: set[str] = set()
    for statement in ruleset.syntax.statements:
        for glob in statement.globs:
            inner = _ruleset(rules, glob)
            named = _members(rules, inner) if inner is not None and inner is not ruleset else set()
            found = named | _matching(list(rules.substitutions), glob)
            out = out | found if statement.include else out - found
    return out


def _matching(names: Sequence[str], pattern: str) -> set[str]:
    return {
        name
        for name in names
        if fnmatchcase(name, pattern) or ("." not in pattern and fnmatchcase(name.rpartition(".")[2], pattern))
    }


def _nearest(name: str, rules: Rules) -> str:
    import difflib

    close = difflib.get_close_matches(
        name, [*rules.substitutions, *(n.rpartition(".")[2] for n in rules.substitutions)], 1
    )
    return f"did you mean `{close[0]}`?" if close else ""
