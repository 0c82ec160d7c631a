"""Programs over holes read from their text (`dslc.ir.text`): parsed and elaborated as any operator definition is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dslc.errors import SourceText, error
from dslc.ir.dtype import TensorType
from dslc.ir.graph import (
    Attrs,
    Call,
    Graph,
    Node,
    Scope,
    ScopeNode,
    Value,
    Values,
    kernel_value,
    rebuild,
    scope_value,
    with_args,
)
from dslc.ir.holes import hole, program
from dslc.ir.scalar import Sym
from dslc.ir.scopes import renumbered, substitute
from dslc.ir.text import name_of_size
from dslc.semantics.definitions import Module, OperatorDef
from dslc.semantics.elaborate import elaborate
from dslc.semantics.env import Env, Mismatch, Unbound, unbound
from dslc.semantics.library import Rules
from dslc.semantics.types import shape_of
from dslc.semantics.walk import conditions_in, dims_of, nodes
from dslc.syntax import tree as t
from dslc.syntax.parser import parse

#: the library that a text stands for, which no file may have as its name
_LIBRARY = "\0written"


def read_program(rules: Rules, text: str, short: bool = False) -> Graph:
    """The program (the last operator) whose text `dslc.ir.text.program_text` wrote, over the operators of `rules`: the same object.

    `short`: operators may be called by their names without the library, where one library alone, or the standard one, has it; and no
    parameter is a weight, whatever its name is.

    Raises:
        DslcError, Mismatch: no text of a program, or operators that mean something else by now.
    """
    file = parse(SourceText("program", text))
    module = Module(_LIBRARY, _LIBRARY, file)
    own: dict[str, OperatorDef] = {}
    for item in file.items:
        if not isinstance(item, t.Operator):
            raise error("E0327", "a program consists of operators", item.span)
        own[item.name] = OperatorDef(f"{_LIBRARY}.{item.name}", item, module)
    if not own:
        raise error("E0201", "a program has an operator")
    if short:
        # what comes later counts
        module.names.update((each.short, each) for each in rules.operators.values())
        module.names.update((each.short, each) for name, each in rules.operators.items() if name.startswith("std."))
    module.names.update(own)
    for name, definition in rules.operators.items():
        head, _, rest = name.partition(".")
        alias = module.aliases.setdefault(head, Module(head, head, definition.module.file))
        alias.names[rest] = definition
    # caches go by the names of operators, and every text has its own
    work = _Reading(
        replace(rules, operators={**rules.operators, **{each.name: each for each in own.values()}}), not short
    )
    try:
        return work.graph(list(own.values())[-1])
    except Unbound as unknown:
        raise unbound(unknown) from None


class _Reading:
    def __init__(self, rules: Rules, weights: bool) -> None:
        self._rules, self._weights = rules, weights
        self._graphs: dict[OperatorDef, Graph] = {}

    def graph(self, op: OperatorDef) -> Graph:
        found = self._graphs.get(op)
        if not found:
            found = self._graphs[op] = self._graph(op)
        return found

    def _graph(self, op: OperatorDef) -> Graph:
        params = [param for param in op.params if not param.default]
        sizes = _sizes(op, params)
        env = Env(op.module, self._rules)
        for name, size in sizes.items():
            env.bind(name, size)
        types = tuple(_type(param, env) for param in params)
        given = {attr.name for attr in op.attrs}
        attrs: Attrs = tuple((name, size) for name, size in sizes.items() if name in given)
        instance = elaborate(self._rules, op, types, attrs)
        holes = tuple(
            hole(k, type, self._weights and bool(re.fullmatch("w[0-9]+", param.name)))
            for k, (param, type) in enumerate(zip(params, types, strict=True))
        )
        known = dict(zip(instance.params, holes, strict=True))
        outputs = rebuild(instance.outputs, self._node, known)
        if any(s.target.places is not None for s in op.statements if isinstance(s, t.Equation)):
            outputs = tuple(_over_all(value, holes) for value in outputs)
        return program(holes, outputs)

    def _node(self, node: Node, args: Values) -> Values:
        """Value of a call of the text's own operator; everything else as it is."""
        if not isinstance(node, Call) or not node.op.startswith(_LIBRARY):
            return with_args(node, args)
        op = self._rules.operators[node.op]
        graph = self.graph(op)
        if [arg.type for arg in args[: len(graph.inputs)]] != [value.type for value in graph.inputs]:
            raise Mismatch(f"`{op.short}` is called with other types than it is written for")
        if op.short.startswith("k"):
            # what is left out is a constant inside
            return kernel_value(graph, args[: len(graph.inputs)])
        only = graph.outputs[0]
        if len(graph.outputs) != 1 or not isinstance(only.node, ScopeNode):
            raise error("E0327", f"`{op.short}` is no single equation", op.span)
        return (scope_value(only.node.scope, args),)


def _type(param: t.Param, env: Env) -> TensorType:
    if not param.type:
        raise error("E0306", f"`{param.name}` has no type", param.span)
    return shape_of(param.type, env)


def _sizes(op: OperatorDef, params: Sequence[t.Param]) -> Mapping[str, Sym]:
    """The unknown sizes: what attributes stand for, and those that the types of the parameters say."""
    least: dict[str, int] = {}
    for condition in conditions_in(op.statements):
        match condition:
            case t.Compare((t.Name(name), t.Int(bound)), (">=",)):
                least[name] = bound
    found = {attr.name: Sym._make(least.get(attr.name), name_of_size(attr.name)) for attr in op.attrs}
    for param in params:
        for part in nodes(t.Name, dims_of(param.type)):
            found.setdefault(part.id, Sym._make(1, name_of_size(part.id)))
    return found


def _over_all(value: Value, holes: Sequence[Value]) -> Value:
    """A scope whose operands are numbered as the parameters are, also those that it does not read."""
    if not isinstance(value.node, ScopeNode):
        return value
    scope, args = value.node.scope, value.node.args
    places = [holes.index(arg) for arg in args]
    body = substitute(scope.body, {}, 0, renumbered(places.__getitem__))
    return scope_value(Scope(scope.extents, body, scope.dtype, scope.groups), tuple(holes))
