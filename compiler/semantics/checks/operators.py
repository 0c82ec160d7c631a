"""Checks of operators: names, types, equations, and whether they elaborate at some small sizes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from dslc.errors import Diagnostic, Span, instead, suggested
from dslc.ir.dtype import Dim
from dslc.ir.graph import Value
from dslc.ir.scalar import Scalar, Sym, num, scalars, substitute
from dslc.semantics.assume import AssumedChoice, Infeasible, assumed, conditions_of, rank_choices, size_names
from dslc.semantics.checks.names import VOCABULARY, CheckReport, NameScope, fits_subscripts, literal_problem
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import EvalError, Mismatch, Unbound
from dslc.semantics.library import Rules
from dslc.semantics.lists import plain
from dslc.semantics.types import shape_of
from dslc.semantics.walk import binders_of, dims_of, names_in, nodes, pack_name
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import ATTRIBUTE_TYPES, DTYPE_NAMES, DTYPE_SPELLINGS, KEYWORDS

CHOICES = 12  #: choices of attributes that are tried
DRAWS = 12  #: draws of sizes for each


def check_operator(rules: Rules, op: OperatorDef, report: CheckReport) -> None:
    """Check names, types, statements and equations of an operator, and whether it elaborates."""
    before = sum(d.severity == "error" for d in report.found)
    scope = _scope(rules, op, report)
    _types(op, scope)
    _statements(op, scope)
    _equations(op, report)
    _circle(op, report)
    _unused(op, scope)
    if op.syntax.doc is None:
        report.add("W0008", f"`{op.short}` has no documentation", op.syntax)
    if sum(d.severity == "error" for d in report.found) == before:
        report.take(report.remember("elaborates", op, lambda: _elaborates(rules, op)))


# ---- names -----------------------------------------------------------------------------------------------------


def _scope(rules: Rules, op: OperatorDef, report: CheckReport) -> NameScope:
    scope = NameScope(op.module, rules, report)

    def declare(name: str, kind: str, span: Span) -> None:
        if name in KEYWORDS:
            report.add("E0205", f"`{name}` is a reserved word", span)
        old = scope.kinds.get(name)
        if old == kind in {"tensor", "let"}:
            report.add("E0309", f"`{name}` is defined twice", span)
        elif old is not None:
            report.add("E0213", f"`{name}` is {_a(old)} already", span)
        scope.bind(name, kind)

    for param in op.params:
        declare(param.name, "tensor", param.span)
        if param.type:
            scope.dims[param.name] = dims_of(param.type)
    packs, names = size_names(op)
    for attr in op.attrs:
        declare(attr.name, "attribute", attr.span)
    for node in (node for param in op.params for node in nodes(t.Name, dims_of(param.type))):
        name = node.id
        if name in packs or name in names:
            kind = "pack" if name in packs else "size"
            if scope.kinds.setdefault(name, kind) != kind:
                report.add("E0213", f"`{name}` is {_a(scope.kinds[name])} and {_a(kind)}", node)
    for param in op.params:
        if param.type and param.type.name not in DTYPE_NAMES:
            scope.kinds.setdefault(param.type.name, "type")
    for statement in op.statements:
        if isinstance(statement, t.Let):
            target = statement.target
            declare(target.name, "tensor" if target.places is not None else "let", target.span)
        elif isinstance(statement, t.LetMany):
            for name in statement.names:
                declare(name, "let", statement.span)
        elif isinstance(statement, t.Function):
            declare(statement.name, "function", statement.span)
            scope.functions[statement.name] = len(statement.params)
    for condition in conditions_of(op):
        for name in _bound_by(condition):
            scope.kinds.setdefault(name, "size")
    for output in op.outputs:
        declare(output.name, "tensor", output.span)
        if output.type:
            scope.dims[output.name] = dims_of(output.type)
    return scope


def _a(kind: str) -> str:
    return {"attribute": "an attribute", "type": "an element type"}.get(kind, f"a {kind}")


def _bound_by(condition: t.Expr) -> list[str]:
    """Names that a guard may bind: alone on a side of `==`, or in a list there."""
    parts = (p for side in condition.equated for p in (side.elements if isinstance(side, t.ListExpr) else (side,)))
    return [part.id for part in parts if isinstance(part, t.Name) and "." not in part.id]


# ---- types -----------------------------------------------------------------------------------------------------


def _types(op: OperatorDef, scope: NameScope) -> None:
    report = scope.report
    types = {param.type.name for param in op.params if param.type}
    type_attrs = {attr.name for attr in op.attrs if attr.type.name == "dtype"}
    for param in op.params:
        if param.type is None or param.type.dims is None:
            report.add("E0305", f"the parameter `{param.name}` needs a tensor type, such as `T[M, N]`", param)
            continue
        if param.type.name not in DTYPE_NAMES and not param.type.name[0].isupper():
            meant = DTYPE_SPELLINGS.get(param.type.name)
            hint = "one of " + ", ".join(sorted(DTYPE_NAMES)) + ", or a variable such as `T`"
            message, fix = (
                f"there is no element type `{param.type.name}`",
                instead(param.type.span, param.type.name, meant),
            )
            report.add("E0305", message, param.type, suggested(meant, hint), fix)
        _packs(op, param, report)
        _solvable(op, param, report)
    for output in op.outputs:
        if not output.type:
            continue
        name = output.type.name
        if name not in DTYPE_NAMES and name not in types and name not in type_attrs:
            meant = DTYPE_SPELLINGS.get(name)
            message = f"nothing determines the element type `{name}` of `{output.name}`"
            report.add("E0305", message, output.type, suggested(meant), instead(output.type.span, name, meant))
        dims = dims_of(output.type)
        # a binder of a list in the type, such as k in `{[k: n] 1}`
        bound = {node.name for node in nodes(t.Binder, dims)}
        for size in nodes(t.Name, dims):
            if scope.kind(size.id) is None and size.id not in bound:
                targets = [one.target for one in op.statements if isinstance(one, t.Equation)]
                whole = any(one.name == output.name and one.places is None for one in targets)
                hint = f"`-> {output.name}` without a type has that of its equation" if whole else ""
                report.add("E0310", f"nothing determines the size `{size.id}`", size, hint)
            else:
                scope.used.add(size.id)
    for attr in op.attrs:
        if attr.type.name not in ATTRIBUTE_TYPES:
            report.add(
                "E0305", f"there is no attribute type `{attr.type.name}`", attr.type,
                "one of " + ", ".join(sorted(ATTRIBUTE_TYPES)),
            )  # fmt: skip
        for dim in dims_of(attr.type):
            scope.check(dim)
        if attr.default:
            problem = literal_problem(attr, attr.default)
            if problem:
                report.add("E0304", f"the attribute `{attr.name}` {problem}", attr.default)
            scope.check(attr.default)


def _packs(op: OperatorDef, param: t.Param, report: CheckReport) -> None:
    """With two packs in one type, something must say where the first one ends."""
    assert param.type
    packs = _pack_names(param)
    free = [pack for pack in dict.fromkeys(packs) if not _ranked(op, pack, param)] if len(packs) > 1 else []
    if len(free) > 1:
        hint = f"write `where rank({free[0]}) == ...`"
        report.add("E0311", f"nothing says where `*{free[0]}` ends", param.type, hint)


def _pack_names(param: t.Param) -> list[str]:
    return [name for element in dims_of(param.type) if (name := pack_name(element)) is not None]


def _ranked(op: OperatorDef, pack: str, apart: t.Param, asked: frozenset[str] = frozenset()) -> bool:
    """Return whether something says how many sizes a pack has; `asked` are packs for which that is being found out."""
    if pack in asked:
        return False
    for condition in conditions_of(op):
        for side in condition.equated:
            counted = side.args if isinstance(side, t.Call) and side.function in {"rank", "len"} else (side,)
            if any(arg.bare == pack for arg in counted):
                return True
    return any(
        pack in (packs := _pack_names(param))
        and (len(packs) == 1 or all(p == pack or _ranked(op, p, param, asked | {pack}) for p in packs))
        for param in op.params
        if param is not apart
    )


def _solvable(op: OperatorDef, param: t.Param, report: CheckReport) -> None:
    """A computed dimension is linear in one size that nothing else determines."""
    assert param.type
    bound = {name for condition in conditions_of(op) for name in _bound_by(condition)}
    alone = bound | {d.id for other in op.params for d in dims_of(other.type) if isinstance(d, t.Name)}
    for dim in dims_of(param.type):
        if isinstance(dim, t.Binary):
            unknown = names_in(dim) - alone
            bad = any(
                n.op in {"//", "%", "/", "^"}
                or (n.op == "*" and names_in(n.left) & unknown and names_in(n.right) & unknown)
                for n in nodes(t.Binary, dim)
            )
            # all but one may be determined by guards with attributes, as `sizes == [P, Q]`
            if (len(unknown) > 1 or (unknown and bad)) and len(unknown - bound) > 1:
                report.add("E0328", f"`{dim.span.text}` cannot be solved for {' and '.join(sorted(unknown))}", dim)


# ---- statements ------------------------------------------------------------------------------------------------


def _statements(op: OperatorDef, scope: NameScope) -> None:
    for statement in op.statements:
        if isinstance(statement, t.Let | t.Equation):
            _target(statement.target, statement.value, scope)
        elif isinstance(statement, t.LetMany | t.EquationMany):
            scope.check(statement.value)
            scope.results(statement.names, statement.value, statement.span)
        elif isinstance(statement, t.Example):
            value = statement.value
            if not isinstance(value, t.Compare):
                scope.report.add("E0321", "an example states a comparison", value, "write `f(...) == value`")
            NameScope(op.module, scope.rules, scope.report).check(value)
        else:
            scope.statement(statement)


def _circle(op: OperatorDef, report: CheckReport) -> None:
    """An operator that needs itself, whatever its attributes: what stands in a choice may never be wanted."""
    seen: set[str] = set()
    # caller, path, call, and the operator that the path begins with
    todo: list[tuple[OperatorDef, tuple[str, ...], t.Call, t.Call]]
    todo = [(op, (op.short,), call, call) for call in reversed(_needed(op))]
    while todo:
        user, way, call, first = todo.pop()
        used = user.module.called(call)
        if not isinstance(used, OperatorDef) or used.name in seen:
            continue
        seen.add(used.name)
        way = (*way, used.short)
        if used.name == op.name:
            hint = "one operator of the circle needs an equation of its own"
            report.add("E0317", f"`{op.short}` needs itself: {' -> '.join(way)}", first, hint)
            return
        todo += [(used, way, needed, first) for needed in _needed(used)]


def _needed(op: OperatorDef) -> list[t.Call]:
    """The calls in an operator's equations that every evaluation makes."""
    functions = {statement.name for statement in op.statements if isinstance(statement, t.Function)} | VOCABULARY
    out: list[t.Call] = []
    for statement in op.statements:
        if isinstance(statement, t.Let | t.Equation | t.LetMany | t.EquationMany):
            choices = nodes(t.Conditional, statement.value)
            chosen = {id(node) for choice in choices for node in t.walk((choice.then, choice.otherwise))}
            calls = nodes(t.Call, statement.value)
            out += [node for node in calls if id(node) not in chosen and node.function not in functions]
    return out


def _target(target: t.Defined, value: t.Expr, scope: NameScope) -> None:
    inner = scope.inner()
    if target.places is not None:
        inner.bind("(equation)", "flag")
        seen: set[str] = set()
        for binder in binders_of(target.places):
            scope.check(binder.range)
            if binder.name in seen:
                scope.report.add("E0309", f"the index `{binder.name}` stands twice on the left", binder)
            seen.add(binder.name)
            inner.iterator(binder)
    inner.check(value)


def _equations(op: OperatorDef, report: CheckReport) -> None:
    outputs = {output.name: output for output in op.outputs}
    defined: set[str] = set()
    for statement in op.statements:
        if not isinstance(statement, t.Equation | t.EquationMany):
            continue
        span = statement.target.span if isinstance(statement, t.Equation) else statement.span
        for name in (statement.target.name,) if isinstance(statement, t.Equation) else statement.names:
            if name not in outputs:
                hint = "`let` names anything else" if isinstance(statement, t.Equation) else ""
                report.add("E0201", f"`{name}` is no output of `{op.short}`", span, hint)
            elif name in defined:
                report.add("E0309", f"`{name}` has two equations", span)
            defined.add(name)
            if name in outputs and isinstance(statement, t.Equation):
                _places(statement.target, outputs[name], report)
    for name, output in outputs.items():
        if name not in defined:
            report.add("E0308", f"no equation defines `{name}`", output)


def _places(target: t.Defined, output: t.Param, report: CheckReport) -> None:
    if target.places is None or output.type is None:
        return
    dims = dims_of(output.type)
    index = t.Int(0, span=target.span)
    pack = t.Pack(index, span=target.span)
    subs = tuple(pack if isinstance(p, t.Binder) and p.star else index for p in target.places)
    if len(dims) != len(subs) and fits_subscripts(dims, subs):
        report.add("E0307", f"`{output.name}` has {len(dims)} axes and {len(subs)} places on the left", target)


def _unused(op: OperatorDef, scope: NameScope) -> None:
    others = tuple(one for one in op.statements if isinstance(one, t.OnnxMap | t.Where))
    mentioned = {node.head for node in nodes(t.Name, others)} | scope.used
    mentioned |= {p.name for one in others if isinstance(one, t.OnnxMap) for p in one.inputs if isinstance(p, t.Param)}
    for statement in op.statements:
        match statement:
            case t.Let(t.Defined(name) as named) | (t.Function(name) as named) if name not in mentioned:
                scope.report.add("W0005", f"`{name}` is never used", named)


# ---- elaboration -----------------------------------------------------------------------------------------------


def _elaborates(rules: Rules, op: OperatorDef) -> list[Diagnostic]:
    """Evaluates the equations at the first choices that the guards allow; what never works is reported."""
    report = CheckReport()
    first: EvalError | Mismatch | None = None
    worked = 0
    for ranks in rank_choices(op):
        for level in ("symbolic", "numbers"):
            try:
                for choice in islice(assumed(rules, op, ranks, level), CHOICES):
                    for output in op.outputs:
                        value = choice.env.get(output.name)
                        if not isinstance(value, Value):
                            raise EvalError([])
                        if output.type:
                            _declared(value, shape_of(output.type, choice.env).shape, output, choice, report)
                    worked += 1
                    if level == "numbers":
                        break
                if worked:
                    break
            except (EvalError, Mismatch) as problem:
                if isinstance(problem, EvalError) or not first:
                    first = first if isinstance(first, EvalError) and first.diagnostics else problem
            except (Unbound, TypeError, ValueError, IndexError, Infeasible):
                continue
    if worked:
        return report.found
    if isinstance(first, EvalError) and first.diagnostics:
        report.take(first.diagnostics)
    # sizes inside a composite must fit each other, which few of the choices tried here do
    elif isinstance(first, Mismatch) and not any(
        isinstance(s, t.EquationMany | t.LetMany) or (isinstance(s, t.Equation) and s.target.places is None)
        for s in op.statements
    ):
        report.add("E0306", f"`{op.short}`: {first.reason}", first.span or op.span)
    return report.found


def _declared(
    value: Value, shape: tuple[Dim, ...], output: t.Param, choice: AssumedChoice, report: CheckReport
) -> None:
    if len(value.type.shape) != len(shape):
        report.add(
            "E0306", f"`{output.name}` is declared with {len(shape)} axes, and its equation gives {len(value.type.shape)}",
            output, counterexample=choice.text,
        )  # fmt: skip
        return
    for numbers in _numbers((*value.type.shape, *shape, *choice.conditions)):
        if any(_at(condition, numbers) is False for condition in choice.conditions):
            continue
        found, declared = [_at(size, numbers) for size in value.type.shape], [_at(size, numbers) for size in shape]
        if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(found, declared, strict=True)):
            sizes = ", ".join(f"{name}={number}" for name, number in numbers.items()) or choice.text
            report.add(
                "E0306", f"`{output.name}` is declared as {declared}, and its equation gives {found}",
                output, counterexample=sizes,
            )  # fmt: skip
            return


def _numbers(parts: tuple[object, ...]) -> Iterator[dict[Sym, int]]:
    """Small numbers for the unknowns."""
    unknowns = {node for part in parts if isinstance(part, Scalar) for node in scalars(Sym, part)}
    names = sorted(unknowns, key=lambda node: node.name)
    seeded = random.Random(0)
    for _ in range(DRAWS if names else 1):
        yield {name: seeded.randint(1, 6) for name in names}


def _at(value: object, numbers: dict[Sym, int]) -> object:
    if not isinstance(value, Scalar):
        return value
    known: dict[Scalar, Scalar] = {name: num(number) for name, number in numbers.items()}
    return plain(substitute(value, known))
