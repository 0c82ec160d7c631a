"""Terms as text of the language: the statements of a substitution, and the names in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dslc.generate.general.dimensions import GeneralTypes
from dslc.generate.terms.term import Conjecture, Item, Term, attributes, inputs, show_attribute, subterms
from dslc.ir.dtype import DType
from dslc.records import record
from dslc.semantics.library import Rules, rules_cache
from dslc.syntax import tree as t
from dslc.syntax.printer import show

#: an input and one of its axes
Place = tuple[Term, int]
#: the number of groups
GROUPS = "G"
_WORD = re.compile(r"[A-Za-z_]\w*")


def grouped_places(rules: Rules, candidate: Conjecture, taken: int) -> frozenset[Place]:
    """The axes of a candidate's inputs that some operator takes apart into groups and the rest; none if it has too many inputs.

    Args:
        taken: how many tensor names come before that of the groups.
    """
    roots = candidate.roots
    found: set[Place] = set()
    for term in subterms(roots):
        if not term.item:
            continue
        places = _parted(rules, term.item.op)
        found |= {(term.args[k], axis) for k, axis in places if k < len(term.args) and term.args[k].is_input}
    return frozenset(found) if len(inputs(roots)) <= taken else frozenset()


def _parted(rules: Rules, op: str) -> set[tuple[int, int]]:
    """The parameters and axes of an operator that have the form `(G, C)`, where more than one of them has the same G."""
    found: dict[str, set[tuple[int, int]]] = {}
    for k, param in enumerate(rules.operators[op].syntax.params):
        dims = (param.type.dims if param.type else None) or ()
        if any(isinstance(dim, t.Pack) for dim in dims):
            continue
        for axis, dim in enumerate(dims):
            match dim:
                case t.TupleExpr((t.Name(group), t.Name())):
                    found.setdefault(group, set()).add((k, axis))
    return {place for places in found.values() if len(places) > 1 for place in places}


def grouped_cut(typed: GeneralTypes, places: frozenset[Place], groups: str, text: str) -> str:
    """The place of a cut as it is written: sizes that only stand for parts of groups are multiplied."""
    whole = {
        name
        for term, dims in typed.tensors.items()
        for axis, dim in enumerate(dims)
        if (term, axis) not in places
        for name in _WORD.findall(dim)
    }
    return (
        _WORD.sub(lambda found: found[0] if found[0] in whole else f"{groups} * {found[0]}", text) if places else text
    )


TENSORS = tuple("ABCDEFGH")
_OUTPUTS = ("Y", "Z", "X", "W")

#: (attribute, its value, the text of its declared type): what is one variable in a generalised rule
Choice = tuple[str, Any, str]


@record
class RuleForm:
    """The generalisation of a rule beyond its sizes.

    `holes` gives the attributes that are variables; `pack` says which sizes are a list of any length: "" none, "all" the whole shape
    of every tensor, "batch" further axes in front, "axis" those before and behind the axis that the rule works on; `grouped` the axes
    of inputs whose sizes consist of groups, `groups` how many those are.
    """

    holes: Mapping[Choice, str] = field(default_factory=dict)
    pack: str = ""
    grouped: frozenset[Place] = frozenset()
    groups: str = GROUPS


def tensor_names(candidate: Conjecture) -> dict[Term, str]:
    """Names of the inputs by first occurrence on the source side, then on the target side."""
    used = inputs(candidate.roots)
    return {term: TENSORS[k] if k < len(TENSORS) else f"A{k}" for k, term in enumerate(used)}


def output_names(candidate: Conjecture) -> tuple[str, ...]:
    """Names of the results."""
    return tuple(_OUTPUTS[k] if k < len(_OUTPUTS) else f"Y{k}" for k in range(len(candidate.sources)))


def declared(rules: Rules, item: Item, name: str) -> t.Attr:
    """An attribute as the operator declares it."""
    return next(attr for attr in rules.operators[item.op].attrs if attr.name == name)


def choices(rules: Rules, candidate: Conjecture) -> list[Choice]:
    """The attribute values of a rule, each as often as it occurs; those that follow from sizes or types are none."""
    return [
        choice(rules, term.item, name, value)
        for term in subterms(candidate.roots)
        if term.item
        for name, value in term.item.attrs
        if name not in term.item.sized and not isinstance(value, DType)
    ]


def choice(rules: Rules, item: Item, name: str, value: Any) -> Choice:
    """An attribute, its value and the text of its declared type."""
    kinds = rules_cache(rules, "generate.kinds")
    if (item.op, name) not in kinds:
        kinds[item.op, name] = show(declared(rules, item, name).type)
    return (name, value, kinds[item.op, name])


def is_default(attr: t.Attr, value: Any) -> bool:
    """Return whether a value is the declared default, as far as that is a plain number or word (a number stands for every entry)."""
    match attr.default:
        case t.Int(value=number):
            return bool(value == number or (isinstance(value, tuple) and set(value) == {number}))
        case t.Str(value=text):
            return bool(value == text)
        case t.Name(id="true" | "false" as name):
            return bool(value == (name == "true"))
    return False


@record
class Writer:
    """Writes terms; `attribute(item, term, name, value)` gives the text of an attribute, or None where it is left out."""

    rules: Rules
    names: Mapping[Term, str]
    operators: Mapping[str, str]
    attribute: Callable[[Term, str, Any], str | None]

    def expr(self, term: Term) -> str:
        if not term.item:
            return self.names[term]
        call = self.call(term)
        operator = self.rules.operators[term.item.op]
        return call if len(operator.outputs) == 1 else f"{call}.{operator.outputs[term.output].name}"

    def call(self, term: Term) -> str:
        assert term.item
        item, texts = term.item, [self.expr(arg) for arg in term.args]
        values = attributes(item, [arg.type for arg in term.args])
        for attr in self.rules.operators[item.op].attrs:
            if attr.name in values and (text := self.attribute(term, attr.name, values[attr.name])) is not None:
                texts.append(f"{attr.name}={text}")
        return f"{self.operators[item.op]}({', '.join(texts)})"

    def statements(self, roots: Sequence[Term], outputs: Sequence[str]) -> list[str]:
        """`Y = ...` for each root; all outputs of one application are one statement."""
        out: list[str] = []
        at = 0
        while at < len(roots):
            root = roots[at]
            count = len(self.rules.operators[root.item.op].syntax.outputs) if root.item else 1
            if count > 1:
                together = roots[at : at + count]
                whole = [(r.item, r.args, r.output) for r in together] == [
                    (root.item, root.args, k) for k in range(count)
                ]
                # one of several results: the others are named, too, and nothing is said of them
                names = [outputs[at] if k == root.output else f"{outputs[at]}_{k}" for k in range(count)]
                out.append(f"{', '.join(outputs[at : at + count] if whole else names)} = {self.call(root)}")
                at += count if whole else 1
                continue
            out.append(f"{outputs[at]} = {self.expr(root)}")
            at += 1
        return out


def dtype_variable(candidate: Conjecture) -> DType | None:
    """The element type that is written `T`: the commonest among the inputs that are floating-point tensors."""
    found = Counter(term.type.dtype for term in inputs(candidate.roots))
    floats = [dtype for dtype, _ in found.most_common() if dtype.is_float]
    return floats[0] if floats else None


def body(
    rules: Rules, candidate: Conjecture, typed: GeneralTypes, form: RuleForm, operators: Mapping[str, str]
) -> tuple[str, str, str]:
    """The parameters, the left and the right side of a substitution, as text.

    `operators` gives the name by which the file knows each operator.
    """
    names = tensor_names(candidate)
    variable = dtype_variable(candidate)
    common = _common(typed)

    def attribute(term: Term, name: str, value: Any) -> str | None:
        item = term.item
        assert item
        if name == item.cut:
            return f"[{', '.join(grouped_cut(typed, form.grouped, form.groups, cut) for cut in typed.cuts[term.node])}]"
        if name in item.sized:
            text = typed.sized[term.node][name]
            return "S" if form.pack == "all" and text == f"[{', '.join(common)}]" else text
        if isinstance(value, DType):
            return "T" if value is variable else str(value)
        hole = form.holes.get(choice(rules, item, name, value))
        if hole is not None:
            return hole
        if form.pack == "axis" and declared(rules, item, name).type.name == "axis":
            return "a"
        return None if is_default(declared(rules, item, name), value) else show_attribute(value)

    writer = Writer(rules, names, operators, attribute)
    types = []
    for term, name in names.items():
        dims = [
            f"({form.groups}, {dim})" if (term, at) in form.grouped else dim
            for at, dim in enumerate(typed.tensors[term])
        ]
        if dims and form.pack == "all":
            dims = ["*S"]
        elif dims and form.pack == "batch":
            dims = ["*L", *dims]
        elif dims and form.pack == "axis":
            dims = ["*L", dims[axis_of(rules, candidate)], "*R"]
        dtype = "T" if term.type.dtype is variable else str(term.type.dtype)
        types.append(f"{name}: {dtype}[{', '.join(dims)}]")
    outputs = output_names(candidate)
    left = writer.statements(candidate.sources, outputs)
    if form.pack == "axis":
        left.append("where rank(L) == a")
    right = writer.statements(candidate.targets, outputs)
    return f"({', '.join(types)}) -> {', '.join(outputs)}", "\n".join(left), "\n".join(right)


def _common(typed: GeneralTypes) -> tuple[str, ...]:
    return next((dims for dims in typed.tensors.values() if dims), ())


def axis_of(rules: Rules, candidate: Conjecture) -> int:
    """The one value of all `axis` attributes; -1 where there is none, or more than one."""
    found = {value for _, value, kind in choices(rules, candidate) if kind == "axis"}
    return next(iter(found)) if len(found) == 1 else -1
