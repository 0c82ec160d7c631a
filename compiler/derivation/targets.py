"""Operator matching: a scope by an operator of the library between two changes of layout (EinNet, section 5.1).

Which iterators stand where decides, and no name; `tables` has what follows from an operator's equation, `solving` matches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from typing import TypeAlias

from dslc.analysis.counts import known_flops
from dslc.analysis.poly import scalar_of
from dslc.derivation.assignments import put, solved_linear
from dslc.derivation.pieces import Operands, ScopeView, Views, view_of
from dslc.derivation.solver import Matching, Miss, MissReason, Shaped, forward, is_found, nearer
from dslc.derivation.tables import OperatorPattern, around, patterns_of
from dslc.ir.graph import Call, ScopeNode, Value, nodes_of, with_args
from dslc.ir.holes import hole
from dslc.ir.scalar import Iter, Num, Reduce, Scalar, Sym, as_scalar, num, walk
from dslc.ir.scopes import inline
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t

#: a table, extents of iterators, and coefficients of those in windows
SizedPattern: TypeAlias = tuple[OperatorPattern, dict[Iter, int], dict[Iter, int]]

ABOVE = 6  #: scopes over a reduction that are computed with it at most


def products_of(rules: Rules) -> tuple[str, ...]:
    """The operators with an ONNX clause of their own that add products of two tensors' elements, whatever they are called."""
    cache = rules_cache(rules, "operators of products")
    if "" not in cache:
        names = [
            name for name, op in rules.operators.items()
            if any(isinstance(statement, t.OnnxMap) for statement in op.statements)
            and any(part.kind == "sum" for part in nodes(t.Reduction, op.statements))
        ]  # fmt: skip
        patterns = ((name, pattern) for name in names for pattern in patterns_of(rules, name))
        cache[""] = tuple(
            dict.fromkeys(name for name, one in patterns if one.kind == "sum" and not one.outer and one.factors)
        )
    found: tuple[str, ...] = cache[""]
    return found


def targets_of(rules: Rules, own: Iterable[str] = (), wanted: Iterable[str] = ()) -> tuple[str, ...]:
    """The operators that scopes are matched with: products, those of an expression's own that add something, and the wanted ones."""
    adding = [name for name in own if any(pattern.kind is not None for pattern in patterns_of(rules, name))]
    return tuple(dict.fromkeys((*products_of(rules), *adding, *wanted)))


def instances(
    rules: Rules, value: Value, targets: Iterable[str], views: Views | None = None, units: bool = False,
    skipped: Callable[[Shaped], bool] | None = None,
) -> Iterator[tuple[str, Value]]:  # fmt: skip
    """A scope by operators: their names, and values equal to that of the scope.

    `views`: as for `rewritten`; `units`, `skipped`: as for `Matching`.
    """
    operands = Operands(views={} if views is None else views)
    view = view_of(value, operands)
    if not view:
        return
    view = forward(view)
    targets = tuple(targets)
    outer = any(pattern.outer is not None for name in targets for pattern in patterns_of(rules, name))
    if not outer and all(pattern.kind != view.kind for name in targets for pattern in patterns_of(rules, name)):
        return
    whole = _with_what_it_reads(value, operands) if outer else None
    for name in targets:
        for made in _matched(rules, view, whole, operands, name, units, skipped):
            if isinstance(made, Value):
                yield name, made


def missed(rules: Rules, value: Value, target: str) -> Miss | None:
    """The reason why a scope is not an operator, by the match that came furthest; None where it is one."""
    found: Miss | None = None
    operands = Operands()
    view = view_of(value, operands)
    if not view:
        return Miss(MissReason.NO_PRODUCT)
    for made in _matched(rules, forward(view), _with_what_it_reads(value, operands), operands, target):
        if isinstance(made, Value):
            return None
        found = nearer(found, made)
    return found or Miss(MissReason.NO_TABLE)


def _with_what_it_reads(value: Value, operands: Operands) -> ScopeView | None:
    """A function of a reduction, element by element, with it in one: `max(P[x] + b, 0)` → `max(sum[k] e + b, 0)`."""
    for _ in range(ABOVE):
        node = value.node
        assert isinstance(node, ScopeNode)
        below = [k for k, arg in enumerate(node.args) if isinstance(arg.node, ScopeNode)]
        if not below or any(isinstance(part, Reduce) for part in walk(node.scope.body)):
            break
        try:
            value = inline(value, below[0])
        except TypeError:
            return None
    view = view_of(value, operands)
    return view if view and around(view.body)[1] else None


def _matched(
    rules: Rules, plain: ScopeView, joined: ScopeView | None, operands: Operands, name: str, units: bool = False,
    skipped: Callable[[Shaped], bool] | None = None,
) -> Iterator[Value | Miss]:  # fmt: skip
    """By the pattern with the most windows that matches, or the fewest iterators; `joined`: for those that compute on."""
    patterns = sorted(patterns_of(rules, name), key=lambda each: (-len(each.windows), len(each.extents)))
    for whole in (True, False):
        for pattern in patterns:
            if not whole and not 1 <= len(pattern.windows) <= 2:
                # windows of one position along two dimensions are enough
                continue
            found = False
            view = joined if pattern.outer else plain
            if not view:
                yield Miss(MissReason.NO_PRODUCT)
                continue
            flat = False
            for made in Matching(rules, pattern, view, operands, units, skipped).every(whole):
                found = found or is_found(made)
                flat = flat or (isinstance(made, Value) and _is_flat(rules, made))
                yield made
            if found and not flat:
                return


def _is_flat(rules: Rules, made: Value) -> bool:
    """Return whether a window of an operator that was found does not overlap: it may be a merged dimension, as that of groups is."""
    for node in nodes_of([made]):
        if isinstance(node, Call) and (known := sizes_in(rules, node)) is not None:
            pattern, sizes, slopes = known
            for _, _, window in pattern.windows:
                own = [it for it, _ in window.terms]
                summed = [it for it in own if it in pattern.sums]
                moved = [slopes.get(it, 1) for it in own if it not in pattern.sums]
                if any(1 < sizes.get(it, 1) <= slope for it in summed for slope in moved):
                    return True
    return False


def sizes_in(rules: Rules, node: Call) -> SizedPattern | None:
    """An operator's table at a call's sizes and attributes, as far as these are known.

    Returns: the table, extents of iterators, and coefficients of those in windows; None where it has no table of such operands.
    """
    cache = rules_cache(rules, "sizes of calls")
    key = (node.head, *(arg.type for arg in node.args))
    if key not in cache:
        ranks = [len(arg.type.shape) for arg in node.args]
        patterns = [each for each in patterns_of(rules, node.op) if [len(shape) for shape in each.shapes] == ranks]
        cache[key] = _sized(patterns[0], node) if patterns else None
    found: SizedPattern | None = cache[key]
    return found


def _sized(pattern: OperatorPattern, node: Call) -> SizedPattern:
    equations = [
        (size, as_scalar(own)) for shape, arg in zip(pattern.shapes, node.args, strict=True)
        for size, own in zip(shape, arg.type.shape, strict=True)
    ]  # fmt: skip
    for name, value in node.attrs:
        wanted = pattern.attrs.get(name)
        pairs = (
            zip(wanted, value, strict=False)
            if isinstance(wanted, tuple) and isinstance(value, tuple)
            else [(wanted, value)]
        )
        equations += [(a, num(b)) for a, b in pairs if isinstance(a, Scalar) and isinstance(b, int)]
    known: dict[Sym, Scalar] = {}
    solved_linear(equations, known)
    extents = {it: put(extent, known) for it, extent in pattern.extents.items()}
    slopes = {it: put(scalar_of(slope), known) for _, _, window in pattern.windows for it, slope in window.terms}
    return pattern, _numbers(extents), _numbers(slopes)


def _numbers(found: Mapping[Iter, Scalar]) -> dict[Iter, int]:
    return {it: int(each.value) for it, each in found.items() if isinstance(each, Num) and isinstance(each.value, int)}


def summed(rules: Rules, node: Call) -> float:
    """The number of products that an operator adds for each element of its result, as far as its operands' sizes tell."""
    if found := sizes_in(rules, node):
        pattern, sizes, _ = found
        return float(prod(sizes.get(it, 128) for it in pattern.sums))
    # an operator without a table: half of what its expression counts, a product and a sum each
    try:
        flops = known_flops(expand(rules, with_args(node, tuple(hole(k, arg.type) for k, arg in enumerate(node.args)))))
    except (Mismatch, EvalError):
        flops = None
    elements = node.values[0].type.elements if node.values[0].type.is_static else 0
    return max(1.0, flops / 2 / elements) if flops and elements else 1.0
