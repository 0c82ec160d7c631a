"""Rules about windows: proved with unknown kernels, pads, strides and dilations, by forgetting where the windows are."""

from __future__ import annotations

import pytest

from dslc.ir.scalar import apply, dimension, iterator, num, read, reduce
from dslc.prove.exact import Differs, Equal, Habit, Undecided, compare
from dslc.prove.exact.terms import Algebra
from dslc.prove.exact.windows import generalized
from dslc.prove.instances.exploration import instance_set
from dslc.prove.run.provers import subjects
from dslc.semantics.library import Rules
from tests.libraries import libraries


def _rules() -> Rules:
    return libraries("std", "taso")


def _instances(name: str, level: str):
    rules = _rules()
    definition = rules.substitutions.get(name) or rules.laws[name]
    return [one for sub in subjects(rules, definition) for one in instance_set(rules, sub, level).instances]


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("std.relu_through_max_pool", "steps"),
        ("std.concat_of_max_pools", "symbolic"),
        ("std.add_of_avg_pools_valid", "symbolic"),
        ("taso.pooling_by_convolution", "steps"),
        ("taso.concat_of_convs_of_images", "steps"),
    ],
)
def test_rules_about_windows_are_proved(name: str, level: str) -> None:
    # with three spatial axes isl comes close to its limit of operations, and a proof may or may not end
    few = [one for one in _instances(name, level) if "D2" not in one.text]
    if level == "symbolic":
        # rounded up along one axis is enough
        few = [one for one in few if "D1" not in one.text or "ceil = true" not in one.text]
    assert len(few) >= 2
    for one in few:
        assert compare(one.left, one.right, one.conditions, 10.0) == Equal(), one.text


def test_what_holds_only_for_some_pads_is_not_proved_for_all() -> None:
    """Without the guard a window may lie in the pads alone: its maximum is -inf, and that of the relus is not 0."""
    one = next(one for one in _instances("std.relu_through_max_pool", "steps") if "stride = [1]" in one.text)
    assert compare(one.left, one.right, one.conditions, 2.0) == Equal()
    assert compare(one.left, one.right, (), 2.0) != Equal()


@pytest.mark.parametrize("name", ["std.max_pool_of_max_pool", "std.max_pools_in_chain", "std.pad_into_max_pool"])
def test_windows_of_windows_are_proved_by_position(name: str) -> None:
    for one in _instances(name, "steps"):
        if "D1" not in one.text:
            assert compare(one.left, one.right, one.conditions, 5.0) == Equal(), one.text


def test_a_first_window_that_crops_or_gives_nothing_is_not_forgotten() -> None:
    """Pads below 0 end the windows of the second pool early; without a result of the first, the second has only its pads."""
    one = next(one for one in _instances("std.max_pool_of_max_pool", "steps") if "s = [1]" in one.text)
    guards = [each for each in one.conditions if "p0" in str(each) or "p1" in str(each)]
    assert len(guards) > 2
    without = [[other for other in one.conditions if other is not each] for each in guards]
    assert any(compare(one.left, one.right, conditions, 1.0) != Equal() for conditions in without)


def test_windows_in_different_places_differ() -> None:
    """The strides of the two sides are different: no claim about both is made, and the difference is found."""
    first, second = (
        next(one for one in _instances("std.add_of_avg_pools_valid", "steps") if text in one.text)
        for text in ("stride = [1]", "stride = [2]")
    )
    assert not isinstance(compare(first.left, first.left), Differs)
    assert compare(first.left, second.left, (), 2.0) != Equal()


def test_what_helped_with_one_instance_is_tried_first_with_the_next() -> None:
    one = next(one for one in _instances("std.add_of_avg_pools_valid", "steps") if "stride = [2]" in one.text)
    for habit in (Habit(), Habit(windows=True)):
        assert compare(one.left, one.right, one.conditions, habit=habit) == Equal()
    plain = next(one for one in _instances("std.pad_into_avg_pool", "steps") if "stride = [1]" in one.text)
    habit = Habit()
    assert compare(plain.left, plain.right, plain.conditions, habit=habit) == Equal()
    assert not habit.windows


def test_nothing_is_decided_where_a_side_does_not_equal_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    one = next(one for one in _instances("std.pad_into_avg_pool", "steps") if "stride = [1]" in one.text)
    normal = Algebra.normal
    # a normal form that forgets half of what cancels
    monkeypatch.setattr(Algebra, "normal", lambda self, terms: normal(self, terms[: (len(terms) + 1) // 2]))
    found = compare(one.left, one.right, one.conditions, reflexive=True)
    assert isinstance(found, Undecided)
    assert "differs from itself" in found.reason


def test_places_and_steps() -> None:
    n, k = dimension("N"), dimension("K")
    at, bound = iterator("o"), iterator("b")
    index = apply("+", apply("*", num(2), at), apply("*", num(3), bound), num(-1))
    inside = apply("and", apply("<=", num(0), index), apply("<", index, n))
    body = apply("select", inside, read(0, (index,)), num(0))
    claim = generalized([reduce("sum", (bound,), (k,), body)], {at: n, bound: k})
    assert claim is not None
    (root,) = claim.roots
    assert at not in root.free
    assert read(0, (bound,)) in _nodes(root)  # the elements that are read are a tensor of their own
    # another read of the same axis keeps the elements where they are
    claim = generalized([apply("+", reduce("sum", (bound,), (k,), body), read(0, (num(0),)))], {at: n, bound: k})
    assert claim is not None
    assert read(0, (bound,)) not in _nodes(claim.roots[0])


def test_a_quotient_inside_a_window_is_no_step() -> None:
    """`X[2 o + k // 2]` for k < r is another maximum than `X[2 o]`: what is read moves with `k`, if not by a multiple of it."""
    n, k = dimension("N"), dimension("K")
    at, bound = iterator("o"), iterator("b")

    def largest(extra):
        index = apply("+", apply("*", num(2), at), extra)
        inside = apply("and", apply("<=", num(0), index), apply("<", index, n))
        return reduce("max", (bound,), (k,), apply("select", inside, read(0, (index,)), num(float("-inf"))))

    claim = generalized([largest(apply("//", bound, num(2))), largest(num(0))], {at: n, bound: k})
    assert claim is not None
    assert claim.roots[0] is not claim.roots[1]


def _nodes(root):
    from dslc.ir.scalar import walk

    return set(walk(root))
