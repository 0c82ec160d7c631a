"""The lemmas on ranks: on numbers, and that they are used only where they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dslc.interpret import run
from dslc.interpret.field import Field
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import ScopeNode, input_value, topological
from dslc.ir.scalar import Sym, walk
from dslc.prove.instances.axis_reading import natural, sufficient_rank
from dslc.prove.instances.batches import broadcasts, padded
from dslc.prove.instances.exploration import instance_set, map_instance_set
from dslc.prove.run.provers import exact_verdict
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load, standard

#: operators in whose rules the pack in front is a batch: (name, shapes behind the batch, attributes)
BATCHED = [
    ("add", ((3,), (3,)), {}),
    ("relu", ((3,),), {}),
    ("matmul", ((2, 3), (3, 4)), {}),
    ("layer_norm", ((3,), (3,)), {"axis": -1}),
    ("concat", ((2, 3), (4, 3)), {"axis": -2}),
    ("prelu", ((3,), (3,)), {}),
]


@pytest.fixture(scope="module")
def std() -> Rules:
    return standard()


def value_of(rules: Rules, name: str, arrays: list[np.ndarray], attrs: dict[str, int]) -> np.ndarray:
    inputs = [input_value(f"x{k}", TensorType(DType.F32, array.shape)) for k, array in enumerate(arrays)]
    (output,) = apply(rules, f"std.{name}", inputs, attrs)
    (found,) = run(rules, [output], dict(zip(inputs, arrays, strict=True)), Field(0))
    return np.asarray(found)


@pytest.mark.parametrize(("name", "shapes", "attrs"), BATCHED, ids=[each[0] for each in BATCHED])
@pytest.mark.parametrize("batch", [(2,), (2, 3), (2, 1, 3)])
def test_a_batch_is_the_operator_at_every_position(
    std: Rules, name: str, shapes: tuple[tuple[int, ...], ...], attrs: dict[str, int], batch: tuple[int, ...]
) -> None:
    """Lemma 1 on numbers: slices of the result are the results of slices, at ranks 1, 2 and 3."""
    rng = np.random.default_rng(0)
    field = Field(0)
    arrays = [field.draw((*batch, *shape), rng) for shape in shapes]
    if name == "layer_norm":
        arrays[1] = field.draw(shapes[1], rng)
    whole = value_of(std, name, arrays, attrs)
    for position in np.ndindex(*batch):
        slices = [
            array[position] if array.ndim > len(shape) else array for array, shape in zip(arrays, shapes, strict=True)
        ]
        assert np.array_equal(whole[position], value_of(std, name, slices, attrs))


@pytest.mark.parametrize(
    "name",
    ["relu_of_relu", "factor_product", "merge_matmuls", "concat_through_binary", "batch_norm_is_affine", "select_same",
     "scale_into_biased_matmul", "attention_online", "matmul_distributes_right"],
)  # fmt: skip
def test_rules_of_batches_hold_at_all_ranks(std: Rules, name: str) -> None:
    assert instance_set(std, std.substitutions[f"std.{name}"]).scope == ""


@pytest.mark.parametrize(("name", "instances"), [
    ("transpose_of_transpose", 1), ("softmax_recognized", 1), ("reverse_of_reverse", 1), ("transpose_through_concat", 1),
    ("split_of_first_part", 1), ("transpose_through_softmax", 1), ("l1_recognized", 3), ("sum_of_sum", 3), ("mean_recognized", 3),
    ("sum_of_transpose", 2), ("squeeze_of_sum", 2), ("transpose_through_mean", 2),
])  # fmt: skip
def test_attributes_that_name_or_permute_axes(std: Rules, name: str, instances: int) -> None:
    """Lemmas 3 and 4: what is left are the axes that attributes name, and one of each kind that is summed."""
    found = instance_set(std, std.substitutions[f"std.{name}"])
    assert (found.scope, len(found.instances)) == ("", instances)


@pytest.mark.parametrize(
    "name",
    ["conv_of_sum", "merge_convs", "branches_to_grouped_conv", "add_of_convs", "add_of_avg_pools_valid", "concat_of_max_pools",
     "fold_batch_norm", "scale_into_conv", "scale_into_biased_conv", "input_scale_into_conv"],
)  # fmt: skip
def test_windows_as_arbitrary_maps(std: Rules, name: str) -> None:
    """Lemma 5: proved at rank 1 for every map, so at every rank, for every stride, dilation and pad."""
    verdict = exact_verdict(std, std.substitutions[f"std.{name}"])
    assert (verdict.answer, verdict.scope) == ("equal", "")
    found = map_instance_set(std, std.substitutions[f"std.{name}"])
    assert found is not None
    for instance in found.instances:
        assert any(value.type.dtype is DType.I64 for value in instance.inputs)
        nodes = topological(value.node for value in (*instance.left, *instance.right))
        bodies = (part for node in nodes if isinstance(node, ScopeNode) for part in walk(node.scope.body))
        unknown = {part.name for part in bodies if isinstance(part, Sym)}
        assert not any("stride" in part or "pads" in part or "dilation" in part for part in unknown)


@pytest.mark.parametrize(
    "name", ["compose_convs", "pad_into_conv", "max_pool_of_max_pool", "conv_of_identity", "conv1x1_to_matmul"]
)
def test_windows_that_are_no_arbitrary_maps(std: Rules, name: str) -> None:
    """Where it matters which place a window reads, maps prove nothing."""
    verdict = exact_verdict(std, std.substitutions[f"std.{name}"])
    assert verdict.answer == "unknown" or "ranks of D" in verdict.scope


@pytest.mark.parametrize("name", ["reshape_of_reshape", "slice_of_pad", "tile_is_expand"])
def test_rules_that_mix_axes_are_bounded(std: Rules, name: str) -> None:
    found = instance_set(std, std.substitutions[f"std.{name}"])
    assert "ranks of S up to 3" in found.scope
    assert len({len(instance.inputs[0].type.shape) for instance in found.instances}) >= 3


def own(tmp_path: Path, operator: str) -> Rules:
    file = tmp_path / "own.rules"
    file.write_text(
        f"dslc 1\n{operator}\nsubstitution own(X: T[*S]) -> Y {{\n  Y = odd(X)\n  =>\n  Y = X\n}}\n", encoding="utf-8"
    )
    return load(file)


@pytest.mark.parametrize(
    "equation",
    [
        "Y[*i] = X[*i] if rank(S) < 3 else 0",
        "Y[*i] = X[*i] * prod(S)",
        "Y[*i] = X[*i] + i[0] if rank(S) > 0 else X[*i]",
        "Y[*i] = sum[*j: S] X[*j]",
        "Y[*i] = X[*(S - 1 - i)]",
    ],
    ids=["rank in a value", "size in a value", "axis by number", "reduced", "backwards"],
)
def test_operators_that_look_at_the_rank_are_no_batch(tmp_path: Path, equation: str) -> None:
    rules = own(tmp_path, f"operator odd(X: T[*S]) -> Y: T[*S] {{\n  {equation}\n}}")
    found = instance_set(rules, rules.substitutions["own.own"])
    assert "ranks of S" in found.scope or any(instance.inputs[0].type.rank for instance in found.instances)


def test_a_guard_on_the_rank_keeps_the_smaller_instance_out(tmp_path: Path) -> None:
    """At rank 0 it would be assumed that N is 1, which the rule does not say at other ranks."""
    file = tmp_path / "own.rules"
    file.write_text(
        "dslc 1\nimport std.pointwise (add)\n"
        "substitution own(X: T[*S], Z: T[N]) -> Y, W {\n  Y = add(X, X)\n  W = add(Z, Z)\n  where rank(S) >= 1 or N == 1\n  =>\n"
        "  Y = add(X, X)\n  W = add(Z, Z)\n}\n",
        encoding="utf-8",
    )
    rules = load(file)
    found = instance_set(rules, rules.substitutions["own.own"])
    assert any(instance.inputs[1].type.shape != (1,) for instance in found.instances)


DEPENDENT = Path(__file__).parent / "rank_dependent.rules"
DEPENDENT_RULES = load(DEPENDENT)


@pytest.mark.parametrize("name", [n for n in DEPENDENT_RULES.substitutions if n.startswith("rank_dependent.")])
def test_what_depends_on_the_rank_is_not_proved_for_every_rank(name: str) -> None:
    """Wrong rules, each of which holds at small ranks and treats axes by their numbers in another way."""
    verdict = exact_verdict(DEPENDENT_RULES, DEPENDENT_RULES.substitutions[name])
    assert verdict.answer != "equal" or "ranks of S" in verdict.scope or verdict.scope.startswith("lists ")


def test_leading_ones(std: Rules) -> None:
    """Lemma 2: who only broadcasts, and on numbers that the leading ones say nothing."""
    assert broadcasts(std.operator("std.add"), 1)
    assert not broadcasts(std.operator("std.reshape"), 0)
    assert not broadcasts(std.operator("std.relu"), 0)
    assert padded(std.substitutions["std.scale_into_conv"]) == {"Q"}
    rng, field = np.random.default_rng(0), Field(0)
    a, b = field.draw((2, 3, 4), rng), field.draw((4,), rng)
    assert np.array_equal(value_of(std, "mul", [a, b], {}), value_of(std, "mul", [a, b.reshape(1, 1, 4)], {}))


def test_the_rank_at_which_packs_show_themselves(std: Rules) -> None:
    def at(name: str) -> int | None:
        return sufficient_rank(std.substitutions[f"std.{name}"])

    assert at("relu_of_relu") == 1
    assert at("batch_norm_is_affine") == 2
    assert at("gather_to_slice") is None or at("gather_to_slice") == 2


@pytest.mark.parametrize(("name", "follows"), [
    ("transpose_of_transpose", True), ("sum_of_sum", True), ("clip_of_clip", True), ("add_constants", False),
    ("reshape_of_reshape", False),
])  # fmt: skip
def test_lists_whose_axes_are_followed(std: Rules, name: str, follows: bool) -> None:
    """Two packs that broadcast, and merged axes, are treated alike; for which axes their lists have entries is not followed."""
    rule = std.substitutions[f"std.{name}"]
    assert (natural(rule) is not None) is follows
    assert follows or sufficient_rank(rule) is not None
