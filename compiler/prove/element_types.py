"""For which element types a rule is to be proved: one for each class, or each by itself where the rule tells types apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations, product

from dslc.errors import DslcError
from dslc.interpret.draft import rule_text
from dslc.ir.dtype import DTYPES, DType, TypeClass, class_of, holds
from dslc.prove.verdict import Types
from dslc.records import record
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, SubstitutionDef
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.walk import conditions_in, nodes
from dslc.syntax import tree as t

MOST = 600  #: combinations that are looked at; a rule is used only for those that were
TRIED = 4096  #: combinations of which it is asked whether guards admit them
SMALL = 127  #: every type but `bool` holds the integers up to this one
DEPTH = 8  #: how deep operators are spelled out in others


@record
class _Looked:
    """The combinations of element types that are looked at, and whether these are all that a rule admits."""

    syntax: t.Substitution  # kept, so that its number stays its own
    found: tuple[Types, ...]
    complete: bool


def types_of(rules: Rules, sub: SubstitutionDef) -> tuple[Types, ...]:
    """The element types that a rule's declared types and guards, and those of its operators, admit; floats come first.

    A variable of which nothing but guards depends stands for a whole class. Where the rule, or an operator or a function that it
    reaches, converts, or names a type elsewhere, every type is looked at by itself; so are integers where a number is named that not
    all of them hold. Of several variables a combination of classes comes once for each way in which their types contain each other.
    """
    return _looked(rules, sub).found


def scope_of_types(rules: Rules, sub: SubstitutionDef) -> str:
    """Describe how many combinations of element types are looked at; empty where these are all that the rule admits."""
    looked = _looked(rules, sub)
    return "" if looked.complete else f"{len(looked.found)} combinations of element types"


def _looked(rules: Rules, sub: SubstitutionDef) -> _Looked:
    cache = rules_cache(rules, "element types")
    found: _Looked | None = cache.get(id(sub.syntax))
    if not found:
        tried = list(islice(_combinations(rules, sub), TRIED + 1))
        known: set[tuple[object, ...]] = set()
        first: list[Types] = []
        others: list[Types] = []
        for types in tried[:TRIED]:
            is_class = any(len(_members(kind)) > 1 for _, kind in types.kinds)
            # all that conversions ask: the types that contain the numbers of others, and integers that are no wider
            relations = tuple(
                (holds(a, b), a.is_integer and b.is_integer and a.bytes <= b.bytes)
                for a, b in permutations(types.dtypes, 2)
            )
            alike = (types.kinds if is_class else tuple(map(class_of, types.dtypes)), relations)
            if (alike in known and is_class) or not admits(rules, sub, types.at):
                continue
            (others if alike in known else first).append(types)
            known.add(alike)
        # where there are too many, those that stand in another relation than all before come first
        every = (*first, *others)
        complete = len(every) <= MOST and len(tried) <= TRIED
        found = cache[id(sub.syntax)] = _Looked(sub.syntax, every[:MOST], complete)
    return found


def _combinations(rules: Rules, sub: SubstitutionDef) -> Iterator[Types]:
    """The element types that variables may stand for, those of one combination of classes one after the other."""
    names = variables(sub)
    apart = tells_types_apart(sub)
    large = any(isinstance(node, t.Int) and node.value > SMALL for _, node in _reached(sub))
    kinds: dict[TypeClass | DType, None] = {}
    for one in TypeClass:
        own = one is not TypeClass.BOOL and (apart or (large and one is not TypeClass.FLOATS))
        kinds.update(dict.fromkeys(one.members if own else (one,)))
    # what is refused for one variable is not tried together with all types of the others
    alone = [
        {
            kind: kept
            for kind in kinds
            if (kept := [each for each in _members(kind) if admits(rules, sub, {name: each})])
        }
        for name in names
    ]
    for chosen in product(*alone):
        pairs = tuple(zip(names, chosen, strict=True))
        for dtypes in product(*(found[kind] for found, kind in zip(alone, chosen, strict=True))):
            yield Types(pairs, dtypes)


def _members(kind: TypeClass | DType) -> Sequence[DType]:
    return kind.members if isinstance(kind, TypeClass) else (kind,)


def variables(sub: SubstitutionDef) -> tuple[str, ...]:
    """The names in a rule that stand for element types: those of its parameters' types, then those of attributes."""
    syntax = sub.syntax
    found = {p.type.name: None for p in syntax.params if p.type and p.type.name not in DTYPES}
    for name, places in rule_text(sub).places.items():
        for place in places:
            op = sub.module.lookup(place.call.function)
            if not isinstance(op, OperatorDef) or name in DTYPES:
                continue
            given = {keyword.name for keyword in place.call.kwargs}
            for attr in op.attrs:
                if attr.type.name == "dtype" and place.attr == attr.name:
                    found[name] = None
                elif attr.type.name == "dtype" and place.starred and place.attr is None and attr.name not in given:
                    found[f"{name}.{attr.name}"] = None
    return tuple(found)


def tells_types_apart(sub: SubstitutionDef) -> bool:
    """Return whether what a rule means may depend on which type of a class it is used for: it converts, or names types."""
    for module, node in _reached(sub):
        named = node.function if isinstance(node, t.Call) else node.bare or ""
        if named in DTYPES or (named == "convert" and not module.lookup("convert")):
            return True
    return False


def divides(sub: SubstitutionDef) -> bool:
    """Return whether `/` occurs in what a rule means, which is another function for integers than for floats."""
    return any(isinstance(node, t.Binary) and node.op == "/" for _, node in _reached(sub))


def _reached(sub: SubstitutionDef) -> Iterator[tuple[Module, t.Node]]:
    """The nodes of a rule and of all operators and functions that it reaches, with the modules whose names they use."""
    seen: set[int] = set()
    stack: list[tuple[Module, object]] = [(sub.module, sub.syntax)]
    while stack:
        module, syntax = stack.pop()
        if id(syntax) in seen:
            continue
        seen.add(id(syntax))
        for node in _meaning(syntax):
            yield module, node
            named = node.function if isinstance(node, t.Call) else node.bare or ""
            called = module.lookup(named) if named else None
            if isinstance(called, OperatorDef | FunctionDef):
                stack.append((called.module, called.syntax))


def _meaning(syntax: object) -> Iterator[t.Node]:
    """The nodes that say what something computes: guards, examples and ONNX's names do not."""
    if isinstance(syntax, t.Operator):
        skipped = (t.Where, t.Example, t.Tags, t.OnnxMap)
        kept = tuple(s for s in syntax.statements if not isinstance(s, skipped))
        # an attribute that only says of which type an output is changes nothing else
        yield from t.walk(tuple(s for s in kept if not (isinstance(s, t.Attr) and s.type.name == "dtype")))
    elif isinstance(syntax, t.Substitution):
        statements = syntax.statements
        yield from t.walk(tuple(s for s in statements if not isinstance(s, t.Where | t.Tags | t.Verify)))
    elif isinstance(syntax, t.Function):
        yield from t.walk(syntax.body)


# ---- what guards admit ----------------------------------------------------------------------------------------------

#: the types of an expression's results; None where that is not known
_Results = tuple[DType | None, ...]


def admits(
    rules: Rules, sub: SubstitutionDef, types: Mapping[str, DType], terms: Mapping[str, OperatorDef] | None = None
) -> bool:
    """Return whether no guard on element types, of the rule or of an operator on either side, refuses these types.

    `terms`: the operators that the terms of the rule stand for, where they are known.
    """
    syntax = sub.syntax
    known: dict[str, DType] = {name: dtype for name, dtype in types.items() if "." not in name}
    for param in syntax.params:
        found = DTYPES.get(param.type.name) or known.get(param.type.name) if param.type else None
        if found is not None:
            known[param.name] = found
    try:
        _check(rules, sub.module, conditions_in(syntax.left), known)
        _statements(_Place(rules, sub.module, types, terms or {}), syntax.statements, known)
    except _Refused:
        return False
    return True


class _Refused(Exception):
    """Types that a guard does not admit."""


def _check(rules: Rules, module: Module, conditions: Sequence[t.Expr], known: Mapping[str, DType]) -> None:
    """Refuses types for which a guard that speaks of nothing but types is false."""
    env = Env(module, rules)
    for name, dtype in known.items():
        env.bind(name, dtype)
    for condition in conditions:
        try:
            holds = evaluate(condition, env)
        except (Unbound, Mismatch, DslcError, TypeError, AttributeError):
            continue  # it speaks of sizes or attributes
        if holds is False:
            raise _Refused


@record
class _Place:
    """The surroundings of calls: the names that a module sees, the types of attributes, the operators of terms."""

    rules: Rules
    module: Module
    types: Mapping[str, DType]
    terms: Mapping[str, OperatorDef]
    depth: int = 0

    def operator(self, name: str) -> OperatorDef | None:
        found = self.terms.get(name) or self.module.lookup(name)
        return found if isinstance(found, OperatorDef) and self.depth <= DEPTH else None


def _statements(place: _Place, statements: Sequence[t.Node], known: dict[str, DType]) -> None:
    for statement in statements:
        if isinstance(statement, t.Bind | t.LetMany | t.EquationMany):
            names, value = statement.names, statement.value
        elif isinstance(statement, t.Let | t.Equation) and statement.target.places is None:
            names, value = (statement.target.name,), statement.value
        else:
            continue
        for name, dtype in zip(names, _results(place, value, known), strict=False):
            if dtype is not None:
                known[name] = dtype


def _results(place: _Place, expr: t.Expr, known: Mapping[str, DType]) -> _Results:
    if isinstance(expr, t.Name):
        return (known.get(expr.id),)
    if isinstance(expr, t.Conditional):
        return [_results(place, branch, known) for branch in (expr.then, expr.otherwise)][-1]
    if isinstance(expr, t.Field) and isinstance(expr.call, t.Call):
        op = place.operator(expr.call.function)
        outputs = [out.name for out in op.outputs] if op else []
        results = dict(zip(outputs, _results(place, expr.call, known), strict=False))
        return (results.get(expr.name),)
    if not isinstance(expr, t.Call):
        for node in nodes(t.Call, expr):
            _results(place, node, known)
        return (None,)
    args = [_results(place, arg, known)[0] for arg in expr.args]
    op = place.operator(expr.function)
    if not op:
        return (None,)
    if any(isinstance(arg, t.Pack) for arg in expr.args):
        args = []
    inner = _bound(place, op, expr, args, known)
    _check(place.rules, op.module, conditions_in(op.statements), inner)
    _statements(_Place(place.rules, op.module, {}, {}, place.depth + 1), op.statements, inner)
    return tuple(
        (DTYPES.get(out.type.name) or inner.get(out.type.name)) if out.type is not None else inner.get(out.name)
        for out in op.outputs
    )


def _bound(
    place: _Place, op: OperatorDef, call: t.Call, args: Sequence[DType | None], known: Mapping[str, DType]
) -> dict[str, DType]:
    """The types that the names in an operator stand for. Raises _Refused where its declared types do not fit."""
    inner: dict[str, DType] = {}
    for param, dtype in zip(op.params, args, strict=False):
        if param.type is None or dtype is None:
            continue
        if (DTYPES.get(param.type.name) or inner.setdefault(param.type.name, dtype)) is not dtype:
            raise _Refused
        if not param.star:
            inner[param.name] = dtype
    for attr in op.attrs:
        if attr.type.name == "dtype":
            given = next((keyword.value for keyword in call.kwargs if keyword.name == attr.name), attr.default)
            chosen = place.types.get(f"{call.rest}.{attr.name}")
            if isinstance(given, t.Name):
                chosen = DTYPES.get(given.id) or known.get(given.id) or chosen
            if chosen is not None:
                inner[attr.name] = chosen
    return inner
