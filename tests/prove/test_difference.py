"""Where two programs differ: the set modulo p, its proof by inclusion, and PET's boxes beside it (PET, OSDI 2021, section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.derivation.calls import read_call
from dslc.interpret.field import Field, P
from dslc.interpret.instantiate import Instance, Rejected
from dslc.interpret.run import run_scopes
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope, Value, input_value, scope_value
from dslc.ir.scalar import Scalar, apply, bound, num, read, reduce, traversal
from dslc.prove.partial.difference import Difference, difference, expanded, parametric
from dslc.prove.partial.draws import NotCompared, WhyUncompared
from dslc.prove.partial.rules import instances
from dslc.prove.partial.split_points import NoBoxes, failing, joined, split_points
from dslc.prove.strided import Box, TooManyPieces, mask_of, strided_boxes
from dslc.semantics.library import Rules, load_many
from tests.regions import points_of

TILES = """dslc 1
import std.conv (conv)

partial substitution tiles(X: T[N, C, H, W], K: T[F, C, R, S]) -> Y {
  \"\"\"A convolution of tiles of the image, four in each direction, where they do not overlap.\"\"\"
  Y = conv(X, K, pads=[R // 2, S // 2, R // 2, S // 2], stride=[1, 1], dilation=[1, 1], groups=1)
  where R % 2 == 1, S % 2 == 1
  let h = (H + 3) // 4
  let w = (W + 3) // 4
  =>
  A = {[(n: N, u: 4, v: 4), c: C, y: h, x: w] X[n, c, u * h + y, v * w + x, other=0]}
  B = conv(A, K, pads=[R // 2, S // 2, R // 2, S // 2])
  Y = {[n: N, f: F, y: H, x: W] B[n * 16 + y // h * 4 + x // w, f, y % h, x % w]}
  correct auto limit 0.25
}
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    file = tmp_path_factory.mktemp("difference") / "own.rules"
    file.write_text(TILES)
    return load_many(["std", "pet", file])


def instance(rules: Rules, rule: str, **names: Any) -> Instance:
    found = (
        each for each in instances(rules, rules.substitutions[rule], fixed=names) if not isinstance(each, Rejected)
    )
    return next(found)


def of_rule(rules: Rules, rule: str, **names: Any) -> Difference:
    one = instance(rules, rule, **names)
    (found,) = difference(rules, [one.left["Y"]], [one.right["Y"]])
    return found


def of_calls(rules: Rules, old: str, new: str) -> tuple[Difference, ...]:
    one = read_call(rules, old, several=True)
    known = dict(zip(one.names, (value.type for value in one.graph.inputs), strict=True))
    return difference(rules, one.graph.outputs, read_call(rules, new, known, several=True).graph.outputs)


def positions(found: Difference) -> set[tuple[int, ...]]:
    return {tuple(int(k) for k in at) for at in np.argwhere(found.mask)}


# ---- the set and its proof ----------------------------------------------------------------------------------------------


def test_table_3_a_dilated_convolution_is_fully_equal_where_the_dilation_divides(rules: Rules) -> None:
    found = of_rule(rules, "pet.dilated_conv_to_dense", N=1, C=2, F=3, R=3, S=3, H=14, W=14, d=2, p=(2, 2, 2, 2))
    assert (found.boxes, found.share, found.proved, found.agree) == ((), 0.0, True, True)


@pytest.mark.parametrize(("height", "width", "dilation"), [(11, 13, 2), (14, 13, 2), (10, 11, 3)])
def test_and_partial_where_it_does_not(rules: Rules, height: int, width: int, dilation: int) -> None:
    """The rows and columns that are cut off are needed by every window that they lie in."""
    pads = (dilation,) * 4
    names = {"N": 1, "C": 2, "F": 2, "R": 3, "S": 3, "H": height, "W": width, "d": dilation, "p": pads}
    found = of_rule(rules, "pet.dilated_conv_to_dense", **names)
    assert found.proved and found.agree and found.share == found.mask.mean()

    def cut(place: int, size: int) -> bool:
        return any(size // dilation * dilation <= place + r * dilation < size for r in (-1, 0, 1))

    every = ((f, y, x) for f in range(2) for y in range(height) for x in range(width))
    assert positions(found) == {(0, f, y, x) for f, y, x in every if cut(y, height) or cut(x, width)}


def test_table_3_tiles_of_a_convolution_differ_beside_their_seams(rules: Rules) -> None:
    """As [1, 48, 38, 38] to [16, 48, 10, 10] does on 53 % of its output, for a kernel of 5 x 5."""
    found = of_rule(rules, "own.tiles", N=1, C=3, F=4, R=5, S=5, H=38, W=38)
    assert round(found.share, 3) == 0.532 and found.proved and found.agree
    assert len(found.boxes) <= 15 and sum(box.count for box in found.boxes) == found.mask.sum()


def test_images_that_are_folded_into_the_width_differ_in_the_seam(rules: Rules) -> None:
    found = of_rule(rules, "pet.pair_images", N=4, C=2, F=2, R=3, S=3, H=6, W=7, p=(1, 1, 1, 1))
    assert found.proved and found.agree
    assert found.boxes == (Box((0, 0, 0, 6), (3, 2, 6, 7), (2, 1, 1, 1)), Box((1, 0, 0, 0), (4, 2, 6, 1), (2, 1, 1, 1)))


PARTS = "concat(slice(X: f32[3, 9], start=[0, 0], size=[3, 4]), slice(X, start=[0, {}], size=[3, 4]), axis=1)"


def test_functions_stand_for_any_function(rules: Rules) -> None:
    """`relu` and `softmax` of what differs in half of its columns; of a row, every element differs."""
    one, other = PARTS.format(5), PARTS.format(4)
    (half,) = of_calls(rules, f"relu({one})", f"relu({other})")
    assert (half.boxes, half.proved, half.agree) == ((Box((0, 4), (3, 8), (1, 1)),), True, True)
    (whole,) = of_calls(rules, f"softmax({one})", f"softmax({other})")
    assert whole.share == 1.0 and whole.agree


def test_laws_of_functions_are_known(rules: Rules) -> None:
    (found,) = of_calls(rules, "relu(relu(X: f32[3, 4]))", "relu(X)")
    assert found.share == 0.0 and found.proved and found.agree is None


def test_several_outputs_have_a_set_each(rules: Rules) -> None:
    swapped = "concat(slice(X, start=[2, 0], size=[1, 4]), slice(X, start=[1, 0], size=[5, 4]), axis=0)"
    first, second = of_calls(rules, "split(X: f32[6, 4], sizes=[2, 4])", f"split({swapped}, sizes=[2, 4])")
    assert first.boxes == (Box((0, 0), (1, 4), (1, 1)),) and second.boxes == ()


def test_the_set_for_all_sizes(rules: Rules) -> None:
    whole = "neg(X: f32[N, 9])"
    parts = "neg(concat(slice(X: f32[N, 9], start=[0, {}], size=[N, 4]), slice(X, start=[0, 4], size=[N, 5]), axis=1))"
    one, same, other = (read_call(rules, text).graph.outputs for text in (whole, parts.format(0), parts.format(1)))
    equal, found = parametric(rules, one, same), parametric(rules, one, other)
    assert equal is not None and all(each.is_empty() for each in equal.sets)
    assert (
        found is not None
        and found.exact
        and points_of(found, {"N": 2}) == ({(n, k) for n in range(2) for k in range(4)},)
    )


def test_what_is_not_compared_says_why(rules: Rules) -> None:
    def why(old: str, new: str) -> WhyUncompared:
        with pytest.raises(NotCompared) as refused:
            of_calls(rules, old, new)
        return refused.value.why

    assert why("relu(X: f32[3, 4])", "transpose(X, perm=[1, 0])") is WhyUncompared.TYPES
    assert why("relu(X: f32[N, 4])", "neg(X)") is WhyUncompared.SIZES
    # which rows are read depends on the elements: that is a set only where draws show all of it, as they do here
    last = "concat(slice(X, start=[0, 0], size=[4, 3]), slice(X, start=[0, 0], size=[1, 3]), axis=0)"
    (found,) = of_calls(rules, "gather(X: f32[5, 3], I: int64[4])", f"gather({last}, I)")
    assert found.share == 1.0
    padded = "gather(pad(X: f32[5, 3], before=[0, 1], after=[0, 1]), I: int64[4])"
    assert why(padded, "pad(gather(X, I), before=[0, 1], after=[0, 1])") is WhyUncompared.DATA
    # whatever the elements are, these are equal
    (found,) = of_calls(rules, "relu(gather(X: f32[5, 3], I: int64[4]))", "gather(relu(X), I)")
    assert found.share == 0.0 and found.proved


def test_a_set_of_a_thousand_pieces_is_refused(rules: Rules) -> None:
    """Of the lower triangle of a matrix each row is a box of its own."""
    size = 40
    a = input_value("A", TensorType(DType.F32, (size, size)))
    i, j = traversal(0), traversal(1)
    lower = of_scope((size, size), apply("select", apply("<", j, i), num(0), read(0, (i, j))), a)
    (found,) = difference(rules, [a], [lower])
    assert len(found.boxes) == size - 1 and found.proved and found.agree
    with pytest.raises(NotCompared) as refused:
        difference(rules, [a], [lower], pieces=20)
    assert refused.value.why is WhyUncompared.PIECES and "more than 20" in str(refused.value)


def test_boxes_are_the_set_and_disjoint() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        mask = np.asarray(rng.random(tuple(rng.integers(1, 6, rng.integers(0, 5)))) < rng.random())
        boxes = strided_boxes(mask)
        assert np.array_equal(mask_of(boxes, mask.shape), mask)
        assert sum(box.count for box in boxes) == mask.sum()
    with pytest.raises(TooManyPieces):
        strided_boxes(np.eye(30, dtype=bool), limit=29)


def test_strides_make_few_boxes() -> None:
    mask = np.zeros((1, 8, 40), dtype=bool)
    mask[:, :, 3::5] = mask[:, 1::2, :] = True
    assert strided_boxes(mask) == (Box((0, 0, 3), (1, 7, 39), (1, 2, 5)), Box((0, 1, 0), (1, 8, 40), (1, 2, 1)))


# ---- PET's boxes --------------------------------------------------------------------------------------------------------


def of_scope(shape: Sequence[int], body: Scalar, *args: Value) -> Value:
    return scope_value(Scope(tuple(shape), body, DType.F32), args)


def differing(old: Value, new: Value, inputs: Sequence[Value], seed: int = 0) -> Any:
    """Where two programs differ modulo p on one random input."""
    rng = np.random.default_rng(seed)
    domain = Field()
    feeds = {value: domain.draw(tuple(int(str(size)) for size in value.type.shape), rng) for value in inputs}
    one, other = run_scopes((old, new), feeds, domain)
    return one != other


X = input_value("X", TensorType(DType.F32, (24,)))
K = traversal(0)


def test_figure_4_the_nine_boxes_of_a_convolution(rules: Rules) -> None:
    call = read_call(rules, "conv(X: f32[1, 4, 12, 10], K: f32[8, 4, 3, 3], pads=[1, 1, 1, 1])").graph
    (points,) = split_points(expanded(rules, call.outputs, call.outputs)[0])
    assert points == ((), (), (1, 11), (1, 9))
    assert prod(len(each) + 1 for each in points) == 9


def test_figures_1_and_5_split_points_of_a_convolution_and_its_mutant(rules: Rules) -> None:
    """Two images side by side: the mutant's seam is a split point, and its boxes that fail are those beside the seam."""
    one = instance(rules, "pet.pair_images", N=2, C=2, F=2, R=3, S=3, H=8, W=6, p=(1, 1, 1, 1))
    old, new = expanded(rules, [one.left["Y"]], [one.right["Y"]])
    assert split_points(old) == (((), (), (1, 7), (1, 5)),)
    assert split_points(new) == (((1,), (), (1, 7), (1, 5)),)
    found = differing(old[0], new[0], one.inputs)
    failed, looked = failing(found, joined(split_points(old)[0], split_points(new)[0]))
    assert np.array_equal(failed, found) and found[0, :, :, 5].all() and found[1, :, :, 0].all()
    assert looked < found.size


def test_theorem_1_boxes_that_are_accepted_are_equal() -> None:
    """Random programs and mutants of them: no position that differs lies in a box whose m + 1 positions agree."""
    rng = np.random.default_rng(0)
    partial = looked = total = 0
    for _ in range(80):
        old, new, inputs = random_pair(rng)
        found = differing(old, new, inputs)
        failed, count = failing(found, joined(split_points([old])[0], split_points([new])[0]))
        assert not (found & ~failed).any()
        partial += 0 < found.mean() < 1
        looked, total = looked + count, total + found.size
    assert partial > 15 and looked < total


def test_theorem_1_asks_that_all_summands_move_alike() -> None:
    """X[2k] + X[1] and X[k] + X[k + 1] agree at k = 0 and k = 1, and nowhere else: these are boxes of one position."""
    old = of_scope((8,), apply("+", read(0, (apply("*", num(2), K),)), read(0, (num(1),))), X)
    new = of_scope((8,), apply("+", read(0, (K,)), read(0, (apply("+", K, num(1)),))), X)
    found = differing(old, new, [X])
    assert found.tolist() == [False, False] + [True] * 6
    failed, _ = failing(found, joined(split_points([old])[0], split_points([new])[0]))
    assert np.array_equal(failed, found)


def test_and_all_factors_of_a_product() -> None:
    """X[2k] X[1] and X[k] X[k + 1] as well: in a product of a tensor with itself factors may change their places."""
    old = of_scope((8,), apply("*", read(0, (apply("*", num(2), K),)), read(0, (num(1),))), X)
    new = of_scope((8,), apply("*", read(0, (K,)), read(0, (apply("+", K, num(1)),))), X)
    found = differing(old, new, [X])
    assert found.tolist() == [False, False] + [True] * 6
    failed, _ = failing(found, joined(split_points([old])[0], split_points([new])[0]))
    assert np.array_equal(failed, found)


def test_conditions_on_elements_and_integers_have_no_boxes() -> None:
    """Whether two of few values are equal says little of what they were computed of."""
    with pytest.raises(NoBoxes):
        split_points([of_scope((8,), apply("select", apply("<", read(0, (K,)), num(0)), num(1), read(0, (K,))), X)])
    integers = input_value("I", TensorType(DType.I64, (8,)))
    with pytest.raises(NoBoxes):
        split_points([scope_value(Scope((8,), read(0, (K,)), DType.I64), (integers,))])


def test_theorem_2_a_random_input_shows_a_difference(rules: Rules) -> None:
    """Of n tensors a difference is missed with probability n / p, so t draws err with (n / p)^t: 2 draws of 3 tensors here."""
    calls = (
        "matmul(matmul(A: f32[3, 4], B: f32[4, 4]), C: f32[4, 3])",
        "matmul(A, matmul(transpose(B, perm=[1, 0]), C))",
    )
    one = read_call(rules, calls[0])
    known = dict(zip(one.names, (value.type for value in one.graph.inputs), strict=True))
    sides = one.graph.outputs, read_call(rules, calls[1], known).graph.outputs
    (found,) = difference(rules, *sides, prove=False)
    assert found.share == 1.0 and not found.proved and found.error_bound == (3 / P) ** 2
    assert all(difference(rules, *sides, seed=seed, prove=False)[0].boxes == found.boxes for seed in range(5))


def test_a_reshape_cuts_where_its_quotients_and_remainders_break() -> None:
    """The first row again and again is not the matrix: without these cuts positions 0 and 1 would accept all of it."""
    matrix = of_scope((24,), read(0, (K,)), X)
    first = of_scope((24,), read(0, (apply("%", K, num(6)),)), X)
    found = differing(matrix, first, [X])
    points = split_points([first])
    assert points == (((6, 12, 18),),)
    accepted, _ = failing(found, ((),))
    assert not accepted.any() and found[6:].all()
    failed, _ = failing(found, points[0])
    assert np.array_equal(failed, found)


def random_pair(rng: np.random.Generator) -> tuple[Value, Value, list[Value]]:
    """A random program of linear steps, and a mutant in which one step has other numbers; both of one shape."""
    shape = tuple(int(size) for size in rng.choice([2, 3, 4, 6, 8], int(rng.integers(1, 4))))
    tensor = input_value("T", TensorType(DType.F32, shape))
    window = input_value("W", TensorType(DType.F32, (3,)))
    steps = [(STEPS[int(rng.integers(len(STEPS)))], int(rng.integers(1 << 30))) for _ in range(int(rng.integers(1, 5)))]
    mutant = list(steps)
    place = int(rng.integers(len(steps)))
    mutant[place] = mutant[place][0], int(rng.integers(1 << 30))
    old, new = (_flat(_built(tensor, window, each)) for each in (steps, mutant))
    return old, new, [tensor, window]


def _built(value: Value, window: Value, steps: Sequence[tuple[str, int]]) -> Value:
    used = False
    for kind, seed in steps:
        rng = np.random.default_rng(seed)
        shape = _shape(value)
        at: list[Scalar] = [traversal(k) for k in range(len(shape))]
        axis, by = int(rng.integers(len(shape))), int(rng.integers(-2, 3))
        other = list(at)
        if kind == "reshape":
            divisors = [d for d in range(1, prod(shape) + 1) if prod(shape) % d == 0]
            rows = int(rng.choice(divisors))
            new = (rows, prod(shape) // rows)
            value = of_scope(
                new, read(0, _place(apply("+", apply("*", traversal(0), num(new[1])), traversal(1)), shape)), value
            )
        elif kind == "transpose":
            order = [int(k) for k in rng.permutation(len(shape))]
            value = of_scope(
                [shape[k] for k in order], read(0, tuple(at[order.index(k)] for k in range(len(shape)))), value
            )
        elif kind == "shift":
            other[axis] = apply("+", at[axis], num(by))
            value = of_scope(shape, apply("+", read(0, tuple(at)), read(0, tuple(other), num(0))), value)
        elif kind == "turn":
            other[axis] = apply("-", num(shape[axis] - 1), at[axis])
            where = apply("<", at[axis], num(int(rng.integers(1, shape[axis] + 1))))
            value = of_scope(shape, apply("select", where, read(0, tuple(at)), read(0, tuple(other))), value)
        elif not used:
            used = True
            other[axis] = apply("+", at[axis], apply("*", num(abs(by) + 1), bound(0)), num(-1))
            body = apply("*", read(0, tuple(other), num(0)), read(1, (bound(0),)))
            value = of_scope(shape, reduce("sum", (bound(0),), (num(3),), body), value, window)
    return value


STEPS = ("reshape", "transpose", "shift", "turn", "window")


def _flat(value: Value) -> Value:
    return of_scope((prod(_shape(value)),), read(0, _place(traversal(0), _shape(value))), value)


def _place(flat: Scalar, shape: Sequence[int]) -> tuple[Scalar, ...]:
    below = [prod(shape[k + 1 :]) for k in range(len(shape))]
    return tuple(apply("%", apply("//", flat, num(each)), num(size)) for each, size in zip(below, shape, strict=True))


def _shape(value: Value) -> tuple[int, ...]:
    return tuple(int(str(size)) for size in value.type.shape)


def test_the_exact_set_of_random_pairs_is_the_one_modulo_p(rules: Rules) -> None:
    rng = np.random.default_rng(1)
    for _ in range(15):
        old, new, _ = random_pair(rng)
        (found,) = difference(rules, [old], [new])
        assert found.proved and found.agree


def test_a_set_that_isl_cannot_simplify_is_kept_as_it_is(rules: Rules) -> None:
    """Its coalescing fails for this one: "original tableau does not correspond to original basic map"."""
    i, j, k = (traversal(axis) for axis in range(3))
    matrix = input_value("M", TensorType(DType.F32, (16, 16)))
    flat = apply("+", apply("*", num(8), i), j, k)
    rows = of_scope((32, 8, 1), read(0, (apply("//", flat, num(16)), apply("%", flat, num(16)))), matrix)

    def mirrored(other: Scalar) -> Value:
        product = of_scope((32, 8, 1), apply("*", other, read(0, (i, j, k))), rows)
        turned = read(0, (i, apply("-", num(7), j), k))
        return of_scope((32, 8, 1), apply("select", apply("<", j, num(6)), read(0, (i, j, k)), turned), product)

    old = mirrored(read(0, (apply("-", num(31), i), j, k), num(0)))
    new = mirrored(read(0, (i, j, apply("+", num(1), k)), num(0)))
    (found,) = difference(rules, [old], [new])
    assert found.share == 1.0 and found.proved


def test_a_wrong_set_is_not_proved(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where draws missed a position, the exact set does not lie in the boxes, and PET's boxes say so as well."""
    one = instance(rules, "pet.pair_images", N=2, C=1, F=1, R=3, S=3, H=4, W=5, p=(1, 1, 1, 1))
    sides = [one.left["Y"]], [one.right["Y"]]
    (right,) = difference(rules, *sides)
    from dslc.prove.partial import difference as module

    original = module.strided_boxes
    monkeypatch.setattr(module, "strided_boxes", lambda mask, limit: original(mask, limit)[:-1])
    (wrong,) = difference(rules, *sides)
    assert right.proved and not wrong.proved


def test_ways_that_disagree_stop_the_run(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    from dslc.prove.partial import difference as module

    monkeypatch.setattr(module, "split_points", lambda outputs: tuple(((), (), (), ()) for _ in outputs))
    one = instance(rules, "own.tiles", N=1, C=1, F=1, R=3, S=3, H=16, W=16)
    with pytest.raises(NotCompared) as refused:
        difference(rules, [one.left["Y"]], [one.right["Y"]])
    assert refused.value.why is WhyUncompared.DISAGREE


def test_the_library_of_this_test_is_well_formed(tmp_path: Path) -> None:
    from dslc.checking.files import check_files

    file = tmp_path / "own.rules"
    file.write_text(TILES)
    assert [str(finding) for finding in check_files([file]) if finding.severity == "error"] == []
