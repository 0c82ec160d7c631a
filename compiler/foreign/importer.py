"""Foreign rules in, proved or left out: each rule of a file ends up in the library, or in the report with the reason."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dslc.errors import Diagnostic, DslcError
from dslc.foreign import flexflow, taso, tensat
from dslc.foreign.counterparts import KNOWN
from dslc.foreign.decisions import Deciding, Import, ImportedRule, KeptVerdicts, Outcome, Pending
from dslc.foreign.duplicates import Seen
from dslc.foreign.flexflow import AxisOrder, axis_order, undistributed
from dslc.foreign.reverses import documented, merged
from dslc.foreign.rule import MOST_BYTES as RULE_MOST_BYTES
from dslc.foreign.rule import ForeignRule, Operator, Operators, Output, RuleTensor, damaged
from dslc.foreign.shape_inference import Mode, Typing, UnknownOperator, rank_of_products
from dslc.foreign.shapes import (
    Clash,
    Dim,
    Number,
    Shape,
    Size,
    SizeProduct,
    Sum,
    UnboundTensor,
    Unifier,
    Windows,
    value_of,
)
from dslc.foreign.translation import Translation, tensor_names, translations

WIDTH = 110  #: characters of a line of documentation

#: told of what is done: how many rules are decided, how many there are, and how many have which outcome
Progress = Callable[[int, int, Counter[Outcome]], None]


def import_rules(
    rules: Sequence[ForeignRule],
    form: str,
    out: Path,
    workers: int = 2,
    limit: float = 30.0,
    progress: Progress | None = None,
    guards: bool = True,
    axes: AxisOrder | None = None,
    *,
    origin: str = "",
    cache: Path | None = None,
    budget: float | None = None,
    library: str = "",
) -> Import:
    """Decides every rule, or as many as the time allows: the others are `open`.

    Args:
        form: the format's name.
        out: the file that is going to be written.
        workers: processes that prove; 0 for this one.
        limit: seconds for one prover and one rule.
        guards: whether conditions are looked for under which a wrong rule is right (seconds for each wrong one).
        axes: how FlexFlow's parallel dimensions are counted; None: as more rules of the file fit.
        origin: the file's name, for the documentation of the rules.
        cache: a folder of what was decided, for the next run; it is written as soon as something is.
        budget: seconds after which nothing more is begun.
        library: the library's name, the file's where none is given.

    Raises:
        DslcError: E0519 where dslc's own libraries are changed in the meantime.
    """
    result = Import()
    ends = None if budget is None else time.monotonic() + budget
    counts: Counter[Outcome] = Counter()
    told = 0

    def tell() -> None:
        nonlocal told
        counts.update(rule.outcome for rule in result.rules[told:])
        told = len(result.rules)
        if progress is not None:
            progress(told, len(rules), counts)

    order = axes or axis_order(rules)
    plain = [undistributed(rule, order) for rule in rules]
    names = names_of([rule for rule, _ in plain])
    reader = _Reader(names, result, origin or f"a {form} file")
    with Deciding(workers, limit, KeptVerdicts(cache, limit), guards, ends, library or out.stem) as deciding:
        for rule in deciding.run(reader.pending(plain, tell)):
            result.rules.append(rule)
            tell()
    decided = {rule.number for rule in result.rules}
    result.rules += [ImportedRule(k, name, "open") for k, name in enumerate(names) if k not in decided]
    result.rules.sort(key=lambda rule: rule.number)
    result.rules = merged(result.rules, [rule for rule, _ in plain])
    told = 0
    counts.clear()
    tell()
    return result


class _Reader:
    """Reads rules into the language; what needs no proof goes to the result at once."""

    def __init__(self, names: Sequence[str], result: Import, origin: str) -> None:
        self._names, self._result, self._origin = names, result, origin
        self._seen = Seen()

    def pending(self, rules: Sequence[tuple[ForeignRule, int]], tell: Callable[[], None]) -> Iterator[Pending]:
        """The rules that need a proof, as they are read. `tell` is called after each other one.

        Args:
            rules: each with the number of operators that distribute tensors and were left out.
        """
        for number, (rule, left_out) in enumerate(rules):
            found = self._read(number, rule, left_out)
            if isinstance(found, Pending):
                yield found
            else:
                self._result.rules.append(found)
                tell()

    def _read(self, number: int, rule: ForeignRule, left_out: int) -> Pending | ImportedRule:
        name = self._names[number]

        def told(outcome: Outcome, reason: str, reading: Translation | None = None) -> ImportedRule:
            return ImportedRule(number, name, outcome, reason, reading, left_out=left_out)

        if left_out and (not rule.source or all(output.source.operator < 0 for output in rule.outputs)):
            return told("distribution", "the source distributes tensors and computes nothing")
        missing = Counter(kind for kind in rule.kinds() if kind not in KNOWN)
        if missing:
            self._result.unknown.update(missing)
            return told("unknown", ", ".join(sorted(missing)))
        doc = documented(number, self._origin)
        if left_out:
            doc += f"; {left_out} operators that distribute tensors are left out."
        else:
            what = f": {described(rule)}"
            doc += what if len(doc + what) <= WIDTH else "."
        try:
            readings = tuple(translations(rule, name, doc))
        except UnboundTensor as problem:
            return told("unbound", str(problem))
        except (Clash, UnknownOperator) as problem:
            where = misfit(rule, tensor_names(rule))
            return told("impossible" if where is None else "rejected", where or str(problem))
        if self._seen.one_graph(rule, readings[0]):
            return told("distribution" if left_out else "same", "", readings[0])
        other = self._seen.other(name, rule, readings[0])
        if other is not None:
            return told("duplicate", other, readings[0])
        return Pending(number, name, readings, left_out)


NUMBERS: tuple[int, ...] = (2, 4, 6, 10, 14, 22, 26, 34, 38, 46)  #: what different sizes are, in turn
WINDOW = 3  #: what a window's size is: windows are odd


def misfit(rule: ForeignRule, names: dict[int, str]) -> str | None:
    """A counterexample of shapes: those of the inputs, those of the source, and the misfit of the target.

    None where the source fits no shapes either, or the target fits at the sizes that were tried.
    """
    rank = rank_of_products(rule)

    def typed(side: Operators, results: Sequence[RuleTensor], inputs: dict[int, Shape]) -> Typing:
        alone = replace(rule, source=side, target=side, outputs=tuple(Output(each, each) for each in results))
        return Typing(alone, Mode(), inputs=dict(inputs), products=rank)

    def given(side: Operators, results: Sequence[RuleTensor]) -> str:
        known = typed(side, results, shapes)
        return " and ".join(_text(known.unifier, known.of(0, each)) for each in results)

    sources, targets = ([getattr(each, end) for each in rule.outputs] for end in ("source", "target"))
    try:
        alone = typed(rule.source, sources, {})
        shapes = _numbers(alone)
        wanted = given(rule.source, sources)
    except Clash:
        return None
    at = ", ".join(f"{names[k]}: {_text(alone.unifier, shape)}" for k, shape in shapes.items())
    start = f"with {at} the source gives {wanted}"
    try:
        found = given(rule.target, targets)
    except Clash as problem:
        return f"{start}; the target does not fit there: {problem}"
    return f"{start}, the target {found}" if found != wanted else None


def _numbers(typing: Typing) -> dict[int, Shape]:
    """Shapes of the inputs with a number for every size; an open end has no dimensions."""
    chosen: dict[Size, Number] = {}

    def number(dim: Dim) -> Dim:
        match typing.unifier.dim(dim):
            case Size() as size:
                few = NUMBERS[len(chosen) % len(NUMBERS)]
                return chosen.setdefault(size, Number(WINDOW if size.hint in ("R", "S") else few))
            case SizeProduct(first, second):
                return SizeProduct(number(first), number(second))
            case Sum(parts):
                return Sum(tuple(map(number, parts)))
            case Windows(size, kernel, stride, same):
                return Windows(number(size), number(kernel), stride, same)
            case other:
                return other

    out: dict[int, Shape] = {}
    for at, shape in typing.inputs.items():
        values = [value_of(number(dim)) for dim in typing.unifier.shape(shape).dims]
        if None in values:
            raise Clash("a size that has no number")
        out[at] = Shape(tuple(Number(value) for value in values if value is not None))
    return out


def _text(unifier: Unifier, shape: Shape) -> str:
    values = [value_of(unifier.dim(dim)) for dim in unifier.shape(shape).dims]
    return "x".join("?" if value is None else str(value) for value in values) or "one number"


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
    """A sentence about the operators that go and come."""
    before, after = (Counter(_short(op.kind) for op in side) for side in rule.sides)
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
    left = [_words(rule.source, root) for root in dict.fromkeys(output.source for output in rule.outputs)]
    right = [_words(rule.target, root) for root in dict.fromkeys(output.target for output in rule.outputs)]
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


def read_rules(
    form: str, path: Path, pairs: bool | None = None, numbering: taso.Numbering | None = None
) -> tuple[ForeignRule, ...]:
    """The rules of a file. `pairs` is for TENSAT's multi-pattern files, `numbering` for protobuf files (None: as they tell).

    FlexFlow's files are JSON, or protobuf as its generator writes it.

    Raises:
        DslcError: E0902 for a file that cannot be read, E1001 for one that is damaged or of another format.
    """
    try:
        if path.stat().st_size > RULE_MOST_BYTES:
            raise damaged(str(path), f"{path.stat().st_size} bytes are more than the {RULE_MOST_BYTES} that are read")
        data = path.read_bytes()
    except OSError as failure:
        raise DslcError([Diagnostic("E0902", f"cannot read {path}: {failure.strerror}", path=str(path))]) from None
    try:
        if form == "tensat":
            return tensat.read(data, str(path), pairs)
        if form == "taso":
            return taso.read(data, str(path), numbering)
        if path.suffix == ".pb" or looks_like(data) == "taso":
            return taso.read(data, str(path), numbering or "flexflow")
        return flexflow.read(data, str(path))
    except DslcError as problem:
        other = looks_like(data)
        if other in ("", form) or any(each.hint for each in problem.diagnostics):
            raise
        hint = _OF_DSLC if other == "dslc" else f"it looks like a file of {_WHOSE[other]}: `--from {other}`"
        raise DslcError([replace(each, hint=hint) for each in problem.diagnostics]) from None


_WHOSE = {"taso": "TASO's protobuf", "tensat": "TENSAT's text", "flexflow": "FlexFlow's JSON"}
_OF_DSLC = "it is a rule file of dslc already, which `dslc check` and `dslc optimize --rules` read"


HEAD = 4096  #: bytes that are looked at


def looks_like(data: bytes) -> str:
    """The format of which a file's beginning is, `dslc` for the language's own, else nothing."""
    head = data[:HEAD].removeprefix(b"\xef\xbb\xbf")
    text = head.strip()
    if text[:1] in (b"{", b"["):
        return "flexflow"
    if re.match(rb"(#[^\n]*\s+)*dslc \d", text):
        return "dslc"
    # rules of protobuf are parts of number 1, which have a length
    if any(byte < 9 for byte in head):
        return "taso" if head[:1] == b"\n" else ""
    return "tensat" if b"=>" in text or b"==" in text else ""
