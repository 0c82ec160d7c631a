"""`dslc why-not`: why a rule does not apply to a model."""

from __future__ import annotations

import contextlib
import difflib
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dslc.match import CompiledRule
    from dslc.semantics.definitions import SubstitutionDef
    from dslc.semantics.library import Rules


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


@click.command()
@click.argument("rule")
@click.argument("model", type=click.Path(exists=True, dir_okay=False), required=False)
@click.option("--target", "targets", multiple=True, metavar="OPERATOR", help="RULE is a call: why it is no program of this operator.")
@click.option("--node", metavar="NAME", help="With --target, where RULE is a model: the node (or the result) of this name.")
@click.option("--max-depth", type=click.IntRange(0, 16), default=3, show_default=True, help="With --target: derivations in a row.")
@click.option("--budget", type=click.FloatRange(min=0.1), default=20.0, show_default=True, help="With --target: seconds of searching.")
@click.option("--rules", "libraries", multiple=True, metavar="LIB", help="Another library or .rules file.")
@click.option("--steps", type=click.IntRange(0, 2), default=2, show_default=True, help="Other rules that may come before.")
@click.option("--bind", "binds", multiple=True, metavar="NAME=N", help="The size of a symbolic dimension.")
def command(
    rule: str, model: str | None, libraries: tuple[str, ...], steps: int, binds: tuple[str, ...], targets: tuple[str, ...],
    node: str | None, max_depth: int, budget: float,
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
    from dslc.cli.in_the_way import obstacles
    from dslc.cli.options import binding
    from dslc.cli.rule_tests import newest_opset
    from dslc.match import compile_directions, why_not
    from dslc.match.coming_before import before
    from dslc.onnx.importer import import_model
    from dslc.semantics.library import load_many

    bind = binding(binds)
    rules = load_many(["std", *libraries])
    name = rule.removesuffix("^-1")
    directions = compile_directions(rules, find_rule(rules, name))
    if name != rule:
        directions = tuple(direction for direction in directions if direction.reverse)
        if not directions:
            raise click.UsageError(f"{name} has no reverse that could be matched.")
    imported = import_model(model, rules, bind)
    graph, opset = imported.graph, imported.context.opset
    others = _usable(rules) if steps else []
    for direction in directions:
        found = why_not(direction, graph, imported.context.names)
        click.echo(str(found))
        earlier = None if found.applies else before(direction, graph, others, steps)
        if earlier is not None:
            click.echo(f"  it applies after {', then '.join(earlier.rules)}")
            graph_then = earlier.graph
        elif found.applies:
            graph_then = graph
        else:
            if steps:
                click.echo(f"  nor after {steps} of the other rules that could bring what it needs")
            continue
        for line in obstacles(rules, direction, graph_then, opset, newest_opset()):
            click.echo(f"  in its way: {line}")


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
