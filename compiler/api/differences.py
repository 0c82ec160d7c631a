"""Positions at which two programs of equal shapes differ, found modulo p, proved, and by PET's boxes beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from dslc.api.calls import called_as, file_of_call
from dslc.api.models import attribute_value, libraries_of, names_of, seconds_of, shape_value, sizes_of, whole
from dslc.errors import DslcError, SourceText, Span, error
from dslc.inspection.lookup import find_rule
from dslc.interpret.instantiate import Instance, Rejected, most_often
from dslc.ir.graph import Value, Values, input_value, nodes_of, replace
from dslc.ir.scalar import Scalar, dimension, num, rebuild
from dslc.ir.sizes import with_sizes
from dslc.prove.partial.difference import Difference, difference, equal_everywhere, parametric
from dslc.prove.partial.draws import NotCompared, WhyUncompared
from dslc.prove.partial.rules import instances, percent, wrongly_corrected
from dslc.prove.partial.rules import sizes_of as sizes_of_shapes
from dslc.prove.verdict import Counterexample
from dslc.records import record
from dslc.reporting.pages import page_of_difference
from dslc.reporting.plots import Plane, plane, svg, text
from dslc.search.options.types import PathLike
from dslc.semantics.checks.substitutions import errors_of
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import Mismatch
from dslc.semantics.installed import library_of
from dslc.semantics.library import Rules, load_many

LISTED = 20  #: boxes that are listed one by one
LOOKED = 24  #: instances that are looked at for one whose sides differ in part
SECONDS = 5.0  #: seconds for that
ATTEMPTS = 2000  #: draws after which nothing that is given fits


@record
class SetOfSizes:
    """Positions at which one output differs, its sizes unknown: `set` as isl writes it, whole where `exact`, else at most that."""

    name: str
    shape: str
    set: str
    empty: bool
    exact: bool
    proved: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "share": 0.0 if self.empty else None, "boxes": [], "proved": self.proved, "agree": None, "seconds": round(self.seconds, 4),
            "set": self.set,
        }  # fmt: skip

    def __str__(self) -> str:
        said = "equal" if self.empty else f"differs{'' if self.exact else ' at most'} at {self.set}"
        proved = "proved" if self.proved else "not proved where a side has no value"
        return f"{self.name}{self.shape}: {said}\n  {proved} for all sizes and all inputs; {self.seconds:.2f} s"


@record
class Compared:
    """Positions at which two programs differ, output by output.

    `differences` where sizes are known, `sets` where they are not. Of a rule: `instance` is what its names stand for, `limit` the share
    that may differ, `correction` what is known of its own correction.
    """

    names: tuple[str, ...]
    differences: tuple[Difference, ...] = ()
    sets: tuple[SetOfSizes, ...] = ()
    instance: str = ""
    limit: float | None = None
    correction: str = ""

    @property
    def equal(self) -> bool:
        """True where no position differs; see `proved` of each part for what that rests on."""
        return all(one.empty for one in self.sets) and not any(one.boxes for one in self.differences)

    @property
    def planes(self) -> tuple[Plane, ...]:
        """A plane of each output, as `dslc diff --svg` draws it."""
        return tuple(plane(each.mask, name) for each, name in zip(self.differences, self.names, strict=False))

    def to_dict(self) -> dict[str, Any] | list[dict[str, Any]]:
        """Plain values for JSON: of one output, or a list for several."""
        records = [
            *(
                {
                    "share": each.share,
                    "boxes": [
                        {"start": list(box.start), "stop": list(box.stop), "step": list(box.step)} for box in each.boxes
                    ],
                    "proved": each.proved,
                    "agree": each.agree,
                    "seconds": round(each.seconds, 4),
                }
                for each in self.differences
            ),
            *(each.to_dict() for each in self.sets),
        ]
        return records[0] if len(records) == 1 else records

    def to_html(self, programs: Sequence[str]) -> str:
        """A page of the difference of some programs, with a picture of each output that differs in part."""
        records = self.to_dict()
        pictures = [
            svg([one])
            for each, one in zip(self.differences, self.planes, strict=False)
            if each.boxes and each.share < 1
        ]
        found = [
            {**one, "name": name, "boxes": boxes}
            for name, one, boxes in zip(
                self.names, records if isinstance(records, list) else [records],
                [*([str(box) for box in each.boxes] for each in self.differences), *([] for _ in self.sets)], strict=True,
            )
        ]  # fmt: skip
        return page_of_difference(programs, found, pictures, [f"at {self.instance}"] if self.instance else [])

    def __repr__(self) -> str:
        shares = [
            f"{name} {each.share:.3%}" for name, each in zip(self.names, self.differences, strict=False) if each.boxes
        ]
        shares += [each.name for each in self.sets if not each.empty]
        return f"<Compared: {'differs in ' + ', '.join(shares) if shares else 'equal'}>"

    def __str__(self) -> str:
        lines = [f"at {self.instance}"] if self.instance else []
        lines += [str(each) for each in self.sets]
        for name, each, shown in zip(self.names, self.differences, self.planes, strict=False):
            lines += _lines(name, each, self.limit)
            if each.boxes and each.share < 1:
                lines += ["  " + line for line in text(shown)]
        return "\n".join([*lines, *([f"the rule's own correction is {self.correction}"] if self.correction else [])])


def diff(
    first: str,
    second: str | None = None,
    *,
    rules: PathLike | Sequence[PathLike] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    bind: Mapping[str, Any] | None = None,
    nodes: str | Sequence[str] = (),
    pieces: int = 1000,
    timeout: float | str = "10s",
    seed: int = 0,
) -> Compared:
    """The positions at which two programs differ, found modulo a prime and proved where that is decided.

    Args:
        first: a rule, of which both sides are compared; or a call, `"conv(X: f32[1, 8, 14, 14], K: f32[8, 8, 3, 3])"`.
        second: another call over the same tensors; where `first` is a rule, none.
        rules: libraries beside std.
        shapes: of a rule's parameters, by name; what is not said is drawn.
        bind: sizes by name, and of a rule attributes.
        nodes: where calls are models, the node of each.
        pieces: the most boxes that a set may have.
        timeout: for the exact prover; seconds, or a text.
        seed: of what is drawn.

    Returns:
        `.equal`, and for each output the boxes in which it differs, the share that they are, and whether that is proved.

    Raises:
        DslcError: E0911 and others for wrong calls, E0606 to E0608 where programs are not compared.

    Example:
        >>> import dslc
        >>> dslc.diff("relu(X: f32[4])", "relu(relu(X))").equal
        True
    """
    programs = (first,) if second is None else (first, second)
    names_of(programs, "a program")
    libraries, models = libraries_of(rules), names_of(nodes, "a node")
    seconds, most, drawn = seconds_of(timeout), whole(pieces, "number of boxes", 1), whole(seed, "seed")
    instance: Instance | None = None
    old: Sequence[Value]
    new: Sequence[Value]
    if second is None:
        known, rule, instance = _sides(first, libraries, shapes or {}, bind or {}, drawn)
        names = tuple(instance.left)
        old, new = ([side[name] for name in names] for side in (instance.left, instance.right))
    elif shapes:
        raise error("E0911", "a call has the shapes of its tensors", hint="`--shape` is for a rule")
    else:
        # of two calls only sizes are bound
        known, old, new = _calls(programs, libraries, sizes_of(bind), models)
        names = tuple(f"Y{k}" for k in range(len(old))) if len(old) > 1 else ("Y",)
    try:
        every = nodes_of((*old, *new))
        if not all(value.type.is_static for node in every for value in node.values):
            return Compared(names, sets=_for_all_sizes(known, names, old, new, seconds))
        found = difference(known, old, new, seed=drawn, pieces=most, seconds=seconds, evident=True)
    except NotCompared as problem:
        raise _refused(problem, second) from None
    if not instance:
        return Compared(names, found)
    correction = ""
    if instance.corrected:
        right = wrongly_corrected(known, rule, instance, found, drawn, seconds)
        correction = "proved" if right else "not proved"
        if isinstance(right, Counterexample):
            correction = f"wrong at {right.output}{list(right.position)}"
            own, whole_type = instance.corrected[right.output].type, instance.left[right.output].type
            correction = (
                correction if own == whole_type else f"of another type: {own}, and {right.output} is {whole_type}"
            )
    return Compared(names, found, (), str(instance), instance.limit, correction)


def _calls(
    programs: Sequence[str], libraries: Sequence[str], sizes: Mapping[str, int], nodes: Sequence[str]
) -> tuple[Rules, Values, Values]:
    """Two calls over common tensors."""
    rules = load_many(["std", *libraries, *dict.fromkeys(file for call in programs for file in file_of_call(call))])
    left = list(nodes)
    named = [(call, left.pop(0) if left and Path(call).suffix == ".onnx" else None) for call in programs]

    def read(calls: Sequence[tuple[str, str | None]]) -> list[Values]:
        known: dict[str, Any] = {}
        found: list[Values] = []
        for call, node in calls:
            called = called_as(rules, call, node, sizes, known, several=True)
            for name, value in zip(called.names, called.graph.inputs, strict=True):
                if known.setdefault(name, value.type) != value.type:
                    whole = Span(SourceText("call", call), 0, len(call))
                    raise error("E0306", f"`{name}` is {known[name]} in the first call and {value.type} here", whole)
            tensors = {
                value: input_value(name, value.type)
                for name, value in zip(called.names, called.graph.inputs, strict=True)
            }
            found.append(replace(called.graph.outputs, tensors))
        return found

    try:
        sides = read(named)
    except DslcError as problem:
        # the second call may be the one that has the types
        try:
            sides = read(named[::-1])[::-1]
        except DslcError:
            raise problem from None
    numbers: dict[Scalar, Scalar] = {dimension(name): num(size) for name, size in sizes.items()}
    both = with_sizes((*sides[0], *sides[1]), lambda size: rebuild(size, numbers.get))
    return rules, both[: len(sides[0])], both[len(sides[0]) :]


def _for_all_sizes(
    rules: Rules, names: Sequence[str], old: Sequence[Value], new: Sequence[Value], seconds: float
) -> tuple[SetOfSizes, ...]:
    """The sets where sizes stay unknown, as far as the exact prover decides. Raises NotCompared where it does not."""
    began = time.perf_counter()
    region = parametric(rules, old, new, seconds)
    if not region and not equal_everywhere(rules, old, new, seconds):
        raise NotCompared(WhyUncompared.SIZES)
    taken = time.perf_counter() - began
    whole = region is None or all(region.defined)
    out = []
    for k, (name, value) in enumerate(zip(names, old, strict=True)):
        each = region.sets[k] if region else None
        shape = f"[{', '.join(map(str, value.type.shape))}]"
        shown, empty = "{ }" if each is None else str(each), each is None or bool(each.is_empty())
        out.append(SetOfSizes(name, shape, shown, empty, region is not None and region.exact, whole, taken))
    return tuple(out)


def _sides(
    name: str, libraries: Sequence[str], shapes: Mapping[str, Any], binds: Mapping[str, Any], seed: int
) -> tuple[Rules, SubstitutionDef, Instance]:
    """A rule and an instance of it at the given shapes: the first that differs in part, else the first."""
    own = file_of_call(name)
    if "(" in name and not own:
        span, hint = Span(SourceText("call", name), 0, len(name)), 'two calls: `dslc diff "CALL" "CALL"`'
        raise error("E0911", "one call is compared with nothing", span, hint=hint)
    short = name.rpartition("::")[2] if own else name
    if not own and (library := library_of(name)) is not None:
        own = [library]
    rules = load_many(["std", *libraries, *own])
    rule = find_rule(rules, short)
    if wrong := errors_of(rules, rule):
        raise DslcError(wrong)
    return rules, rule, _instance(rules, rule, _given(rules, rule, shapes, binds), seed)


def _given(rules: Rules, rule: SubstitutionDef, shapes: Mapping[str, Any], binds: Mapping[str, Any]) -> dict[str, Any]:
    """The names that the options give a value."""
    read: dict[str, tuple[int, ...]] = {}
    given: dict[str, Any] = {}
    for tensor, sizes in shapes.items():
        text = f"{tensor}={_text(sizes).strip('[]')}"
        place = Span(SourceText("--shape", text), 0, len(text))
        if tensor not in {param.name for param in rule.syntax.params}:
            hint = "its parameters are " + ", ".join(f"`{param.name}`" for param in rule.syntax.params)
            raise error("E0911", f"`{rule.short}` has no parameter `{tensor}`", place, hint=hint)
        try:
            read[tensor] = shape_value(_text(sizes))
        except ValueError:
            raise error("E0911", "a shape is a list of numbers", place, hint=f"`--shape {tensor}=1,48,38,38`") from None
        if any(size < 0 for size in read[tensor]):
            raise error("E0911", "a size is not negative", place)
        try:
            given = sizes_of_shapes(rules, rule, read)
        except Mismatch as problem:
            raise error("E0911", f"this shape does not fit: {problem.reason}", place) from None
    for key, value in binds.items():
        if not (text := _text(value)):
            raise error(
                "E0911", "a name is given a value", Span(SourceText("--bind", key), 0, len(key)), hint="`--bind d=2`"
            )
        given[key.strip()] = attribute_value(text)
    return given


def _text(value: Any) -> str:
    """A value as the command line writes it."""
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _instance(rules: Rules, rule: SubstitutionDef, given: Mapping[str, Any], seed: int) -> Instance:

    first: Instance | None = None
    reasons: list[str] = []
    looked, until = 0, time.monotonic() + SECONDS
    for instance in instances(rules, rule, seed, given, attempts=ATTEMPTS):
        if isinstance(instance, Rejected):
            reasons.append(str(instance))
            if first and len(reasons) > 400:
                break
            continue
        first = first or instance
        looked += 1
        left, right = instance.sides
        try:
            if any(0 < each.share < 1 for each in difference(rules, left, right, prove=False)):
                return instance
        except NotCompared:
            pass
        if looked == LOOKED or time.monotonic() > until or not rule.syntax.partial:
            break
    if not first:
        at = " at what is given" if given else ""
        raise error("E0507", f"no instance of `{rule.name}` was found{at}", rule.span, hint=most_often(reasons))
    return first


def _refused(problem: NotCompared, call: str | None) -> DslcError:
    """The reason why two programs are not compared, at the second one where they are calls."""
    code, hint = {
        WhyUncompared.PIECES: ("E0607", "a correction of so many pieces gains nothing; `--pieces N` allows more"),
        WhyUncompared.DISAGREE: ("E0608", ""),
        WhyUncompared.SIZES: ("E0606", "`--bind NAME=N`"),
    }.get(problem.why, ("E0606", ""))
    span = None if call is None else Span(SourceText("call", call), 0, len(call))
    return error(code, f"these programs are not compared: {problem}", span, hint=hint)


def title(name: str, found: Difference) -> str:
    """`Y[1, 8, 9, 9]: 12.3 % differs (40 of 324 positions)`."""
    count, total = sum(box.count for box in found.boxes), prod(found.shape)
    verdict = "equal" if not count else f"{percent(found.share)} differs"
    return f"{name}{list(found.shape)}: {verdict} ({count} of {total} positions)"


def _lines(name: str, found: Difference, limit: float | None) -> list[str]:
    """Lines about one output: its title, boxes, proof, and the finding of PET's way."""
    count, total = sum(box.count for box in found.boxes), prod(found.shape)
    out = [title(name, found)]
    if limit is not None and found.share > limit:
        out.append(f"  more than the rule's limit of {percent(limit)}")
    out += [f"  {box}" for box in found.boxes[:LISTED]]
    if len(found.boxes) > LISTED:
        out.append(f"  and {len(found.boxes) - LISTED} more boxes")
    where = "outside of it" if count else "everywhere"
    said = f"{'proved' if found.proved else 'not proved'} equal {where} for all inputs"
    out.append(f"  {said if count < total or not total else 'equal nowhere'}; {found.seconds:.2f} s")
    if not found.proved and found.error_bound is not None:
        out.append(f"  the probability that a position is missing is at most {found.error_bound:.1e}")
    if found.agree is None:
        out.append("  boxes (PET): do not apply")
    else:
        boxed = percent(found.boxed or 0.0)
        out.append(
            f"  boxes (PET): agree, {boxed} is in boxes that fail; {found.looked} of {total} positions are looked at"
        )
    return out
