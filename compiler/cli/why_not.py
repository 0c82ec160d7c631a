"""`dslc why-not`: why a rule does not apply to a model."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.cli.options import bind_option, budget_option, rules_option

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.match import CompiledRule
    from dslc.match.why_not import Explanation
    from dslc.semantics.definitions import SubstitutionDef
    from dslc.semantics.library import Rules


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why one direction of a rule does not apply to a model; where it does, what keeps `dslc optimize` from using it.

    `after`: the rules that come before it so that it applies, None where none were found; `obstacles`: sentences about a rule that
    applies, at once or after these; `steps`: how many rules were tried.
    """

    explanation: Explanation
    after: tuple[str, ...] | None
    obstacles: tuple[str, ...]
    steps: int

    @property
    def applies(self) -> int:
        """At how many places the rule applies."""
        return self.explanation.applies

    def __repr__(self) -> str:
        found = self.explanation
        return f"<WhyNot {found.rule}: {f'applies at {found.applies}' if found.applies else found.reason}>"

    def __str__(self) -> str:
        if self.applies:
            return " ".join([str(self.explanation), *self.obstacles])
        if self.after is not None:
            return "\n".join(
                [str(self.explanation), " ".join([f"  Applies after {', then '.join(self.after)}.", *self.obstacles])]
            )
        return "\n".join([str(self.explanation), *([f"  Nor after {self.steps} other rules."] if self.steps else [])])


def find_rule(rules: Rules, name: str) -> SubstitutionDef:
    """A substitution by its qualified name, or by a short name that only one library uses.

    Raises:
        DslcError: E0909 where there is none or more than one.
    """
    from dslc.errors import Diagnostic, DslcError

    if name in rules.substitutions:
        return rules.substitutions[name]
    found = [d for d in rules.substitutions.values() if d.syntax.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        hint = "say one of " + ", ".join(d.name for d in found)
        raise DslcError([Diagnostic("E0909", f"several libraries have a rule `{name}`", hint=hint)], exit_code=2)
    options = [d.name if "." in name else d.syntax.name for d in rules.substitutions.values()]
    close = difflib.get_close_matches(name, options, n=1)
    hint = f"did you mean `{close[0]}`?" if close else "`--rules LIB` loads the library that has it"
    raise DslcError([Diagnostic("E0909", f"no rule is named `{name}`", hint=hint)], exit_code=2)


def why_nots(
    rule: str,
    model: Path | ModelProto,
    libraries: Sequence[str],
    bind: Mapping[str, int],
    steps: int = 2,
    trust_lock: bool = False,
) -> Iterator[WhyNot]:
    """Every direction of a rule that is looked for, one after the other; `RULE^-1` is only the reverse.

    Raises:
        DslcError: E0909 for what is no rule or has no reverse, and for what is wrong with the model.
    """
    from dslc.cli.in_the_way import as_proved, obstacles, partial_obstacles
    from dslc.cli.rule_tests import newest_opset
    from dslc.errors import Diagnostic, DslcError
    from dslc.match import compile_directions, why_not
    from dslc.match.enabling_rules import before
    from dslc.onnx.importer import import_model
    from dslc.prove.known.resting import trust_locks
    from dslc.semantics.installed import library_of
    from dslc.semantics.library import load_many

    own = library_of(rule)
    rules = load_many(["std", *libraries, *([own] if own else [])])
    trust_locks(rules, trust_lock)
    name = rule.removesuffix("^-1")
    directions = compile_directions(rules, find_rule(rules, name))
    if name != rule:
        directions = tuple(direction for direction in directions if direction.reverse)
        if not directions:
            raise DslcError([Diagnostic("E0909", f"`{name}` has no reverse that could be matched")], exit_code=2)
    imported = import_model(model, rules, bind)
    graph, opset = imported.graph, imported.context.opset
    others = _usable(rules) if steps else []
    for direction in directions:
        found = why_not(direction, graph, imported.context.names)
        if found.applies and not direction.definition.syntax.partial:
            # proved for other element types only, it does not
            found = why_not(as_proved(rules, direction), graph, imported.context.names)
        if found.applies:
            if direction.definition.syntax.partial:
                kept_back = partial_obstacles(rules, direction, graph, opset)
            else:
                kept_back = obstacles(rules, direction, graph, opset, newest_opset())
            yield WhyNot(found, None, tuple(kept_back), steps)
            continue
        earlier = before(direction, graph, others, steps)
        after = None if earlier is None else tuple(earlier.rules)
        kept_back = [] if earlier is None else obstacles(rules, direction, earlier.graph, opset, newest_opset())
        yield WhyNot(found, after, tuple(kept_back), steps)


@click.command()
@click.argument("rule")
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="OPERATOR",
    help="RULE is a call: why it is no program of this operator.",
)
@click.option(
    "--node", metavar="NAME", help="With --target, where RULE is a model: the node (or the result) of this name."
)
@click.option(
    "--max-depth", type=click.IntRange(0, 16), default=3, show_default=True, help="With --target: derivations in a row."
)
@budget_option("With --target: time of searching.", "20s", least=0.1)
@rules_option()
@click.option("--trust-lock", is_flag=True, help="Believe what a dslc.lock says of unchanged rules, whoever wrote it.")
@click.option(
    "--steps", type=click.IntRange(0, 2), default=2, show_default=True, help="Other rules that may come before."
)
@bind_option()
def command(
    rule: str, model: Path | None, libraries: tuple[str, ...], steps: int, binds: tuple[str, ...], targets: tuple[str, ...],
    node: str | None, max_depth: int, budget: float, trust_lock: bool,
) -> None:  # fmt: skip
    """Say why RULE does not apply to MODEL: the best partial match, and the first thing that failed.

    Then the rules that could come before it, so that it applies. Where it applies, what keeps `dslc optimize` from using it: its
    status, the model's opset, a missing kernel or the price.

    Of a two-way rule both directions are looked for; RULE^-1 is only the reverse.

    With --target, RULE is what `dslc derive` takes: a call, FILE.rules::NAME, or a model with --node. Why no derivation leads to
    the operator, by the expression that came nearest: which iterators have no place, or what sizes, types or padding do not fit.
    """
    if targets:
        from dslc.cli.why_not_derived import tell

        if model is not None:
            raise click.UsageError("with --target, only a call, or a model with --node NAME.")
        tell(rule, targets, libraries, binds, node, max_depth, budget)
        return
    if model is None:
        raise click.UsageError("a RULE and a MODEL, or a call with --target OPERATOR.")
    from dslc.cli.options import binding

    for found in why_nots(rule, model, libraries, binding(binds), steps, trust_lock):
        click.echo(str(found))


def _usable(rules: Rules) -> list[CompiledRule]:
    """Every direction of every complete rule; one that cannot be matched is left out."""
    from dslc.errors import DslcError
    from dslc.match import compile_directions

    out: list[CompiledRule] = []
    for definition in rules.substitutions.values():
        if not definition.syntax.partial:
            with contextlib.suppress(DslcError):
                out += compile_directions(rules, definition)
    return out
