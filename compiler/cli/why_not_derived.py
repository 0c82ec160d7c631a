"""`dslc why-not CALL --target OPERATOR`: why no derivation makes an expression a program of an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dslc.derivation.search import DerivationSearch
    from dslc.derivation.solver import Miss
    from dslc.ir.graph import Scope
    from dslc.semantics.library import Rules


def tell(
    call: str,
    targets: tuple[str, ...],
    libraries: tuple[str, ...],
    binds: tuple[str, ...],
    node: str | None,
    depth: int,
    budget: float,
) -> None:
    """Prints one answer for each target. Raises DslcError: for an unknown name, and a call that cannot be read."""
    from dslc.cli.derive import called_as, targeted
    from dslc.cli.options import binding
    from dslc.deadline import Deadline
    from dslc.derivation.search import DerivationLimits, DerivationSearch
    from dslc.derivation.solver import Miss, MissReason
    from dslc.derivation.tables import patterns_of
    from dslc.prove.garbage import rare_collections
    from dslc.semantics.elaborate import expand

    file, _, _ = call.rpartition("::")
    own = [file] if file.endswith(".rules") else []
    rules, wanted, _ = targeted(["std", "einnet", *libraries, *own], targets)
    called = called_as(rules, call, node, binding(binds))
    (value,) = expand(rules, (called.value,))
    for name in wanted:
        short = name.rpartition(".")[2]
        patterns = patterns_of(rules, name)
        if not patterns:
            click.echo(f"{short}: {Miss(MissReason.NO_TABLE)}")
            continue
        limits = DerivationLimits(max_depth=depth, until=Deadline.after(budget))
        search = DerivationSearch(rules, list(rules.derivations.values()), limits, (name,))
        with rare_collections():
            derived = search.run(value)
        made = min(derived.programs, key=lambda each: len(each.steps), default=None)
        if made is not None:
            steps = " > ".join(map(str, made.steps))
            how = f"after {steps}" if steps else "as it stands"
            click.echo(f"{short}: it is one {how}; `dslc derive --target {short}` prints the program")
            continue
        why, scope = _nearest(rules, search, name)
        cut = "" if derived.complete else ", and more is to be looked at: a larger --max-depth or --budget"
        click.echo(f"{short}: {why}")
        if scope is not None:
            click.echo(f"  it computes: {max(patterns, key=lambda each: len(each.windows)).scope}")
            click.echo(f"  of {derived.states} expressions this came nearest{cut}: {scope}")


def _nearest(rules: Rules, search: DerivationSearch, name: str) -> tuple[Miss, Scope | None]:
    """Why an expression that was looked at is no call of an operator, and its scope: of all the one that came furthest."""
    from dslc.derivation.solver import Miss, MissReason, nearer
    from dslc.derivation.targets import missed
    from dslc.ir.graph import ScopeNode, topological
    from dslc.ir.scalar import Reduce, walk

    found: Miss | None = None
    scope: Scope | None = None
    sums = [
        node for state in search.seen[: ASKED] for node in topological([state.node])
        if isinstance(node, ScopeNode) and any(isinstance(part, Reduce) for part in walk(node.scope.body))
    ]  # fmt: skip
    scopes = sums or [
        node for state in search.seen[:ASKED] for node in topological([state.node]) if isinstance(node, ScopeNode)
    ]
    for node in dict.fromkeys(scopes):
        why = missed(rules, node.values[0], name) or Miss(MissReason.INTENSITY)
        if found is None or nearer(found, why) is not found:
            found, scope = why, node.scope
    return found or Miss(MissReason.NO_PRODUCT), scope


ASKED = 200  #: expressions that are asked why they are no call
