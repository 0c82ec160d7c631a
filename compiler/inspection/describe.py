"""Everything that follows from an operator's equation, as plain data (what `dslc show` prints)."""

from __future__ import annotations

from typing import Any

from dslc.analysis.boxes import read_boxes, splits
from dslc.analysis.counts import graph_counts, scope_counts
from dslc.analysis.iterators import iterator_table
from dslc.analysis.linearity import linear_classes
from dslc.analysis.numeric import DataDependent
from dslc.analysis.pointwise import is_pointwise
from dslc.inspection.bounds import check_operator
from dslc.inspection.names import COMPUTING, Names
from dslc.ir.constants import FillRef
from dslc.ir.dtype import DType
from dslc.ir.graph import Call, Constant, Node, ScopeNode, Value, Values, nodes_of, rebuild
from dslc.ir.scalar import Scalar, num
from dslc.ir.show import ReadableText, unlike
from dslc.semantics.definitions import OnnxClause, OperatorDef
from dslc.semantics.elaborate import elaborate, expand_node
from dslc.semantics.library import Rules
from dslc.syntax import tree as t


def describe(rules: Rules, op: OperatorDef, outputs: Values) -> dict[str, Any]:
    """The facts about one application: `outputs` are those of a Call of the operator (`dslc.inspection.samples.sample`)."""
    node = outputs[0].node
    facts: dict[str, Any] = {
        "name": op.name,
        "signature": f"operator {op.signature}",
        "doc": op.syntax.doc or "",
        "definition": [" ".join(s.span.text.split()) for s in op.syntax.statements if isinstance(s, _DEFINING)],
        "traits": trait_texts(rules, op.name),
        "onnx": [clause_text(rules, clause) for clause in clauses_of(rules, op)],
        "bounds": bounds(rules, op),
    }
    if not isinstance(node, Call):
        return facts
    instance = elaborate(rules, op, tuple(arg.type for arg in node.args), node.attrs)
    known = Names(rules, op, instance.params, node.attrs)
    params = tuple(param.name for param in op.syntax.params)
    named = dict(zip(instance.params, _numbered(params, len(instance.params)), strict=True))
    names, lets = {**named}, known.tensors()

    def step(node: Node, args: Values) -> Values:
        values = expand_node(rules, node, args)
        for old, new in zip(node.values, values, strict=True):
            if old in lets:
                names.setdefault(new, lets[old])
            elif isinstance(node, Call):
                names.setdefault(new, unlike(rules.operator(node.op).short, {*names.values(), *lets.values()}))
        return values

    expanded = rebuild(instance.outputs, step)
    produced = _numbered(tuple(output.name for output in op.syntax.outputs), len(expanded))
    total = graph_counts(expanded)
    facts |= {
        "arguments": {name: str(value.type) for value, name in named.items()},
        "attributes": {name: plain(value) for name, value in node.attrs},
        "sizes": {name: plain(value) for name, value in known.sizes().items()},
        "results": {name: str(value.type) for name, value in zip(produced, outputs, strict=True)},
        "linear_in": [
            [named[v] for v in instance.params if v in group] for group in linear_classes(instance.params, expanded)
        ],
        "pointwise": is_pointwise(instance.params, expanded),
        "flops": total.flops,
        "bytes": total.bytes,
        "expressions": _expressions(expanded, names | dict(zip(expanded, produced, strict=True)), known),
    }
    return facts


def _numbered(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """So many names: the first one numbered, where it stands for several."""
    return names if len(names) >= count else tuple(f"{names[0]}{k}" for k in range(count))


_DEFINING = t.Attr | t.Where | COMPUTING


def plain(value: Any) -> Any:
    """An attribute's value for JSON."""
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, DType | Scalar):
        return str(value)
    return float(value)


def trait_texts(rules: Rules, name: str) -> list[str]:
    """The traits of an operator: `associative`, `identity 0`."""
    found = rules.traits_of(name)
    out = [name for name in ("associative", "commutative", "idempotent", "involution") if getattr(found, name)]
    out += [f"{name} {value}" for name in ("identity", "absorbing") if (value := getattr(found, name)) is not None]
    return out + [f"{name} {value}" for name, value in found.named.items()]


def bounds(rules: Rules, op: OperatorDef) -> dict[str, Any]:
    """The status of an operator's reads, their numbers, and counterexamples."""
    report = check_operator(rules, op)
    return {
        **{name: getattr(report, name) for name in ("status", "proved", "bounded", "assumed")},
        "counterexamples": [f"{found.read}: {found.counterexample}" for found in report.findings],
    }


def clauses_of(rules: Rules, op: OperatorDef) -> list[OnnxClause]:
    """The clauses that write an operator as ONNX nodes."""
    return [clause for clauses in rules.onnx.values() for clause in clauses if clause.operator is op]


def clause_text(rules: Rules, clause: OnnxClause) -> dict[str, Any]:
    """A clause with the opsets for which it stands: up to the next group of the same ONNX operator."""
    later = [other.since for other in rules.onnx[clause.op] if other.since > clause.since]
    ends = [until for until in (clause.until, min(later, default=None)) if until is not None]
    text = " ".join(clause.syntax.span.text.split())
    return {"op": clause.op, "since": clause.since, "until": min(ends, default=None), "text": text}


def _expressions(outputs: Values, names: dict[Value, str], known: Names) -> list[dict[str, Any]]:
    axes = {value: known.axes(name, value.type.rank) for value, name in names.items()}
    numbers = known.numbers()
    out = []
    for node in nodes_of(outputs):
        value = node.values[0]
        if isinstance(node, Constant):
            data = node.data
            names.setdefault(
                value, ReadableText((), ()).line(num(data.value)) if isinstance(data, FillRef) else "constant"
            )
        if isinstance(node, ScopeNode):
            own = names.setdefault(value, unlike("part", names.values()))
            operands = tuple(names.get(arg, "?") for arg in node.args)
            text = ReadableText(operands, [axes.get(arg, ()) for arg in node.args], numbers, [own])
            # what an operator inside computes has names of its own
            text.spare = known.spare if any(axes.get(value, ())) else ()
            iters, along = text.name_scope(node.scope, axes.get(value, ()))
            axes[value] = [mine or other for mine, other in zip(axes.get(value, along), along, strict=True)]
            out.append(_expression(node, own, operands, text, iters))
    return out


def _expression(
    node: ScopeNode, own: str, operands: tuple[str, ...], text: ReadableText, iters: list[str]
) -> dict[str, Any]:
    scope = node.scope
    shapes = [tuple(int(s) for s in arg.type.shape if isinstance(s, int)) for arg in node.args]
    binders = [f"{name}: {extent}" for name, extent in zip(iters, scope.extents, strict=True)]
    places = (", ".join(binders[k] for k in axis) for axis in scope.dimensions)
    inside = ", ".join(
        f"({place})" if len(axis) > 1 else place for place, axis in zip(places, scope.dimensions, strict=True)
    )
    body = text.line(scope.body)
    facts: dict[str, Any] = {
        "name": own,
        "equation": f"{own}[{inside}] = {body}",
        "iterators": [
            {
                "name": iters[k]
                if k < len(iters)
                else ", ".join(text.rows.get((row.name, row.extent, row.kind), [row.name])),
                "extent": str(row.extent),
                "kind": row.kind,
                "coefficients": [
                    {
                        "tensor": own if o.operand < 0 else operands[o.operand],
                        "dim": o.dim,
                        "coefficient": o.coefficient,
                    }
                    for o in row.occurrences
                ],
            }
            for k, row in enumerate(iterator_table(scope))
        ],
        "reads": {
            operands[box.operand]: None if box.box is None else [list(interval) for interval in box.box]
            for box in read_boxes(scope, shapes)
        },
    }
    counts = scope_counts(scope, [arg.type for arg in node.args])
    facts |= {"flops": counts.flops, "bytes": counts.bytes}
    try:
        cut = splits(scope, shapes)
        sizes = [int(e) for e in scope.extents if isinstance(e, int)]
        facts["boxes"] = {"count": cut.boxes(sizes), "splits": [list(p) for p in cut.points], "exact": cut.exact}
    except DataDependent:
        facts["boxes"] = None
    return facts
