"""Substitutions that a run uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dslc.errors import Diagnostic, DslcError
from dslc.match import CompiledRule, compile_directions
from dslc.mutate.partial import PartialRule, compiled
from dslc.semantics.checks.substitutions import errors_of
from dslc.semantics.definitions import RulesetDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.numerics import keeps_nonfinite
from dslc.semantics.trust import template_of

#: the rule set of a library that is searched with where nobody names another
DEFAULT = "default"
#: the rule set that `--apply` means where it names none
SIMPLIFY = "std.simplify"


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
        DslcError: as `chosen_rules`, and for what is wrong with the form of one: nobody verifies them before they are used.
    """
    names, reverse_only = _chosen(rules, only, disable, strict_floats)
    partial = [rules.substitutions[name] for name in names if rules.substitutions[name].syntax.partial]
    if wrong := [one for rule in partial for one in errors_of(rules, rule)]:
        raise DslcError(wrong)
    found = compiled(rules, partial)
    return tuple(one for one in found if one.rule.name not in reverse_only)


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """A rule that is applied without measuring: wherever it matches (`always`), or only where the graph gets smaller by it."""

    rule: CompiledRule
    always: bool


def applied_rules(
    rules: Rules, names: Sequence[str], disable: Sequence[str] = (), strict_floats: bool = False
) -> tuple[AppliedRule, ...]:
    """Every direction of the rules that `--apply` names, in the order in which the names and the rule sets have them.

    Where it names none, the standard library's rule set `simplify` is meant, and what rule sets of other libraries say `always` of.
    A rule that is named itself is applied wherever it matches, and so is what a rule set says `always` of.

    Raises:
        DslcError: E0909 for a rule or rule set that does not exist.
    """
    found: dict[str, bool] = {}
    findings: list[Diagnostic] = []
    for name in names or (SIMPLIFY,):
        ruleset = _ruleset(rules, name)
        named = _matching(list(rules.substitutions), name) if ruleset is None else {}
        members = dict.fromkeys(named, True) if ruleset is None else _listed(rules, ruleset)
        if not members:
            hint = "rule sets: " + ", ".join(rules.rulesets)
            findings.append(Diagnostic("E0909", f"no rule set and no rule is named `{name}`", hint=hint))
        for one, always in members.items():
            found[one] = found.get(one, False) or always
    if findings:
        raise DslcError(findings, 2)
    if not names:
        for name, ruleset in rules.rulesets.items():
            if name != SIMPLIFY:
                found |= {one: True for one, always in _listed(rules, ruleset).items() if always}
    kept, reverse_only = _chosen(rules, list(found), disable, strict_floats) if found else ([], set())
    return tuple(
        AppliedRule(rule, found[name])
        for name in found
        if name in kept
        for rule in _directions(rules, rules.substitutions[name])
        if rule.name not in reverse_only
    )


def _listed(rules: Rules, ruleset: RulesetDef) -> dict[str, bool]:
    """The members of a rule set in the order in which it names them, and whether it says `always` of them."""
    out: dict[str, bool] = {}
    for statement in ruleset.syntax.statements:
        for glob in statement.globs:
            inner = _ruleset(rules, glob)
            named = _listed(rules, inner) if inner is not None and inner is not ruleset else {}
            for name in [*named, *_matching(list(rules.substitutions), glob)]:
                if statement.kind == "exclude":
                    out.pop(name, None)
                else:
                    out[name] = statement.kind == "always" or out.get(name, False) or named.get(name, False)
    return out


def _chosen(
    rules: Rules, only: Sequence[str], disable: Sequence[str], strict_floats: bool
) -> tuple[list[str], set[str]]:
    """The names of substitutions, and of those whose reverse alone is left out."""
    findings: list[Diagnostic] = []
    names = list(rules.substitutions)
    if only:
        kept: set[str] = set()
        for name in only:
            ruleset = _ruleset(rules, name)
            found = members_of(rules, ruleset) if ruleset is not None else set(_matching(names, name))
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
        found = set(_matching(list(rules.substitutions), base))
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
    chosen = {
        name.rpartition(".")[0]: one for name, one in rules.rulesets.items() if name.rpartition(".")[2] == DEFAULT
    }
    for name in rules.substitutions:
        if name.rpartition(".")[0] not in chosen:
            kept.add(name)
    for one in chosen.values():
        kept |= members_of(rules, one)
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
            (
                own(name for name, one in rules.lowerings.items() if not one.syntax.match and template_of(one) is None),
                "lowering",
            ),
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


def members_of(rules: Rules, ruleset: RulesetDef) -> set[str]:
    """The substitutions of a rule set: its statements in their order each add rules or rule sets, or take some away."""
    return set(_listed(rules, ruleset))


def _matching(names: Sequence[str], pattern: str) -> dict[str, None]:
    """The names that a pattern means, in their order."""
    short = "." not in pattern
    return {
        name: None
        for name in names
        if fnmatchcase(name, pattern) or (short and fnmatchcase(name.rpartition(".")[2], pattern))
    }


def _nearest(name: str, rules: Rules) -> str:
    import difflib

    close = difflib.get_close_matches(
        name, [*rules.substitutions, *(n.rpartition(".")[2] for n in rules.substitutions)], 1
    )
    return f"did you mean `{close[0]}`?" if close else ""
