"""What must be a number in an instance: attributes that positions are multiplied with, and real numbers that decide something."""

from __future__ import annotations

from dslc.ir.graph import ScopeNode, Value, topological
from dslc.ir.scalar import Apply, Iter, Read, Scalar, Sym, walk
from dslc.prove.cover.draw import Choice
from dslc.prove.cover.path import AssumedCase, Restart


def check_numbers(outputs: tuple[Value, ...], facts: AssumedCase, choice: Choice) -> None:
    """Raises Restart where something computed depends on an unknown real number, a guard does, or an attribute multiplies positions.

    Where all integers stay unknown, such attributes, and numbers of which guards alone speak, are noted only: what holds for all
    numbers holds for those that a guard lets in.
    """
    steps: set[str] = set()
    reals: set[str] = set()
    assumed = {
        facts.reals[node]
        for condition in facts.conditions
        for node in walk(condition)
        if isinstance(node, Sym) and node in facts.reals
    }
    nodes = [node for node in topological(value.node for value in outputs) if isinstance(node, ScopeNode)]
    extents = {size.name for node in nodes for size in node.scope.extents if isinstance(size, Sym)}
    for node in nodes:
        for root in (node.scope.body, *(e for e in node.scope.extents if isinstance(e, Scalar))):
            sums = {arg for part in walk(root) if isinstance(part, Apply) and part.name == "+" for arg in part.args}
            for part in walk(root):
                if isinstance(part, Apply):
                    _check_part(part, facts, steps, reals)
                    if part.name == "*" and part not in sums and not _reads(part):
                        _step(part.free, _names(part), facts, steps)
    steps -= {facts.integers[name] for name in extents & set(facts.integers)}
    if choice.level == "symbolic":
        choice.multiplied |= steps
        choice.assumed |= assumed - choice.reals
    else:
        reals |= assumed
        if steps - choice.steps:
            choice.steps |= steps
            raise Restart
    if reals - choice.reals:
        choice.reals |= reals
        raise Restart


_DECIDING = frozenset(
    {"==", "!=", "<", "<=", ">", ">=", "//", "%", "min", "max", "abs", "sign", "floor", "ceil", "round", "trunc"}
)


def _check_part(part: Apply, facts: AssumedCase, steps: set[str], reals: set[str]) -> None:
    if part.name == "+" and part.free and not _reads(part):
        factors: dict[frozenset[Iter], set[str]] = {}
        for term in part.args:
            factors.setdefault(term.free, set()).update(_names(term))
        for iters, names in factors.items():
            _step(iters, names, facts, steps)
    if part.name in {"//", "%"} and len(part.args) == 2 and not _reads(part):
        _step(part.args[1].free or part.args[0].free, _names(part.args[1]), facts, steps)
    if part.name in _DECIDING and not _reads(part):
        reals |= {facts.reals[node] for node in walk(part) if isinstance(node, Sym) and node in facts.reals}


def _step(iters: frozenset[Iter], names: set[str], facts: AssumedCase, steps: set[str]) -> None:
    """Positions times attributes alone; what is multiplied with sizes is a place in a merged dimension."""
    if names and iters and all(name in facts.integers for name in names):
        steps |= {facts.integers[name] for name in names}


def _names(scalar: Scalar) -> set[str]:
    return {node.name for node in walk(scalar) if isinstance(node, Sym)}


def _reads(scalar: Scalar) -> bool:
    return any(isinstance(node, Read) for node in walk(scalar))
