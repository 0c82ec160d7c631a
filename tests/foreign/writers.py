"""Files of TENSAT and FlexFlow for tests, written as these projects write them; dslc itself only reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dslc.errors import error
from dslc.foreign import taso
from dslc.foreign.rule import ForeignRule, Operator, Parameter, RuleTensor
from dslc.foreign.taso import FLEXFLOW_KEYS, FLEXFLOW_KINDS
from dslc.foreign.tensat import _FORMS, _KERNEL


def _upper(name: str, prefix: str) -> str:
    return prefix + name.upper() if name.lower() == name else name


def _numeric(value: Parameter) -> int:
    if isinstance(value, str):
        raise error("E1002", f"FlexFlow's format has no parameter `{value}`", hint="parameters are numbers there")
    return value


def _written(op: Operator) -> dict[str, Any]:
    return {
        "_t": "Operator",
        "type": _upper(op.kind, "OP_"),
        "input": [{"_t": "RuleTensor", "opId": t.operator, "tsId": t.output} for t in op.inputs],
        "para": [{"_t": "Parameter", "key": _upper(k, "PM_"), "value": _numeric(v)} for k, v in op.parameters],
    }


def flexflow_json(rules: Iterable[ForeignRule]) -> bytes:
    """The text of a file, indented by two and in the order of entries of FlexFlow's own.

    Raises:
        DslcError: E1002 for a parameter that is no number.
    """
    out = [
        {
            "_t": "Rule",
            "name": rule.name or f"rule_{at}",
            "srcOp": [_written(op) for op in rule.source],
            "dstOp": [_written(op) for op in rule.target],
            "mappedOutput": [
                {
                    "_t": "MapOutput",
                    "srcOpId": o.source.operator,
                    "srcTsId": o.source.output,
                    "dstOpId": o.target.operator,
                    "dstTsId": o.target.output,
                }
                for o in rule.outputs
            ],
        }
        for at, rule in enumerate(rules)
    ]
    return (json.dumps({"_t": "RuleCollection", "rule": out}, indent=2, sort_keys=True) + "\n").encode()


def tensat_text(rules: Iterable[ForeignRule]) -> bytes:
    """A text in the newer form: one line a rule, or two lines each where every rule has two outputs.

    Raises:
        DslcError: E1002 for rules that TENSAT cannot write: operators with more outputs than two, files that mix rules of one
            output with rules of two (TENSAT keeps them in two files), three outputs.
    """
    rules = tuple(rules)
    counts = {len(rule.outputs) for rule in rules}
    if len(counts) > 1 or max(counts, default=1) > 2:
        raise error(
            "E1002", f"rules with {' and '.join(map(str, sorted(counts)))} outputs do not fit one TENSAT file",
            hint="TENSAT has a file of rules with one output and a file of rules with two",
        )  # fmt: skip
    out = []
    for rule in rules:
        names = dict(rule.names)
        for output in rule.outputs:
            sides = (_text(rule.source, output.source, names), _text(rule.target, output.target, names))
            out.append("=>".join(side if side.startswith("(") else f"({side})" for side in sides))
    return "".join(line + "\n" for line in out).encode()


def _text(side: tuple[Operator, ...], tensor: RuleTensor, names: dict[int, str]) -> str:
    if tensor.operator < 0:
        return "?" + names.get(tensor.operator, f"input_{-tensor.operator}")
    op = side[tensor.operator]
    inputs = [_text(side, each, names) for each in op.inputs]
    if op.kind == "split":
        if tensor.output > 1:
            raise error("E1002", "TENSAT's split has two outputs")
        return f"(split_{tensor.output} (split {op.get('axis')} {inputs[0]}))"
    if tensor.output:
        raise error("E1002", f"TENSAT has no second output of `{op.kind}`")
    form = _FORMS.get(op.kind)
    keys = {key for key, _ in op.parameters}
    if op.kind == "concat":
        head = "concat" if len(inputs) == 2 else f"concat{len(inputs)}"
        if not 2 <= len(inputs) <= 5:
            raise error("E1002", f"TENSAT has no concat of {len(inputs)} tensors")
        words = [head, *(str(op.get(key)) for key in ("axis", "numdim") if key in keys), *inputs]
    elif form is None:
        words = _mixed(op, inputs)
    else:
        name, _, before, after = form
        if op.kind == "enlarge":
            before = _KERNEL
        words = [
            name,
            *(str(op.get(k)) for k in before if k in keys),
            *inputs,
            *(str(op.get(k)) for k in after if k in keys),
        ]
    return words[0] if len(words) == 1 else f"({' '.join(words)})"


def _mixed(op: Operator, inputs: list[str]) -> list[str]:
    places: dict[int, str] = {}
    for key, value in op.parameters:
        if not key.isdigit():
            raise error("E1002", f"TENSAT has no operator `{op.kind}`")
        places[int(key)] = str(value)
    rest = iter(inputs)
    return [op.kind, *(places[at] if at in places else next(rest) for at in range(len(places) + len(inputs)))]


def flexflow_protobuf(rules: Iterable[ForeignRule]) -> bytes:
    """TASO's messages with the numbers of FlexFlow's generator."""

    def numbered(op: Operator) -> Operator:
        parameters = tuple((f"#{FLEXFLOW_KEYS.index(key)}", value) for key, value in op.parameters)
        return replace(op, kind=f"#{FLEXFLOW_KINDS.index(op.kind)}", parameters=parameters)

    return taso.write(
        replace(rule, source=tuple(map(numbered, rule.source)), target=tuple(map(numbered, rule.target)))
        for rule in rules
    )


def written(form: str, rules: Iterable[ForeignRule]) -> bytes:
    return {"taso": taso.write, "tensat": tensat_text, "flexflow": flexflow_json}[form](rules)
