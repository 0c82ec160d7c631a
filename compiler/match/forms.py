"""Other forms of what a kernel computes: programs that proved substitutions make of its group, of operators that no runtime has.

Minimal filtering is one: a group with a convolution is written, and read, as that; its kernel may compute the products between
transforms that the convolution is equal to. The substitutions are those of rule sets named `kernels`, as far as a lock or this user's
own evidence says that they are proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslc.codegen.generate import generate, variants
from dslc.codegen.host.processor import Processor
from dslc.codegen.text import KernelText, NotGenerated, Variant
from dslc.ir.graph import Call, Graph
from dslc.match.apply import apply_match
from dslc.match.compile import compile_rule
from dslc.match.describe import show
from dslc.match.index import GraphIndex
from dslc.match.matcher import Match, find_matches
from dslc.match.rule import CompiledRule
from dslc.prove.evidence.dependencies import recorded
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.numerics import error_of, keeps_nonfinite

#: the rule sets of libraries whose substitutions are tried
KERNELS = "kernels"


FORMS = 4  #: forms of one group, at most
PLAIN = 1  #: variants of it as it stands, beside them


def forms(rules: Rules, group: Graph, strict: bool = False) -> Iterator[tuple[str, Graph]]:
    """Apply each substitution in each of its choices to a group, wherever it fits; the results have stable names.

    `strict`: without those that say that they change infinities, NaN or overflows.
    """
    known: dict[tuple[Graph, bool], dict[str, Graph]] = rules_cache(rules, "forms of groups")
    if (group, strict) not in known:
        known[group, strict] = _found(rules, group, strict)
    yield from known[group, strict].items()


def _found(rules: Rules, group: Graph, strict: bool) -> dict[str, Graph]:
    found: dict[str, Graph] = {}
    for rule in _compiled(rules):
        if strict and not keeps_nonfinite(rule.definition.syntax):
            continue
        if not rule.left.operators <= {node.op for node in group.nodes() if isinstance(node, Call)}:
            continue
        for match in find_matches(rule, GraphIndex(group)):
            name = _name(match)
            if name not in found and len(found) < FORMS:
                found[name] = _everywhere(rule, name, group)
    return found


def has_form(rules: Rules, group: Graph, strict: bool = False) -> bool:
    """Return whether a substitution fits anywhere."""
    return next(forms(rules, group, strict), None) is not None


def ways(
    rules: Rules, group: Graph, strict: bool = False, processor: Processor | None = None
) -> list[tuple[Graph, Variant]]:
    """List kernels of a group for a processor (by default the one that is wanted), the best guess first.

    Its forms in their variants, and the group as it stands.

    Raises:
        NotGenerated: in no way.
    """
    out: list[tuple[Graph, Variant]] = []
    for name, form in forms(rules, group, strict):
        try:
            own = [variant for variant in variants(rules, form, processor) if variant.filtered]
        except NotGenerated:
            continue
        out += [(form, replace(variant, form=name)) for variant in own]
    try:
        plain = [(group, variant) for variant in variants(rules, group, processor)]
    except NotGenerated:
        if not out:
            raise
        plain = []
    return out + (plain[:PLAIN] if out else plain)


def generated(rules: Rules, group: Graph, variant: Variant) -> KernelText:
    """The kernel of a group in a variant that `ways` gave, or in one like it. Raises NotGenerated."""
    return generate(rules, dict(forms(rules, group))[variant.form] if variant.form else group, variant)


def tells_nonfinite(rules: Rules, form: str) -> bool:
    """Return whether a form gives infinities and NaN where the group does: a name of `forms`, or none."""
    definition = _definition(rules, form)
    return definition is None or keeps_nonfinite(definition.syntax)


def stated_error(rules: Rules, form: str) -> float | None:
    """By how much the rule of a form says that results may be off; None where it does not say, and for no form."""
    definition = _definition(rules, form)
    return error_of(definition.syntax) if definition else None


def _definition(rules: Rules, form: str) -> SubstitutionDef | None:
    return rules.substitutions.get(form.partition("(")[0])


def _name(match: Match) -> str:
    choice = ", ".join(f"{name}={show(value)}" for name, value in sorted(match.choice.items()))
    return f"{match.rule.name}({choice})"


def _everywhere(rule: CompiledRule, name: str, group: Graph) -> Graph:
    """A group with a rule applied, in one of its choices, until it fits nowhere."""
    for _ in range(len(list(group.nodes()))):
        matches = (match for match in find_matches(rule, GraphIndex(group)) if _name(match) == name)
        after = next((new for match in matches if (new := apply_match(match, group))), None)
        if not after:
            break
        group = after
    return group


def _compiled(rules: Rules) -> list[CompiledRule]:
    """The proved substitutions of the rule sets."""
    known: dict[str, list[CompiledRule]] = rules_cache(rules, "kernel forms")
    if "all" not in known:
        known["all"] = [compile_rule(rules, definition) for definition in _definitions(rules)]
    return known["all"]


def _definitions(rules: Rules) -> Iterator[SubstitutionDef]:
    names = [
        glob
        for name, one in rules.rulesets.items()
        if name.rpartition(".")[2] == KERNELS
        for statement in one.syntax.statements
        if statement.kind != "exclude"
        for glob in statement.globs
    ]
    for name in dict.fromkeys(names):
        definition = rules.substitutions.get(name)
        if definition and not definition.syntax.partial and _proved(rules, definition):
            yield definition


def _proved(rules: Rules, definition: SubstitutionDef) -> bool:
    found, counts = recorded(rules, definition)
    return counts and found is not None and found.status == "proved"
