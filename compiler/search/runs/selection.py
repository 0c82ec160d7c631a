"""Substitutions that a run uses."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from dslc.deadline import FOREVER, Deadline
from dslc.errors import Diagnostic, DslcError
from dslc.match import CompiledRule, compile_directions
from dslc.mutate.partial import PartialRule, compiled
from dslc.prove.evidence.dependencies import believed_lock
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import own_evidence
from dslc.prove.run.verify import verify
from dslc.prove.verdict import RELIABLE, RuleVerdict, Status
from dslc.records import record
from dslc.semantics.checks.substitutions import errors_of
from dslc.semantics.definitions import RulesetDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.numerics import keeps_nonfinite
from dslc.semantics.trust import template_of

#: the rule set of a library that is searched with by default
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
    """Return the partial substitutions among those of `chosen_rules`, which need a correction.

    Raises:
        DslcError: as `chosen_rules`, and for what is wrong with the form of one: they are not verified before they are used.
    """
    names, reverse_only = _chosen(rules, only, disable, strict_floats)
    partial = [rules.substitutions[name] for name in names if rules.substitutions[name].syntax.partial]
    if wrong := [one for rule in partial for one in errors_of(rules, rule)]:
        raise DslcError(wrong)
    found = compiled(rules, partial)
    return tuple(one for one in found if one.rule.name not in reverse_only)


@record
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
        for one, always in _meant(rules, name, findings).items():
            found[one] = found.get(one, False) or always
    if findings:
        raise DslcError(findings)
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


def _meant(rules: Rules, name: str, findings: list[Diagnostic]) -> dict[str, bool]:
    """Return the rules that a name means, and whether they are applied wherever they match: those of a rule set, or of its own name."""
    ruleset = _ruleset(rules, name)
    found = _listed(rules, ruleset) if ruleset else dict.fromkeys(_matching(rules, name), True)
    if not found:
        hint = "rule sets: " + ", ".join(rules.rulesets)
        findings.append(Diagnostic("E0909", f"no rule set and no rule is named `{name}`", hint=hint))
    return found


def _listed(rules: Rules, ruleset: RulesetDef) -> dict[str, bool]:
    """The members of a rule set in the order in which it names them, and whether it says `always` of them."""
    out: dict[str, bool] = {}
    for statement in ruleset.syntax.statements:
        for glob in statement.globs:
            inner = _ruleset(rules, glob)
            named = _listed(rules, inner) if inner and inner is not ruleset else {}
            for name in [*named, *_matching(rules, glob)]:
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
    kept = {one for name in only for one in _meant(rules, name, findings)} if only else _defaults(rules)
    names = [name for name in rules.substitutions if name in kept]
    reverse_only: set[str] = set()
    for name in disable:
        base = name.removesuffix("^-1")
        found = set(_matching(rules, base))
        if not found:
            known = [*rules.substitutions, *(each.rpartition(".")[2] for each in rules.substitutions)]
            close = difflib.get_close_matches(base, known, 1)
            hint = f"did you mean `{close[0]}`?" if close else ""
            findings.append(Diagnostic("E0909", f"no rule is named `{name}`", hint=hint))
        if base != name:
            reverse_only |= {f"{one}^-1" for one in found}
        else:
            names = [one for one in names if one not in found]
    if findings:
        raise DslcError(findings)
    if strict_floats:
        names = [name for name in names if keeps_nonfinite(rules.substitutions[name].syntax)]
    return names, reverse_only


def _directions(rules: Rules, definition: SubstitutionDef) -> tuple[CompiledRule, ...]:
    return () if definition.syntax.partial else compile_directions(rules, definition)


def _defaults(rules: Rules) -> set[str]:
    """Return the rules that are searched with by default."""
    chosen = {
        name.rpartition(".")[0]: one for name, one in rules.rulesets.items() if name.rpartition(".")[2] == DEFAULT
    }
    kept = {name for name in rules.substitutions if name.rpartition(".")[0] not in chosen}
    return kept.union(*(members_of(rules, one) for one in chosen.values()))


def left_out(rules: Rules, libraries: Sequence[str], derived: bool = False) -> list[str]:
    """Return lines about what of some libraries a run does not use, one line for each library that has any of it.

    Args:
        derived: True where the run derives programs from expressions.
    """
    out = []
    for library in libraries:

        def own(names: Iterable[str], library: str = library) -> int:
            return sum(name.rpartition(".")[0] == library for name in names)

        counts = [
            (0 if derived else own(rules.derivations), "derivation"),
            (
                own(name for name, one in rules.lowerings.items() if not one.syntax.match and not template_of(one)),
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


def _matching(rules: Rules, pattern: str) -> list[str]:
    """Return the substitutions that a pattern means, in their order."""
    short = "." not in pattern
    return [
        name
        for name in rules.substitutions
        if fnmatchcase(name, pattern) or (short and fnmatchcase(name.rpartition(".")[2], pattern))
    ]


LIMIT = 10.0  #: seconds for one prover and one rule
SHARES = 8  #: times that long must fit into the time that is left
SHORTEST = 0.5  #: seconds that it is no shorter than, where little is left


#: what more time would not change
DECIDED: frozenset[Status] = frozenset({"proved", "refuted"})
#: the reason of a rule that there was no time for
LATE = "the budget left no time to prove it"
#: with these nothing has to be known of a rule
ANY: frozenset[Status] = frozenset({"tested", "trusted", "undecided"})

Told = Callable[[int, int], None]


class _Enough(Exception):
    """There is no more time for proofs."""


def statuses(
    rules: Rules,
    definitions: Sequence[SubstitutionDef],
    cache: Path,
    allow: Sequence[str] = (),
    told: Told = lambda _done, _total: None,
    until: Deadline = FOREVER,
) -> dict[str, RuleVerdict]:
    """Return the verdict of every definition by name.

    What neither a lock that is believed, this user's own evidence nor the cache knows is proved, and goes into the cache. A rule
    with one of its modes chosen (a padding, an activation) is a case of the rule of its name, which is what is proved.

    Where rules of every status are allowed nothing is proved: a refutation is worth as much as the check of the outputs.
    Rules that proving did not come to `until` then have the reason `LATE`, and are not remembered.
    """
    kept, own = own_evidence(cache), own_evidence()
    found: dict[str, RuleVerdict] = {}
    unknown: list[str] = []
    for one in dict.fromkeys(rules.substitutions.get(each.name, each) for each in definitions):
        digest = rule_digest(rules, one)
        verdict = (
            believed_lock(rules, one).of(one.name, digest) or own.get(one.name, digest) or kept.get(one.name, digest)
        )
        if not verdict:
            unknown.append(one.name)
        else:
            found[one.name] = verdict
    if set(allow) >= ANY:
        found.update((name, RuleVerdict(name, "undecided", (), "", "not asked")) for name in unknown)
    elif unknown:
        # a rule has several provers: none may take so long that a few rules take all of the time
        limit = min(LIMIT, max(SHORTEST, until.left() / SHARES))
        proved: list[RuleVerdict] = []

        def progress(done: int, total: int, verdict: RuleVerdict) -> None:
            proved.append(verdict)
            told(done, total)
            if until.over and done < total:
                raise _Enough

        if not until.over:
            with suppress(_Enough):
                verify(rules, unknown, 2, None, progress, limit=limit)
        for verdict in proved:
            found[verdict.rule] = verdict
            if limit == LIMIT or verdict.status in DECIDED:
                kept.put([verdict])
        found.update((name, RuleVerdict(name, "undecided", (), "", LATE)) for name in unknown if name not in found)
    return found


def usable(
    compiled: Sequence[CompiledRule], verdicts: Mapping[str, RuleVerdict], allow: Sequence[str]
) -> tuple[list[CompiledRule], dict[str, RuleVerdict]]:
    """The rules whose status is reliable or allowed, and the verdicts of the others by name. Refuted rules are never used.

    A rule of which that is so for some element types only is restricted to these.
    """
    allowed = (RELIABLE | set(allow)) - {"refuted"}
    used, left = [], {}
    for rule in compiled:
        verdict = verdicts[rule.definition.name]
        types = verdict.usable(allowed)
        if types is None:
            used.append(rule)
        elif types:
            used.append(replace(rule, admitted=types))
        else:
            left[rule.definition.name] = verdict
    return used, left
