"""Right sides: built once over numbered leaves, and put together again for any tensors of the same types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np

from dslc.errors import DslcError
from dslc.interpret.domain import Redraw
from dslc.interpret.floats import Floats, Narrow
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.constants import NUMPY, fill, holds
from dslc.ir.dtype import TensorType
from dslc.ir.graph import (
    Call,
    Constant,
    Head,
    Node,
    ScopeNode,
    Value,
    Values,
    called,
    input_value,
    nodes_of,
    with_args,
)
from dslc.ir.scalar import Read
from dslc.match.guards import bind_local, environment
from dslc.match.rule import CompiledRule
from dslc.match.state import MatchState
from dslc.records import record
from dslc.semantics.composites import spelled_out
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Env, Mismatch, Outputs, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules
from dslc.semantics.scopes import build_scope
from dslc.semantics.types import shape_of
from dslc.syntax import tree as t

#: makes a node over other arguments of the same types
Make: TypeAlias = Callable[[Node, Values], Sequence[Value]]


#: why weights stay as they are
SPOILED = "weights that are computed together would overflow, or vanish"


class Refused(Exception):
    """A match was not applied; the message is the reason."""


def leaf(number: int, like: Value) -> Value:
    """A hole by a name that no input of a model has: beside it stand values of the model."""
    return input_value(f"\0leaf {number}", like.type_or_none, like.constant)


@record
class Recipe:
    """A term over leaves as a list of steps.

    Places 0, 1, ... hold the leaves, then `kept`, then the results of each step: a node, and the places of its arguments. `outputs`
    are places too.
    """

    kept: Values
    steps: tuple[tuple[Node, tuple[int, ...]], ...]
    outputs: tuple[int, ...]

    def over(self, leaves: Sequence[Value], make: Make) -> Values:
        """The term over tensors of the leaves' types; `make` gives the results of each node over its arguments."""
        places = [*leaves, *self.kept]
        for node, args in self.steps:
            places += make(node, tuple([places[k] for k in args]))
        return tuple([places[k] for k in self.outputs])

    def built(self, rules: Rules, leaves: Sequence[Value], known: dict[Head, dict[Value, Values]]) -> Values:
        """The term as it is; `known` keeps what is made of one tensor, which many matches have in common.

        Raises:
            Refused: finite weights would become infinite.
        """

        def make(node: Node, args: Values) -> Values:
            if not isinstance(node, Call):
                found = with_args(node, args)
            elif len(args) == 1 and args[0] in leaves:
                made = known.setdefault(node.head, {})
                found = made.get(args[0]) or made.setdefault(args[0], called(node.head, args))
            else:
                found = called(node.head, args)
            if node.constant and spoiled(rules, found[-1]):
                raise Refused(SPOILED)
            return found

        return self.over(leaves, make)


def recipe(
    rule: CompiledRule, state: MatchState, names: Mapping[str, Any], choice: Mapping[str, Any], leaves: Sequence[Value]
) -> Recipe:
    """The right side over leaves, which the tensors of the state are.

    Raises:
        Refused: it has no value here, or one of another type.
    """
    try:
        env = environment(rule, state, names)
        for name, value in choice.items():
            env.bind(name, value)
        built = _build(rule, env.child())
        values: list[Value] = []
        for name, pattern in rule.left.roots:
            found, expected = built.get(name), state.results[pattern.site][pattern.output]
            if not isinstance(found, Value):
                found = _number(found, expected)
            if not found.known or found.type != expected.type:
                raise Refused(f"`{name}` would be {found.type if found.known else 'unknown'}, and is {expected.type}")
            values.append(found)
        return _steps(spelled_out(rule.rules, tuple(values)), leaves)
    except Mismatch as problem:
        raise Refused(problem.reason) from None
    except Unbound as problem:
        raise Refused(f"nothing binds `{problem.name}`") from None
    except DslcError as problem:
        raise Refused(
            problem.diagnostics[0].message if problem.diagnostics else "the right side has no value"
        ) from None


def _steps(outputs: Sequence[Value], leaves: Sequence[Value]) -> Recipe:
    order = nodes_of(outputs)
    above = {value.node for value in leaves}
    for node in order:
        if any(arg.node in above for arg in node.args):
            above.add(node)
    built = [node for node in order if node.args and node in above]
    read = [arg for node in built for arg in node.args] + list(outputs)
    kept = tuple(dict.fromkeys(value for value in read if value.node not in above))
    values = [*leaves, *kept, *(value for node in built for value in node.values)]
    place = {value: k for k, value in enumerate(values)}
    steps = tuple((node, tuple(place[arg] for arg in node.args)) for node in built)
    return Recipe(kept, steps, tuple(place[value] for value in outputs))


def _number(value: Any, like: Value) -> Value:
    if isinstance(value, tuple) or not like.known:
        raise Refused("the right side gives no tensor")
    return _filled(value, like.type)


def _filled(value: Any, type: TensorType) -> Value:
    if not holds(type.dtype, value):
        raise Refused(f"{type.dtype} does not hold {value}")
    return fill(value, type)


def _build(rule: CompiledRule, env: Env) -> Env:
    """Runs the statements of the right side in their order."""
    bind_local([s for s in rule.right if isinstance(s, t.Function)], (), env)
    for statement in rule.right:
        if isinstance(statement, t.Let | t.LetMany):
            bind_local((), (statement,), env)
        elif isinstance(statement, t.Const):
            env.bind(statement.target.name, _constant(statement, env))
        elif isinstance(statement, t.Where) and not rule.reverse:
            for condition in statement.conditions:
                if truth(evaluate(condition, env)) is not True:
                    raise Refused(f"`{condition.span.text}` does not hold")
        elif isinstance(statement, t.Bind):
            value = evaluate(statement.value, env)
            if len(statement.names) == 1:
                if isinstance(value, Outputs):
                    raise Refused("a call with several results stands for one")
                env.bind(statement.names[0], value)
                continue
            if not isinstance(value, tuple) or len(value) != len(statement.names):
                count = len(value) if isinstance(value, tuple) else 1
                raise Refused(f"{len(statement.names)} names for {count} results")
            for name, part in zip(statement.names, value, strict=True):
                env.bind(name, part)
    return env


def _constant(statement: t.Const, env: Env) -> Value:
    """`const K[f, c]: T[F, C] = e`: a scope without operands; iterators range over the declared dimensions."""
    type = shape_of(statement.type, env)
    if statement.target.places is None:
        value = evaluate(statement.value, env)
        return value if isinstance(value, Value) else _filled(value, type)
    value = build_scope(statement.target.places, statement.value, None, env, type.dtype, statement.type.dims)
    if value.type != type:
        raise Refused(f"the constant `{statement.target.name}` is {value.type}, declared {type}")
    return value


ELEMENTS = 1 << 23  #: of weights that are computed with: of larger ones the comparison of outputs tells
#: nodes that were looked at; a model that is gone takes them along
_KNOWN: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()


def spoiled(rules: Rules, value: Value) -> bool:
    """True where a weights-only value holds an infinity or NaN, or only numbers too small for its type, made of ordinary ones."""
    node = value.node
    if not (node.constant and node.args and value.known and value.type.dtype.is_float and value.type.is_static):
        return False
    found = _KNOWN.get(node)
    if found is None:
        try:
            found = _computed(rules, value)
        except (
            InterpretError,
            Redraw,
            Mismatch,
            DslcError,
            ArithmeticError,
            LookupError,
            MemoryError,
            ValueError,
            OSError,
        ):
            found = False
        _KNOWN[node] = found
    return found


def _computed(rules: Rules, value: Value) -> bool:
    scopes = expand(rules, (value,))
    nodes = nodes_of([scopes[0]])
    if all(isinstance(one.scope.body, Read) for one in nodes if isinstance(one, ScopeNode)):
        return False  # elements are moved
    leaves = [Value(one) for one in nodes if isinstance(one, Constant) and Value(one).type.dtype.is_float]
    if sum(one.type.elements for one in leaves) > ELEMENTS:
        return False
    arrays = [np.abs(one.node.data.load().astype(np.float64)) for one in leaves]  # type: ignore[attr-defined]
    if not all(np.isfinite(array).all() for array in arrays):
        return False
    widest = max((one.type.dtype for one in (value, *leaves)), key=lambda dtype: dtype.bytes)
    with np.errstate(all="ignore"):
        found = np.abs(run_scopes(scopes, {}, Narrow(widest))[0].astype(np.float64))
        if not np.isfinite(found).all():
            return True
        least = float(ml_dtypes.finfo(NUMPY[value.type.dtype]).smallest_normal)  # type: ignore[no-untyped-call]
        if found.max(initial=0.0) >= least or any(0 < array.max(initial=0.0) < least for array in arrays):
            return False
        return bool(np.any(run_scopes(scopes, {}, Floats(rounded=False))[0]))
