"""Testing substitutions: both sides at random small sizes, over the field first, over floats where that cannot tell."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dslc.analysis.linearity import linear_at
from dslc.analysis.samples import sample
from dslc.errors import Diagnostic
from dslc.interpret.domain import Array, Domain, Redraw
from dslc.interpret.field import Field
from dslc.interpret.floats import Floats
from dslc.interpret.instantiate import Instance, Rejected, instantiate
from dslc.interpret.run import InterpretError, run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Value
from dslc.semantics.apply import rules_cache
from dslc.semantics.definitions import OperatorDef, PropertyDef, SubstitutionDef
from dslc.semantics.env import EvalError, Mismatch, Unbound
from dslc.semantics.library import Rules
from dslc.semantics.shape_free import is_pointwise
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONSTANTS, DTYPE_NAMES

#: `field`: equal modulo 2^31 - 1 every time; `floats`: equal in float64 every time, where the field's random functions know
#: less than the real ones; `partial`: a partial substitution, whose types agree; `uninstantiated`: no instance was found
Status = Literal["field", "floats", "partial", "differs", "uninstantiated"]

# a rule whose guards are this hard to meet is reported as uninstantiated
_ATTEMPTS = 4000
_ATTEMPTS_WITH_TERMS = 600
_FLOATS_FIRST = 100
_OTHERS = ((DType.F32,), (DType.I64,), (DType.F32,), (DType.BOOL,))
_REDRAWS = 8
_TOLERANCE = 1e-7
_FEW = 24
_CONSTANT_NAMES = frozenset(CONSTANTS) | frozenset(DTYPE_NAMES)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test: `name` is that of the rule or test, `diagnostics` say why it did not pass."""

    name: str
    passed: bool
    status: str
    diagnostics: tuple[Diagnostic, ...] = ()
    trials: int = 0
    seconds: float = 0.0


def check_substitution(
    rules: Rules, sub: SubstitutionDef, seed: int = 0, trials: int = 4, operators: int = 6, attempts: int = _ATTEMPTS
) -> Outcome:
    """Instantiates a substitution `trials` times (for each of some operators, where a term stands for one) and compares its sides.

    `attempts`: draws after which a rule that hardly fits is given up. The outcome's diagnostics carry a counterexample: what the
    names stand for, and the first element that differs.
    """
    rng = np.random.default_rng(seed)
    found, worst, reasons = 0, "field", []
    for terms in term_choices(rules, sub, rng, operators):
        instances = 0
        for attempt in range(min(attempts, _ATTEMPTS_WITH_TERMS) if terms else attempts):
            if instances == trials:
                break
            # other element types only where floating-point tensors hardly fit
            dtypes = (DType.F32,) if instances or attempt < _FLOATS_FIRST else _OTHERS[attempt % len(_OTHERS)]
            try:
                instance = instantiate(rules, sub, rng, terms, dtypes)
            except Rejected as reason:
                reasons.append(str(reason))
                continue
            verdict = compare(rules, sub, instance, rng)
            if verdict is None:
                continue
            if isinstance(verdict, Diagnostic):
                return Outcome(sub.name, False, "differs", (verdict,), found)
            instances, found = instances + 1, found + 1
            worst = verdict if verdict != "field" else worst
    if not found:
        common = max(sorted(set(reasons)), key=reasons.count) if reasons else "no operator fits its terms"
        message = f"no instance of `{sub.name}` was found in {attempts} draws"
        diagnostic = Diagnostic("E0507", message, sub.syntax.span, hint=f"most often: {common}")
        return Outcome(sub.name, False, "uninstantiated", (diagnostic,))
    return Outcome(sub.name, True, worst, (), found)


def check_law(rules: Rules, law: PropertyDef, seed: int = 0, trials: int = 4, operators: int = 6) -> Outcome:
    """As `check_substitution`, for the laws of a `property`: both sides of each equation at random sizes."""
    found, worst = 0, "field"
    for k, equation in enumerate(law.syntax.laws):
        if not (isinstance(equation, t.Compare) and equation.ops == ("==",)):
            finding = Diagnostic("E0321", "a law is an equation of two tensors", equation.span)
            return Outcome(law.name, False, "uninstantiated", (finding,))
        outcome = check_substitution(rules, as_substitution(law, equation), seed + k, trials, operators)
        found += outcome.trials
        if not outcome.passed:
            (reason,) = outcome.diagnostics
            code = "E0502" if reason.code == "E0501" else reason.code
            return replace(outcome, trials=found, diagnostics=(replace(reason, code=code, span=equation.span),))
        worst = worst if outcome.status == "field" else outcome.status
    return Outcome(law.name, True, worst, (), found)


def as_substitution(law: PropertyDef, equation: t.Compare) -> SubstitutionDef:
    """`left == right` as the rule `left => right`; names that only the right side uses are drawn with those of the left."""
    left, right = equation.operands
    span = equation.span
    used = _words((law.syntax.params, equation, *(s for s in law.syntax.statements if not isinstance(s, t.Where))))
    statements = (
        *(_only(s, used) if isinstance(s, t.Where) else s for s in law.syntax.statements),
        t.Bind(("left side",), left, span=span),
        t.Bind(("right side",), right, span=span),
    )
    rule = t.Substitution(
        False, law.syntax.name, law.syntax.params, ("left side",), None, statements, "<=>",
        (t.Bind(("left side",), t.Name("right side", span=span), span=span),), span=span,
    )  # fmt: skip
    return SubstitutionDef(law.name, rule, law.module)


def _only(where: t.Where, used: set[str]) -> t.Where:
    """The guards that speak of what this equation uses; a property shares its guards among several."""
    return replace(where, conditions=tuple(c for c in where.conditions if _words(c) <= used | _CONSTANT_NAMES))


def _words(node: Any) -> set[str]:
    """The names in a piece of syntax, `a` for `a.stride` and `**a`."""
    out: set[str] = set()
    for part in walk_expr(node):
        if isinstance(part, t.Name):
            out.add(part.id.partition(".")[0])
        elif isinstance(part, t.Call) and part.rest is not None:
            out.add(part.rest)
        elif isinstance(part, t.TypeExpr):
            out.add(part.name)
    return out


def term_choices(
    rules: Rules, sub: SubstitutionDef, rng: np.random.Generator, count: int
) -> Iterator[Mapping[str, OperatorDef]]:
    """Operators for the terms of a rule: some of those that have as many tensors and are what the guards want."""
    signatures = [s for stmt in sub.syntax.left if isinstance(stmt, t.TermDecl) for s in stmt.signatures]
    conditions = [c for s in sub.syntax.left if isinstance(s, t.Where) for c in s.conditions]
    options: list[list[OperatorDef]] = []
    for signature in signatures:
        wanted = {c.function for c in conditions if isinstance(c, t.Call) and _names(c) == [signature.name]}
        fitting = [
            op
            for op in rules.operators.values()
            if len(op.syntax.params) == len(signature.params)
            and len(op.syntax.outputs) == 1
            and ("pointwise" not in wanted or is_pointwise(op, rules))
            and ("linear" not in wanted or _may_be_linear(rules, op))
        ]
        order = [fitting[int(k)] for k in rng.permutation(len(fitting))]
        # by turns those that tell more apart, and any
        telling = [op for op in order if _tells(op, "linear" in wanted)]
        turns = [op for pair in itertools.zip_longest(telling, order) for op in pair if op is not None]
        options.append(list(dict.fromkeys(turns))[:count])
    for choice in itertools.islice(itertools.product(*options), count):
        yield {signature.name: op for signature, op in zip(signatures, choice, strict=True)}


def _may_be_linear(rules: Rules, op: OperatorDef) -> bool:
    """Whether an operator is linear in some use; whether it is in an instance is asked of that."""
    cache = rules_cache(rules, "linear in a sample")
    if op.name not in cache:
        try:
            node = sample(rules, op)[0].node
        except (Mismatch, EvalError, Unbound):
            node = None
        cache[op.name] = isinstance(node, Call) and linear_at(rules, node, len(node.args))
    return bool(cache[op.name])


def _tells(op: OperatorDef, linear: bool) -> bool:
    """Whether an operator has attributes, which a rule may mix up, or (`linear`) computes more than it moves."""
    if not linear:
        return bool(op.attrs)
    return not all(_moves(s.value) for s in op.syntax.statements if isinstance(s, t.Equation))


def _moves(value: t.Expr) -> bool:
    """Whether an element of the result is an element of a tensor, or a number."""
    if isinstance(value, t.Conditional):
        return _moves(value.then) and _moves(value.otherwise)
    return isinstance(value, t.Subscript | t.Name | t.Int | t.Float)


def _names(call: t.Call) -> list[str]:
    return [arg.id for arg in call.args if isinstance(arg, t.Name)]


def compare(rules: Rules, sub: SubstitutionDef, instance: Instance, rng: np.random.Generator) -> Status | Diagnostic | None:
    """`field`, `floats` or `partial` where the sides agree; a diagnostic where they don't; None where no inputs were found."""
    for name, left in instance.left.items():
        right = instance.right[name]
        if left.type != right.type:
            code = "E0314" if left.type.shape == right.type.shape else "E0312"
            message = f"`{name}` is {left.type} on the left of `{sub.name}` and {right.type} on the right"
            return Diagnostic(code, message, sub.syntax.span, counterexample=str(instance))
    if sub.syntax.partial:
        return "partial"
    names = tuple(instance.left)
    pairs = [(instance.left[name], instance.right[name]) for name in names]
    # a few elements may agree by chance where a function has few values, so small results are compared more often
    draws = 4 if sum(left.type.elements for left, _ in pairs) < _FEW else 1
    in_field = None
    for _ in range(draws):
        in_field = in_field or _compare_over(rules, pairs, Field(int(rng.integers(1 << 20))), instance.inputs, rng, False)
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
    return Diagnostic("E0501", message, sub.syntax.span, counterexample=f"{instance}\n{verdict}")


def _compare_over(
    rules: Rules,
    pairs: list[tuple[Value, Value]],
    domain: Domain,
    inputs: tuple[Value, ...],
    rng: np.random.Generator,
    positive: bool,
) -> str | None:
    """None where equal, a text about the first difference, or `none` where no valid inputs were drawn."""
    for attempt in range(_REDRAWS):
        feeds = {value: draw(value.type, domain, rng, attempt, positive) for value in inputs}
        try:
            results = run(rules, [value for pair in pairs for value in pair], feeds, domain)
        except Redraw:
            continue
        except InterpretError as problem:
            if "is read at" in str(problem):
                continue
            return f"cannot be computed over {domain.name}: {problem}"
        for (left, _), a, b in zip(pairs, results[::2], results[1::2], strict=True):
            found = difference(left.type, a, b, domain, undefined=True)
            if found is not None:
                return f"{found}{_shown(feeds)}"
        return None
    return "none"


def draw(type: TensorType, domain: Domain, rng: np.random.Generator, attempt: int = 0, positive: bool = False) -> Any:
    """A random tensor: elements of the domain, small integers (positions may have to stay in bounds), booleans."""
    shape = tuple(int(str(size)) for size in type.shape)
    if type.dtype.is_float:
        return domain.draw(shape, rng) if not positive else rng.uniform(0.5, 2.0, shape)
    if type.dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, max(1, 4 - attempt), shape)


def difference(
    type: TensorType, a: Array, b: Array, domain: Domain, tolerance: float = _TOLERANCE, undefined: bool = False
) -> str | None:
    """Where two results differ first, and by what; None where they agree. With `undefined` anything may stand for a NaN in `a`."""
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
    where = tuple(int(k) for k in np.argwhere(~equal)[0])
    count = int((~equal).sum())
    of = f"{count} of {equal.size} elements differ over {domain.name}, first at {list(where)}"
    return f"{of}: {_item(a[where])} on the left, {_item(b[where])} on the right"


def _item(item: Any) -> str:
    return str(item.item() if isinstance(item, np.generic) else item)


def _shown(feeds: Mapping[Value, Any]) -> str:
    """Small inputs of a counterexample, one line each."""
    lines = []
    for value, array in feeds.items():
        data = np.asarray(array)
        if data.size <= 16:
            lines.append(f"\n{getattr(value.node, 'name', '?')} = {np.array2string(data, separator=', ', threshold=20)}")
    return "".join(lines)
