"""Testing substitutions: both sides at random small sizes, over the field first, over floats where that cannot tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from dslc.errors import Diagnostic
from dslc.interpret.adversary import differing, smallest
from dslc.interpret.differ import shown_feeds
from dslc.interpret.domain import Array, Domain, Redraw
from dslc.interpret.draws import ORDINARY, InstanceDraws, elements, type_in_turn
from dslc.interpret.field import Field
from dslc.interpret.floats import Floats
from dslc.interpret.instantiate import Instance, Rejected, instantiate, most_often, term_choices
from dslc.interpret.run import InterpretError, InterpretKind, run
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, Values
from dslc.records import record
from dslc.semantics.definitions import PropertyDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONSTANTS, DTYPE_NAMES

#: `field`: equal modulo 2^31 - 1 every time; `floats`: equal in float64 every time, where the field's random functions know
#: less than the real ones; `partial`: a partial substitution, whose types agree; `uninstantiated`: no instance was found
Status = Literal["field", "floats", "partial", "differs", "uninstantiated"]


ATTEMPTS = 4000  #: draws of instances; a rule whose guards are this hard to meet is reported as uninstantiated
ATTEMPTS_WITH_TERMS = 600  #: the same for a rule with terms
ADVERSE = 10  #: instances that look for mistakes, after the others
REDRAWS = 8  #: draws of inputs for which the sides are not defined
TOLERANCE = 1e-7  #: share by which equal numbers differ
FEW = 24  #: elements of a result; a smaller one may agree by chance, and is drawn four times
LITERAL = 256  #: numbers of a correction up to this are sizes that instances have, and a little more
CORRECTED = 24  #: instances of a partial rule, at least

_CONSTANT_NAMES = frozenset(CONSTANTS) | frozenset(DTYPE_NAMES)


@record
class CaseOutcome:
    """Outcome of one test: `name` is that of the rule or test, `diagnostics` say why it did not pass."""

    name: str
    passed: bool
    status: str
    diagnostics: tuple[Diagnostic, ...] = ()
    trials: int = 0
    seconds: float = 0.0


def check_substitution(
    rules: Rules, sub: SubstitutionDef, seed: int = 0, trials: int = 4, operators: int = 6,
    attempts: int = ATTEMPTS, adverse: int = ADVERSE, small: bool = True,
) -> CaseOutcome:  # fmt: skip
    """Instantiates a substitution `trials` times (for each of some operators, where a term stands for one) and compares its sides.

    `attempts`: draws after which a rule that hardly fits is given up. The outcome's diagnostics carry a counterexample: what the
    names stand for, and the first element that differs. `adverse`: instances that look for mistakes, after the others; `small`: whether
    a smaller counterexample is looked for, which takes many times as long as to find one.
    """
    rng = np.random.default_rng(seed)
    found, worst, reasons = 0, "field", []
    sizes = roomy(sub)

    def differs(instance: Instance, finding: Diagnostic) -> CaseOutcome:
        shown = _smaller(rules, sub, instance, finding) if small else finding
        return CaseOutcome(sub.name, False, "differs", (shown,), found)

    # a correction is wrong at a few positions, if at all
    trials = max(trials, CORRECTED) if own_corrections(sub) else trials
    for terms in term_choices(rules, sub, rng, operators):
        instances = 0
        for attempt in range(min(attempts, ATTEMPTS_WITH_TERMS) if terms else attempts):
            if instances == trials:
                break
            try:
                instance = instantiate(rules, sub, rng, terms, type_in_turn(attempt), draws=sizes)
            except Rejected as reason:
                reasons.append(str(reason))
                continue
            verdict = compare(rules, sub, instance, rng)
            if verdict is None:
                continue
            if isinstance(verdict, Diagnostic):
                return differs(instance, verdict)
            instances, found = instances + 1, found + 1
            worst = verdict if verdict != "field" else worst
    wrong = differing(rules, sub, rng, adverse) if found else None
    if wrong:
        message = f"the sides of `{sub.name}` differ"
        finding = Diagnostic("E0501", message, sub.span, counterexample=str(wrong))
        return differs(wrong.instance, finding)
    if not found:
        message = f"no instance of `{sub.name}` was found in {attempts} draws"
        diagnostic = Diagnostic("E0507", message, sub.span, hint=most_often(reasons))
        return CaseOutcome(sub.name, False, "uninstantiated", (diagnostic,))
    return CaseOutcome(sub.name, True, worst, (), found)


def _smaller(rules: Rules, sub: SubstitutionDef, instance: Instance, found: Diagnostic) -> Diagnostic:
    """The same finding with the smallest counterexample, nothing of it left out; as it is where small numbers show no difference."""
    small = smallest(rules, sub, instance) if found.code == "E0501" else None
    if not small or small.difference.way == "types":
        return found
    one, names = small.difference, tuple(instance.left)
    lines = [
        str(small.instance),
        f"{names[one.output]}{list(one.position)} is {one.left} on the left and {one.right} on the right",
    ]
    lines += [
        f"{getattr(value.node, 'name', '?')} = {np.asarray(array).tolist()}" for value, array in one.feeds.items()
    ]
    return replace(found, counterexample="\n".join(lines))


def check_law(
    rules: Rules, law: PropertyDef, seed: int = 0, trials: int = 4, operators: int = 6, adverse: int = ADVERSE
) -> CaseOutcome:
    """As `check_substitution`, for the laws of a `property`: both sides of each equation at random sizes."""
    found, worst = 0, "field"
    for k, equation in enumerate(law.syntax.laws):
        if not equation.equated:
            finding = Diagnostic("E0321", "a law is an equation of two tensors", equation.span)
            return CaseOutcome(law.name, False, "uninstantiated", (finding,))
        outcome = check_substitution(
            rules, as_substitution(law, equation), seed + k, trials, operators, adverse=adverse
        )
        found += outcome.trials
        if not outcome.passed:
            (reason,) = outcome.diagnostics
            code = "E0502" if reason.code == "E0501" else reason.code
            return replace(outcome, trials=found, diagnostics=(replace(reason, code=code, span=equation.span),))
        worst = worst if outcome.status == "field" else outcome.status
    return CaseOutcome(law.name, True, worst, (), found)


def as_substitution(law: PropertyDef, equation: t.Expr) -> SubstitutionDef:
    """`left == right` as the rule `left => right`; names that only the right side uses are drawn with those of the left."""
    left, right = equation.equated
    span = equation.span
    used = _words((law.syntax.params, equation, *(s for s in law.syntax.statements if not isinstance(s, t.Where))))
    statements = (
        *(_only(s, used) if isinstance(s, t.Where) else s for s in law.syntax.statements),
        t.Bind(("left side",), left, span=span),
        t.Bind(("right side",), right, span=span),
    )
    rule = t.Substitution(
        False, law.short, law.syntax.params, ("left side",), None, statements, "<=>",
        (t.Bind(("left side",), t.Name("right side", span=span), span=span),), span=span,
    )  # fmt: skip
    return SubstitutionDef(law.name, rule, law.module)


def _only(where: t.Where, used: set[str]) -> t.Where:
    """The guards that speak of what this equation uses; a property shares its guards among several."""
    return replace(where, conditions=tuple(c for c in where.conditions if _words(c) <= used | _CONSTANT_NAMES))


def _words(node: Any) -> set[str]:
    """The names in a piece of syntax, `a` for `a.stride` and `**a`."""
    out: set[str] = set()
    for part in t.walk(node):
        if isinstance(part, t.Name):
            out.add(part.id.partition(".")[0])
        elif isinstance(part, t.Call) and part.rest is not None:
            out.add(part.rest)
        elif isinstance(part, t.TypeExpr):
            out.add(part.name)
    return out


def compare(
    rules: Rules, sub: SubstitutionDef, instance: Instance, rng: np.random.Generator
) -> Status | Diagnostic | None:
    """`field`, `floats` or `partial` where the sides agree; a diagnostic where they don't; None where no inputs were found."""
    for name, left in instance.left.items():
        right = instance.right[name]
        if left.type != right.type:
            code = "E0314" if left.type.shape == right.type.shape else "E0312"
            message = f"`{name}` is {left.type} on the left of `{sub.name}` and {right.type} on the right"
            return Diagnostic(code, message, sub.span, counterexample=str(instance))
    if sub.syntax.partial:
        return _corrected(rules, sub, instance, rng)
    names = tuple(instance.left)
    pairs = [(instance.left[name], instance.right[name]) for name in names]
    # a few elements may agree by chance where a function has few values, so small results are compared more often
    draws = 4 if sum(left.type.elements for left, _ in pairs) < FEW else 1
    in_field = None
    for _ in range(draws):
        in_field = in_field or _compare_over(
            rules, pairs, Field(int(rng.integers(1 << 20))), instance.inputs, rng, False
        )
    if in_field is None:
        return "field"
    if in_field == "none":
        return None
    verdict: str | None = in_field
    for positive in (False, True) * draws:
        verdict = _compare_over(rules, pairs, Floats(rounded=False), instance.inputs, rng, positive)
        if verdict == "none":
            return None
        if verdict is not None:
            break
    if verdict is None:
        return "floats"
    message = f"the sides of `{sub.name}` differ"
    return Diagnostic("E0501", message, sub.span, counterexample=f"{instance}\n{verdict}")


@record
class WrongCorrection:
    """An output, and the first position at which the sides differ and a correction of the author's own is not the left side."""

    name: str
    place: tuple[int, ...]


def wrong_correction(rules: Rules, instance: Instance, rng: np.random.Generator) -> WrongCorrection | bool:
    """A position at which a correction is wrong, on random inputs; else whether inputs were found for all of them."""
    for name, own in instance.corrected.items():
        domain = Field(int(rng.integers(1 << 20)))
        for attempt in range(REDRAWS):
            feeds = {value: draw(value.type, domain, rng, attempt) for value in instance.inputs}
            try:
                was, new, instead = run(rules, [instance.left[name], instance.right[name], own], feeds, domain)
            except (Redraw, InterpretError):
                continue
            wrong = np.argwhere(~domain.close(was, new, TOLERANCE) & ~domain.close(was, instead, TOLERANCE))
            if len(wrong):
                return WrongCorrection(name, tuple(map(int, wrong[0])))
            break
        else:
            return False
    return True


def _corrected(
    rules: Rules, sub: SubstitutionDef, instance: Instance, rng: np.random.Generator
) -> Status | Diagnostic | None:
    """`partial` where each correction of the author's own is the left side wherever the sides differ; a diagnostic where one is not."""
    for name, own in instance.corrected.items():
        left = instance.left[name]
        if own.type != left.type:
            message = f"the correction of `{name}` is {own.type}, and `{name}` is {left.type}"
            return Diagnostic("E0605", message, sub.span, counterexample=str(instance))
    found = wrong_correction(rules, instance, rng)
    if isinstance(found, WrongCorrection):
        message = (
            f"the correction of `{sub.name}` is wrong at `{found.name}`{list(found.place)}, where its sides differ"
        )
        return Diagnostic("E0605", message, sub.span, counterexample=str(instance))
    return "partial" if found else None


def own_corrections(sub: SubstitutionDef) -> list[t.Correct]:
    """The corrections that an author wrote."""
    every = sub.syntax.statements
    return [one for one in every if isinstance(one, t.Correct) and isinstance(one.what, t.Bind)]


def roomy(sub: SubstitutionDef) -> InstanceDraws:
    """Sizes beyond the numbers that a correction is written with, beside the ordinary ones."""
    numbers = {part.value for one in own_corrections(sub) for part in nodes(t.Int, one)}
    large = sorted(n + 1 + k for n in numbers if ORDINARY.sizes[-1] <= n <= LITERAL for k in range(3))
    return replace(ORDINARY, sizes=(*ORDINARY.sizes, *large, *large)) if large else ORDINARY


def _compare_over(
    rules: Rules,
    pairs: list[tuple[Value, Value]],
    domain: Domain,
    inputs: Values,
    rng: np.random.Generator,
    positive: bool,
) -> str | None:
    """None where equal, a text about the first difference, or `none` where no valid inputs were drawn."""
    for attempt in range(REDRAWS):
        feeds = {value: draw(value.type, domain, rng, attempt, positive) for value in inputs}
        try:
            results = run(rules, [value for pair in pairs for value in pair], feeds, domain)
        except Redraw:
            continue
        except InterpretError as problem:
            if problem.kind is not InterpretKind.OTHER:
                continue
            return f"cannot be computed over {domain.name}: {problem}"
        for (left, _), a, b in zip(pairs, results[::2], results[1::2], strict=True):
            found = difference(left.type, a, b, domain, undefined=True)
            if found is not None:
                return "\n".join((found, *shown_feeds(feeds)))
        return None
    return "none"


def draw(type: TensorType, domain: Domain, rng: np.random.Generator, attempt: int = 0, positive: bool = False) -> Any:
    """A random tensor: elements of the domain, booleans, integers of the type's whole range.

    At later attempts integers are small, as positions may have to stay in bounds.
    """
    shape = type.sizes
    if type.dtype.is_float:
        drawn = domain.draw(shape, rng) if not positive else rng.uniform(0.5, 2.0, shape)
        # numbers of the type, as conversions round others
        return drawn.astype(NUMPY[type.dtype]).astype(np.float64) if drawn.dtype.kind == "f" else drawn
    if type.dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if attempt or rng.random() < 0.3:
        return rng.integers(0, max(1, 4 - attempt), shape)
    return elements(type, ("extremes", "small", "extremes", "beside")[int(rng.integers(4))], rng)


def difference(
    type: TensorType, a: Array, b: Array, domain: Domain, tolerance: float = TOLERANCE, undefined: bool = False
) -> str | None:
    """The first place at which two results differ, and both elements; None where they agree.

    With `undefined` anything may stand for a NaN in `a`.
    """
    if a.shape != b.shape:
        return f"the shapes {list(a.shape)} and {list(b.shape)} differ"
    if type.dtype.is_float:
        equal = domain.close(a, b, tolerance)
        if undefined and a.dtype.kind == "f":
            equal = equal | np.isnan(a)
    else:
        equal = np.asarray(a == b)
    if bool(equal.all()):
        return None
    where = tuple(map(int, np.argwhere(~equal)[0]))
    count = int((~equal).sum())
    of = f"{count} of {equal.size} elements differ over {domain.name}, first at {list(where)}"
    return f"{of}: {_item(a[where])} on the left, {_item(b[where])} on the right"


def _item(item: Any) -> str:
    return str(item.item() if isinstance(item, np.generic) else item)
