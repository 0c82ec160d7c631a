"""`dslc diff`: where two programs of equal shapes differ, found modulo p, proved, and by PET's boxes beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dslc.cli.options import attribute_value, bind_option, form_option, rules_option, shape_value, timeout_option
from dslc.cli.outputs import writable
from dslc.store import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dslc.errors import DslcError
    from dslc.interpret.instantiate import Instance
    from dslc.ir.graph import Value
    from dslc.ir.scalar import Scalar
    from dslc.prove.partial.difference import Difference
    from dslc.reporting.planes import Plane
    from dslc.semantics.definitions import SubstitutionDef
    from dslc.semantics.library import Rules


LISTED = 20  #: boxes that are listed one by one
LOOKED = 24  #: instances that are looked at for one whose sides differ in part
SECONDS = 5.0  #: seconds for that
ATTEMPTS = 2000  #: draws after which nothing that is given fits


@dataclass(frozen=True, slots=True)
class SetOfSizes:
    """Where one output of two programs differs, its sizes unknown: `set` as isl writes it, whole where `exact`, else at most that."""

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


@dataclass(frozen=True, slots=True)
class Compared:
    """Where two programs differ, output by output.

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
        """Whether no position differs; see `proved` of each part for what that rests on."""
        return all(one.empty for one in self.sets) and not any(one.boxes for one in self.differences)

    @property
    def planes(self) -> tuple[Plane, ...]:
        """A plane of each output, as `dslc diff --svg` draws it."""
        from dslc.reporting.planes import plane

        return tuple(plane(each.mask, name) for each, name in zip(self.differences, self.names, strict=False))

    def to_dict(self) -> dict[str, Any] | list[dict[str, Any]]:
        """Plain values for JSON: of one output, or a list for several."""
        records = [*(_record(each) for each in self.differences), *(each.to_dict() for each in self.sets)]
        return records[0] if len(records) == 1 else records

    def __repr__(self) -> str:
        shares = [
            f"{name} {each.share:.3%}" for name, each in zip(self.names, self.differences, strict=False) if each.boxes
        ]
        shares += [each.name for each in self.sets if not each.empty]
        return f"<Compared: {'differs in ' + ', '.join(shares) if shares else 'equal'}>"

    def __str__(self) -> str:
        from dslc.reporting.planes import text

        lines = [f"at {self.instance}"] if self.instance else []
        lines += [str(each) for each in self.sets]
        for name, each, shown in zip(self.names, self.differences, self.planes, strict=False):
            lines += _lines(name, each, self.limit)
            if each.boxes and each.share < 1:
                lines += ["  " + line for line in text(shown)]
        return "\n".join([*lines, *([f"the rule's own correction is {self.correction}"] if self.correction else [])])


@click.command()
@click.argument("programs", nargs=-1, required=True, metavar="RULE | CALL CALL")
@rules_option()
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="X=1,48,38,38",
    help="Of RULE: the shape of a parameter; may be repeated.",
)
@bind_option("A size, or of RULE an attribute: d=2, p=[1,1,1,1].", "NAME=VALUE")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME",
    help="CALL is a model: its node (or result) of this name; one each.",
)
@click.option(
    "--svg", "drawing", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw a plane of the set."
)
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write a page of what differs."
)
@click.option(
    "--pieces", type=click.IntRange(min=1), default=1000, show_default=True, help="The most boxes that a set may have."
)
@timeout_option("For the exact prover.", "10s")
@click.option("--seed", default=0, show_default=True, help="Of the random inputs, and of what is drawn of RULE.")
@form_option()
def command(
    programs: tuple[str, ...], libraries: tuple[str, ...], shapes: tuple[str, ...], binds: tuple[str, ...], drawing: Path | None,
    html: Path | None, nodes: tuple[str, ...], pieces: int, timeout: float, seed: int, output_format: str,
) -> None:  # fmt: skip
    """Say at which positions two programs differ: both sides of a substitution RULE, or two calls as `dslc derive` takes them.

    dslc diff pet.dilated_conv_to_dense --shape X=1,2,11,13 --bind d=2 --bind p=[2,2,2,2]

    dslc diff "conv(X: f32[1, 8, 14, 14], K: f32[8, 8, 3, 3])" "conv(X, K, dilation=[1, 1])"

    One name in both calls is one tensor. What is not said of RULE is drawn, sizes at which it differs in part first.
    """
    from dslc.reporting.planes import svg

    if len(programs) > 2:
        raise click.UsageError("`dslc diff` compares two programs: a rule's sides, or two calls.")
    for other in (html, drawing):
        if other is not None:
            writable(other)
    found = compared(programs, libraries, shapes, binds, nodes, pieces, timeout, seed)
    if output_format == "json":
        if found.instance:
            click.echo(f"at {found.instance}", err=True)
        from dslc.reporting.records import record_text

        click.echo(record_text("diff", found.to_dict()), nl=False)
    else:
        titles = {_title(name, each) for name, each in zip(found.names, found.differences, strict=False)}
        for line in str(found).splitlines():
            click.secho(line, bold=line in titles)
    if html is not None:
        _page(html, programs, found)
    if drawing is not None and found.differences:
        write_file(drawing, svg(list(found.planes)))
        if output_format == "full":
            click.echo(f"drawn in {drawing}")


def _page(place: Path, programs: Sequence[str], found: Compared) -> None:
    """Writes a page of what differs, with a picture of each output that does in part."""
    from dslc.prove.strided import Box
    from dslc.reporting.others import page_of_difference
    from dslc.reporting.planes import svg

    records = found.to_dict()
    pictures = [
        svg([one]) for each, one in zip(found.differences, found.planes, strict=False) if each.boxes and each.share < 1
    ]
    notes = [f"at {found.instance}"] if found.instance else []
    listed = records if isinstance(records, list) else [records]
    named = [
        {
            **one,
            "name": name,
            "boxes": [str(Box(tuple(box["start"]), tuple(box["stop"]), tuple(box["step"]))) for box in one["boxes"]],
        }
        for name, one in zip(found.names, listed, strict=False)
    ]
    write_file(place, page_of_difference(programs, named, pictures, notes))


def compared(
    programs: Sequence[str], libraries: Sequence[str] = (), shapes: Sequence[str] = (), binds: Sequence[str] = (),
    nodes: Sequence[str] = (), pieces: int = 1000, seconds: float = 10.0, seed: int = 0,
) -> Compared:  # fmt: skip
    """Where the sides of a rule, or two calls, differ; arguments as those of the command.

    Raises:
        DslcError: for what is wrong with them, and where they are not compared.
    """
    from dslc.errors import error
    from dslc.ir.graph import topological
    from dslc.prove.partial.difference import difference
    from dslc.prove.partial.draws import NotCompared
    from dslc.prove.partial.rules import wrongly_corrected
    from dslc.prove.verdict import Counterexample

    instance: Instance | None = None
    old: Sequence[Value]
    new: Sequence[Value]
    if len(programs) == 1:
        rules, rule, instance = _sides(programs[0], libraries, shapes, binds, seed)
        names = tuple(instance.left)
        old, new = ([side[name] for name in names] for side in (instance.left, instance.right))
    elif shapes:
        raise error("E0911", "a call has the shapes of its tensors", hint="`--shape` is for a rule")
    else:
        rules, old, new = _calls(programs, libraries, binds, nodes)
        names = tuple(f"Y{k}" for k in range(len(old))) if len(old) > 1 else ("Y",)
    try:
        every = topological(value.node for value in (*old, *new))
        if not all(value.type.is_static for node in every for value in node.values):
            return Compared(names, sets=_for_all_sizes(rules, names, old, new, seconds))
        found = difference(rules, old, new, seed=seed, pieces=pieces, seconds=seconds, evident=True)
    except NotCompared as problem:
        raise _refused(problem, programs) from None
    if instance is None:
        return Compared(names, found)
    correction = ""
    if instance.corrected:
        right = wrongly_corrected(rules, rule, instance, found, seed, seconds)
        correction = "proved" if right else "not proved"
        if isinstance(right, Counterexample):
            correction = f"wrong at {right.output}{list(right.position)}"
            own, whole = instance.corrected[right.output].type, instance.left[right.output].type
            correction = correction if own == whole else f"of another type: {own}, and {right.output} is {whole}"
    return Compared(names, found, (), str(instance), instance.limit, correction)


def _calls(
    programs: Sequence[str], libraries: Sequence[str], binds: Sequence[str], nodes: Sequence[str]
) -> tuple[Rules, tuple[Value, ...], tuple[Value, ...]]:
    """Two calls over common tensors."""
    from dslc.cli.derive import called_as
    from dslc.cli.options import binding
    from dslc.errors import DslcError, SourceText, Span, error
    from dslc.ir.graph import input_value, replace
    from dslc.ir.scalar import dimension, num, rebuild
    from dslc.ir.sizes import with_sizes
    from dslc.semantics.library import load_many

    files = [call.rpartition("::")[0] for call in programs]
    rules = load_many(["std", *libraries, *dict.fromkeys(file for file in files if file.endswith(".rules"))])
    left = list(nodes)
    named = [(call, left.pop(0) if left and Path(call).suffix == ".onnx" else None) for call in programs]

    def read(calls: Sequence[tuple[str, str | None]]) -> list[tuple[Value, ...]]:
        known: dict[str, Any] = {}
        found: list[tuple[Value, ...]] = []
        for call, node in calls:
            called = called_as(rules, call, node, binding(binds), known, several=True)
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
    numbers: dict[Scalar, Scalar] = {dimension(name): num(size) for name, size in binding(binds).items()}
    both = with_sizes((*sides[0], *sides[1]), lambda size: rebuild(size, numbers.get))
    return rules, both[: len(sides[0])], both[len(sides[0]) :]


def _for_all_sizes(
    rules: Rules, names: Sequence[str], old: Sequence[Value], new: Sequence[Value], seconds: float
) -> tuple[SetOfSizes, ...]:
    """The sets where sizes stay unknown, as far as the exact prover decides. Raises NotCompared where it does not."""
    from dslc.prove.partial.difference import equal_everywhere, parametric
    from dslc.prove.partial.draws import NotCompared, WhyUncompared

    began = time.perf_counter()
    region = parametric(rules, old, new, seconds)
    if region is None and not equal_everywhere(rules, old, new, seconds):
        raise NotCompared(WhyUncompared.SIZES)
    taken = time.perf_counter() - began
    whole = region is None or all(region.defined)
    out = []
    for k, (name, value) in enumerate(zip(names, old, strict=True)):
        each = None if region is None else region.sets[k]
        shape = f"[{', '.join(map(str, value.type.shape))}]"
        shown, empty = "{ }" if each is None else str(each), each is None or bool(each.is_empty())
        out.append(SetOfSizes(name, shape, shown, empty, region is not None and region.exact, whole, taken))
    return tuple(out)


def _sides(
    name: str, libraries: Sequence[str], shapes: Sequence[str], binds: Sequence[str], seed: int
) -> tuple[Rules, SubstitutionDef, Instance]:
    """A rule and an instance of it at the given shapes: the first that differs in part, else the first."""
    from dslc.cli.why_not import find_rule
    from dslc.errors import DslcError, SourceText, Span, error
    from dslc.semantics.checks.substitutions import errors_of
    from dslc.semantics.installed import library_of
    from dslc.semantics.library import load_many

    file, _, short = name.rpartition("::")
    own = [file] if file.endswith(".rules") else []
    if "(" in name and not own:
        hint = 'two calls: `dslc diff "CALL" "CALL"`'
        raise error(
            "E0911", "one call is compared with nothing", Span(SourceText("call", name), 0, len(name)), hint=hint
        )
    if not own and (library := library_of(name)) is not None:
        own = [library]
    rules = load_many(["std", *libraries, *own])
    rule = find_rule(rules, short if own and file else name)
    if wrong := errors_of(rules, rule):
        raise DslcError(wrong)
    return rules, rule, _instance(rules, rule, _given(rules, rule, shapes, binds), seed)


def _given(rules: Rules, rule: SubstitutionDef, shapes: Sequence[str], binds: Sequence[str]) -> dict[str, Any]:
    """The names that the options give a value."""
    from dslc.errors import SourceText, Span, error
    from dslc.prove.partial.rules import sizes_of
    from dslc.semantics.env import Mismatch

    read: dict[str, tuple[int, ...]] = {}
    for text in shapes:
        tensor, _, sizes = text.partition("=")
        whole = Span(SourceText("--shape", text), 0, len(text))
        if tensor not in {param.name for param in rule.syntax.params}:
            tensors = ", ".join(f"`{param.name}`" for param in rule.syntax.params)
            raise error(
                "E0911",
                f"`{rule.syntax.name}` has no parameter `{tensor}`",
                whole,
                hint=f"its parameters are {tensors}",
            )
        try:
            read[tensor] = shape_value(sizes)
        except ValueError:
            raise error("E0911", "a shape is a list of numbers", whole, hint=f"`--shape {tensor}=1,48,38,38`") from None
        if any(size < 0 for size in read[tensor]):
            raise error("E0911", "a size is not negative", whole)
        try:
            found = sizes_of(rules, rule, read)
        except Mismatch as problem:
            raise error("E0911", f"this shape does not fit: {problem.reason}", whole) from None
    given = found if shapes else {}
    for text in binds:
        key, _, value = text.partition("=")
        if not value:
            raise error(
                "E0911", "a name is given a value", Span(SourceText("--bind", text), 0, len(text)), hint="`--bind d=2`"
            )
        given[key.strip()] = attribute_value(value)
    return given


def _instance(rules: Rules, rule: SubstitutionDef, given: Mapping[str, Any], seed: int) -> Instance:
    from dslc.errors import error
    from dslc.interpret.instantiate import Rejected
    from dslc.prove.counterexample import sides
    from dslc.prove.partial.difference import difference
    from dslc.prove.partial.draws import NotCompared
    from dslc.prove.partial.rules import instances

    first: Instance | None = None
    reasons: list[str] = []
    looked, until = 0, time.monotonic() + SECONDS
    for instance in instances(rules, rule, seed, given, attempts=ATTEMPTS):
        if isinstance(instance, Rejected):
            reasons.append(str(instance))
            if first is not None and len(reasons) > 400:
                break
            continue
        first = first or instance
        looked += 1
        _, left, right = sides(instance)
        try:
            if any(0 < each.share < 1 for each in difference(rules, left, right, prove=False)):
                return instance
        except NotCompared:
            pass
        if looked == LOOKED or time.monotonic() > until or not rule.syntax.partial:
            break
    if first is None:
        common = max(sorted(set(reasons)), key=reasons.count) if reasons else "no operator fits its terms"
        at = " at what is given" if given else ""
        raise error(
            "E0507", f"no instance of `{rule.name}` was found{at}", rule.syntax.span, hint=f"most often: {common}"
        )
    return first


def _refused(problem: Any, programs: Sequence[str]) -> DslcError:
    """Why two programs are not compared, at the second one where they are calls."""
    from dslc.errors import SourceText, Span, error
    from dslc.prove.partial.draws import WhyUncompared

    codes = {WhyUncompared.PIECES: "E0607", WhyUncompared.DISAGREE: "E0608"}
    hints = {
        WhyUncompared.PIECES: "a correction of so many pieces gains nothing; `--pieces N` allows more",
        WhyUncompared.SIZES: "`--bind NAME=N`",
    }
    span = Span(SourceText("call", programs[1]), 0, len(programs[1])) if len(programs) == 2 else None
    return error(
        codes.get(problem.why, "E0606"),
        f"these programs are not compared: {problem}",
        span,
        hint=hints.get(problem.why, ""),
    )


def _record(found: Difference) -> dict[str, Any]:
    boxes = [{"start": list(box.start), "stop": list(box.stop), "step": list(box.step)} for box in found.boxes]
    return {
        "share": found.share,
        "boxes": boxes,
        "proved": found.proved,
        "agree": found.agree,
        "seconds": round(found.seconds, 4),
    }


def _title(name: str, found: Difference) -> str:
    from dslc.prove.partial.rules import percent

    count, total = sum(box.count for box in found.boxes), prod(found.shape)
    verdict = "equal" if not count else f"{percent(found.share)} differs"
    return f"{name}{list(found.shape)}: {verdict} ({count} of {total} positions)"


def _lines(name: str, found: Difference, limit: float | None) -> list[str]:
    """What is said of one output: its title, boxes, proof, and what PET's way says."""
    from dslc.prove.partial.rules import percent

    count, total = sum(box.count for box in found.boxes), prod(found.shape)
    out = [_title(name, found)]
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
