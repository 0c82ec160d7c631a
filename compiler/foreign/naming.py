"""Names and descriptions of imported rules that have none, from their operators; the number in the file makes a name unique."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from dslc.foreign.rule import ForeignRule, Operator, RuleTensor

_NUMBERS = {2: "two", 3: "three", 4: "four"}


LONGEST = 56  #: characters of a name

_SHORT = {
    "ew_add": "ewadd", "ew_mul": "ewmul", "mul": "smul", "conv2d": "conv", "pool2d_max": "pool_max", "pool2d_avg": "pool_avg",
    "constant_iconv": "i_conv", "constant_pool": "c_pool", "constant_imm": "i_matmul", "constant_one": "i_ewmul",
}  # fmt: skip


def names_of(rules: Sequence[ForeignRule]) -> list[str]:
    """A unique name for each rule: its own where the file has one that may be written, else one that says what it rewrites."""
    out: list[str] = []
    used: set[str] = set()
    for number, rule in enumerate(rules):
        name = re.sub(r"\W+", "_", rule.name, flags=re.ASCII).strip("_").lower()
        if not name or not name[0].isalpha() or name in used:
            name = f"{_stem(rule)}_{number}"
        while name in used:
            name += "_2"
        used.add(name)
        out.append(name)
    return out


def described(rule: ForeignRule) -> str:
    """What changes: operators that go and come, in a sentence."""
    before, after = (Counter(_short(op.kind) for op in side) for side in (rule.source, rule.target))
    gone, come = before - after, after - before
    if not gone and not come:
        return "the same operators, arranged in another way."
    if not come:
        return f"without {_listed(gone)}." if after else f"{_listed(gone)} that changes nothing."
    return f"{_listed(come)} instead of {_listed(gone)}." if gone else f"with {_listed(come)} more."


def _listed(operators: Counter[str]) -> str:
    parts = [f"{_NUMBERS.get(n, str(n))} `{name}`" if n > 1 else f"`{name}`" for name, n in operators.items()]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _stem(rule: ForeignRule) -> str:
    left, right = ([_words(side, root) for root in dict.fromkeys(roots)] for side, roots in _sides(rule))
    if len(left) > 1:
        return f"merge_{_several([_top(rule.source, output.source) for output in rule.outputs])}"[:LONGEST].rstrip("_")
    if right == ["input"]:
        name = f"drop_{left[0]}"
    elif left == right or not left:
        name = f"rearrange_{left[0] if left else 'nothing'}"
    else:
        name = f"{left[0]}_to_{right[0]}"
    if len(name) > LONGEST and left:
        name = f"{_top(rule.source, rule.outputs[0].source)}_to_{_top(rule.target, rule.outputs[0].target)}"
    return name[:LONGEST].rstrip("_")


def _sides(
    rule: ForeignRule,
) -> tuple[tuple[tuple[Operator, ...], list[RuleTensor]], tuple[tuple[Operator, ...], list[RuleTensor]]]:
    return (
        (rule.source, [output.source for output in rule.outputs]),
        (rule.target, [output.target for output in rule.outputs]),
    )


def _words(side: Sequence[Operator], tensor: RuleTensor) -> str:
    """An operator and those that it reads."""
    if tensor.operator < 0:
        return "input"
    inner = [_top(side, each) for each in dict.fromkeys(side[tensor.operator].inputs) if each.operator >= 0]
    top = _top(side, tensor)
    return f"{top}_of_{_several(inner)}" if inner else top


def _top(side: Sequence[Operator], tensor: RuleTensor) -> str:
    return _short(side[tensor.operator].kind) if tensor.operator >= 0 else "input"


def _short(kind: str) -> str:
    name = re.sub(r"\W+", "_", _SHORT.get(kind, kind), flags=re.ASCII).strip("_").lower()
    return name if name[:1].isalpha() else f"op_{name}"


def _several(names: Sequence[str]) -> str:
    return "_and_".join(f"{_NUMBERS.get(n, str(n))}_{name}" if n > 1 else name for name, n in Counter(names).items())
