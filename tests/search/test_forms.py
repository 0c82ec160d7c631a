"""Groups around nodes with another form: which are proposed, what they are estimated to take, and programs that have one inside."""

from __future__ import annotations

import numpy as np

from dslc.fuse.estimate import EVERYDAY, seconds_of
from dslc.fuse.groups import GroupLimits, Neighbours, NodeGroup
from dslc.fuse.kernels import fold_of
from dslc.fuse.offers import form_estimates, formed
from dslc.fuse.profile import Profiles
from dslc.interpret import Floats, run
from dslc.ir.constants import array_value
from dslc.ir.graph import Call, Graph, Value
from dslc.match.forms import forms
from dslc.semantics.library import standard
from tests.codegen.groups import Room, group


def chains(graph: Graph, strict: bool = False) -> list[list[str]]:
    """The operators of the groups around each node with a form."""
    rules = standard()
    found = formed(Neighbours(graph), rules, GroupLimits(), Profiles(rules), strict)
    return [[words(each) for each in chain] for chain in found]


def words(found: NodeGroup) -> str:
    return " ".join(node.op.rpartition(".")[2] for node in found.nodes if isinstance(node, Call))


def weight(*shape: int) -> Value:
    return array_value(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def same(r: Room, x: Value, filters: int, size: int = 3, **attrs: object) -> Value:
    """A convolution whose result is as large as its operand."""
    return r.op("conv", x, weight(filters, int(str(x.type.shape[1])), size, size), pads=(size // 2,) * 4, **attrs)


def residual(r: Room) -> Value:
    x = r.input(1, 16, 14, 14)
    first = r.op("relu", r.op("add", same(r, x, 16), weight(16, 1, 1)))
    second = r.op("add", same(r, first, 16), weight(16, 1, 1))
    return r.op("max_pool", r.op("relu", r.op("add", second, x)), kernel=(2, 2), stride=(2, 2))


def test_what_looks_at_elements_alone_goes_along() -> None:
    """A chain ends before what looks at other positions, and at a result that others use as well."""
    whole = group(residual)
    assert chains(whole) == [
        ["conv", "conv add", "conv add relu"],
        ["conv", "conv add", "conv add add", "conv add add relu"],
    ]
    assert chains(whole, strict=True) == []
    shared = group(lambda r: [found := same(r, r.input(1, 16, 8, 8), 16), r.op("relu", found)])
    assert chains(shared) == [["conv"]]
    assert chains(group(lambda r: same(r, r.input(1, 16, 8, 8), 16, size=5))) == []


def test_a_form_is_estimated_by_its_own_products() -> None:
    """A quarter of them, and the transforms; for one product only."""
    rules, profiles = standard(), Profiles(standard())
    one = group(lambda r: same(r, r.input(1, 128, 28, 28), 128))
    alone = Neighbours(one)
    kernel = fold_of(alone.group(alone.nodes)).kernel
    best = min(each.seconds(EVERYDAY) for each in form_estimates(kernel, profiles))
    assert 0.2 < best / seconds_of(kernel, profiles, EVERYDAY) < 0.6
    two = Neighbours(group(residual))
    assert list(form_estimates(fold_of(two.group(two.nodes)).kernel, profiles)) == []
    assert list(forms(rules, one))


def test_figure_6_of_einnet_has_a_form_inside() -> None:
    """A convolution by 5x5 is one by 3x3 of four times the filters, and a sum of four of its planes, 3 apart: that one by 3x3 has
    fewer products than the first by a form, which alone it has not."""
    size, filters = 12, 16
    kernel = np.random.default_rng(1).standard_normal((filters, 16, 5, 5)).astype(np.float32)
    parts = np.pad(kernel, ((0, 0), (0, 0), (0, 1), (0, 1))).reshape(filters, 16, 2, 3, 2, 3)
    four = np.ascontiguousarray(parts.transpose(2, 4, 0, 1, 3, 5).reshape(4 * filters, 16, 3, 3))

    def derived(r: Room) -> Value:
        planes = r.op("conv", r.input(1, 16, size, size), array_value(four), pads=(2, 2, 3, 3))
        total = None
        for k in range(4):
            down, right = 3 * (k // 2), 3 * (k % 2)
            part = r.op("slice", planes, start=(0, k * filters, down, right), size=(1, filters, size, size))
            total = part if total is None else r.op("add", total, part)
        assert total is not None
        return total

    direct = group(lambda r: r.op("conv", r.input(1, 16, size, size), array_value(kernel), pads=(2, 2, 2, 2)))
    mixed = group(derived)
    assert chains(direct) == [] and chains(mixed) == [["conv"]]
    draw = np.random.default_rng(2).standard_normal((1, 16, size, size)).astype(np.float32)
    (wanted,) = run(standard(), direct.outputs, {direct.inputs[0]: draw}, Floats())
    for found in (mixed, *(form for _, form in forms(standard(), mixed))):
        (got,) = run(standard(), found.outputs, {found.inputs[0]: draw}, Floats())
        assert np.max(np.abs(got - wanted)) < 5e-5 * np.max(np.abs(wanted))


def test_a_dilated_convolution_takes_its_activation_along() -> None:
    def build(r: Room) -> Value:
        found = r.op("conv", r.input(1, 16, 14, 14), weight(32, 16, 3, 3), pads=(2, 2, 2, 2), dilation=(2, 2))
        return r.op("relu", r.op("add", found, weight(32, 1, 1)))

    whole = group(build)
    assert chains(whole) == [["conv", "conv add", "conv add relu"]]
    draw = np.random.default_rng(3).standard_normal((1, 16, 14, 14)).astype(np.float32)
    wanted, *got = (
        run(standard(), found.outputs, {found.inputs[0]: draw}, Floats())[0]
        for found in (whole, *(form for _, form in forms(standard(), whole)))
    )
    assert len(got) == 2 and all(np.max(np.abs(one - wanted)) < 5e-5 * np.max(np.abs(wanted)) for one in got)
