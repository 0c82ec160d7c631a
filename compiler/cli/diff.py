"""`dslc diff`: where two programs of equal shapes differ, found modulo p, proved, and by PET's boxes beside it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dslc.cli.options import attribute_value, seconds_of, shape_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dslc.errors import DslcError
    from dslc.interpret.instantiate import Instance
    from dslc.ir.graph import Value
    from dslc.ir.scalar import Scalar
    from dslc.prove.partial.difference import Difference
    from dslc.semantics.definitions import SubstitutionDef
    from dslc.semantics.library import Rules

# boxes that are listed one by one
_LISTED = 20
# instances that are looked at for one whose sides differ in part, and for how many seconds
_LOOKED, _SECONDS = 24, 5.0
# draws after which nothing that is given fits
_ATTEMPTS = 2000


@click.command()
@click.argument("programs", nargs=-1, required=True, metavar="RULE | CALL CALL")
@click.option("--rules", "libraries", multiple=True, metavar="LIB", help="Another library or .rules file.")
@click.option("--shape", "shapes", multiple=True, metavar="X=1,48,38,38", help="Of RULE: the shape of a parameter; may be repeated.")
@click.option("--bind", "binds", multiple=True, metavar="NAME=VALUE", help="A size, or of RULE an attribute: d=2, p=[1,1,1,1].")
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="CALL is a model: its node (or result) of this name; one each.")
@click.option("--svg", "drawing", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw a plane of the set.")
@click.option("--pieces", type=click.IntRange(min=1), default=1000, show_default=True, help="The most boxes that a set may have.")
@click.option("--timeout", default="10s", show_default=True, metavar="TIME", help="For the exact prover.")
@click.option("--seed", default=0, show_default=True, help="Of the random inputs, and of what is drawn of RULE.")
@click.option("--output-format", type=click.Choice(["full", "json"]), default="full", show_default=True)
def command(
    programs: tuple[str, ...], libraries: tuple[str, ...], shapes: tuple[str, ...], binds: tuple[str, ...], drawing: Path | None,
    nodes: tuple[str, ...], pieces: int, timeout: str, seed: int, output_format: str,
) -> None:  # fmt: skip
    """Say at which positions two programs differ: both sides of a substitution RULE, or two calls as `dslc derive` takes them.

    dslc diff pet.dilated_conv_to_dense --shape X=1,2,11,13 --bind d=2 --bind p=[2,2,2,2]

    dslc diff "conv(X: f32[1, 8, 14, 14], K: f32[8, 8, 3, 3])" "conv(X, K, dilation=[1, 1])"

    One name in both calls is one tensor. What is not said of RULE is drawn, sizes at which it differs in part first.
    """
    from dslc.cli.planes import plane, svg, text
    from dslc.errors import error
    from dslc.ir.graph import topological
    from dslc.prove.partial.difference import NotCompared, difference
    from dslc.prove.partial.rules import wrongly_corrected
    from dslc.prove.verdict import Counterexample

    seconds = seconds_of(timeout, "--timeout")
    if len(programs) > 2:
        raise click.UsageError("`dslc diff` compares two programs: a rule's sides, or two calls.")
    instance: Instance | None = None
    old: Sequence[Value]
    new: Sequence[Value]
    if len(programs) == 1:
        rules, rule, instance = _sides(programs[0], libraries, shapes, binds, seed)
        names = tuple(instance.left)
        old, new = ([side[name] for name in names] for side in (instance.left, instance.right))
        if str(instance):
            click.echo(f"at {instance}", err=output_format == "json")
    elif shapes:
        raise error("E0911", "a call has the shapes of its tensors", hint="`--shape` is for a rule")
    else:
        rules, old, new = _calls(programs, libraries, binds, nodes)
        names = tuple(f"Y{k}" for k in range(len(old))) if len(old) > 1 else ("Y",)
    try:
        every = topological(value.node for value in (*old, *new))
        if not all(value.type.is_static for node in every for value in node.values):
            _for_all_sizes(rules, old, new, seconds, output_format)
            return
        found = difference(rules, old, new, seed=seed, pieces=pieces, seconds=seconds, evident=True)
    except NotCompared as problem:
        raise _refused(problem, programs) from None
    planes = [plane(each.mask, name) for each, name in zip(found, names, strict=True)]
    if output_format == "json":
        records = [_record(each) for each in found]
        click.echo(json.dumps(records[0] if len(records) == 1 else records, indent=2))
    else:
        for name, each, shown in zip(names, found, planes, strict=True):
            _print(name, each, None if instance is None else instance.limit)
            if each.boxes and each.share < 1:
                for line in text(shown):
                    click.echo("  " + line)
        if instance is not None and instance.corrected:
            right = wrongly_corrected(rules, rule, instance, found, seed)
            said = "proved" if right else "not proved"
            if isinstance(right, Counterexample):
                said = f"wrong at {right.output}{list(right.position)}"
            click.echo(f"the rule's own correction is {said}")
    if drawing is not None:
        drawing.write_text(svg(planes), "utf-8")
        if output_format == "full":
            click.echo(f"drawn in {drawing}")


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
            tensors = {value: input_value(name, value.type) for name, value in zip(called.names, called.graph.inputs, strict=True)}
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


def _for_all_sizes(rules: Rules, old: Sequence[Value], new: Sequence[Value], seconds: float, output_format: str) -> None:
    """The set where sizes stay unknown, as far as the exact prover decides. Raises NotCompared where it does not."""
    from dslc.prove.partial.difference import NotCompared, Why, equal_everywhere, parametric

    began = time.perf_counter()
    region = parametric(rules, old, new, seconds)
    if region is None and not equal_everywhere(rules, old, new, seconds):
        raise NotCompared(Why.SIZES)
    taken = round(time.perf_counter() - began, 4)
    whole = region is None or all(region.defined)
    records: list[dict[str, Any]] = []
    for k, value in enumerate(old):
        each = None if region is None else region.sets[k]
        empty = each is None or bool(each.is_empty())
        share = 0.0 if empty else None
        shown = "{ }" if each is None else str(each)
        records.append({"share": share, "boxes": [], "proved": whole, "agree": None, "seconds": taken, "set": shown})
        if output_format == "full":
            name = f"Y{k}" if len(old) > 1 else "Y"
            shape = f"[{', '.join(map(str, value.type.shape))}]"
            said = "equal" if empty else f"differs{'' if region is not None and region.exact else ' at most'} at {shown}"
            click.echo(f"{name}{shape}: {said}")
            click.echo(f"  {'proved' if whole else 'not proved where a side has no value'} for all sizes and all inputs; {taken:.2f} s")
    if output_format == "json":
        click.echo(json.dumps(records[0] if len(records) == 1 else records, indent=2))


def _sides(
    name: str, libraries: Sequence[str], shapes: Sequence[str], binds: Sequence[str], seed: int
) -> tuple[Rules, SubstitutionDef, Instance]:
    """A rule and an instance of it at the given shapes: the first that differs in part, else the first."""
    from dslc.cli.why_not import find_rule
    from dslc.errors import SourceText, Span, error
    from dslc.semantics.installed import find_library
    from dslc.semantics.library import load_many

    file, _, short = name.rpartition("::")
    own = [file] if file.endswith(".rules") else []
    if "(" in name and not own:
        hint = 'two calls: `dslc diff "CALL" "CALL"`'
        raise error("E0911", "one call is compared with nothing", Span(SourceText("call", name), 0, len(name)), hint=hint)
    library = name.partition(".")[0]
    if not own and "." in name and library != "std" and find_library(library)[0] is not None:
        own = [library]
    rules = load_many(["std", *libraries, *own])
    rule = find_rule(rules, short if own and file else name)
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
            raise error("E0911", f"`{rule.syntax.name}` has no parameter `{tensor}`", whole, hint=f"its parameters are {tensors}")
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
            raise error("E0911", "a name is given a value", Span(SourceText("--bind", text), 0, len(text)), hint="`--bind d=2`")
        given[key.strip()] = attribute_value(value)
    return given


def _instance(rules: Rules, rule: SubstitutionDef, given: Mapping[str, Any], seed: int) -> Instance:
    from dslc.errors import error
    from dslc.interpret.instantiate import Rejected
    from dslc.prove.partial.difference import NotCompared, difference
    from dslc.prove.partial.rules import instances, sides

    first: Instance | None = None
    reasons: list[str] = []
    looked, until = 0, time.monotonic() + _SECONDS
    for instance in instances(rules, rule, seed, given, attempts=_ATTEMPTS):
        if isinstance(instance, Rejected):
            reasons.append(str(instance))
            if first is not None and len(reasons) > 400:
                break
            continue
        first = first or instance
        looked += 1
        both = sides(instance)
        try:
            if any(0 < each.share < 1 for each in difference(rules, both.left, both.right, prove=False)):
                return instance
        except NotCompared:
            pass
        if looked == _LOOKED or time.monotonic() > until or not rule.syntax.partial:
            break
    if first is None:
        common = max(sorted(set(reasons)), key=reasons.count) if reasons else "no operator fits its terms"
        at = " at what is given" if given else ""
        raise error("E0507", f"no instance of `{rule.name}` was found{at}", rule.syntax.span, hint=f"most often: {common}")
    return first


def _refused(problem: Any, programs: Sequence[str]) -> DslcError:
    """Why two programs are not compared, at the second one where they are calls."""
    from dslc.errors import SourceText, Span, error
    from dslc.prove.partial.difference import Why

    codes = {Why.PIECES: "E0607", Why.DISAGREE: "E0608"}
    hints = {Why.PIECES: "a correction of so many pieces gains nothing; `--pieces N` allows more", Why.SIZES: "`--bind NAME=N`"}
    span = Span(SourceText("call", programs[1]), 0, len(programs[1])) if len(programs) == 2 else None
    return error(codes.get(problem.why, "E0606"), f"these programs are not compared: {problem}", span, hint=hints.get(problem.why, ""))


def _record(found: Difference) -> dict[str, Any]:
    boxes = [{"start": list(box.start), "stop": list(box.stop), "step": list(box.step)} for box in found.boxes]
    return {"share": found.share, "boxes": boxes, "proved": found.proved, "agree": found.agree, "seconds": round(found.seconds, 4)}


def _print(name: str, found: Difference, limit: float | None) -> None:
    from dslc.prove.partial.rules import percent

    total = 1
    for size in found.shape:
        total *= size
    count = sum(box.count for box in found.boxes)
    verdict = "equal" if not count else f"{percent(found.share)} differs"
    click.secho(f"{name}{list(found.shape)}: {verdict} ({count} of {total} positions)", bold=True)
    if limit is not None and found.share > limit:
        click.echo(f"  more than the rule's limit of {percent(limit)}")
    for box in found.boxes[:_LISTED]:
        click.echo(f"  {box}")
    if len(found.boxes) > _LISTED:
        click.echo(f"  and {len(found.boxes) - _LISTED} more boxes")
    where = "outside of it" if count else "everywhere"
    said = f"{'proved' if found.proved else 'not proved'} equal {where} for all inputs"
    click.echo(f"  {said if count < total or not total else 'equal nowhere'}; {found.seconds:.2f} s")
    if not found.proved and found.error_bound is not None:
        click.echo(f"  the probability that a position is missing is at most {found.error_bound:.1e}")
    if found.agree is None:
        click.echo("  boxes (PET): do not apply")
    else:
        boxed = percent(found.boxed or 0.0)
        click.echo(f"  boxes (PET): agree, {boxed} is in boxes that fail; {found.looked} of {total} positions are looked at")
