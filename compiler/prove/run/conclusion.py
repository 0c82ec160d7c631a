"""The status of a rule or law that follows from what provers say of it, and what its user is told."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.errors import Diagnostic, error
from dslc.ir.dtype import DType, TypeClass
from dslc.prove.counterexample import text_of
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.run.provers import Definition
from dslc.prove.verdict import RELIABLE, STATUSES, ProverName, RuleVerdict, Status, Types, TypeStatus, Verdict
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t


def conclude(
    rules: Rules, definition: Definition, verdicts: Sequence[Verdict], digest: str | None = None
) -> RuleVerdict:
    """The strongest status that the verdicts allow for each of the element types that the rule admits, and the weakest of these.

    Raises:
        DslcError: E0510 where one prover finds a difference in what another has shown to be equal for all shapes.
    """
    statuses: dict[Types, TypeStatus] = {}
    for types in dict.fromkeys(types for one in verdicts for types, _ in one.parts) or {Types(): None}:
        # a prover that says nothing of any types was stopped, or asked about all at once
        parts = {one.prover: dict(one.parts).get(types) if one.parts else one for one in verdicts}
        by = {prover: found for prover, found in parts.items() if found}
        answers = {one.answer for one in by.values()}
        if "vacant" in answers and not answers & {"equal", "differs"}:
            continue
        status = TypeStatus(*_status(definition, by))
        refuting = next((one for one in by.values() if one.answer == "differs"), None)
        if refuting and status.status == "proved":
            shown = f"the exact prover shows `{definition.name}` for every shape"
            raise error(
                "E0510", f"{shown}, and the {refuting.prover} prover refutes it", definition.span,
                counterexample=text_of(refuting.counterexample) if refuting.counterexample is not None else "",
                hint="one of the provers is wrong: this is a bug of dslc, please report it",
            )  # fmt: skip
        statuses[types] = TypeStatus("refuted") if refuting else status
    by_type = statuses
    if not statuses:
        statuses = {
            Types(): TypeStatus("undecided", next((one.reason for one in verdicts if one.reason), "nothing to prove"))
        }
    worst = max((one.status for one in statuses.values()), key=STATUSES.index)
    reasons = (one.reason for one in statuses.values() if one.status == worst and one.reason)
    own = digest or rule_digest(rules, definition)
    return RuleVerdict(definition.name, worst, tuple(verdicts), own, "; ".join(dict.fromkeys(reasons)), by_type)


def _status(definition: Definition, by: dict[ProverName, Verdict]) -> tuple[Status, str]:
    """The status that follows where no prover finds a difference, and its reason."""
    if isinstance(definition, SubstitutionDef) and definition.syntax.partial:
        field = by.get("field")
        return "undecided", field.reason if field else "partial"
    exact, field = by.get("exact"), by.get("field")
    if exact and exact.answer == "equal":
        return ("bounded", exact.scope) if exact.scope else ("proved", "")
    trusted = trusted_reason(definition)
    if trusted is not None:
        return "trusted", trusted
    reason = next((one.reason for one in (exact, field) if one and one.reason), "")
    if field and field.answer == "equal":
        return "tested", reason
    return "undecided", reason


def trusted_reason(definition: Definition) -> str | None:
    """The reason for which the rule's author trusts it, where its text says so."""
    syntax = definition.syntax
    if isinstance(syntax, t.Property):
        return syntax.trusted
    return next((s.reason for s in syntax.statements if isinstance(s, t.Trusted)), None)


def diagnostic_of(definition: Definition, verdict: RuleVerdict) -> Diagnostic | None:
    """The diagnostic of a refuted rule; None for every other status."""
    found = verdict.counterexample
    if verdict.status != "refuted" or not found:
        return None
    in_type = found.position == () and not found.trace
    code = "E0312" if in_type else "E0501"
    message = f"the sides of `{definition.name}` differ{' in type' * in_type}"
    if isinstance(definition, SubstitutionDef):
        if definition.syntax.partial and not in_type:
            code, message = "E0605", f"the correction of `{definition.name}` is wrong where its sides differ"
    else:
        code = "E0502"
        if definition.trait is not None:
            operator, trait = definition.trait
            message = f"`{operator.rpartition('.')[2]}` is not `{trait}`: {message}"
    guard = type_guard(verdict)
    hint = f"it holds `where {guard}`" if guard else ""
    return Diagnostic(code, message, definition.span, counterexample=text_of(found), hint=hint)


def type_guard(verdict: RuleVerdict) -> str:
    """The guard under which a wrong rule with one type variable is shown; empty where it is shown for no element types."""
    kept = verdict.usable(RELIABLE) or ()
    if not kept or any(len(types.kinds) != 1 for types in kept):
        return ""
    name, kinds = kept[0].kinds[0][0], {types.kinds[0][1] for types in kept}
    if kinds == {TypeClass.FLOATS}:
        return f"floating({name})"
    if kinds == {TypeClass.SIGNED, TypeClass.UNSIGNED}:
        return f"integer({name})"
    members = [dtype for kind in kinds for dtype in (kind.members if isinstance(kind, TypeClass) else (kind,))]
    return f"{name} in [{', '.join(str(dtype) for dtype in DType if dtype in members)}]"
