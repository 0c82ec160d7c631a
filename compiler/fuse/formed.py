"""Groups around nodes that have another form (see `dslc.match.forms`): the node, and what looks at each element of its result alone."""

from __future__ import annotations

from collections.abc import Iterator

from dslc.fuse.estimate import Estimate
from dslc.fuse.groups import GroupLimits, Neighbours, NodeGroup
from dslc.fuse.kernels import fold_of
from dslc.fuse.profile import Profiles, Reach
from dslc.ir.graph import Call, Graph, Kernel, Node, ScopeNode, Value, topological
from dslc.match.forms import forms, has_form
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules

BEHIND = 6  #: nodes behind one that has a form
ROUNDS = 3  #: stages of a kernel of a form: operand, product, result


def formed(
    around: Neighbours, rules: Rules, limits: GroupLimits, profiles: Profiles, strict: bool = False
) -> Iterator[Iterator[NodeGroup]]:
    """For every node with a form a chain of groups: the node alone, and with one to a few nodes behind it."""
    for node in around.nodes:
        if not isinstance(node, Call) or not has_form(rules, fold_of(around.group([node])).kernel.group, strict):
            continue
        yield _chain(node, around, limits, profiles)


def _chain(node: Node, around: Neighbours, limits: GroupLimits, profiles: Profiles) -> Iterator[NodeGroup]:
    chain: list[Node] = [node]
    yield around.group(chain)
    while len(chain) <= BEHIND and (behind := _behind(chain, around, limits, profiles)) is not None:
        chain.append(behind)
        yield around.group(chain)


def _behind(chain: list[Node], around: Neighbours, limits: GroupLimits, profiles: Profiles) -> Node | None:
    """The only user of a chain's result, where it looks at each element by itself."""
    if len(chain[-1].values) != 1:
        return None
    (result,) = chain[-1].values
    users = around.used.get(result, [])
    if len(users) != 1 or result in around.final or len(users[0].values) != 1:
        return None
    (user,) = users
    profile = profiles.of(user)
    if profile is None or profile.reuse >= limits.reuse or user.values[0].type.shape != result.type.shape:
        return None
    reaches = [reach for arg, reach in zip(user.args, profile.reach, strict=False) if arg == result]
    if any(reach > Reach.OWN for reach in reaches) or not around.convex([*chain, user]):
        return None
    return user


def form_estimates(kernel: Kernel, profiles: Profiles, strict: bool = False) -> Iterator[Estimate]:
    """What the forms of a kernel's program take: what depends on weights alone is computed once, what is between stays in a cache."""
    found = [profiles.of(node) for node in kernel.group.nodes() if isinstance(node, Call | ScopeNode)]
    if sum(profile is None or profile.reuse >= GroupLimits().reuse for profile in found) > 1:
        # a form was seen to pay around one product; others belong to the runtime
        return
    for _, form in forms(profiles.rules, kernel.group, strict):
        yield _estimate(form, [arg.constant for arg in kernel.args], profiles)


def _estimate(form: Graph, weights: list[bool], profiles: Profiles) -> Estimate:
    outputs = expand(profiles.rules, form.outputs)
    fixed: set[Value] = {value for value, weight in zip(form.inputs, weights, strict=True) if weight}
    operations = 0.0
    for node in topological(value.node for value in outputs):
        if isinstance(node, ScopeNode):
            if all(arg in fixed or arg.constant for arg in node.args):
                fixed.update(node.values)
            else:
                operations += profiles.work(node).operations
    moved = sum(float(profiles.sizes.bytes(value.type)) for value in (*form.inputs, *form.outputs))
    return Estimate(moved, 0.0, operations, ROUNDS, float("inf"))
